"""The step `report`: log lines in the product's wording, and events for listeners."""

import json
import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from evenbeat.domain.decision import EndKind, RunEnd
from evenbeat.domain.job import JobRecord
from evenbeat.engine.clock import Clock
from evenbeat.engine.run import Run
from evenbeat.events import EVENT_OF_END, Event, EventBus, EventKind
from evenbeat.observe.logs import LogEvent

logger = logging.getLogger("evenbeat.worker")

_JOB = "%(task)s, job %(job_id)s"
_STARTED = LogEvent("Executing job", _JOB)
_REFUSED = LogEvent("Payload refused, left to another worker", f"{_JOB}: %(reason)s")
_PUT_OFF = LogEvent("Put off", f"{_JOB}: %(reason)s")
_HANDED_BACK = LogEvent("Handed back", _JOB)
_CANCELLED = LogEvent("Job cancelled", _JOB)
_EXPIRED = LogEvent("Expired, not run", f"{_JOB}: %(reason)s")
_LOST = LogEvent("Lease lost, result thrown away", _JOB)
_COMPLETED = LogEvent("Job completed successfully", f"{_JOB}, in %(duration)s")
_FAILED = LogEvent("Job execution failed", f"{_JOB}: %(error)s")


class SkippedPlans(NamedTuple):
    """Plans that a catch-up policy gave up."""

    job: JobRecord
    plans: int


class Reporter:
    """Says what happens to runs."""

    def __init__(self, events: EventBus, clock: Clock) -> None:
        self._events = events
        self._clock = clock

    def started(self, runs: Iterable[Run]) -> None:
        """These runs are about to start."""
        if logger.isEnabledFor(logging.INFO):
            for run in runs:
                fields = _fields(run.job) | {"retry_attempt": run.job.current_retry_count}
                logger.info(_STARTED, fields, extra=fields)
        if self._events.wants(EventKind.START):
            for run in runs:
                self._emit(EventKind.START, run.job)

    def skipped(self, skipped: Iterable[SkippedPlans]) -> None:
        """Plans were given up."""
        for job, plans in skipped:
            if plans:
                logger.warning(
                    "Skipped missed plans",
                    extra=_fields(job) | {"plans": plans, "catch_up": job.catch_up},
                )
                reason = f"catch_up={job.catch_up}"
                self._emit(EventKind.SKIPPED, job, skipped=plans, reason=reason)

    def ended(self, ends: Iterable[RunEnd]) -> None:
        """These runs are over."""
        for end in ends:
            if end.kind is not EndKind.COMPLETED or logger.isEnabledFor(logging.INFO):
                self._log(end)
            if end.decision is not None and end.decision.skipped:
                self.skipped([SkippedPlans(end.job, end.decision.skipped)])
            kind = EVENT_OF_END[end.kind]
            if self._events.wants(kind):
                outcome, decision = end.outcome, end.decision
                details: dict[str, Any] = {}
                if outcome is not None and decision is not None:
                    details = {
                        "duration_ms": outcome.duration_ms,
                        "result": outcome.result and json.loads(outcome.result),
                        "error_code": outcome.error_code,
                        "error": outcome.error_message,
                        "next_run_at": decision.next_run_at,
                    }
                self._emit(kind, end.job, **details)

    def _log(self, end: RunEnd) -> None:
        fields = _fields(end.job)
        outcome, decision = end.outcome, end.decision
        if end.kind is EndKind.RELEASED:
            text, level = _HANDED_BACK, logging.INFO
            if outcome is not None:
                text, level = (_REFUSED, logging.WARNING) if outcome.unfit else (_PUT_OFF, level)
                fields["reason"] = outcome.error_message
            logger.log(level, text, fields, extra=fields)
        elif end.kind is EndKind.CANCELLED:
            if outcome is not None:  # it was too late to start
                fields["reason"] = outcome.error_message
                logger.warning(_EXPIRED, fields, extra=fields)
            else:
                logger.info(_CANCELLED, fields, extra=fields)
        elif outcome is None or decision is None:
            logger.warning(_LOST, fields, extra=fields)
        elif end.kind is EndKind.COMPLETED:
            ms = outcome.duration_ms
            figures = fields | {"duration": f"{ms:.3g}ms" if ms < 1000 else f"{ms / 1000:.1f}s"}
            for name in ("items_crawled", "items_indexed", "rows_affected"):
                if (value := getattr(outcome, name)) is not None:
                    figures[name] = value
            logger.info(_COMPLETED, figures, extra=figures)
            if end.job.schedule_kind == "interval" and decision.plan_time:
                slots = {
                    "old_slot": _slot(end.job.plan_time),
                    "new_slot": _slot(decision.plan_time),
                }
                logger.info("Rescheduled job (rhythm preserved)", extra=fields | slots)
        else:
            retry_in = "never"
            if end.kind is EndKind.RETRYING and decision.next_run_at is not None:
                wait = (decision.next_run_at - self._clock.now()).total_seconds()
                retry_in = f"{max(0, wait):.0f}s"
            fields |= {"error": outcome.error_message, "error_code": outcome.error_code}
            fields["retry_in"] = retry_in
            logger.error(_FAILED, fields, extra=fields, exc_info=outcome.error)

    def _emit(self, kind: EventKind, job: JobRecord, **details: Any) -> None:
        self._events.emit(Event(kind, job, self._clock.now(), **details))


def _fields(job: JobRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {"job_id": str(job.id), "task": job.task}
    if job.name is not None:
        fields["job_name"] = job.name
    source = job.payload.get("source_name", job.metadata.get("source_name"))
    if source is not None:
        fields["source_name"] = source
    return fields


def _slot(plan: datetime | None) -> str | None:
    """The quarter of an hour that a plan lies in, as placement counts them."""
    return None if plan is None else f"{plan:%H}:{plan.minute // 15 * 15:02}"
