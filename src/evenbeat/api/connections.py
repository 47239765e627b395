"""Connections of the HTTP server: how many there may be, and how long one may say nothing."""

import asyncio
import sys
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

if sys.platform != "win32":
    import resource

HEAD_SECONDS = 10.0
"""How long a connection may take to send the head of a request."""
MOST_CONNECTIONS = 4000
READ_AT_ONCE = 16 * 1024
"""Bytes that are parsed before others have their turn: they may be thousands of tiny chunks."""

READ_AHEAD = 4096
"""Bytes of a body that are read before the application asks for them: it may not want them."""


def most_connections() -> int:
    """As many as leave the process half of its file descriptors."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(10, min(MOST_CONNECTIONS, allowed // 2))


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's, but a line on which no request comes is closed. Where there are too many
    connections, the one that has been silent for longest makes room, so that somebody with a
    request (or a health check) gets through; where none is silent, the new one is closed."""

    _silent: ClassVar[dict["LimitedProtocol", asyncio.TimerHandle]] = {}
    most: ClassVar[int] = MOST_CONNECTIONS

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.max_size = READ_AT_ONCE
        if len(self.connections) > self.most:
            longest_silent = next(iter(self._silent), self)
            longest_silent._stop_waiting()
            longest_silent.transport.abort()
        if not self.transport.is_closing():
            self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._stop_waiting()
        elif self not in self._silent and self.timeout_keep_alive_task is None:
            self._wait_for_head()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and len(cycle.body) > READ_AHEAD:
            self.flow.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._silent[self] = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if (timer := self._silent.pop(self, None)) is not None:
            timer.cancel()
