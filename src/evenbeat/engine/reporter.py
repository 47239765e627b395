"""Telling what happens: log lines in the product's wording, and events for listeners."""

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from evenbeat.domain.decision import Decision
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import Job
from evenbeat.domain.states import ExecutionStatus, JobStatus
from evenbeat.engine.claimer import Skipped
from evenbeat.engine.clock import Clock
from evenbeat.engine.finisher import Settled
from evenbeat.engine.run import Run
from evenbeat.events import Event, EventBus, EventKind
from evenbeat.settings import Settings

if TYPE_CHECKING:
    from evenbeat.engine.worker import Worker

logger = logging.getLogger("evenbeat.worker")


class Reporter:
    """The one place that knows how a run's story is told."""

    def __init__(self, events: EventBus, clock: Clock) -> None:
        self._events = events
        self._clock = clock

    def started(self, worker: "Worker", settings: Settings) -> None:
        """The worker is at work."""
        logger.info(
            "Starting interval scheduler",
            extra={
                "worker_id": str(worker.identity.id),
                "check_interval": f"{settings.poll_seconds:g}s",
                "lock_duration": f"{settings.lease_seconds:g}s",
                "queues": ",".join(worker.queues or ["*"]),
                "tasks": sum(len(runner.tasks) for runner in worker.runners),
            },
        )

    def stopped(self, *, handed_back: int) -> None:
        """The worker is gone."""
        logger.info("Stopped", extra={"handed_back": handed_back})

    def starting(self, runs: list[Run]) -> None:
        """These runs are about to start."""
        if logger.isEnabledFor(logging.INFO):
            for run in runs:
                fields = _fields(run.job)
                logger.info(
                    "Executing job", extra=fields | {"retry_attempt": run.job.current_retry_count}
                )
        if self._events.wants(EventKind.START):
            for run in runs:
                self._emit(EventKind.START, run.job)

    def skipped(self, skipped: list[Skipped]) -> None:
        """Plans were given up."""
        for job, plans, reason in skipped:
            if plans:
                logger.warning(
                    "Skipped missed plans",
                    extra=_fields(job) | {"plans": plans, "catch_up": reason},
                )
                self._emit(EventKind.SKIPPED, job, skipped=plans, reason=f"catch_up={reason}")

    def settled(self, settled: list[Settled], cancelled: set[UUID]) -> None:
        """These runs are over and written down, or were found to be lost."""
        for entry in settled:
            if not entry.kept:
                self._tell_unwritten(entry.run, entry.run.token in cancelled)
            elif entry.outcome is None:
                logger.info("Handed back", extra=_fields(entry.run.job))
                self._emit(EventKind.RELEASED, entry.run.job)
            else:
                self._tell_outcome(entry, entry.outcome)

    def _tell_outcome(self, entry: Settled, outcome: Outcome) -> None:
        job, decision = entry.run.job, entry.decision
        if outcome.status is ExecutionStatus.COMPLETED:
            if logger.isEnabledFor(logging.INFO):
                logger.info("Job completed successfully", extra=_fields(job) | _figures(outcome))
                self._tell_rescheduled(job, decision)
            kind = EventKind.COMPLETE
        else:
            kind = self._tell_failure(entry, outcome)
        if decision is not None and decision.skipped:
            self.skipped([Skipped(job, decision.skipped, job.catch_up)])
        if self._events.wants(kind):
            self._emit(
                kind,
                job,
                duration_ms=outcome.duration_ms,
                result=outcome.result,
                error_code=outcome.error_code,
                error=outcome.error_message,
                next_run_at=decision.next_run_at if decision else None,
            )

    def _tell_rescheduled(self, job: Job, decision: Decision | None) -> None:
        if job.schedule_kind == "interval" and decision is not None and decision.plan_time:
            slots = {"old_slot": _slot(job.plan_time), "new_slot": _slot(decision.plan_time)}
            logger.info("Rescheduled job (rhythm preserved)", extra=_fields(job) | slots)

    def _tell_failure(self, entry: Settled, outcome: Outcome) -> EventKind:
        decision = entry.decision
        fields = _fields(entry.run.job) | {
            "error": outcome.error_message,
            "error_code": outcome.error_code,
        }
        if decision and decision.status is JobStatus.SCHEDULED and decision.retry_count:
            wait = ((decision.next_run_at or self._clock.now()) - self._clock.now()).total_seconds()
            logger.error(
                "Job execution failed", extra=fields | {"retry_in": f"{max(0, wait):.0f}s"}
            )
            return EventKind.RETRY
        logger.error("Job execution failed", extra=fields | {"retry_in": "never"})
        return EventKind.FAILED

    def _tell_unwritten(self, run: Run, was_cancelled: bool) -> None:
        if was_cancelled:
            logger.info("Job cancelled", extra=_fields(run.job))
            self._emit(EventKind.CANCELLED, run.job)
        else:
            logger.warning("Lease lost, result thrown away", extra=_fields(run.job))
            self._emit(EventKind.LOST, run.job)

    def _emit(self, kind: EventKind, job: Job, **details: Any) -> None:
        self._events.emit(Event(kind, job, self._clock.now(), **details))


def _fields(job: Job) -> dict[str, Any]:
    fields: dict[str, Any] = {"job_id": str(job.id), "task": job.task}
    if job.name is not None:
        fields["job_name"] = job.name
    if "source_name" in job.metadata:
        fields["source_name"] = job.metadata["source_name"]
    return fields


def _figures(outcome: Outcome) -> dict[str, Any]:
    figures: dict[str, Any] = {"duration": _duration(outcome.duration_ms)}
    for name in ("items_crawled", "items_indexed", "rows_affected"):
        if (value := getattr(outcome, name)) is not None:
            figures[name] = value
    return figures


def _slot(plan: datetime | None) -> str | None:
    """The quarter of an hour that a plan lies in, as placement counts them."""
    return None if plan is None else f"{plan:%H}:{plan.minute // 15 * 15:02}"


def _duration(milliseconds: float) -> str:
    if milliseconds < 1000:
        return f"{milliseconds:.3g}ms"
    return f"{milliseconds / 1000:.1f}s"
