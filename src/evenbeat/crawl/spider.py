"""The spider: from the start page along the links of its site, within its limits."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler, CrawlerProcess
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.linkextractors import LinkExtractor
from twisted.python.failure import Failure

from evenbeat.crawl.child import MOST_BYTES, MOST_TEXT, MOST_TITLE, CrawlRequest, Send
from evenbeat.crawl.guard import CrawlState
from evenbeat.crawl.normal_forms import (
    canonical_url,
    page_key,
    pattern_of,
    same_site,
    tidy,
    under,
    visible_text,
)
from evenbeat.crawl.robots import Robots

TICK_SECONDS = 0.5
LATE_SECONDS = 2.0
"""How long requests under way may still take when the time is up."""
MOST_MEMORY = 2**30
"""Bytes. Scrapy's own limit looks at a figure that begins with the worker's size, not with ours."""
_GONE = (404, 410)
_LINKS_PER_PAGE = 10
"""How many links are remembered for each page that may be asked for; more would never be asked."""
_ENDED_BY = {"finished": "complete", "closespider_timeout": "max_seconds"}


def crawl_site(request: CrawlRequest, robots: Robots, crawl_delay: float, send: Send) -> None:
    """Do a crawl, and send what it brings."""
    state = CrawlState(request, robots, Counter(), send)
    process = CrawlerProcess(settings_for(state, max(request.delay, crawl_delay)))
    crawler = process.create_crawler(SiteSpider)
    process.crawl(crawler, state)
    process.start(install_signal_handlers=False)  # a signal ends it at once
    spider, stats = crawler.spider, crawler.stats
    if not isinstance(spider, SiteSpider) or stats is None:
        return  # it never began; the worker misses the end
    reason = str(stats.get_value("finish_reason"))
    ended_by = "max_pages" if state.counts["spent"] else _ENDED_BY.get(reason, reason)
    send(spider.summary() | {"ended_by": ended_by})


class SiteSpider(Spider):
    """Sends every page as it comes, and at the end how it went."""

    name = "site"

    def __init__(self, state: CrawlState) -> None:
        super().__init__()
        self._request, _, self._counts, self._send = state
        self._links = LinkExtractor(unique=True, strip=True)
        self._known: set[str] = set()
        self._fetched: set[str] = set()
        self._patterns: Counter[str] = Counter()

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> "SiteSpider":
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.unreadable, signals.spider_error)
        return spider

    async def start(self) -> AsyncIterator[Any]:
        """The start page; if it fails, so does the crawl."""
        limit = self._request.max_seconds + LATE_SECONDS
        asyncio.get_running_loop().call_later(limit, self._end_now, "max_seconds")
        self._tick()
        self._known.add(page_key(self._request.url))
        yield Request(
            self._request.url, self.page, errback=self.trouble, cb_kwargs={"is_start": True}
        )

    def page(self, response: Response, is_start: bool = False) -> Iterator[Request]:
        """One response: kept, counted, and followed."""
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
            self._counts["not_text"] += 1
            return
        self._counts["pages"] += 1
        depth = int(response.meta.get("depth", 0))
        if content.may_index:
            self._send({
                "kind": "page", "url": canonical_url(response.url), "title": content.title,
                "text": content.text, "depth": depth,
            })  # fmt: skip
        else:
            self._counts["not_to_be_indexed"] += 1
        deeper = depth < self._request.max_depth
        if deeper and content.may_follow and isinstance(response, HtmlResponse):
            for link in self._links.extract_links(response):
                if not link.nofollow and (url := self._to_follow(link.url)):
                    yield Request(url, self.page, errback=self.trouble)

    def trouble(self, failure: Failure) -> None:
        """No response came, or none was asked for."""
        error: Any = failure.value
        request: Request = failure.request  # type: ignore[attr-defined]
        counter = getattr(error, "counter", "errors")
        usual = "page_refused" if isinstance(error, IgnoreRequest) else "connection_failed"
        code = getattr(error, "code", usual)
        self._counts[counter] += 1
        if request.cb_kwargs.get("is_start"):
            self._send({"kind": "start_failed", "code": code, "message": str(error)[:1000]})
        elif counter == "errors":
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
            self._send({
                "kind": "start_failed", "code": f"http_{response.status}", "message": reason,
                "retry_after": wait[:100],
            })  # fmt: skip
        if response.status in _GONE:
            self._counts["gone"] += 1
            urls = [*(response.meta.get("redirect_urls") or ()), response.url]
            self._send({"kind": "gone", "keys": [page_key(url) for url in urls]})
        self._problem(response.url, reason)

    def _to_follow(self, link: str) -> str | None:
        """The URL of a link that is new and within the limits; others are counted by the limit."""
        try:
            url = canonical_url(link)
            key = page_key(url)
        except ValueError:
            return None
        limits = self._request
        is_here = same_site(link, limits.url) and under(url, limits.allowed_paths)
        if key in self._known or not is_here:
            return None
        if len(self._known) > _LINKS_PER_PAGE * limits.max_pages + 1000:
            self._counts["spent"] += 1
            return None
        self._known.add(key)
        pattern = pattern_of(url)
        self._patterns[pattern] += 1
        if self._patterns[pattern] > limits.max_per_pattern:
            self._counts["beyond_pattern_limit"] += 1
            return None
        return url

    def _problem(self, url: str, reason: str) -> None:
        self._send({"kind": "problem", "url": url[:500], "reason": reason[:300]})

    def _tick(self) -> None:
        """Report progress at intervals, even while nothing comes."""
        if psutil.Process().memory_info().rss > MOST_MEMORY:
            self._end_now("max_memory")
        self._send({"kind": "tick", "known": len(self._known), "counts": dict(self._counts)})
        asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _end_now(self, ended_by: str) -> None:
        """At once: Scrapy would wait for every request, and for the delay before it."""
        self._send(self.summary() | {"ended_by": ended_by})
        os._exit(0)

    def summary(self) -> dict[str, Any]:
        """How it went, in figures; the patterns that were cut short come first."""
        most = self._request.max_per_pattern
        cut = {name: n for name, n in self._patterns.most_common(10) if n > most}
        return {"kind": "end", "counts": dict(self._counts), "patterns": cut}


# -- pages ---------------------------------------------------------------------------------------


class Content(NamedTuple):
    """What is read from a page."""

    title: str
    text: str
    may_index: bool
    may_follow: bool


def legible(response: Response) -> Response:
    """The response, its text in UTF-8 when it claims a charset that is none, such as base64."""
    if isinstance(response, TextResponse):
        try:
            response.text.encode()
        except (LookupError, ValueError):
            return response.replace(encoding="utf-8")
    return response


def content_of(response: Response) -> Content | None:
    """The content of a page; None if it is not text."""
    if not isinstance(response, TextResponse):
        return None
    directives = [value.decode("latin-1") for value in response.headers.getlist("X-Robots-Tag")]
    title = ""
    if isinstance(response, HtmlResponse):
        root: Any = response.selector.root
        if not hasattr(root, "iter"):  # an empty page has no tree
            return Content("", "", may_index=True, may_follow=True)
        for element in root.xpath("//title[not(ancestor::svg)]")[:1]:
            title = tidy(element.text_content())
        directives += [
            meta.get("content") or ""
            for meta in root.xpath("//meta[@name]")
            if (meta.get("name") or "").lower() in {"robots", "evenbeat"}
        ]
        text = tidy("".join(visible_text(root)))[:MOST_TEXT]
    else:
        text = tidy(response.text[: 2 * MOST_TEXT])[:MOST_TEXT]
    words = {word.strip().lower() for word in ",".join(directives).split(",")}
    return Content(
        (title or text.partition("\n")[0]).replace("\n", " ")[:MOST_TITLE],
        text,
        may_index=not words & {"none", "noindex"},
        may_follow=not words & {"none", "nofollow"},
    )


# -- Scrapy's settings ---------------------------------------------------------------------------


def settings_for(state: CrawlState, delay: float) -> dict[str, Any]:
    """Scrapy's settings for one crawl. What we cannot answer for is off."""
    handler = "evenbeat.crawl.guard.GuardedHandler"
    return {
        "EVENBEAT_CRAWL": state,
        "USER_AGENT": state.request.user_agent,
        "DOWNLOAD_HANDLERS": {
            "http": handler, "https": handler,
            "ftp": None, "file": None, "data": None, "s3": None,
        },
        "DOWNLOADER_MIDDLEWARES": {"evenbeat.crawl.guard.RequestFilter": 650},
        "DEFAULT_REQUEST_HEADERS": {"Accept": "text/html,application/xhtml+xml,text/plain;q=0.9"},
        "DOWNLOAD_DELAY": delay,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "AUTOTHROTTLE_ENABLED": delay > 0,
        "AUTOTHROTTLE_START_DELAY": delay,
        "AUTOTHROTTLE_MAX_DELAY": max(30.0, delay),
        "AUTOTHROTTLE_TARGET_CONCURRENCY": 2.0,
        "CONCURRENT_REQUESTS": 8,
        "DOWNLOAD_MAXSIZE": MOST_BYTES,
        "DEPTH_PRIORITY": 1,
        "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
        "CLOSESPIDER_TIMEOUT": state.request.max_seconds,
        "MEMUSAGE_ENABLED": False,
        "REDIRECT_MAX_TIMES": 10,
        "HTTPERROR_ALLOW_ALL": True,
        "ROBOTSTXT_OBEY": False,  # RequestFilter does, with crawl-delay and by the standard
        "COOKIES_ENABLED": False,
        "RETRY_ENABLED": False,
        "METAREFRESH_ENABLED": False,
        "HTTPPROXY_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_ENABLED": False,
        "LOG_INSTALL_ROOT_HANDLER": False,
    }  # fmt: skip
