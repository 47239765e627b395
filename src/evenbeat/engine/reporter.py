"""The step `report`: log lines in the product's wording, and events for listeners."""

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from evenbeat.domain.decision import EndKind, RunEnd
from evenbeat.domain.job import JobRecord
from evenbeat.engine.clock import Clock
from evenbeat.engine.run import Run
from evenbeat.events import EVENT_OF_END, Event, EventBus, EventKind
from evenbeat.observe.logs import LogEvent

logger = logging.getLogger("evenbeat.worker")

MOST_LINES = 100
"""How many lines a second tell of single runs; what fails or is lost has its own in any case."""

MOST_NAMED = 3

_SUMMED_UP = LogEvent(
    "Many runs, summed up",
    "%(started)s more started and %(completed)s more completed within %(within)s",
)
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


class RunLines:
    """How many runs have log lines of their own: `MOST_LINES` a second, or all at level debug. The
    others are summed up by one line a second, since two lines for each took half of a busy
    worker's pace."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since = monotonic()
        self._left = MOST_LINES
        self._sums = Counter[str]()
        self._lock = threading.Lock()

    def take(self, what: str, number: int) -> int:
        """How many of so many runs, which have started or completed, get a line."""
        if not logger.isEnabledFor(logging.INFO):
            return 0
        if logger.isEnabledFor(logging.DEBUG):
            return number
        with self._lock:
            self._sum_up()
            lines = min(number, self._left)
            self._left -= lines
            if number > lines:
                self._sums[what] += number - lines
            return lines

    def flush(self) -> None:
        """Write the sums, if a second is over."""
        if self._sums:
            with self._lock:
                self._sum_up()

    def _sum_up(self) -> None:
        seconds = self._monotonic() - self._since
        if seconds < 1:
            return
        if self._sums:
            fields: dict[str, object] = {n: self._sums[n] for n in ("started", "completed")}
            fields |= {"within": f"{seconds:.1f}s"}
            logger.info(_SUMMED_UP, fields, extra=fields)
            self._sums.clear()
        self._since, self._left = self._monotonic(), MOST_LINES


class Reporter:
    """Says what happens to runs."""

    def __init__(self, events: EventBus, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self.lines = RunLines()

    def started(self, runs: Sequence[Run]) -> None:
        """These runs are about to start."""
        if lines := self.lines.take("started", len(runs)):
            for run in runs[:lines]:
                fields = _fields(run.job) | {"retry_attempt": run.job.current_retry_count}
                logger.info(_STARTED, fields, extra=fields)
        if self._events.wants(EventKind.START):
            for run in runs:
                self._emit(EventKind.START, run.job)

    def skipped(self, skipped: Iterable[SkippedPlans]) -> None:
        """Plans were given up."""
        skipped = [one for one in skipped if one.plans]
        if len(skipped) > MOST_NAMED:  # a start after an outage is one event, however many jobs
            named = ", ".join(one.job.name or one.job.task for one in skipped[:MOST_NAMED])
            plans = sum(one.plans for one in skipped)
            figures = {"jobs": len(skipped), "plans": plans, "first": named}
            logger.warning("Skipped missed plans", extra=figures)
        for job, plans in skipped:
            if len(skipped) <= MOST_NAMED:
                fields = _fields(job) | {"plans": plans, "catch_up": job.catch_up}
                logger.warning("Skipped missed plans", extra=fields)
            reason = f"catch_up={job.catch_up}"
            self._emit(EventKind.SKIPPED, job, skipped=plans, reason=reason)

    def ended(self, ends: Sequence[RunEnd]) -> None:
        """These runs are over."""
        completed = sum(end.kind is EndKind.COMPLETED for end in ends)
        lines = self.lines.take("completed", completed) if completed else 0
        self.skipped(
            [SkippedPlans(e.job, e.decision.skipped) for e in ends if e.decision is not None]
        )
        for end in ends:
            if end.kind is not EndKind.COMPLETED:
                self._log(end)
            elif lines:
                lines -= 1
                self._log(end)
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
                    "next_run": f"{decision.next_run_at or decision.plan_time:%Y-%m-%dT%H:%M:%SZ}",
                    "old_slot": _slot(end.job.plan_time),
                    "new_slot": _slot(decision.plan_time),
                }
                logger.debug("Rescheduled job (rhythm preserved)", extra=fields | slots)
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
