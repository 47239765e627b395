"""The task `crawl`: fetch the pages of a site, and keep them searchable."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, Field

from evenbeat.app import Evenbeat
from evenbeat.crawl import TASK
from evenbeat.crawl.child import CrawledPage, CrawlRequest, crawl_process
from evenbeat.crawl.documents import Documents, Lease
from evenbeat.crawl.urls import canonical_url
from evenbeat.domain.job import JobSpec
from evenbeat.errors import Fail, InvalidInput, Retry
from evenbeat.external.addresses import check_url
from evenbeat.tasks.builtin.http import retry_after
from evenbeat.tasks.context import Context
from evenbeat.tasks.registry import TaskDefinition, define

BATCH = 25
"""How many pages are written at once; fewer, when a second has gone by."""
OVERTIME = 60.0
"""Seconds beyond its own limit after which a crawl is ended from outside."""
MOST_PROBLEMS = 20

_PERMANENT = frozenset({"address_refused", "robots_refused", "left_the_site", "not_text",
                        "page_refused"})  # fmt: skip
"""Why a start page was not fetched, where trying again would not help."""


# -- the payload ---------------------------------------------------------------------------------


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
    """The task, under the application's settings; its pages go into the application's database."""
    settings = app.settings
    slots = _CrawlSlots(settings.crawl_processes)

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
        named = source_id if source_id is not None else subreddit_id
        start, start_page = await _start_of(documents, url, named)
        request = CrawlRequest(
            url=start_page,
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
        source = start_page if named is None else str(named)
        writer = _PageWriter(app, documents, ctx, source, max_pages)
        await writer.begin(start, source_name)
        async with slots.taken(ctx), crawl_process(request) as process:
            try:
                async with asyncio.timeout(max_seconds + OVERTIME):
                    async for message in process.messages():
                        await writer.receive(message)
                        if writer.summary is not None:  # the process may take its time to be gone
                            break
                    last_words = "" if writer.summary else await process.last_words()
            except TimeoutError:
                raise Retry("The crawl went on after its own limit and was ended.",
                            code="crawl_stuck") from None  # fmt: skip
        return await writer.end(last_words)

    return define(crawl, JobSpec(task=TASK))


async def _start_of(
    documents: Documents, url: str | None, source: int | str | None
) -> tuple[str, str]:
    """Where a crawl starts, as asked for and in its canonical form."""
    if url is None:
        if source is None:
            raise Fail("There is nothing to crawl: give a url, or the source_id of a source that "
                       "was crawled before.", code="no_url")  # fmt: skip
        known = await asyncio.to_thread(documents.source, str(source))
        if known is None:
            raise Fail(
                f"The source {str(source)!r} has no url: none was given, and it was never crawled "
                "before. Give the job a url once; later crawls of this source find it.",
                code="no_url",
            )
        url = known.url
    try:
        return url, canonical_url(url)
    except ValueError as error:
        raise Fail(f"The url cannot be crawled: {error}.", code="no_url") from None


class _CrawlSlots:
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
            ctx.progress(0, message=f"waiting: {self._most} other crawls run in this worker")
        async with free:
            yield


class _PageWriter:
    """Receives what the crawler sends: keeps pages in batches, counts, and reports progress."""

    def __init__(
        self, app: Evenbeat, documents: Documents, ctx: Context, source: str, max_pages: int
    ) -> None:
        self._app = app
        self._documents = documents
        self._ctx = ctx
        self._lease = Lease(ctx.job.id, ctx.execution_id)
        self._source = source
        self._max_pages = max_pages
        self._pages: list[CrawledPage] = []
        self._gone: list[str] = []
        self._written_at = time.monotonic()
        self._counts: dict[str, int] = {}
        self._reported = 0
        self._indexed = 0
        self._known = 1
        self._problems: list[dict[str, str]] = []
        self._start_failed: dict[str, Any] | None = None
        self.summary: dict[str, Any] | None = None

    async def begin(self, url: str, name: str | None) -> None:
        """The source is known from now on, whatever comes of the crawl."""
        await asyncio.to_thread(
            self._documents.begin, self._lease, self._source, url, name, now=self._now()
        )

    async def receive(self, message: dict[str, Any]) -> None:
        """One message of the crawler's."""
        match message.get("kind"):
            case "page":
                self._pages.append(CrawledPage.of(message))
            case "gone":
                self._gone += map(str, message["keys"])
            case "problem" if len(self._problems) < MOST_PROBLEMS:
                self._problems.append({name: str(message[name]) for name in ("url", "reason")})
            case "tick":
                self._counts, self._known = dict(message["counts"]), int(message["known"])
            case "start_failed":
                self._start_failed = message
            case "end":
                self._counts, self.summary = dict(message["counts"]), message
        if len(self._pages) >= BATCH or time.monotonic() - self._written_at > 1:
            await self._write()

    async def end(self, last_words: str) -> dict[str, Any]:
        """The run's result, or the error that it ends with."""
        await self._write()
        counts, summary = self._counts, self.summary or {}
        result = {
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
            "patterns_cut": summary.get("patterns", {}),
            "ended_by": summary.get("ended_by"),
            "problems": self._problems,
        }
        if self._start_failed is not None:
            raise _start_failure(self._start_failed, result)
        if self.summary is None:
            said = f" Its last words: {last_words}" if last_words else ""
            raise Retry(f"The crawler's process ended before the crawl did.{said}",
                        code="crawler_died", result=result)  # fmt: skip
        if not counts.get("pages"):
            raise Retry("The start page led nowhere: no page was fetched.", code="no_pages",
                        result=result)  # fmt: skip
        await asyncio.to_thread(
            self._documents.end,
            self._lease,
            self._source,
            items_crawled=counts["pages"],
            items_indexed=self._indexed,
            now=self._now(),
        )
        return result

    async def _write(self) -> None:
        pages, gone = self._pages, self._gone
        self._pages, self._gone, self._written_at = [], [], time.monotonic()
        if pages or gone:
            indexed, _ = await asyncio.to_thread(
                self._documents.save, self._lease, self._source, pages, gone=gone, now=self._now()
            )
            self._indexed += indexed
            self._ctx.report(items_indexed=indexed)
        crawled, errors = self._counts.get("pages", 0), self._counts.get("errors", 0)
        self._ctx.report(items_crawled=crawled - self._reported)
        self._reported = crawled
        message = f"{crawled:,} pages fetched, {self._indexed:,} new or changed"
        self._ctx.progress(
            self._counts.get("asked", 0),
            min(self._known, self._max_pages),
            f"{message}, {errors:,} errors" if errors else message,
        )

    def _now(self) -> datetime | None:
        return None if self._app.clock is None else self._app.clock.override()


def _start_failure(message: dict[str, Any], result: dict[str, Any]) -> Retry | Fail:
    """Why the start page could not be fetched: for now, or for good."""
    code, reason = str(message["code"]), str(message["message"])
    if code == "address_refused":
        return Fail(reason, code=code, result=result)
    text = f"The start page was not fetched: {reason[:1].lower()}{reason[1:].rstrip('.')}."
    if code in _PERMANENT or (code.startswith("http_4") and code != "http_429"):
        return Fail(text, code=code, result=result)
    headers = {"retry-after": str(message.get("retry_after", ""))}
    return Retry(text, after=retry_after(headers, datetime.now(UTC)), code=code, result=result)
