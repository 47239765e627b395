"""Live events over HTTP (server-sent events), from one poller shared by all clients.

While anyone listens, a thread asks the database once a second what has begun, progressed or ended,
and hands each subscriber its events. A subscriber that reads too slowly gets a summary instead, as
does everyone after a second in which too much happened: nothing here grows with the load.
"""

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import timedelta
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic_core import to_jsonable_python
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from evenbeat.api.dependencies import Service, ServiceDep, Viewer, caller_of
from evenbeat.api.problems import responses
from evenbeat.domain.ids import uuid7
from evenbeat.domain.states import JobStatus
from evenbeat.errors import EvenbeatError, StoreError
from evenbeat.store.store import Store
from evenbeat.store.summaries import MOST_ROWS, LiveExecution, LiveExecutions

logger = logging.getLogger(__name__)

router = APIRouter(prefix="/api/v1", tags=["events"])

POLL_SECONDS = 1.0
LINGER_SECONDS = 15.0
QUIET_SECONDS = 15.0
MOST_WAITING = 500
MOST_SUBSCRIBERS = 500
MOST_PER_CALLER = 50
FOR_NEW_CALLERS = 100
"""Of all places, the last ones are for callers who have none yet."""
_HISTORY = 1000
_EXECUTIONS_REMEMBERED = 20_000
_OVERLAP = timedelta(seconds=2)
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class LiveEvent(NamedTuple):
    """An event to send; `job_id` is None for one that concerns everybody."""

    id: str
    kind: str
    data: str
    job_id: UUID | None = None

    def __str__(self) -> str:
        """The event as it goes over the line."""
        id_line = f"id: {self.id}\n" if self.id else ""
        return f"{id_line}event: {self.kind}\ndata: {self.data}\n\n"


@router.get(
    "/events",
    summary="Look on live",
    response_class=StreamingResponse,
    responses=responses(404, 429)
    | {200: {"content": {"text/event-stream": {}}, "description": "Server-sent events."}},
)
async def stream_events(
    request: Request,
    service: ServiceDep,
    principal: Viewer,
    job_id: Annotated[UUID | None, Query(description="Only what concerns this job.")] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> StreamingResponse:
    """Server-sent events: `execution` when a run begins, makes progress or ends; `figures` when the
    counts of jobs change; `summary` where there was too much to send; `reset` after an interruption
    that was too long to make up for: load again. A comment every 15 seconds keeps the line open.
    A caller may have 50 streams at once."""
    if job_id is not None:
        await run_in_threadpool(service.store.read.job, job_id)
    broadcaster: Broadcaster = request.app.state.broadcaster
    subscriber = Subscriber(job_id, principal.subject)
    broadcaster.join(subscriber, last_event_id)

    async def stream() -> AsyncIterator[str]:
        clock = asyncio.get_running_loop().time
        yield "retry: 2000\n\n"
        while await _is_still_allowed(request):
            until = clock() + QUIET_SECONDS
            while (seconds := until - clock()) > 0:
                if broadcaster.closed:
                    return
                if events := await subscriber.take(seconds):
                    yield "".join(map(str, events))
            yield ": still here\n\n"

    return _Stream(stream(), lambda: broadcaster.leave(subscriber))


class _Stream(StreamingResponse):
    """A response that says when it is over, even where its client left before it began."""

    def __init__(self, content: AsyncIterator[str], leave: Callable[[], None]) -> None:
        super().__init__(content, media_type="text/event-stream", headers=_HEADERS)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def _is_still_allowed(request: Request) -> bool:
    """Whether the caller that opened the stream still is one; yes while the database is down."""
    try:
        await caller_of(request, again=True)
    except (EvenbeatError, HTTPException) as error:
        return isinstance(error, StoreError)
    return True


# -- subscribers -----------------------------------------------------------------------------------


class Subscriber:
    """One client, on its own event loop. What it does not read in time is dropped and counted."""

    def __init__(self, job_id: UUID | None, caller: str = "") -> None:
        self.job_id = job_id
        self.caller = caller
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._waiting: list[LiveEvent] = []
        self._dropped = 0

    def send(self, events: Iterable[LiveEvent]) -> None:
        """Hand over those events that concern it, from any thread."""
        ours = [e for e in events if self.job_id is None or e.job_id in (None, self.job_id)]
        try:
            self._loop.call_soon_threadsafe(self._add, ours)
        except RuntimeError:
            logger.debug("a subscriber's event loop has ended")

    def _add(self, events: list[LiveEvent]) -> None:
        self._waiting += events
        if len(self._waiting) > MOST_WAITING:
            self._dropped += len(self._waiting)
            self._waiting.clear()
        self._ready.set()

    async def take(self, timeout: float) -> list[LiveEvent]:
        """What has happened since the last time; nothing after `timeout` seconds of silence."""
        try:
            await asyncio.wait_for(self._ready.wait(), timeout)
        except TimeoutError:
            return []
        self._ready.clear()
        events, self._waiting = self._waiting, []
        if self._dropped:
            data = json.dumps({"dropped": self._dropped})
            events.insert(0, LiveEvent("", "summary", data))
            self._dropped = 0
        return events


class Broadcaster:
    """Polls while there are subscribers, and a little longer, so that a client that comes back in
    time can go on where it left off."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._history: deque[LiveEvent] = deque(maxlen=_HISTORY)
        self.subscribers: set[Subscriber] = set()
        self.polling = False
        self.closed = False

    def join(self, subscriber: Subscriber, last_event_id: str | None = None) -> None:
        """Subscribe, where there is a place. After an interruption, the missed events come first;
        where those are no longer known, a `reset` says so."""
        with self._lock:
            own = sum(other.caller == subscriber.caller for other in self.subscribers)
            places = MOST_SUBSCRIBERS - len(self.subscribers)
            if own >= MOST_PER_CALLER:
                detail = f"You have {own} event streams open, as many as you may. Close one."
                raise HTTPException(429, detail, {"Retry-After": "5"})
            if places <= (FOR_NEW_CALLERS if own else 0):
                detail = "Too many event streams are open already. Try again shortly."
                raise HTTPException(503, detail, {"Retry-After": "5"})
            missed: list[LiveEvent] = []
            if last_event_id:
                history = list(self._history)
                ids = [event.id for event in history]
                missed = [LiveEvent("", "reset", "{}")]
                if last_event_id in ids:
                    missed = history[ids.index(last_event_id) + 1 :]
            if not self.polling:
                self._history.clear()
                store = self._service.store
                threading.Thread(
                    target=self._run, args=(store,), name="evenbeat-events", daemon=True
                ).start()
                self.polling = True  # last: if the store cannot be opened, the next one tries
            self.subscribers.add(subscriber)
        subscriber.send(missed)

    def close(self) -> None:
        """End every stream: the server stops."""
        self.closed = True
        for subscriber in list(self.subscribers):
            subscriber.send([])

    def leave(self, subscriber: Subscriber) -> None:
        """Unsubscribe."""
        with self._lock:
            self.subscribers.discard(subscriber)

    def _run(self, store: Store) -> None:
        poller: Poller | None = None
        unwatched_seconds = 0.0
        while True:
            with self._lock:
                watched = {subscriber.job_id for subscriber in self.subscribers}
                unwatched_seconds = 0.0 if watched else unwatched_seconds + POLL_SECONDS
                if unwatched_seconds > LINGER_SECONDS or store.database.closed:
                    self.polling = False
                    return
            try:
                poller = poller or Poller(store, self._service)
                events = poller.run_once(watched)
            except StoreError as error:
                logger.debug("No live events while the database is down: %s", error)
            except Exception:
                logger.exception("Live events failed by a bug")
            else:
                with self._lock:
                    # Together, so that a subscriber gets each event once: as missed, or as new.
                    self._history.extend(events)
                    subscribers = list(self.subscribers) if events else []
                for subscriber in subscribers:
                    subscriber.send(events)
            time.sleep(POLL_SECONDS)


# -- polling ---------------------------------------------------------------------------------------


class Poller:
    """What the database has, and how much of that has been sent."""

    def __init__(self, store: Store, service: Service) -> None:
        self._store = store
        self._service = service
        self._live = LiveExecutions(store.database)
        self._began_at = self._since = store.clock(service.now)
        self._figures: dict[str, int] = {}
        self._states: dict[UUID, tuple[str, Any]] = {}
        """Status and progress of executions as they were sent, the latest last."""
        self._states |= dict.fromkeys(self._live.running(), ("running", None))

    def run_once(self, watched: set[UUID | None]) -> list[LiveEvent]:
        """What is new since the last round, about these jobs; None stands for all."""
        now = self._store.clock(self._service.now)
        # Claims commit a little after the moment that their ids are made of.
        since, self._since = self._since - _OVERLAP, now
        executions = self._live.since(since) if None in watched else []
        events: list[LiveEvent] = []
        if len(executions) > MOST_ROWS:
            started = sum(one.execution_id not in self._states for one in executions)
            events.append(_event("summary", {"started_at_least": started}))
            for one in executions:
                self._has_changed(one)
            executions = []
        running = [id_ for id_, (status, _) in self._states.items() if status == "running"]
        executions += self._live.among(running[:MOST_ROWS])
        executions += self._live.of_jobs([job_id for job_id in watched if job_id is not None])
        changed = {one.execution_id: one for one in executions if self._has_changed(one)}
        events += [_event("execution", one._asdict(), one.job_id) for one in changed.values()]
        counts = self._store.read.counts_by_status()
        figures = {state.value: counts.get(state.value, 0) for state in JobStatus}
        if figures != self._figures:
            self._figures = figures
            events.append(_event("figures", {"jobs": figures, "at": now}))
        return events

    def _has_changed(self, execution: LiveExecution) -> bool:
        """Whether this state of the execution is worth an event; remembers it either way."""
        state = (execution.status, execution.progress)
        before = self._states.pop(execution.execution_id, None)
        self._states[execution.execution_id] = state
        if len(self._states) > _EXECUTIONS_REMEMBERED:
            del self._states[next(iter(self._states))]
        ended_at = execution.completed_at
        ended_before_us = before is None and ended_at is not None and ended_at < self._began_at
        return state != before and not ended_before_us


def _event(kind: str, data: dict[str, Any], job_id: UUID | None = None) -> LiveEvent:
    return LiveEvent(str(uuid7()), kind, json.dumps(to_jsonable_python(data)), job_id)
