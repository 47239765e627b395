"""Around every request: how large its body may be and how long it may take, how long it waits, and
security headers."""

import asyncio
import re
import time
from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import caller_of
from evenbeat.api.problems import problem, problem_for
from evenbeat.errors import EvenbeatError, RoleTooLow
from evenbeat.store.database import connection_timeout
from evenbeat.store.replica import accept_old_reads
from evenbeat.store.timed import Asker, asker

ROOM_FOR_OTHER_FIELDS = 65_536
"""Bytes that a body may have beyond its payload and its metadata."""

READ_UNSEEN = 8192
"""Bytes of a body that are read before it is known who sends it: thousands of strangers may each
send all but the last of them."""
READ_OF_VIEWERS = 65_536
"""Bytes that a request may have without being an operator's."""

MAX_BULK_BYTES = 8 * 1024 * 1024
"""Bytes that a request to add many jobs may have."""

CONNECTION_TIMEOUT = 10.0
"""How long a request waits for a database connection, and before that for the check of its token.
The command line waits for 30 seconds, and most proxies no longer than 60."""

DROPPED = 64 * 1024 * 1024
DROPPED_UNSEEN = 16 * 1024 * 1024
"""Bytes of a refused body that are read, and dropped, before the connection is closed: of those who
may send one, and of others."""

BODY_SECONDS = 20.0
SLOWEST_BYTES_PER_SECOND = 64 * 1024
"""How long a body may take: some seconds, and more the more of it has come."""

WRITTEN_AT_ONCE = 16 * 1024
"""Bytes of a response that are written before the client has to read them, and so that one who does
not costs no more memory than that."""

READ_SECONDS = 20.0
"""How long the database may take to read what a GET asks for."""

_ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?7", re.IGNORECASE)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'self'; form-action 'self'; object-src 'none'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
}


class TooSlow(Exception):
    """A body takes longer than it may."""


class RequestGuard:
    """Refuse a body that is too large or too slow, and a large one of somebody who may not send it,
    before it is read; keep requests from waiting for the database forever, and the database from
    reading for somebody who has gone; and tell browsers to trust only what comes from here."""

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
            elif len(body := message.get("body", b"")) > WRITTEN_AT_ONCE:
                *starts, last = range(0, len(body), WRITTEN_AT_ONCE)
                for at in starts:
                    piece = bytes(body[at : at + WRITTEN_AT_ONCE])
                    await send({**message, "body": piece, "more_body": True})
                message = {**message, "body": bytes(body[last:])}
            await send(message)

        body = IncomingBody(receive)
        try:
            response = await self._take_in(body, scope, headers)
        except TooSlow:
            response = problem(408, "The body of the request takes too long.")
        if response is not None:
            response.headers["Connection"] = "close"
            await response(scope, receive, send_with_headers)
        elif not body.cut_off:  # half a request asks for nothing
            whole = iter([body.message()])
            # After the body, nothing comes but the news that the client has gone.
            rest = asyncio.ensure_future(receive())
            if scope["method"] == "GET":
                reader = Asker(until=time.monotonic() + READ_SECONDS)
                asker.set(reader)
                rest.add_done_callback(lambda _: setattr(reader, "gone", True))

            async def replay() -> Message:
                for message in whole:
                    return message
                return await asyncio.shield(rest)

            try:
                await self._app(scope, replay, send_with_headers)
            finally:
                rest.cancel()

    async def _take_in(
        self, body: "IncomingBody", scope: Scope, headers: Mapping[bytes, bytes]
    ) -> Response | None:
        """Read the body, or return why not: it is too large, or too large for who sends it."""
        declared = headers.get(b"content-length", b"0")
        length = int(declared[:20]) if declared.isdigit() else 0
        is_bulk = scope["path"].endswith("/api/v1/jobs/bulk")
        limit = max(self._limit, MAX_BULK_BYTES) if is_bulk else self._limit
        is_chunked = b"transfer-encoding" in headers  # how large it is, nobody knows
        if length <= READ_UNSEEN and not is_chunked:
            await body.read(READ_UNSEEN)
            if body.complete:
                return None
        request = Request(scope)
        try:
            principal = await caller_of(request)
        except (EvenbeatError, HTTPException) as error:
            refusal, most = problem_for(request, error), 0 if is_chunked else DROPPED_UNSEEN
        else:
            is_operator = principal.role.covers(Role.OPERATOR)
            limit = limit if is_operator else min(limit, READ_OF_VIEWERS)
            if length <= limit:
                await body.read(limit)
                if body.complete:
                    return None
            refusal, most = problem(413, f"The body is larger than {limit:,} bytes."), DROPPED
            if not is_operator:
                too_low = RoleTooLow(Role.OPERATOR, principal.role)
                refusal, most = problem_for(request, too_low), DROPPED_UNSEEN
        if b"expect" not in headers:  # a client that asks first has sent nothing
            await body.drop(most)
        return refusal


class IncomingBody:
    """A request's body as it comes in. It is kept in one piece, since a client may send it byte by
    byte, and what is too much is dropped."""

    def __init__(self, receive: Receive) -> None:
        self.complete = self.cut_off = self._ended = False
        self._receive = receive
        self._bytes = bytearray()
        self._size = 0
        self._began = time.monotonic()

    async def read(self, limit: int) -> None:
        """Read on until it is complete or larger than that."""
        while not self._ended and self._size <= limit:
            self._bytes += await self._next()
        self.complete = self._size <= limit

    async def drop(self, most: int) -> None:
        """Read the rest, up to a point: many clients send everything before they listen, and would
        never see the response if the connection were closed while they send."""
        self._bytes.clear()
        most += self._size
        while not self._ended and self._size <= most:
            await self._next()

    def message(self) -> Message:
        """All of it, as the application receives it."""
        return {"type": "http.request", "body": bytes(self._bytes), "more_body": False}

    async def _next(self) -> bytes:
        allowed = BODY_SECONDS + self._size / SLOWEST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(self._began + allowed - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise TooSlow from None
        self.cut_off = message["type"] == "http.disconnect"
        self._ended = self.cut_off or not message.get("more_body", False)
        body: bytes = message.get("body", b"")
        self._size += len(body)
        return body
