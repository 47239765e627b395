"""Ends of runs as parameters of the statements `finish`, `release` and `renew`."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.decision import Decision
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import Job
from evenbeat.domain.states import JobStatus
from evenbeat.store.arrays import numbers, texts, times, uuids, words


class Finished(NamedTuple):
    """A run that ended: the job as claimed, what the run came to, and what was decided."""

    job: Job
    outcome: Outcome
    decision: Decision


class Release(NamedTuple):
    """A claim to give back: as it was, or moved on to another plan that is due later."""

    job: Job
    plan_time: datetime | None = None
    next_run_at: datetime | None = None


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
