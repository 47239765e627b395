"""A run's end and a worker's state, as the telemetry wants to hear of them."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from evenbeat.domain.job import Job
from evenbeat.domain.states import ExecutionStatus, JobStatus
from evenbeat.engine.finisher import Settled
from evenbeat.engine.runners.base import Runner
from evenbeat.observe.telemetry import Ended, Ending, RunnerStatus, WorkerStatus

if TYPE_CHECKING:
    from evenbeat.engine.worker import Worker

PATIENCE_SECONDS = 10.0
"""How late, beyond two of its rhythms, a worker may be before it counts as stuck."""


def endings(settled: Sequence[Settled], cancelled: Collection[UUID]) -> list[Ending]:
    """What became of these runs; `cancelled` are the tokens that a person took away."""
    return [_ending(entry, cancelled) for entry in settled]


def _ending(entry: Settled, cancelled: Collection[UUID]) -> Ending:
    run, outcome, decision, kept = entry
    task = run.job.task
    if not kept:
        return Ending(task, Ended.CANCELLED if run.token in cancelled else Ended.LOST)
    if outcome is None:
        return Ending(task, Ended.RELEASED)
    duration, wait = outcome.duration_ms / 1000, _wait_seconds(run.job, outcome.queued_ms)
    skipped = 0 if decision is None else decision.skipped
    if outcome.status is ExecutionStatus.COMPLETED:
        return Ending(task, Ended.COMPLETED, duration, wait, False, False, skipped)
    retried = (
        decision is not None and decision.status is JobStatus.SCHEDULED and decision.retry_count > 0
    )
    timed_out = outcome.error_code == "timeout"
    return Ending(task, Ended.FAILED, duration, wait, retried, timed_out, skipped)


def _wait_seconds(job: Job, queued_ms: float) -> float | None:
    """From due to start: what the execution's `wait_ms` says."""
    if job.next_run_at is None or job.started_at is None:
        return None
    return (job.started_at - job.next_run_at).total_seconds() + queued_ms / 1000


def status(worker: "Worker", *, poll_seconds: float, renew_seconds: float) -> WorkerStatus:
    """How the worker does, and what keeps it from doing well."""
    claim_age, beat_age = worker.claimer.age, worker.keeper.beat_age
    trouble = None
    if worker.draining:
        trouble = "The worker drains: it takes no more jobs."
    elif claim_age > 2 * poll_seconds + PATIENCE_SECONDS:
        trouble = f"The worker has not been able to claim for {claim_age:.0f} s."
    elif beat_age > 2 * renew_seconds + PATIENCE_SECONDS:
        trouble = f"The worker has not been able to renew its leases for {beat_age:.0f} s."
    return WorkerStatus(
        runners=[_runner(runner) for runner in worker.runners],
        leases=len(worker.runs),
        backlog=worker.finisher.backlog,
        claim_age=claim_age,
        beat_age=beat_age,
        trouble=trouble,
    )


def _runner(runner: Runner) -> RunnerStatus:
    return RunnerStatus(
        runner.place,
        runner.slots,
        max(0, runner.running),
        runner.waiting,
        runner.lag,
    )
