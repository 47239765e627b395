"""The task `crawl`: fetch the pages of a site, and keep them searchable; and the chore that crawls
stale sources again."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, Field

from evenbeat.app import Evenbeat
from evenbeat.crawl import TASK
from evenbeat.crawl.child import CrawledPage, CrawlRequest, crawler, last_words, messages
from evenbeat.crawl.documents import Documents, Lease
from evenbeat.crawl.normal_forms import canonical_url
from evenbeat.domain.decision import beyond_limit
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.unique import dedup_key
from evenbeat.engine.maintenance import SimpleChore
from evenbeat.errors import Fail, Retry
from evenbeat.external.processes import Ending, started
from evenbeat.tasks.builtin.http import Url, retry_after
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
_COUNTS = ("pages", "gone", "errors", "forbidden_by_robots", "left_the_site", "not_text",
           "not_to_be_indexed", "beyond_pattern_limit")  # fmt: skip
"""What the child counts and the run's result shows."""
CREATED_BY = "stale sources"


# -- the payload ---------------------------------------------------------------------------------


def _check_paths(paths: list[str]) -> list[str]:
    if len(paths) > 100 or any(not path.startswith("/") or len(path) > 1000 for path in paths):
        raise ValueError("paths begin with a slash, such as /docs; at most 100 of them")
    return paths


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
    slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

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
        if url is None and named is not None:
            known = await asyncio.to_thread(documents.source, str(named))
            url = known.url if known else None
        if url is None:
            raise Fail(
                "There is nothing to crawl: give a url, or the source_id of a source that was "
                "crawled before; its url is used again.",
                code="no_url",
            )
        try:
            start_page = canonical_url(url)
        except ValueError as error:
            raise Fail(f"The url cannot be crawled: {error}.", code="no_url") from None
        request = CrawlRequest(
            url=start_page,
            max_pages=max_pages,
            max_depth=max_depth,
            max_seconds=max_seconds,
            max_per_pattern=max_per_pattern,
            delay=delay,
            page_timeout=page_timeout,
            allowed_paths=allowed_paths,
            user_agent=settings.crawl_user_agent,
            allow_private=settings.allow_private_addresses,
            networks=settings.allowed_networks,
        )
        source = start_page if named is None else str(named)
        writer = _PageWriter(app, documents, ctx, source, max_pages)
        await writer.write(documents.begin, url, source_name)
        most = settings.crawl_processes
        slot = slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(most))
        if slot.locked():
            ctx.progress(0, message=f"waiting: {most} other crawls run in this worker")
        launch = crawler(request)._replace(
            memory_limit=ctx.job.memory_limit, cpu_limit=ctx.job.cpu_limit_seconds
        )
        async with slot, started(launch, ctx.measured) as child:
            try:
                async with asyncio.timeout(max_seconds + OVERTIME):
                    async for message in messages(child):
                        await writer.receive(message)
                        if writer.summary is not None:  # the process may take its time to be gone
                            break
                    words = "" if writer.summary else await last_words(child)
            except TimeoutError:
                raise Retry("The crawl went on after its own limit and was ended.",
                            code="crawl_stuck") from None  # fmt: skip
        ended = child.ending
        return await writer.end(Ending(-1) if ended.cancelled() else ended.result(), words)

    return define(crawl, JobSpec(task=TASK), supervised=True)


class _PageWriter:
    """Receives what the crawler sends: keeps pages in batches, counts, and reports progress."""

    def __init__(
        self, app: Evenbeat, documents: Documents, ctx: Context, source: str, max_pages: int
    ) -> None:
        self.summary: dict[str, Any] | None = None
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
        self._known = 1
        self._problems: list[dict[str, str]] = []
        self._start_failed: dict[str, Any] | None = None

    async def write(self, verb: Callable[..., Any], *values: Any, **named: Any) -> Any:
        """Do something to the documents of this source, as the holder of the run's lease."""
        now = self._app.now()
        return await asyncio.to_thread(verb, self._lease, self._source, *values, now=now, **named)

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
            await self._save()

    async def end(self, ending: Ending, last_words: str) -> dict[str, Any]:
        """The run's result, or the error that it ends with."""
        await self._save()
        counts, summary = self._counts, self.summary or {}
        result = {name: counts.get(name, 0) for name in _COUNTS} | {
            "source": self._source,
            "indexed": self._ctx.figures.get("items_indexed", 0),
            "patterns_cut": summary.get("patterns", {}),
            "ended_by": summary.get("ended_by"),
            "problems": self._problems,
        }
        if self._start_failed is not None:
            raise _start_failure(self._start_failed, result)
        if self.summary is None and (limit := ending.exceeded) is not None:
            message = beyond_limit(self._ctx.job, limit, ending.cpu_seconds, ending.memory_bytes)
            raise Retry(message, code=limit, result=result)
        if self.summary is None:
            said = f" Its last words: {last_words}" if last_words else ""
            raise Retry(f"The crawler's process ended before the crawl did.{said}",
                        code="crawler_died", result=result)  # fmt: skip
        if not counts.get("pages"):
            raise Retry("The start page led nowhere: no page was fetched.", code="no_pages",
                        result=result)  # fmt: skip
        figures = {"items_crawled": counts["pages"], "items_indexed": result["indexed"]}
        await self.write(self._documents.end, **figures)
        return result

    async def _save(self) -> None:
        pages, gone = self._pages, self._gone
        self._pages, self._gone, self._written_at = [], [], time.monotonic()
        if pages or gone:
            indexed, _ = await self.write(self._documents.save, pages, gone=gone)
            self._ctx.report(items_indexed=indexed)
        crawled, errors = self._counts.get("pages", 0), self._counts.get("errors", 0)
        figures = self._ctx.figures
        self._ctx.report(items_crawled=crawled - figures.get("items_crawled", 0))
        changed = figures.get("items_indexed", 0)
        message = f"{crawled:,} pages fetched, {changed:,} new or changed"
        self._ctx.progress(
            self._counts.get("asked", 0),
            min(self._known, self._max_pages),
            f"{message}, {errors:,} errors" if errors else message,
        )


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


# -- the chore -----------------------------------------------------------------------------------


def chore(app: Evenbeat) -> SimpleChore | None:
    """The chore, where crawls can run and the settings want it."""
    if not app.settings.stale_days or TASK not in app.registry:
        return None
    return SimpleChore("stale_sources", timedelta(hours=6), lambda: queue_stale_sources(app))


def queue_stale_sources(app: Evenbeat) -> int:
    """Queue a crawl, once and as the last one was asked for, of every source that no crawl has
    succeeded on for `stale_days`; returns how many were added. A source that some job is for
    already is left to that job, even if it is paused: somebody wanted it so. One whose crawls fail
    is tried once a day."""
    store, now = app.store, app.now()
    documents, added = Documents(store.database), 0
    age = timedelta(days=app.settings.stale_days)
    for source, payload, queue in documents.stale(age, now=now):
        spec = JobSpec(task=TASK, queue=queue)
        job = NewJob(spec, payload, dedup_key=dedup_key(TASK, source), created_by=CREATED_BY)
        with store.database.transaction() as connection:
            added += store.add(job, connection=connection, now=now).created
            documents.queued(source, connection, now=now)
    return added
