"""What a new job becomes in the database."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

from evenbeat.domain.job import FirstRun, JobSpec, NewJob
from evenbeat.domain.schedule import After, Cron, Interval, Once
from evenbeat.errors import InvalidInput, TooLarge

MAX_JSON_BYTES = 256 * 1024
SECOND = timedelta(seconds=1)


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


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


def spec_columns(spec: JobSpec) -> dict[str, Any]:
    """The columns of a job that its spec fixes."""
    schedule, retry, limits = spec.schedule, spec.retry, spec.limits
    recurring = isinstance(schedule, Interval | Cron)
    return {
        "task": spec.task,
        "queue": spec.queue,
        "priority": spec.priority,
        "schedule_kind": _KINDS[type(schedule)],
        "interval_seconds": schedule.every // SECOND if isinstance(schedule, Interval) else None,
        "cron_expression": schedule.expression if isinstance(schedule, Cron) else None,
        "timezone": schedule.timezone if isinstance(schedule, Cron) else "UTC",
        "schedule_delay_seconds": _seconds(spec.schedule_delay),
        "execution_window": None if spec.window is None else str(spec.window),
        "placement": str(spec.placement) if isinstance(schedule, Interval) else None,
        "cost_ms": None if spec.cost is None else spec.cost / timedelta(milliseconds=1),
        "catch_up": str(spec.catch_up.mode),
        "catch_up_window_seconds": _seconds(spec.catch_up.window) if recurring else None,
        "max_plans_per_tick": spec.catch_up.max_plans_per_tick,
        "max_retries": retry.max_retries,
        "retry_backoff_seconds": _seconds(retry.base),
        "retry_cap_seconds": _seconds(retry.cap),
        "retry_jitter": retry.jitter,
        "retry_delays_seconds": [_seconds(d) for d in retry.delays] or None,
        "on_failure": str(spec.on_failure),
        "timeout_seconds": _seconds(spec.timeout),
        "lease_seconds": _seconds(spec.lease),
        "heartbeat_seconds": _seconds(spec.heartbeat),
        "allow_stale_reentry": spec.allow_stale_reentry,
        "concurrency_key": None if limits is None else limits.key,
        "concurrency_limit": None if limits is None else limits.max_running,
        "rate_limit": None if limits is None or limits.rate is None else str(limits.rate),
    }


_KINDS = {Once: "once", Interval: "interval", Cron: "cron", After: "after"}


def _seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()


def new_job_params(job_id: UUID, job: NewJob, first: FirstRun, limit: int) -> dict[str, Any]:
    """Parameters of the `add` statement."""
    return {
        "id": job_id,
        "payload": encode_json("payload", job.payload, limit),
        "scope_kind": job.scope.kind,
        "scope_id": job.scope.id,
        "metadata": encode_json("metadata", job.metadata, limit),
        "created_by": job.created_by,
        "name": job.name,
        "dedup_key": job.dedup_key,
        "plan_time": first.plan_time,
        "next_run_at": first.next_run_at,
        "status": str(first.status),
        "anchor_at": first.anchor_at,
        "placed_at": first.placed_at,
        "parent_id": job.parent_id,
        **spec_columns(job.spec),
    }
