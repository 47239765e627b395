"""Looking on live over HTTP: server-sent events."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, HTTPException, Query, Request
from fastapi.responses import StreamingResponse

from evenbeat.api.guards import DENIED, Viewer, identify
from evenbeat.api.hub import MOST_LISTENERS, Event, Hub, Listener
from evenbeat.api.problems import responses
from evenbeat.api.service import Service, ServiceDep
from evenbeat.errors import AccessDenied, StoreError

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
    operation_id="stream_events",
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
