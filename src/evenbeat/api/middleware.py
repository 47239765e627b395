"""Around every request: how large its body may be, how long it waits, and security headers."""

import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenbeat.api.problems import problem
from evenbeat.store.database import connection_timeout
from evenbeat.store.replica import accept_old_reads

ROOM_FOR_OTHER_FIELDS = 65_536
"""Bytes that a body may have beyond its payload and its metadata."""

MAX_BULK_BYTES = 8 * 1024 * 1024
"""Bytes that a request to add many jobs may have."""

CONNECTION_TIMEOUT = 10.0
"""How long a request waits for a database connection, and before that for the check of its token.
The command line waits for 30 seconds, and most proxies no longer than 60."""

READ_AND_DROPPED = 64 * 1024 * 1024
"""Bytes beyond the limit that are read, and dropped, before the connection is closed."""

_ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?7", re.IGNORECASE)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
}


class RequestGuard:
    """Refuse a body that is too large with a 413, whether its length was declared or not; keep
    requests from waiting for the database forever; and tell browsers to trust only what comes from
    here."""

    def __init__(self, app: ASGIApp, max_payload: int) -> None:
        self._app = app
        self._limit = 2 * max_payload + ROOM_FOR_OTHER_FIELDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection_timeout.set(CONNECTION_TIMEOUT)  # each request has a context of its own
        headers = dict(scope["headers"])
        # One thing by its id is shown as it is now.
        accept_old_reads(scope["method"] == "GET" and not _ID.search(scope["path"]))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        declared = headers.get(b"content-length", b"0")
        is_bulk = scope["path"].endswith("/api/v1/jobs/bulk")
        limit = max(self._limit, MAX_BULK_BYTES) if is_bulk else self._limit
        too_large = declared.isdigit() and int(declared[:20]) > limit
        messages: list[Message] = []
        if not (too_large and b"expect" in headers):  # a client that asks first has sent nothing
            messages, fits = await _read(receive, 0 if too_large else limit)
            too_large = too_large or not fits
        if too_large:
            response = problem(
                413, f"The body is larger than {limit:,} bytes.", headers={"Connection": "close"}
            )
            await response(scope, receive, send_with_headers)
        elif messages[-1]["type"] != "http.disconnect":  # half a request asks for nothing
            remaining = iter(messages)

            async def replay() -> Message:
                return next(remaining, None) or await receive()

            await self._app(scope, replay, send_with_headers)


async def _read(receive: Receive, limit: int) -> tuple[list[Message], bool]:
    """The body's messages, and whether they have no more bytes than that. What is too much is read
    all the same, up to a point: many clients send everything before they listen, and would never
    see the response if the connection were closed while they send."""
    messages: list[Message] = []
    size, more = 0, True
    while more and size <= limit + READ_AND_DROPPED:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
        if size > limit:
            messages.clear()
        else:
            messages.append(message)
    return messages, size <= limit
