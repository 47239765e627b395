"""The spider: from the start page along the links of its site, within its limits."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urljoin

import psutil  # type: ignore[import-untyped]
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadTimeoutError, IgnoreRequest
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor
from twisted.python.failure import Failure

from evenbeat.crawl.guard import NotText
from evenbeat.crawl.order import MOST_BYTES, Order, Tell
from evenbeat.crawl.robots import Robots, RobotsUnreadable
from evenbeat.crawl.text import content_of, legible
from evenbeat.crawl.urls import canonical_url, page_key, pattern_of, same_site, under
from evenbeat.external.addresses import AddressRefused
from evenbeat.external.fetching import FetchTrouble

BEAT_SECONDS = 0.5
LATE_SECONDS = 2.0
"""How long requests under way may still take when the time is up."""
MOST_MEMORY = 2**30
"""Bytes. Scrapy's own limit looks at a figure that begins with the worker's size, not with ours."""
SLOWER_SECONDS = (5.0, 60.0)
"""How long to wait between two requests, at least and at most, once a site has too many of them."""
_GONE = (404, 410)
_TOO_MANY = (429, 503)
_KNOWN_PER_PAGE = 10
"""How many links are remembered for each page that may be asked for; more would never be asked."""


class LeftTheSite(IgnoreRequest):
    """A redirect leads to another site."""


class RobotsForbid(IgnoreRequest):
    """The site's robots.txt says no."""


class Spent(IgnoreRequest):
    """As many pages as allowed have been asked for."""


class Doorkeeper:
    """A downloader middleware between redirects and the network: what may be asked for at all, how
    soon, and which pages are no longer where they were."""

    def __init__(
        self, crawler: Crawler, order: Order, robots: Robots, counts: Counter[str], tell: Tell
    ) -> None:
        self._crawler = crawler
        self._order = order
        self._robots = robots
        self._counts = counts
        self._tell = tell

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "Doorkeeper":
        """Made by Scrapy."""
        given = ("EVENBEAT_ORDER", "EVENBEAT_ROBOTS", "EVENBEAT_COUNTS", "EVENBEAT_TELL")
        return cls(crawler, *(crawler.settings[name] for name in given))

    async def process_request(self, request: Request) -> None:
        """Let it through, or raise why not."""
        if not same_site(request.url, self._order.url):
            raise LeftTheSite(f"it leads to another site, {request.url[:200]}")
        rules = await self._robots.rules(request.url)
        if not rules.allow(request.url):
            raise RobotsForbid("the site's robots.txt forbids it")
        if self._counts["asked"] >= self._order.max_pages:
            self._counts["spent"] += 1
            raise Spent("as many pages as allowed have been asked for")
        self._counts["asked"] += 1

    async def process_response(self, request: Request, response: Response) -> Response:
        """A page that leads elsewhere now is none any more. A site that has too many of us gets
        fewer, until its answers are good again."""
        if response.status in _TOO_MANY and self._order.delay > 0:
            self._slow_down(request)
        onward = response.headers.get("Location")
        if 300 <= response.status < 400 and onward is not None:
            key = page_key(request.url)
            if key != _key_of(urljoin(request.url, onward.decode("latin-1"))):
                self._tell({"kind": "gone", "keys": [key]})
        return response

    def _slow_down(self, request: Request) -> None:
        slots = self._crawler.engine.downloader.slots
        slot, (least, most) = slots.get(str(request.meta.get("download_slot"))), SLOWER_SECONDS
        if slot is not None:
            slot.delay = max(slot.delay, min(most, max(least, 2 * slot.delay)))


def _key_of(url: str) -> str | None:
    try:
        return page_key(url)
    except ValueError:
        return None


class SiteSpider(Spider):
    """Tells of every page as it comes, and at the end how it went."""

    name = "site"

    def __init__(self, order: Order, counts: Counter[str], tell: Tell) -> None:
        super().__init__()
        self._order = order
        self._counts = counts
        self._tell = tell
        self._links = LinkExtractor(unique=True, strip=True)
        self._known: set[str] = set()
        self._fetched: set[str] = set()
        self._patterns: Counter[str] = Counter()

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> "SiteSpider":
        """Made by Scrapy."""
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.unreadable, signals.spider_error)
        return spider

    async def start(self) -> AsyncIterator[Any]:
        """The start page; should it fail, so does the crawl."""
        limit = self._order.max_seconds + LATE_SECONDS
        asyncio.get_running_loop().call_later(limit, self._end_now, "max_seconds")
        self._beat()
        self._known.add(page_key(self._order.url))
        yield Request(
            self._order.url, self.page, errback=self.trouble, cb_kwargs={"is_start": True}
        )

    def page(self, response: Response, is_start: bool = False) -> Iterator[Request]:
        """One answer: kept, counted, and followed."""
        if not 200 <= response.status < 300:
            self._refused(response, is_start)
            return
        key = page_key(response.url)
        if key in self._fetched:  # two ways led here
            return
        self._fetched.add(key)
        response = legible(response)
        content = content_of(response)
        if content is None:
            self._counts["skipped"] += 1
            return
        self._counts["pages"] += 1
        depth = int(response.meta.get("depth", 0))
        if content.may_index:
            self._tell({
                "kind": "page", "url": canonical_url(response.url), "title": content.title,
                "text": content.text, "depth": depth,
            })  # fmt: skip
        else:
            self._counts["noindex"] += 1
        deeper = depth < self._order.max_depth
        if deeper and content.may_follow and isinstance(response, HtmlResponse):
            yield from self._followed(response)

    def trouble(self, failure: Failure) -> None:
        """No answer came, or none was asked for."""
        error: Any = failure.value
        request: Request = failure.request  # type: ignore[attr-defined]
        is_start = bool(request.cb_kwargs.get("is_start"))
        kind, code = _kind(error)
        self._counts[kind] += 1
        if is_start:
            self._tell({"kind": "start_failed", "code": code, "message": str(error)[:1000]})
        elif kind == "errors":
            self._problem(request.url, str(error) or type(error).__name__)

    def unreadable(self, failure: Failure, response: Response) -> None:
        """A page on which reading itself failed, or following its links."""
        self._counts["errors"] += 1
        self._problem(response.url, f"it cannot be read: {failure.value!r}")

    def _refused(self, response: Response, is_start: bool) -> None:
        reason = f"the answer was {response.status}"
        self._counts["errors"] += 1
        if is_start:
            wait = (response.headers.get("Retry-After") or b"").decode("latin-1")
            self._tell({
                "kind": "start_failed", "code": f"http_{response.status}", "message": reason,
                "retry_after": wait[:100],
            })  # fmt: skip
        if response.status in _GONE:
            self._counts["gone"] += 1
            asked = response.meta.get("redirect_urls") or []
            self._tell({"kind": "gone", "keys": [page_key(u) for u in (*asked, response.url)]})
        self._problem(response.url, reason)

    def _followed(self, response: HtmlResponse) -> Iterator[Request]:
        for link in self._links.extract_links(response):
            if link.nofollow or not same_site(link.url, self._order.url):
                continue
            try:
                url = canonical_url(link.url)
                key = page_key(url)
            except ValueError:
                continue
            if key not in self._known and self._wanted(url, key):
                yield Request(url, self.page, errback=self.trouble)

    def _wanted(self, url: str, key: str) -> bool:
        """Whether a link that is new is to be followed; where it is not, it counts as why."""
        if not under(url, self._order.allowed_paths):
            return False
        if len(self._known) > _KNOWN_PER_PAGE * self._order.max_pages + 1000:
            self._counts["spent"] += 1
            return False
        self._known.add(key)
        pattern = pattern_of(url)
        self._patterns[pattern] += 1
        if self._patterns[pattern] > self._order.max_per_pattern:
            self._counts["same_pattern"] += 1
            return False
        return True

    def _problem(self, url: str, reason: str) -> None:
        self._tell({"kind": "problem", "url": url[:500], "reason": reason[:300]})

    def _beat(self) -> None:
        """How far it is, again and again, also while nothing comes."""
        if psutil.Process().memory_info().rss > MOST_MEMORY:
            self._end_now("max_memory")
        self._tell({"kind": "tick", "known": len(self._known), "counts": dict(self._counts)})
        asyncio.get_running_loop().call_later(BEAT_SECONDS, self._beat)

    def _end_now(self, ended_by: str) -> None:
        """Scrapy closes in peace: it waits for every request, and for the delay before it."""
        self._tell(self.summary() | {"ended_by": ended_by})
        os._exit(0)

    def summary(self) -> dict[str, Any]:
        """How it went, in figures; the patterns that were cut short come first."""
        most = self._order.max_per_pattern
        cut = {name: n for name, n in self._patterns.most_common(10) if n > most}
        return {"kind": "end", "counts": dict(self._counts), "patterns": cut}


_KINDS: tuple[tuple[type[BaseException], str, str], ...] = (
    # The first that matches counts.
    (LeftTheSite, "left_the_site", "left_the_site"),
    (RobotsForbid, "forbidden", "robots_refused"),
    (Spent, "not_asked", "max_pages"),
    (NotText, "skipped", "not_text"),
    (IgnoreRequest, "errors", "page_refused"),
    (AddressRefused, "errors", "address_refused"),
    (RobotsUnreadable, "errors", "robots_unreadable"),
    (DownloadTimeoutError, "errors", "http_timeout"),
)


def _kind(error: BaseException) -> tuple[str, str]:
    """What a request without an answer counts as, and the word for it."""
    if isinstance(error, FetchTrouble):
        return "errors", error.code
    known = ((kind, code) for kinds, kind, code in _KINDS if isinstance(error, kinds))
    return next(known, ("errors", "connection_failed"))


def settings_for(order: Order, robots: Robots, counts: Counter[str], tell: Tell) -> dict[str, Any]:
    """Scrapy's settings for one crawl. What is not ours to answer for is off."""
    handler = "evenbeat.crawl.guard.GuardedHandler"
    delay = max(order.delay, counts["crawl_delay_ms"] / 1000)
    return {
        "EVENBEAT_ORDER": order,
        "EVENBEAT_ROBOTS": robots,
        "EVENBEAT_COUNTS": counts,
        "EVENBEAT_TELL": tell,
        "USER_AGENT": order.user_agent,
        "DOWNLOAD_HANDLERS": {
            "http": handler, "https": handler,
            "ftp": None, "file": None, "data": None, "s3": None,
        },
        "DOWNLOADER_MIDDLEWARES": {"evenbeat.crawl.spider.Doorkeeper": 650},
        "DEFAULT_REQUEST_HEADERS": {"Accept": "text/html,application/xhtml+xml,text/plain;q=0.9"},
        "DOWNLOAD_DELAY": delay,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "AUTOTHROTTLE_ENABLED": delay > 0,
        "AUTOTHROTTLE_START_DELAY": delay,
        "AUTOTHROTTLE_MAX_DELAY": max(30.0, delay),
        "AUTOTHROTTLE_TARGET_CONCURRENCY": 2.0,
        "CONCURRENT_REQUESTS": 8,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
        "DOWNLOAD_TIMEOUT": order.page_timeout,
        "DOWNLOAD_MAXSIZE": MOST_BYTES,
        "DEPTH_PRIORITY": 1,
        "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
        "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
        "CLOSESPIDER_TIMEOUT": order.max_seconds,
        "MEMUSAGE_ENABLED": False,
        "REDIRECT_MAX_TIMES": 10,
        "HTTPERROR_ALLOW_ALL": True,
        "ROBOTSTXT_OBEY": False,  # the doorkeeper does, with crawl-delay and by the standard
        "COOKIES_ENABLED": False,
        "RETRY_ENABLED": False,
        "METAREFRESH_ENABLED": False,
        "HTTPPROXY_ENABLED": False,
        "REFERER_ENABLED": True,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_ENABLED": False,
        "LOG_INSTALL_ROOT_HANDLER": False,
    }  # fmt: skip
