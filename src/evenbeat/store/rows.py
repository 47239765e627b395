"""Between values and rows: what a new job, a finished run or a report becomes in the database."""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.decision import Decision
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import FirstRun, Job, JobSpec, NewJob
from evenbeat.domain.schedule import After, Cron, Interval, Once
from evenbeat.domain.states import JobStatus
from evenbeat.errors import InvalidInput, TooLarge
from evenbeat.store.arrays import numbers, texts, times, uuids, words

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


class Finished(NamedTuple):
    """A run that ended: the job as claimed, what the run came to, and what was decided."""

    job: Job
    outcome: Outcome
    decision: Decision


class Handed(NamedTuple):
    """A claim to give back: as it was, or moved on to another plan that is due later."""

    job: Job
    plan_time: datetime | None = None
    next_run_at: datetime | None = None


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


def finish_params(batch: Sequence[Finished]) -> dict[str, Any]:
    """Parameters of the `finish` statement: one array for each column."""
    jobs = [finished.job for finished in batch]
    outcomes = [finished.outcome for finished in batch]
    decisions = [finished.decision for finished in batch]
    return {
        "job_ids": uuids(job.id for job in jobs),
        "tokens": uuids(job.lock_token for job in jobs),
        "outcomes": words(o.status for o in outcomes),
        "statuses": words(d.status for d in decisions),
        "plan_times": times([d.plan_time for d in decisions]),
        "next_runs": times([d.next_run_at for d in decisions]),
        "retry_counts": numbers([d.retry_count for d in decisions]),
        "tick_plans": numbers([d.tick_plans for d in decisions]),
        "schedule_versions": numbers([_version(finished) for finished in batch]),
        "durations_ms": numbers([o.duration_ms for o in outcomes]),
        "queued_ms": numbers([_queued(finished) for finished in batch]),
        "cpu_times_ms": numbers([o.cpu_time_ms for o in outcomes]),
        "memory_peaks_mb": numbers([o.memory_peak_mb for o in outcomes]),
        "items_crawled": numbers([o.items_crawled for o in outcomes]),
        "items_indexed": numbers([o.items_indexed for o in outcomes]),
        "rows_affected": numbers([o.rows_affected for o in outcomes]),
        "error_codes": texts([_storable(o.error_code) for o in outcomes]),
        "error_messages": texts([_storable(o.error_message) for o in outcomes]),
        "stack_traces": texts([_storable(o.stack_trace) for o in outcomes]),
        "results": texts([o.result for o in outcomes]),
    }


def _queued(finished: Finished) -> float | None:
    """How long a run waited in its worker. One that counts against a limit began with its claim."""
    return finished.outcome.queued_ms if finished.job.concurrency_key is None else 0.0


def _version(finished: Finished) -> int | None:
    """The schedule that was decided by; None where only this run's own failure counts."""
    decision = finished.decision
    moves_on = decision.status in (JobStatus.COMPLETED, JobStatus.SCHEDULED, JobStatus.PENDING)
    return finished.job.schedule_version if moves_on and not decision.retry_count else None


def _storable(text: str | None) -> str | None:
    """Error texts come from anywhere; what PostgreSQL cannot hold must not cost the outcome."""
    if text is None or (text.isascii() and "\x00" not in text):
        return text
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def claim_keys(jobs: Iterable[Job]) -> dict[str, list[UUID | None]]:
    """The ids and tokens of claims, as two arrays."""
    held = list(jobs)
    return {"job_ids": [job.id for job in held], "tokens": [job.lock_token for job in held]}
