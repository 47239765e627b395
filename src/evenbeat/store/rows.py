"""What a new job becomes in the database."""

import json
from functools import lru_cache
from typing import Any
from uuid import UUID

from evenbeat.domain.first_run import FirstRun
from evenbeat.domain.job import NewJob, spec_columns
from evenbeat.errors import InvalidInput, TooLarge

MAX_JSON_BYTES = 256 * 1024

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)

# A task enqueues by the same spec again and again.
_spec_columns = lru_cache(maxsize=500)(spec_columns)


def encode_json(field: str, value: Any, limit: int = MAX_JSON_BYTES) -> str:
    """The value as JSON text, or an error that names the field and what is wrong with it."""
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{field} cannot be stored as JSON: {error}.", field=field) from error
    if len(text) > limit:
        raise TooLarge(
            f"{field} takes {len(text):,} bytes as JSON; at most {limit:,} are allowed. "
            "Store large data elsewhere and pass a reference.",
            field=field,
        )
    return text


def new_job_params(job_id: UUID, job: NewJob, first: FirstRun, limit: int) -> dict[str, Any]:
    """Parameters of the `add` statement."""
    return {
        "id": job_id,
        "payload": encode_json("payload", job.payload, limit),
        "scope_kind": job.scope.kind,
        "scope_id": job.scope.id,
        "metadata": encode_json("metadata", job.metadata, limit) if job.metadata else "{}",
        "created_by": job.created_by,
        "name": job.name,
        "dedup_key": job.dedup_key,
        "plan_time": first.plan_time,
        "next_run_at": first.next_run_at,
        "status": str(first.status),
        "anchor_at": first.anchor_at,
        "placed_at": first.placed_at,
        "parent_id": job.parent_id,
        **_spec_columns(job.spec),
    }
