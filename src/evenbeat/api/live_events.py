"""One poll of the database for all who look on live.

While anyone listens, a thread asks once a second what has begun, progressed or ended, and hands
each listener its events. A listener that reads too slowly, or a second in which too much happens,
is served a summary instead: nothing here grows with the load.
"""

import asyncio
import json
import logging
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Header, HTTPException, Query, Request
from fastapi.responses import StreamingResponse
from pydantic_core import to_jsonable_python

from evenbeat.api.dependencies import DENIED, Service, ServiceDep, Viewer, identify
from evenbeat.api.problems import responses
from evenbeat.domain.states import JobStatus
from evenbeat.errors import AccessDenied, StoreError
from evenbeat.store.live_executions import MOST_ROWS, Feed, Happening
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
FIGURES_EVERY = 3
LINGER_SECONDS = 15.0
MOST_WAITING = 500
MOST_LISTENERS = 500
_REMEMBERED = 1000
_SEEN = 20_000
_OVERLAP = timedelta(seconds=2)


class Event(NamedTuple):
    """Something to tell: `job_id` is None for what concerns all."""

    id: str
    kind: str
    data: str
    job_id: UUID | None = None


class Listener:
    """One who looks on, on an event loop of its own. What it does not read in time is dropped,
    and counted."""

    def __init__(self, job_id: UUID | None) -> None:
        self.job_id = job_id
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._waiting: deque[Event] = deque()
        self._dropped = 0
        self._lock = threading.Lock()

    def wants(self, event: Event) -> bool:
        """Whether the event concerns it."""
        return self.job_id is None or event.job_id in (None, self.job_id)

    def give(self, events: Iterable[Event]) -> None:
        """Hand events over, from any thread."""
        with self._lock:
            self._waiting.extend(event for event in events if self.wants(event))
            if len(self._waiting) > MOST_WAITING:
                self._dropped += len(self._waiting)
                self._waiting.clear()
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:
            logger.debug("a listener's event loop has ended")

    async def take(self, timeout: float) -> list[Event]:
        """What has happened since the last time; nothing after `timeout` seconds of silence."""
        try:
            await asyncio.wait_for(self._ready.wait(), timeout)
        except TimeoutError:
            return []
        self._ready.clear()
        with self._lock:
            taken, dropped = list(self._waiting), self._dropped
            self._waiting.clear()
            self._dropped = 0
        summary = [Event("", "summary", json.dumps({"dropped": dropped}))] if dropped else []
        return summary + taken


class Hub:
    """Polls while somebody listens, and a little longer, so that one who comes back in time can
    go on where it left."""

    def __init__(self, store: Callable[[], Store], now: Callable[[], datetime | None]) -> None:
        self._store = store
        self._now = now
        self._lock = threading.Lock()
        self._listeners: set[Listener] = set()
        self._polling = False
        self._session = ""
        self._remembered: deque[Event] = deque(maxlen=_REMEMBERED)

    @property
    def listeners(self) -> int:
        """How many look on."""
        return len(self._listeners)

    @property
    def polling(self) -> bool:
        """Whether the database is being asked."""
        return self._polling

    def join(self, listener: Listener, last_event_id: str | None = None) -> None:
        """Begin to listen. After an interruption, what was missed comes first; where that is no
        longer known, a `reset` says so."""
        with self._lock:
            missed = self._missed(last_event_id)
            if not self._polling:
                self._begin()
            self._listeners.add(listener)
        listener.give(missed)

    def leave(self, listener: Listener) -> None:
        """Stop listening."""
        with self._lock:
            self._listeners.discard(listener)

    def _missed(self, last_event_id: str | None) -> list[Event]:
        if not last_event_id:
            return []
        remembered = list(self._remembered)
        for place, event in enumerate(remembered):
            if event.id == last_event_id:
                return remembered[place + 1 :]
        return [Event("", "reset", "{}")]

    def _begin(self) -> None:
        self._session = secrets.token_hex(4)
        self._remembered.clear()
        poll = _Poll(self._store(), self._now, self._session)
        thread = threading.Thread(
            target=self._run, args=(poll,), name="evenbeat-events", daemon=True
        )
        thread.start()
        self._polling = True  # last: a store that cannot be opened is tried again by who comes next

    def _run(self, poll: "_Poll") -> None:
        alone = 0.0
        while True:
            with self._lock:
                watched = {listener.job_id for listener in self._listeners}
                alone = 0.0 if watched else alone + POLL_SECONDS
                if alone > LINGER_SECONDS or poll.over:
                    self._polling = False
                    return
            self._tell(poll.run_once(watched))
            time.sleep(POLL_SECONDS)

    def _tell(self, events: list[Event]) -> None:
        if not events:
            return
        with self._lock:
            # Together, so that one who joins hears of each event once: as missed, or as told.
            self._remembered.extend(events)
            listeners = list(self._listeners)
        for listener in listeners:
            listener.give(events)


class _Poll:
    """One session's view of the database: what has been told, and what is new."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], datetime | None],
        session: str,
    ) -> None:
        self._store = store
        self._now = now
        self._session = session
        self._number = self._round = 0
        self._began: datetime | None = None
        self._since: datetime | None = None
        self._running: set[UUID] = set()
        self._seen: OrderedDict[UUID, tuple[str, str]] = OrderedDict()
        self._figures = ""
        self._failed = False

    @property
    def over(self) -> bool:
        """Whether the application has closed the database that it looks at."""
        return self._store.database.closed

    def run_once(self, watched: set[UUID | None]) -> list[Event]:
        """What is new since the last round. A database that is away makes it silent, not dead."""
        try:
            events = self._look(watched)
        except StoreError as error:
            if not (self._failed or self.over):
                logger.warning("Live events pause", extra={"error": str(error)})
            self._failed = True
            return []
        except Exception:
            logger.exception("Live events failed by a bug")
            return []
        self._failed = False
        return events

    def _look(self, watched: set[UUID | None]) -> list[Event]:
        store = self._store
        feed, present = Feed(store.database), store.clock(self._now())
        if self._began is None:
            self._began = self._since = present
            self._running.update(feed.running())
        events = self._executions(feed, present, watched)
        if self._round % FIGURES_EVERY == 0:
            events += self._new_figures(store, present)
        self._round += 1
        return events

    def _executions(self, feed: Feed, present: datetime, watched: set[UUID | None]) -> list[Event]:
        assert self._since is not None  # noqa: S101 - set by the first look
        # Claims commit a little after the moment that their ids are made of.
        found = feed.since(self._since - _OVERLAP) if None in watched else []
        self._since = present
        events: list[Event] = []
        if len(found) > MOST_ROWS:
            at_least = sum(one.execution_id not in self._seen for one in found)
            events.append(self._event("summary", {"started_at_least": at_least}))
            for one in found:
                self._note(one)
            found = []
        found += feed.among(list(self._running))
        found += feed.of_jobs([job_id for job_id in watched if job_id is not None])
        fresh = {one.execution_id: one for one in found if self._note(one)}
        return events + [
            self._event("execution", one._asdict(), one.job_id) for one in fresh.values()
        ]

    def _note(self, one: Happening) -> bool:
        """Remember how it stands; says whether that is worth telling."""
        state = (one.status, json.dumps(one.progress, sort_keys=True))
        before = self._seen.get(one.execution_id)
        self._seen[one.execution_id] = state
        self._seen.move_to_end(one.execution_id)
        while len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        if one.status != "running":
            self._running.discard(one.execution_id)
        elif len(self._running) < MOST_ROWS:
            self._running.add(one.execution_id)
        long_over = (
            before is None
            and one.completed_at is not None
            and self._began is not None
            and one.completed_at < self._began
        )
        return state != before and not long_over

    def _new_figures(self, store: Store, present: datetime) -> list[Event]:
        counts = store.read.counts_by_status()
        figures = {"jobs": {state.value: counts.get(state.value, 0) for state in JobStatus}}
        text = json.dumps(figures)
        if text == self._figures:
            return []
        self._figures = text
        return [self._event("figures", figures | {"at": present})]

    def _event(self, kind: str, data: dict[str, Any], job_id: UUID | None = None) -> Event:
        self._number += 1
        text = json.dumps(to_jsonable_python(data))
        return Event(f"{self._session}-{self._number}", kind, text, job_id)


router = APIRouter(prefix="/api/v1", tags=["events"], responses=DENIED)

QUIET_SECONDS = 15.0
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

_making = threading.Lock()


def hub_of(request: Request, service: Service) -> Hub:
    """The one hub of this service, made for its first listener."""
    state = request.app.state
    with _making:
        if not hasattr(state, "hub"):
            state.hub = Hub(lambda: service.app.store, lambda: service.now)
        hub: Hub = state.hub
        return hub


@router.get(
    "/events",
    summary="Look on live",
    response_class=StreamingResponse,
    responses=responses(404)
    | {200: {"content": {"text/event-stream": {}}, "description": "Server-sent events."}},
)
def stream_events(
    request: Request,
    service: ServiceDep,
    _principal: Viewer,
    job_id: Annotated[UUID | None, Query(description="Only what concerns this job.")] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> StreamingResponse:
    """Server-sent events: `execution` when a run begins, makes progress or ends; `figures` when the
    counts of jobs change; `summary` where there was too much to tell; `reset` after an interruption
    that was too long to make up for: load anew. A comment every 15 seconds keeps the line open."""
    if job_id is not None:
        service.app.store.read.job(job_id)
    hub = hub_of(request, service)
    if hub.listeners >= MOST_LISTENERS:
        raise HTTPException(
            503, "Too many look on already. Try again shortly.", {"Retry-After": "5"}
        )
    stream = _stream(request, hub, job_id, last_event_id)
    return StreamingResponse(stream, media_type="text/event-stream", headers=_HEADERS)


async def _stream(
    request: Request, hub: Hub, job_id: UUID | None, last_event_id: str | None
) -> AsyncIterator[str]:
    clock = asyncio.get_running_loop().time
    listener = Listener(job_id)
    hub.join(listener, last_event_id)
    try:
        yield "retry: 2000\n\n"
        while await asyncio.to_thread(_still_welcome, request):
            until = clock() + QUIET_SECONDS
            while (left := until - clock()) > 0:
                if events := await listener.take(left):
                    yield "".join(map(_written, events))
            yield ": still here\n\n"
    finally:
        hub.leave(listener)


def _written(event: Event) -> str:
    number = f"id: {event.id}\n" if event.id else ""
    return f"{number}event: {event.kind}\ndata: {event.data}\n\n"


def _still_welcome(request: Request) -> bool:
    """Whether the token that opened the stream still counts."""
    try:
        identify(request)
    except AccessDenied:
        return False
    except StoreError:
        return True
    return True
