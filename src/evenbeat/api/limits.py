"""Around every request: how large a body may be, and what browsers are told."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenbeat.api.problems import problem

ROOM_FOR_THE_REST = 65_536
"""Bytes that a body may have beyond its payload and its metadata."""

MANY_JOBS = 8 * 1024 * 1024
"""Bytes that a request to add many jobs may have."""


class BodyLimit:
    """Refuse a body that is too large, whether it says so beforehand or not, with a 413."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._limit_of_many = max(limit, MANY_JOBS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        adds_many = scope["path"].endswith("/api/v1/jobs/bulk")
        limit = self._limit_of_many if adds_many else self._limit
        if declared.isdigit() and int(declared[:20]) > limit:
            await _refuse(limit, scope, receive, send)
            return
        body = await self._read(receive, limit)
        if body is None:
            await _refuse(limit, scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    @staticmethod
    async def _read(receive: Receive, limit: int) -> list[Message] | None:
        """The body's messages; None when there are too many bytes in them."""
        messages: list[Message] = []
        size, more = 0, True
        while more:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            more = message["type"] == "http.request" and message.get("more_body", False)
            if size > limit:
                return None
        return messages


async def _refuse(limit: int, scope: Scope, receive: Receive, send: Send) -> None:
    detail = f"The body is larger than {limit:,} bytes."
    await problem(413, detail, headers={"Connection": "close"})(scope, receive, send)


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
