"""What a new job becomes in the database."""

import json
from functools import lru_cache
from typing import Any
from uuid import UUID

from evenbeat.domain.first_run import FirstRun
from evenbeat.domain.job import JobSpec, NewJob, spec_columns
from evenbeat.domain.schedule import After
from evenbeat.domain.scope import GLOBAL
from evenbeat.errors import InvalidInput, TooLarge

MAX_JSON_BYTES = 256 * 1024

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)

DEFAULTS = spec_columns(JobSpec(task="any"))
"""The columns of a spec with no settings; the table has the same defaults."""


@lru_cache(maxsize=500)  # a task enqueues by the same spec again and again
def _own_columns(spec: JobSpec) -> dict[str, Any]:
    columns = spec_columns(spec).items()
    return {name: value for name, value in columns if name == "task" or value != DEFAULTS[name]}


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


def new_job_columns(job_id: UUID, job: NewJob, first: FirstRun, limit: int) -> dict[str, Any]:
    """The columns of a new job that differ from their defaults."""
    columns = {
        "id": job_id,
        "payload": encode_json("payload", job.payload, limit),
        "status": str(first.status),
        **_own_columns(job.spec),
    }
    if not isinstance(job.spec.schedule, After):
        columns |= {"plan_time": first.plan_time, "next_run_at": first.next_run_at}
    if job.metadata:
        columns["metadata"] = encode_json("metadata", job.metadata, limit)
    if job.scope != GLOBAL:
        columns |= {"scope_kind": job.scope.kind, "scope_id": job.scope.id}
    others = {
        "anchor_at": first.anchor_at,
        "placed_at": first.placed_at,
        "name": job.name,
        "dedup_key": job.dedup_key,
        "parent_id": job.parent_id,
        "created_by": job.created_by,
    }
    for name, value in others.items():
        if value is not None:
            columns[name] = value
    return columns
