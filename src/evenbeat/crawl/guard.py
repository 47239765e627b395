"""What the crawler may ask for, and how it reaches the network: every page through the same guarded
transport as `http` jobs.

Scrapy's own handlers resolve names and connect by themselves. This one takes their place, so that
nothing is fetched, redirected or not, from an address that was not checked.
"""

import re
from collections import Counter
from typing import Any, NamedTuple
from urllib.parse import urljoin

import httpx
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes

from evenbeat.crawl.child import MOST_BYTES, CrawlRequest, Send
from evenbeat.crawl.normal_forms import page_key, same_site
from evenbeat.crawl.robots import Robots
from evenbeat.external.fetching import Call, fetch

SLOWER_SECONDS = (5.0, 60.0)
"""How long to wait between two requests, at least and at most, once a site has too many of them."""
_TOO_MANY = (429, 503)
_TOO_LONG = f"it is longer than {MOST_BYTES // 2**20} MiB"
_READABLE = re.compile(r"\s*(text/(html|plain|markdown)|application/xhtml\+xml)\b", re.IGNORECASE)


class PageRefused(IgnoreRequest):
    """A page that is not asked for, or not read: what it counts as, and its error code."""

    def __init__(self, reason: str, counter: str = "errors", code: str = "page_refused") -> None:
        super().__init__(reason)
        self.counter = counter
        self.code = code


class CrawlState(NamedTuple):
    """What the parts of one crawl share; Scrapy hands it to them as the setting EVENBEAT_CRAWL."""

    request: CrawlRequest
    robots: Robots
    counts: Counter[str]
    send: Send

    def __deepcopy__(self, _memo: object) -> "CrawlState":
        return self  # Scrapy copies its settings, but the counts are one


class RequestFilter:
    """A downloader middleware between redirects and the network: what may be asked for at all, how
    soon, and which pages are no longer where they were."""

    def __init__(self, crawler: Crawler, state: CrawlState) -> None:
        self._crawler = crawler
        self._crawl = state

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "RequestFilter":
        return cls(crawler, crawler.settings["EVENBEAT_CRAWL"])

    async def process_request(self, request: Request) -> None:
        """Let it through, or raise why not."""
        counts, limits = self._crawl.counts, self._crawl.request
        if not same_site(request.url, limits.url):
            reason = f"it leads to another site, {request.url[:200]}"
            raise PageRefused(reason, "left_the_site", "left_the_site")
        rules = await self._crawl.robots.rules(request.url)
        if not rules.can_fetch(request.url, limits.user_agent):
            reason = "the site's robots.txt forbids it"
            raise PageRefused(reason, "forbidden_by_robots", "robots_refused")
        if counts["asked"] >= limits.max_pages:
            counts["spent"] += 1
            reason = "as many pages as allowed have been asked for"
            raise PageRefused(reason, "not_asked", "max_pages")
        counts["asked"] += 1

    async def process_response(self, request: Request, response: Response) -> Response:
        """A page that redirects now is gone. A site that gets too many requests gets fewer, until
        its responses are good again."""
        if response.status in _TOO_MANY and self._crawl.request.delay > 0:
            slots = self._crawler.engine.downloader.slots
            slot, (least, most) = slots.get(str(request.meta.get("download_slot"))), SLOWER_SECONDS
            if slot is not None:
                slot.delay = max(slot.delay, min(most, max(least, 2 * slot.delay)))
        location = response.headers.get("Location")
        if 300 <= response.status < 400 and location is not None:
            key = page_key(request.url)
            try:
                moved = key != page_key(urljoin(request.url, location.decode("latin-1")))
            except ValueError:
                moved = True
            if moved:
                self._crawl.send({"kind": "gone", "keys": [key]})
        return response


class GuardedHandler:
    """A download handler of Scrapy's."""

    lazy = False

    def __init__(self, limits: CrawlRequest) -> None:
        self._limits = limits

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "GuardedHandler":
        return cls(crawler.settings["EVENBEAT_CRAWL"].request)

    async def download_request(self, request: Request) -> Response:
        """The response to one request; raises what `fetch` raises, and `PageRefused`."""
        headers: Any = request.headers.to_unicode_dict()
        call = Call(
            request.url,
            headers=headers,
            seconds=self._limits.page_timeout,
            keep=MOST_BYTES,
            redirects=0,
            inspect=_check_readable,
        )
        response = await fetch(call, self._limits.policy)
        request.meta["download_latency"] = response.seconds
        if response.body_bytes > MOST_BYTES:
            raise PageRefused(_TOO_LONG)
        content: dict[str, Any] = {"headers": Headers(response.headers), "body": response.body}
        kind: type[Response] = responsetypes.from_args(url=request.url, **content)
        return kind(url=request.url, status=response.status, request=request, **content)

    async def close(self) -> None:
        """Scrapy wants one."""


def _check_readable(response: httpx.Response) -> None:
    """Of what is no text or too long, nothing but the headers is fetched."""
    media_type = response.headers.get("content-type", "text/html")
    if response.is_success and not _READABLE.match(media_type):
        raise PageRefused(f"{media_type[:80]} is not text", "not_text", "not_text")
    if int(response.headers.get("content-length") or 0) > MOST_BYTES:
        raise PageRefused(_TOO_LONG)
