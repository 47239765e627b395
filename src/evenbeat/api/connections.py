"""Connections of the HTTP server: how many there may be, and how long the server waits for the
client of one: for a request, for the rest of a body, or until a response has been read."""

import asyncio
import logging
import socket
import sys
from enum import Enum
from typing import Any, ClassVar

import uvicorn
from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from evenbeat.api.problems import problem

if sys.platform != "win32":
    import resource

HEAD_SECONDS = 10.0
"""How long a connection may take to send the head of a request."""
RESPONSE_SECONDS = 20.0
"""How long a client may take to read what was written last, a piece of a response."""
MOST_CONNECTIONS = 4000
FOR_HEALTH = 20
"""Connections beyond those, for health checks alone."""
MOST_IN_LINE = 2048
"""Connections that the kernel keeps until they are accepted."""
HEALTH = ("/healthz", "/readyz")
READ_AT_ONCE = 16 * 1024
"""Bytes that are parsed before others have their turn: they may be thousands of tiny chunks."""

READ_AHEAD = 4096
"""Bytes of a body that are read before the application asks for them: it may not want them."""
REQUESTS_AHEAD = 8
"""Requests that a client may send before the first of them is answered."""


logger = logging.getLogger("uvicorn.error.connections")
logger.setLevel(logging.ERROR)  # what is wrong with a request is a warning, as many as one sends


def most_connections() -> int:
    """As many as leave the process half of its file descriptors."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(10, min(MOST_CONNECTIONS, allowed // 2))


class LimitedServer(uvicorn.Server):
    """uvicorn's with connections of this kind. A rush of them is accepted in small batches: asyncio
    may accept several before the first is there to be counted, and without a file descriptor left
    it would fill the log and answer nobody."""

    def __init__(self, app: Any, **config: Any) -> None:
        LimitedProtocol.most = most_connections()
        batch = max(4, min(64, LimitedProtocol.most // 8))
        super().__init__(uvicorn.Config(app, http=LimitedProtocol, backlog=batch, **config))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; a longer line than a batch waits in the kernel."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(MOST_IN_LINE)


class _For(Enum):
    """What of its client a connection waits for, where that has a time of its own."""

    HEAD = HEAD_SECONDS
    READING = RESPONSE_SECONDS


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's, but a client that keeps the server waiting is given up after some time. Where
    there are too many connections, the one whose client has been waited for longest makes room, so
    that somebody with a request gets through. Where all are at work, health alone is answered."""

    _waiting: ClassVar[dict["LimitedProtocol", None]] = {}
    """Those that wait for their clients, the longest first."""
    most: ClassVar[int] = MOST_CONNECTIONS

    _timer: asyncio.TimerHandle | None = None
    _timed: _For | None = None
    _answered: RequestResponseCycle | None = None
    """The request at work, or the last one that was; `cycle` is the last that was parsed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = logger

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.max_size = READ_AT_ONCE
        transport.set_write_buffer_limits(high=0)  # it tells when anything is left to be read
        if len(self.connections) > self.most:
            is_room = len(self.connections) <= self.most + FOR_HEALTH
            longest = next(iter(self._waiting), None if is_room else self)
            if longest is not None:
                self._waiting.pop(longest, None)  # it is lost a little later only
                longest.transport.abort()
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if len(self.pipeline) > REQUESTS_AHEAD:
            self.pipeline.clear()
            self.transport.abort()
            raise HttpParserError("too many requests ahead")  # ends the parsing of this piece

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and len(cycle.body) > READ_AHEAD:
            self.flow.pause_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answered is not None:
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)
        self._wait_for(None)
        self._waiting.pop(self, None)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        if len(self.connections) > self.most and cycle.scope["path"] not in HEALTH:
            headers = {"Connection": "close", "Retry-After": "5"}
            app = problem(503, "Too many connections are at work. Try again.", headers=headers)
        super()._start_asgi_task(cycle, app)

    def _look(self) -> None:
        """Something has happened: is it the client's turn now?"""
        if self.transport.is_closing() and not self.flow.write_paused:
            return
        cycle = self._answered
        between = cycle is None or cycle.response_complete
        if between or self.flow.write_paused or (cycle is not None and cycle.more_body):
            self._waiting.setdefault(self)
        else:
            self._waiting.pop(self, None)
        if self.flow.write_paused:
            self._wait_for(_For.READING)
        elif between and self.timeout_keep_alive_task is None:
            self._wait_for(_For.HEAD)
        else:
            self._wait_for(None)

    def _wait_for(self, what: _For | None) -> None:
        """Give the client up in time. What it is waited for already has its timer."""
        if what is self._timed:
            return
        self._timed = what
        if self._timer is not None:
            self._timer.cancel()
        self._timer = what and self.loop.call_later(what.value, self.transport.abort)
