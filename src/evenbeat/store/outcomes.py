"""Ends of runs as parameters of the statements `finish`, `release` and `renew`."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.decision import RunEnd
from evenbeat.domain.job import Job
from evenbeat.domain.states import JobStatus
from evenbeat.store.arrays import numbers, texts, times, uuids, words

_STOPPED = (JobStatus.FAILED, JobStatus.CANCELLED)


class Release(NamedTuple):
    """A claim to give back: as it was, or moved on to another plan that is due later."""

    job: Job
    plan_time: datetime | None = None
    next_run_at: datetime | None = None


def finish_params(ends: Sequence[RunEnd]) -> dict[str, Any]:
    """Parameters of the `finish` statement: one array for each column."""
    decided = [
        (job, kind, outcome, decision)
        for job, kind, outcome, decision in ends
        if outcome is not None and decision is not None
    ]
    jobs, kinds, outcomes, decisions = zip(*decided, strict=True)
    return {
        "job_ids": uuids(job.id for job in jobs),
        "tokens": uuids(job.lock_token for job in jobs),
        "kinds": words(kinds),
        "outcomes": words(o.status for o in outcomes),
        "statuses": words(d.status for d in decisions),
        "plan_times": times([d.plan_time for d in decisions]),
        "next_runs": times([d.next_run_at for d in decisions]),
        "retry_counts": numbers([d.retry_count for d in decisions]),
        "burst_counts": numbers([d.burst_count for d in decisions]),
        # None where the schedule has no say: the job stops, or tries the same plan again.
        "schedule_versions": numbers([
            None if d.retry_count or d.status in _STOPPED else job.schedule_version
            for job, d in zip(jobs, decisions, strict=True)
        ]),
        "durations_ms": numbers([o.duration_ms for o in outcomes]),
        # How long a run waited in its worker. One that counts against a limit began with its claim.
        "queued_ms": numbers([
            o.queued_ms if job.concurrency_key is None else 0.0
            for job, o in zip(jobs, outcomes, strict=True)
        ]),
        "cpu_times_ms": numbers([o.cpu_time_ms for o in outcomes]),
        "memory_peaks_mb": numbers([o.memory_peak_mb for o in outcomes]),
        "items_crawled": numbers([o.items_crawled for o in outcomes]),
        "items_indexed": numbers([o.items_indexed for o in outcomes]),
        "rows_affected": numbers([o.rows_affected for o in outcomes]),
        "error_codes": texts([_storable(o.error_code) for o in outcomes]),
        "error_messages": texts([_storable(o.error_message) for o in outcomes]),
        "stack_traces": texts([_storable(o.stack_trace) for o in outcomes]),
        "results": texts([o.result for o in outcomes]),
    }  # fmt: skip


def _storable(text: str | None) -> str | None:
    """Error texts come from anywhere; what PostgreSQL cannot hold must not cost the outcome."""
    if text is None or (text.isascii() and "\x00" not in text):
        return text
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def claim_keys(jobs: Iterable[Job]) -> dict[str, list[UUID | None]]:
    """The ids and tokens of claims, as two arrays."""
    held = list(jobs)
    return {"job_ids": [job.id for job in held], "tokens": [job.lock_token for job in held]}
