"""The built-in task `crawl`: fetch the pages of a site, and keep them searchable."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, Field

from evenbeat.app import Evenbeat
from evenbeat.crawl.documents import Documents, Lease, now_of
from evenbeat.crawl.order import Order, Page
from evenbeat.crawl.process import crawling
from evenbeat.crawl.urls import canonical_url
from evenbeat.domain.job import JobSpec
from evenbeat.errors import Fail, InvalidInput, Retry
from evenbeat.external.addresses import check_url
from evenbeat.tasks.builtin.http import retry_after
from evenbeat.tasks.context import Context
from evenbeat.tasks.registry import TaskDefinition, define

NAME = "crawl"
BATCH = 25
"""How many pages are written at once; fewer, when a second has gone by."""
OVERTIME = 60.0
"""Seconds beyond its own limit after which a crawl is ended from outside."""
MOST_PROBLEMS = 20

_FOR_GOOD = frozenset({"address_refused", "robots_refused", "left_the_site", "not_text",
                       "page_refused"})  # fmt: skip
"""Why a start page was not fetched, where trying again would not help."""


# -- what the payload may say --------------------------------------------------------------------


def _check_paths(paths: list[str]) -> list[str]:
    if len(paths) > 100 or any(not path.startswith("/") or len(path) > 1000 for path in paths):
        raise InvalidInput("Paths begin with a slash, such as [\"/docs\"]; at most 100 of them.",
                           field="allowed_paths")  # fmt: skip
    return paths


Url = Annotated[str, AfterValidator(check_url)]
Name = Annotated[str, Field(min_length=1, max_length=500)]
Subreddit = Annotated[int, Field(ge=-(2**53), le=2**53)] | Name
Paths = Annotated[list[str], AfterValidator(_check_paths)]
Pages = Annotated[int, Field(ge=1, le=100_000)]
Depth = Annotated[int, Field(ge=0, le=100)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Delay = Annotated[float, Field(ge=0, le=600)]
PageSeconds = Annotated[float, Field(gt=0, le=300)]


# -- the task ------------------------------------------------------------------------------------


def definition(app: Evenbeat) -> TaskDefinition:
    """The task, under the application's settings; what it finds goes into its store."""
    settings = app.settings
    turns = _Turns(settings.crawl_processes)

    async def crawl(
        url: Url | None = None,
        *,
        source_id: Name | None = None,
        source_name: Name | None = None,
        subreddit_id: Subreddit | None = None,
        max_pages: Pages = 1000,
        max_depth: Depth = 10,
        max_seconds: Seconds = 3600.0,
        max_per_pattern: Pages = 500,
        delay: Delay = 1.0,
        page_timeout: PageSeconds = 20.0,
        allowed_paths: Paths = [],  # noqa: B006 - never changed, and a default that can be shown
        ctx: Context,
    ) -> dict[str, Any]:
        """Crawl a site from `url` on, by its robots.txt and within limits, and keep its pages
        searchable. items_crawled counts pages fetched, items_indexed those new or changed. Without
        a url, the source of this source_id or subreddit_id is crawled again."""
        if find_spec("scrapy") is None:
            raise Fail(
                "This worker cannot crawl: Scrapy is not installed. Install it beside Evenbeat "
                "with pip install 'evenbeat[crawl]' and start the worker again.",
                code="crawl_not_installed",
            )
        documents = Documents(app.store.database)
        source = _source_of(source_id, subreddit_id, url)
        start = await asyncio.to_thread(_known_url, documents, source) if url is None else url
        order = Order(
            url=_spelt(start),
            max_pages=max_pages,
            max_depth=max_depth,
            max_seconds=max_seconds,
            max_per_pattern=max_per_pattern,
            delay=delay,
            page_timeout=page_timeout,
            allowed_paths=tuple(allowed_paths),
            user_agent=settings.crawl_user_agent,
            allow_private=settings.allow_private_addresses,
            networks=settings.allowed_networks,
        )
        keeper = _Keeper(documents, ctx, source, max_pages, lambda: now_of(app))
        await keeper.begin(start, source_name)
        async with turns.taken(ctx), crawling(order) as crawler:
            try:
                async with asyncio.timeout(max_seconds + OVERTIME):
                    async for message in crawler.messages():
                        await keeper.hear(message)
                        if keeper.ended is not None:  # the process may take its time to be gone
                            break
                    last_words = "" if keeper.ended else await crawler.last_words()
            except TimeoutError:
                raise Retry("The crawl went on after its own limit and was ended.",
                            code="crawl_stuck") from None  # fmt: skip
        return await keeper.end(last_words)

    return define(crawl, JobSpec(task=NAME))


class _Turns:
    """How many crawls run at once in this process, whatever loops its workers have."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )

    @asynccontextmanager
    async def taken(self, ctx: Context) -> AsyncIterator[None]:
        """One of them, waited for."""
        loop = asyncio.get_running_loop()
        free = self._of_loop.setdefault(loop, asyncio.Semaphore(self._most))
        if free.locked():
            ctx.progress(0, message=f"waits: {self._most} other crawls run in this worker")
        async with free:
            yield


def _source_of(source_id: str | None, subreddit_id: int | str | None, url: str | None) -> str:
    """What a crawl's pages belong to: what it names, or where it starts."""
    named = source_id if source_id is not None else subreddit_id
    if named is not None:
        return str(named)
    if url is None:
        raise Fail("There is nothing to crawl: give a url, or the source_id of a source that was "
                   "crawled before.", code="no_url")  # fmt: skip
    return _spelt(url)


def _spelt(url: str) -> str:
    try:
        return canonical_url(url)
    except ValueError as error:
        raise Fail(f"The url cannot be crawled: {error}.", code="no_url") from None


def _known_url(documents: Documents, source: str) -> str:
    known = documents.source(source)
    if known is None:
        raise Fail(
            f"The source {source!r} has no url: none was given, and it was never crawled before. "
            "Give the job a url once; later crawls of this source find it.",
            code="no_url",
        )
    return known.url


class _Keeper:
    """Takes in what the crawler says: keeps pages in batches, counts, and tells how far it is."""

    def __init__(
        self,
        documents: Documents,
        ctx: Context,
        source: str,
        max_pages: int,
        now: Callable[[], datetime | None],
    ) -> None:
        self._documents = documents
        self._ctx = ctx
        self._lease = Lease(ctx.job.id, ctx.execution_id)
        self._source = source
        self._max_pages = max_pages
        self._now = now
        self._waiting: list[Page] = []
        self._gone: list[str] = []
        self._written_at = time.monotonic()
        self._counts: dict[str, int] = {}
        self._reported = 0
        self._indexed = 0
        self._known = 1
        self._problems: list[dict[str, str]] = []
        self._start_failed: dict[str, Any] | None = None
        self.ended: dict[str, Any] | None = None

    async def begin(self, url: str, name: str | None) -> None:
        """The source is known from now on, whatever comes of the crawl."""
        await asyncio.to_thread(
            self._documents.begin, self._lease, self._source, url, name, now=self._now()
        )

    async def hear(self, message: dict[str, Any]) -> None:
        """One message of the crawler's."""
        match message.get("kind"):
            case "page":
                self._waiting.append(Page.of(message))
            case "gone":
                self._gone += map(str, message["keys"])
            case "problem" if len(self._problems) < MOST_PROBLEMS:
                self._problems.append({name: str(message[name]) for name in ("url", "reason")})
            case "tick":
                self._counts, self._known = dict(message["counts"]), int(message["known"])
            case "start_failed":
                self._start_failed = message
            case "end":
                self._counts, self.ended = dict(message["counts"]), message
        if len(self._waiting) >= BATCH or time.monotonic() - self._written_at > 1:
            await self._write()

    async def end(self, last_words: str) -> dict[str, Any]:
        """The run's result, or the error that it ends with."""
        await self._write()
        if self._start_failed is not None:
            raise _failure(self._start_failed, self._result())
        if self.ended is None:
            said = f" Its last words: {last_words}" if last_words else ""
            raise Retry(f"The crawler's process ended before the crawl did.{said}",
                        code="crawler_died", result=self._result())  # fmt: skip
        if not self._counts.get("pages"):
            raise Retry("The start page led nowhere: no page was fetched.", code="no_pages",
                        result=self._result())  # fmt: skip
        await asyncio.to_thread(
            self._documents.end,
            self._lease,
            self._source,
            items_crawled=self._counts["pages"],
            items_indexed=self._indexed,
            now=self._now(),
        )
        return self._result()

    async def _write(self) -> None:
        pages, gone = self._waiting, self._gone
        self._waiting, self._gone, self._written_at = [], [], time.monotonic()
        if pages or gone:
            saved = await asyncio.to_thread(
                self._documents.save, self._lease, self._source, pages, gone=gone, now=self._now()
            )
            self._indexed += saved.indexed
            self._ctx.report(items_indexed=saved.indexed)
        crawled = self._counts.get("pages", 0)
        self._ctx.report(items_crawled=crawled - self._reported)
        self._reported = crawled
        self._ctx.progress(
            self._counts.get("asked", 0), min(self._known, self._max_pages), self._told()
        )

    def _told(self) -> str:
        errors = self._counts.get("errors", 0)
        return (
            f"{self._counts.get('pages', 0):,} pages fetched, {self._indexed:,} new or changed"
            + (f", {errors:,} errors" if errors else "")
        )

    def _result(self) -> dict[str, Any]:
        counts, ended = self._counts, self.ended or {}
        return {
            "source": self._source,
            "pages": counts.get("pages", 0),
            "indexed": self._indexed,
            "gone": counts.get("gone", 0),
            "errors": counts.get("errors", 0),
            "forbidden_by_robots": counts.get("forbidden", 0),
            "left_the_site": counts.get("left_the_site", 0),
            "not_text": counts.get("skipped", 0),
            "not_to_be_indexed": counts.get("noindex", 0),
            "beyond_pattern_limit": counts.get("same_pattern", 0),
            "patterns_cut": ended.get("patterns", {}),
            "ended_by": ended.get("ended_by"),
            "problems": self._problems,
        }


def _failure(failed: dict[str, Any], result: dict[str, Any]) -> Retry | Fail:
    """The start page could not be had: now, or ever."""
    code, reason = str(failed["code"]), str(failed["message"])
    told = f"The start page was not fetched: {reason[:1].lower()}{reason[1:].rstrip('.')}."
    if code == "address_refused":
        return Fail(reason, code=code, result=result)
    if code in _FOR_GOOD or (code.startswith("http_4") and code != "http_429"):
        return Fail(told, code=code, result=result)
    asked = {"retry-after": str(failed.get("retry_after", ""))}
    return Retry(told, after=retry_after(asked, datetime.now(UTC)), code=code, result=result)
