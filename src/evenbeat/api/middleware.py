"""Around every request: how large a body may be, and what browsers are told."""

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenbeat.api.problems import problem
from evenbeat.store.database import patience

ROOM_FOR_THE_REST = 65_536
"""Bytes that a body may have beyond its payload and its metadata."""

MANY_JOBS = 8 * 1024 * 1024
"""Bytes that a request to add many jobs may have."""

PATIENCE_SECONDS = 10.0
"""How long a request waits for a connection to the database: before its answer, and before that for
its token. The command line waits for 30 seconds, and most proxies no longer than 60."""

LET_IN = 64 * 1024 * 1024
"""Bytes beyond the limit that are read, and dropped, before the line is closed."""


class Limits:
    """Refuse a body that is too large, whether it says so beforehand or not, with a 413; and let
    no request wait for the database without end."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._limit_of_many = max(limit, MANY_JOBS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        patience.set(PATIENCE_SECONDS)  # each request has a context of its own
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        asks_first = b"expect" in headers
        adds_many = scope["path"].endswith("/api/v1/jobs/bulk")
        limit = self._limit_of_many if adds_many else self._limit
        too_large = declared.isdigit() and int(declared[:20]) > limit
        if not (too_large and asks_first):
            try:
                body = await _read(receive, 0 if too_large else limit)
            except ClientDisconnect:
                return  # nobody is left to answer, and half a request asks for nothing
            if not too_large and body is not None:
                await self._app(scope, _replay(body, receive), send)
                return
        detail = f"The body is larger than {limit:,} bytes."
        await problem(413, detail, headers={"Connection": "close"})(scope, receive, send)


async def _read(receive: Receive, limit: int) -> list[Message] | None:
    """The body's messages; None when there are too many bytes in them. Those are let in all the
    same, up to a point: many clients send all before they listen, and closing the line on one that
    is still sending would take the answer from it."""
    messages: list[Message] = []
    size, more = 0, True
    while more and size <= limit + LET_IN:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
        if size > limit:
            messages.clear()
        else:
            messages.append(message)
    return None if size > limit else messages


def _replay(messages: list[Message], receive: Receive) -> Receive:
    waiting = iter(messages)

    async def next_message() -> Message:
        for message in waiting:
            return message
        return await receive()

    return next_message


class SafeHeaders:
    """Tell browsers to trust nothing that did not come from here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
}
