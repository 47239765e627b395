"""Fetching over HTTP under an address policy: one call, its redirects, and what came back.

Apart from `http` because of what it imports: a worker that never fetches never loads it.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache

import httpx

from evenbeat.external.addresses import Policy, Resolver, UrlRefused, check_url, resolution_problem

CONNECT_SECONDS = 10.0
BODY_SECONDS = 1.0
MOST_READ = 10 * 2**20
"""How much of an answer is read at all. Beyond what is kept it is read only so that the other side
may finish saying it: some do their work while they answer."""


_ours: ContextVar[bool] = ContextVar("ours", default=False)


class _NotOurs(logging.Filter):
    """Keeps the libraries from logging our calls: their lines have whole URLs and headers."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        return not _ours.get()


for _name in ("httpx", "httpcore.connection", "httpcore.http11"):
    logging.getLogger(_name).addFilter(_NotOurs())


class FetchTrouble(Exception):
    """No answer came; `code` is a word for the kind of trouble. Trying again may help."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class TooManyRedirects(Exception):
    """The way to the answer has no end in sight."""


@dataclass(frozen=True, slots=True)
class Call:
    """What to ask, and how much patience and room there is for the answer."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    own_origin_only: frozenset[str] = frozenset()
    """Names of headers, in lower case, that no other origin gets to see."""
    content: bytes | None = None
    seconds: float = 30.0
    keep: int = 16 * 1024
    redirects: int = 10
    status_suffices: bool = False
    """An answer counts once its status is here: a body that breaks off or never ends is cut."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the first `keep` bytes of the body, and how long all of it was."""

    status: int
    reason: str
    url: str
    redirects: int
    headers: Mapping[str, str]
    body: bytes
    body_bytes: int
    seconds: float


class GuardedTransport(httpx.AsyncBaseTransport):
    """Connects only to addresses that the policy allows, and to the very ones that it checked.

    Every request goes through here, redirected ones included: the name is resolved, its addresses
    are checked, and the connection is made to the address itself, under the name that the server
    and its certificate know. No connection is used twice: two names may share an address, but one
    must not ride on the other's certificate.
    """

    def __init__(self, policy: Policy, resolver: Resolver | None = None) -> None:
        self._policy = policy
        self._resolver = resolver
        self._inner = httpx.AsyncHTTPTransport(
            verify=tls_context(), trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        check_url(str(request.url))
        host = request.url.raw_host.decode("ascii")
        port = request.url.port or {"http": 80, "https": 443}[request.url.scheme]
        trouble: httpx.TransportError | None = None
        for address in await self._addresses(host, port):
            try:
                return await self._inner.handle_async_request(_pinned(request, host, address))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                trouble = error
        raise trouble or httpx.ConnectError(f"{host} has no address.")

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            return await asyncio.get_running_loop().run_in_executor(
                _resolving(), self._policy.resolve, host, port, self._resolver
            )
        except OSError as error:
            raise httpx.ConnectError(resolution_problem(host, error)) from None
        except UnicodeError:  # a label of the name is too long or empty
            raise UrlRefused(f"{host[:80]} is not a host name.", field="url") from None


def _pinned(request: httpx.Request, host: str, address: str) -> httpx.Request:
    """The same request to one address. Its Host header was set from the name and stays."""
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions=request.extensions | {"sni_hostname": host},
    )


@cache
def _resolving() -> ThreadPoolExecutor:
    """Threads of their own: a name server that hangs must not hold up anyone else's."""
    return ThreadPoolExecutor(32, thread_name_prefix="evenbeat-resolve")


@cache
def tls_context() -> ssl.SSLContext:
    """Made once: reading the certificates of all authorities takes a while."""
    return httpx.create_ssl_context()


async def fetch(call: Call, policy: Policy, resolver: Resolver | None = None) -> Answer:
    """The answer to a call, after its redirects.

    Raises `AddressRefused`, `TooManyRedirects`, or `FetchTrouble` when trying again may help.
    """
    token = _ours.set(True)
    try:
        async with asyncio.timeout(call.seconds), _client(policy, resolver) as client:
            return await _follow(client, call)
    except TimeoutError:
        raise FetchTrouble(f"No full answer within {call.seconds:g} s.", "http_timeout") from None
    except (httpx.InvalidURL, UnicodeError) as error:  # the latter for a host name such as xn--
        raise UrlRefused(f"The URL cannot be understood: {error}.", field="url") from None
    except httpx.TimeoutException:
        raise FetchTrouble(
            f"No connection within {CONNECT_SECONDS:g} s.", "connection_failed"
        ) from None
    except httpx.ConnectError as error:
        raise FetchTrouble(f"No connection: {_reason(error)}", "connection_failed") from None
    except httpx.HTTPError as error:
        if "in location header" in str(error):  # the library has no error of its own for it
            raise UrlRefused("A redirect leads to what is no URL.", field="url") from None
        raise FetchTrouble(f"The connection broke: {_reason(error)}", "connection_lost") from None
    finally:
        _ours.reset(token)


def _client(policy: Policy, resolver: Resolver | None) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=GuardedTransport(policy, resolver),
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        trust_env=False,  # a proxy of the environment would connect in our place, unchecked
        follow_redirects=False,
    )


async def _follow(client: httpx.AsyncClient, call: Call) -> Answer:
    begun = time.monotonic()
    request = client.build_request(
        call.method, call.url, headers=dict(call.headers), content=call.content
    )
    origin, redirects = _origin(request.url), 0
    while True:
        response = await client.send(request, stream=True)
        try:
            onward = response.next_request
            if onward is None or not call.redirects:
                return await _read(response, call, redirects, begun)
        finally:
            await response.aclose()
        redirects += 1
        if redirects > call.redirects:
            raise TooManyRedirects(f"More than {call.redirects} redirects, the last to {_bare(onward.url)}.")  # fmt: skip  # noqa: E501
        if _origin(onward.url) != origin:
            _forget(onward, call.own_origin_only)
        request = onward


async def _read(response: httpx.Response, call: Call, redirects: int, begun: float) -> Answer:
    kept, total = bytearray(), 0
    left = max(0.0, call.seconds - (time.monotonic() - begun) - 0.1)
    try:
        async with asyncio.timeout(min(left, BODY_SECONDS) if call.status_suffices else None):
            async for chunk in response.aiter_raw():
                kept += chunk[: max(0, call.keep - total)]
                total += len(chunk)
                if total >= MOST_READ:
                    break
    except (TimeoutError, httpx.HTTPError):
        if not call.status_suffices:
            raise
    return Answer(
        status=response.status_code,
        reason=response.reason_phrase,
        url=str(response.request.url),
        redirects=redirects,
        headers=dict(response.headers),
        body=bytes(kept),
        body_bytes=total,
        seconds=time.monotonic() - begun,
    )


def _origin(url: httpx.URL) -> tuple[str, bytes, int | None]:
    return url.scheme, url.raw_host, url.port


def _forget(request: httpx.Request, names: frozenset[str]) -> None:
    for name in names:
        request.headers.pop(name, None)


def _bare(url: httpx.URL) -> str:
    """A URL without its query, which may hold a secret."""
    return str(url.copy_with(query=None, fragment=None))[:200]


def _reason(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text if text.endswith(".") else f"{text}."
