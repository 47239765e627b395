"""Events: what happens to jobs and workers in this process, for whatever listens."""

import asyncio
import inspect
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from evenbeat.domain.decision import EndKind
from evenbeat.domain.job import JobRecord
from evenbeat.errors import InvalidInput

logger = logging.getLogger(__name__)

Listener = Callable[[Any], Any]


class EventKind(StrEnum):
    """Everything that can be listened to."""

    START = "job:start"
    COMPLETE = "job:complete"
    FAILED = "job:failed"
    RETRY = "job:retry"
    CANCELLED = "job:cancelled"
    LOST = "job:lost"
    SKIPPED = "job:skipped"
    RELEASED = "job:released"
    LATE = "job:late"
    OVERDUE = "job:overdue"
    RECOVERED = "job:recovered"
    BALANCE_LOW = "balance:low"
    WORKER_START = "worker:start"
    WORKER_STOP = "worker:stop"


EventName = Literal[
    "*",
    "job:start",
    "job:complete",
    "job:failed",
    "job:retry",
    "job:cancelled",
    "job:lost",
    "job:skipped",
    "job:released",
    "job:late",
    "job:overdue",
    "job:recovered",
    "balance:low",
    "worker:start",
    "worker:stop",
]
"""The same for type checkers, and `*` for all; a test holds it to `EventKind`."""

EVENT_OF_END = {
    EndKind.COMPLETED: EventKind.COMPLETE,
    EndKind.RETRYING: EventKind.RETRY,
    EndKind.FAILED: EventKind.FAILED,
    EndKind.CANCELLED: EventKind.CANCELLED,
    EndKind.LOST: EventKind.LOST,
    EndKind.RELEASED: EventKind.RELEASED,
}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. What does not apply is None; `result` is what the handler returned,
    as the history has it."""

    kind: EventKind
    job: JobRecord
    at: datetime
    duration_ms: float | None = None
    result: Any = None
    error_code: str | None = None
    error: str | None = None
    next_run_at: datetime | None = None
    skipped: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class BalanceEvent:
    """The schedule as a whole has become uneven: the score fell below the one to be alerted at."""

    kind: EventKind
    at: datetime
    score: float
    peak_load: float
    mean_load: float
    suggestion: str


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """A worker of this process has started, or has stopped and left its lifespans. Without
    `queues` it serves all of them."""

    kind: EventKind
    at: datetime
    worker_id: UUID
    host: str
    pid: int
    queues: tuple[str, ...] | None


AnyEvent = Event | BalanceEvent | WorkerEvent


class EventBus:
    """Calls listeners on a thread of its own, in the order of events. A listener that raises is
    logged; a slow one delays other listeners, never a job."""

    def __init__(self) -> None:
        self._listeners: dict[EventKind, list[Listener]] = {}
        self._queue: queue.SimpleQueue[AnyEvent | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def on(self, kind: str, listener: Listener) -> None:
        """Call `listener` (plain or async) with every event of this kind; `*` means all kinds."""
        try:
            kinds = list(EventKind) if kind == "*" else [EventKind(kind)]
        except ValueError:
            known = ", ".join(EventKind)
            raise InvalidInput(
                f"There is no event {kind!r}. The events are: {known}, or '*' for all.",
                field="event",
            ) from None
        for each in kinds:
            self._listeners.setdefault(each, []).append(listener)

    def wants(self, kind: EventKind) -> bool:
        """Whether anything listens to this kind, so that no event is made in vain."""
        return kind in self._listeners

    def emit(self, event: AnyEvent) -> None:
        """Queue an event for its listeners."""
        if self.wants(event.kind):
            self._queue.put(event)

    def start(self) -> None:
        """Begin to deliver."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="evenbeat-events", daemon=True)
            self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Deliver what was emitted, then end."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout)
            self._thread = None
        if self._loop is not None and not self._loop.is_running():
            self._loop.close()
            self._loop = None

    def deliver_pending(self) -> None:
        """Deliver what was emitted, here and now (for tests without threads)."""
        while not self._queue.empty():
            event = self._queue.get()
            if event is not None:
                self._deliver(event)

    def _serve(self) -> None:
        while (event := self._queue.get()) is not None:
            self._deliver(event)

    def _deliver(self, event: AnyEvent) -> None:
        for listener in self._listeners.get(event.kind, ()):
            try:
                result = listener(event)
                if inspect.isawaitable(result):
                    if self._loop is None:
                        self._loop = asyncio.new_event_loop()
                    self._loop.run_until_complete(result)
            except (Exception, SystemExit):
                logger.exception("A listener for %s raised; the job is not affected", event.kind)
