"""Fetching over HTTP under an address policy: one call, its redirects, and the response.

A module of its own because of what it imports: a worker that never fetches never loads it.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache

import httpx

from evenbeat.external.addresses import AddressRefused, Policy, check_url

CONNECT_SECONDS = 10.0
BODY_SECONDS = 1.0
MOST_READ = 10 * 2**20
"""How much of a response is read at all. Beyond what is kept it is read only so that the other side
can finish sending it: some do their work while they answer."""


_is_our_call: ContextVar[bool] = ContextVar("is_our_call", default=False)


for _name in ("httpx", "httpcore.connection", "httpcore.http11"):
    # The lines that the libraries log about a call have whole URLs and headers.
    logging.getLogger(_name).addFilter(lambda _record: not _is_our_call.get())


class FetchTrouble(Exception):
    """No response came; `code` is a word for the kind of trouble. Trying again may help."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class TooManyRedirects(Exception):
    """The redirects have no end in sight."""

    code = "too_many_redirects"


@dataclass(frozen=True, slots=True)
class Call:
    """What to ask, and how much time and room there is for the response."""

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
    """The response counts once its status is here: a body that breaks off or never ends is cut."""
    inspect: Callable[[httpx.Response], None] = lambda _response: None
    """Sees the response before its body is read; what it raises, `fetch` raises."""


@dataclass(frozen=True, slots=True)
class FetchedResponse:
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

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._inner = httpx.AsyncHTTPTransport(
            verify=tls_context(), trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        check_url(str(request.url))
        host = request.url.raw_host.decode("ascii")
        port = request.url.port or {"http": 80, "https": 443}[request.url.scheme]
        try:
            addresses = await asyncio.get_running_loop().run_in_executor(
                _resolvers(), self._policy.resolve, host, port
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise httpx.ConnectError(
                f"{host} cannot be resolved: {reason[:1].lower()}{reason[1:]}."
            ) from None
        except UnicodeError:  # a label of the name is too long or empty
            raise AddressRefused(f"{host[:80]} is not a host name.") from None
        trouble: httpx.TransportError | None = None
        for address in addresses:
            pinned = httpx.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # the Host header was set from the name and stays
                stream=request.stream,
                extensions=request.extensions | {"sni_hostname": host},
            )
            try:
                return await self._inner.handle_async_request(pinned)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                trouble = error
        raise trouble or httpx.ConnectError(f"{host} has no address.")

    async def aclose(self) -> None:
        await self._inner.aclose()


@cache
def _resolvers() -> ThreadPoolExecutor:
    """Threads of their own: a name server that hangs must not hold up anyone else's."""
    return ThreadPoolExecutor(32, thread_name_prefix="evenbeat-resolve")


@cache
def tls_context() -> ssl.SSLContext:
    """Made once: reading the certificates of all authorities takes a while."""
    return httpx.create_ssl_context()


async def fetch(call: Call, policy: Policy) -> FetchedResponse:
    """The response to a call, after its redirects.

    Raises `AddressRefused`, `TooManyRedirects`, or `FetchTrouble` when trying again may help.
    """
    token = _is_our_call.set(True)
    client = httpx.AsyncClient(
        transport=GuardedTransport(policy),
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        trust_env=False,  # a proxy of the environment would connect in our place, unchecked
        follow_redirects=False,
    )
    try:
        async with asyncio.timeout(call.seconds), client:
            return await _follow(client, call)
    except TimeoutError:
        raise FetchTrouble(f"No full answer within {call.seconds:g} s.", "http_timeout") from None
    except (httpx.InvalidURL, UnicodeError) as error:  # the latter for a host name such as xn--
        raise AddressRefused(f"The URL cannot be understood: {error}.") from None
    except httpx.TimeoutException:
        raise FetchTrouble(
            f"No connection within {CONNECT_SECONDS:g} s.", "connection_failed"
        ) from None
    except httpx.HTTPError as error:
        if "in location header" in str(error):  # the library has no error of its own for it
            raise AddressRefused("A redirect leads to what is no URL.") from None
        reason = (str(error).strip() or type(error).__name__).removesuffix(".")
        if isinstance(error, httpx.ConnectError):
            raise FetchTrouble(f"No connection: {reason}.", "connection_failed") from None
        raise FetchTrouble(f"The connection broke: {reason}.", "connection_lost") from None
    finally:
        _is_our_call.reset(token)


async def _follow(client: httpx.AsyncClient, call: Call) -> FetchedResponse:
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
            # Without the query, which may hold a secret.
            last = str(onward.url.copy_with(query=None, fragment=None))[:200]
            raise TooManyRedirects(f"More than {call.redirects} redirects, the last to {last}.")
        if _origin(onward.url) != origin:
            for name in call.own_origin_only:
                onward.headers.pop(name, None)
        request = onward


def _origin(url: httpx.URL) -> tuple[str, bytes, int | None]:
    return url.scheme, url.raw_host, url.port


async def _read(
    response: httpx.Response, call: Call, redirects: int, begun: float
) -> FetchedResponse:
    call.inspect(response)
    body, total = bytearray(), 0
    seconds_left = max(0.0, call.seconds - (time.monotonic() - begun) - 0.1)
    limit = min(seconds_left, BODY_SECONDS) if call.status_suffices else None
    try:
        async with asyncio.timeout(limit):
            async for chunk in response.aiter_raw():
                body += chunk[: max(0, call.keep - total)]
                total += len(chunk)
                if total >= MOST_READ:
                    break
    except (TimeoutError, httpx.HTTPError):
        if not call.status_suffices:
            raise
    return FetchedResponse(
        status=response.status_code,
        reason=response.reason_phrase,
        url=str(response.request.url),
        redirects=redirects,
        headers=dict(response.headers),
        body=bytes(body),
        body_bytes=total,
        seconds=time.monotonic() - begun,
    )
