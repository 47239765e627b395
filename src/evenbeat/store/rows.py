"""What a new job becomes in the database."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.job import FirstRun, JobSpec, NewJob
from evenbeat.domain.schedule import After, Cron, Interval, Once
from evenbeat.errors import InvalidInput, TooLarge

MAX_JSON_BYTES = 256 * 1024
SECOND = timedelta(seconds=1)


def _encoder() -> Callable[[Any], str]:
    """What `JSONEncoder.encode` does, without the new C encoder that it makes for every value."""
    strict = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return strict.encode
    escape = json.encoder.encode_basestring_ascii
    quick = make(None, strict.default, escape, None, ":", ",", False, False, False)

    def encode(value: Any) -> str:
        try:
            return "".join(quick(value, 0))
        except RecursionError:
            return strict.encode(value)  # tells what is circular from what is only deep

    return encode


_encode = _encoder()


def encode_json(field: str, value: Any, limit: int = MAX_JSON_BYTES) -> str:
    """The value as JSON text, or an error that names the field and what is wrong with it."""
    try:
        text = _encode(value)
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
        **plain_job_params(job_id, job, limit),
        "name": job.name,
        "dedup_key": job.dedup_key,
        "plan_time": first.plan_time,
        "next_run_at": first.next_run_at,
        "status": str(first.status),
        "anchor_at": first.anchor_at,
        "placed_at": first.placed_at,
        "parent_id": job.parent_id,
        **known_columns(job.spec).columns,
    }


_OF_EACH_JOB = ("task", "queue", "priority")
_DEFAULTS = {
    column: value
    for column, value in spec_columns(JobSpec(task="any")).items()
    if column not in _OF_EACH_JOB
}


def is_plain(job: NewJob) -> bool:
    """Whether this is the commonest job: one-off, due at once, every policy at its default, with
    nothing that another job could have already."""
    return (
        job.start is None
        and job.dedup_key is None
        and job.name is None
        and job.id is None
        and job.parent_id is None
        and known_columns(job.spec).is_plain
    )


def plain_job_params(job_id: UUID, job: NewJob, limit: int) -> dict[str, Any]:
    """Parameters of the `add_plain` statement."""
    spec = job.spec
    return {
        "id": job_id,
        "payload": encode_json("payload", job.payload, limit),
        "scope_kind": job.scope.kind,
        "scope_id": job.scope.id,
        "metadata": encode_json("metadata", job.metadata, limit) if job.metadata else "{}",
        "created_by": job.created_by,
        "task": spec.task,
        "queue": spec.queue,
        "priority": spec.priority,
    }


class KnownColumns(NamedTuple):
    """A spec's columns. They `are_defaults` when all but the task, the queue and the priority are
    what the table has by default; the spec `is_plain` when it also means one run, at once."""

    spec: JobSpec
    columns: dict[str, Any]
    are_defaults: bool
    is_plain: bool


def known_columns(spec: JobSpec) -> KnownColumns:
    """The columns of a spec. A task enqueues by the same one again and again, so the last few are
    kept, each with its spec, whose identity cannot pass to another one so."""
    known = _known.get(id(spec))
    if known is None:
        columns = spec_columns(spec)
        defaults = all(columns[column] == value for column, value in _DEFAULTS.items())
        known = KnownColumns(spec, columns, defaults, defaults and spec.schedule == Once())
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[id(spec)] = known
    return known


_known: dict[int, KnownColumns] = {}
_MOST_KNOWN = 500
