"""How the crawler reaches the network: every page through the same guarded door as `http` jobs.

Scrapy's own ways out resolve names and connect by themselves. This one takes their place, so that
nothing is fetched, redirected or not, from an address that was not checked.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterable
from typing import Any

import httpx
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError, IgnoreRequest
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes

from evenbeat.crawl.order import MOST_BYTES, Order
from evenbeat.external.addresses import Policy
from evenbeat.external.fetching import CONNECT_SECONDS, GuardedTransport

_READABLE = re.compile(r"\s*(text/(html|plain|markdown)|application/xhtml\+xml)\b", re.IGNORECASE)


class NotText(IgnoreRequest):
    """The answer is no page of text: its body was not fetched."""


class TooLarge(IgnoreRequest):
    """The answer is longer than a page may be: the rest of its body was not fetched."""


class GuardedHandler:
    """A download handler of Scrapy's."""

    lazy = False

    def __init__(self, policy: Policy) -> None:
        self._transport = GuardedTransport(policy)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "GuardedHandler":
        """Made by Scrapy."""
        order: Order = crawler.settings["EVENBEAT_ORDER"]
        return cls(order.policy)

    async def download_request(self, request: Request) -> Response:
        """The answer to one request. Raises `AddressRefused` where nothing may be fetched from."""
        seconds = float(request.meta.get("download_timeout", 30))
        begun = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                answer = await self._transport.handle_async_request(_outgoing(request))
                request.meta["download_latency"] = time.monotonic() - begun
                try:
                    return await _response(request, answer)
                finally:
                    await answer.aclose()
        except TimeoutError:
            raise DownloadTimeoutError(f"no full answer within {seconds:g} s") from None
        except httpx.TransportError as error:
            raise DownloadFailedError(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        """Called by Scrapy at the end."""
        await self._transport.aclose()


def _outgoing(request: Request) -> httpx.Request:
    headers = [(name, value) for name, values in request.headers.items() for value in values or ()]
    timeout: dict[str, Any] = {"connect": CONNECT_SECONDS}
    return httpx.Request(
        request.method, request.url, headers=headers, extensions={"timeout": timeout}
    )


async def _response(request: Request, answer: httpx.Response) -> Response:
    headers = Headers(answer.headers.multi_items())
    kind = answer.headers.get("content-type", "text/html")
    if answer.is_success and not _READABLE.match(kind):
        raise NotText(f"{kind[:80]} is not text")
    body = await _body(answer)
    made: type[Response] = responsetypes.from_args(headers=headers, url=request.url, body=body)
    return made(
        url=request.url, status=answer.status_code, headers=headers, body=body, request=request
    )


async def _body(answer: httpx.Response) -> bytes:
    if int(answer.headers.get("content-length") or 0) > MOST_BYTES:
        raise _too_large()
    kept = bytearray()
    stream = answer.stream
    if isinstance(stream, AsyncIterable):
        async for chunk in stream:
            kept += chunk
            if len(kept) > MOST_BYTES:
                raise _too_large()
    return bytes(kept)


def _too_large() -> TooLarge:
    return TooLarge(f"it is longer than {MOST_BYTES // 2**20} MiB")
