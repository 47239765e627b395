"""The banner over every screen: nothing runs, and why."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from browsing import Site, accessibility_problems
from playwright.sync_api import Browser, expect

from evenbeat import Evenbeat
from evenbeat.api.auth.tokens import Access
from evenbeat.asgi import asgi
from evenbeat.dashboard.banner import standstill
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.store.lists import JobFilter
from evenbeat.store.summaries import Standstill
from loopback import SECRET, served
from waiting import wait_for

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WELL = Standstill(2, NOW - 60 * MINUTE, NOW, True, 5, 0, NOW)


@pytest.fixture(scope="module")
def still_site(module_database_url: str, browser: Browser) -> Iterator[Site]:
    """A service with jobs, but without a worker."""
    app = Evenbeat(module_database_url, auth_secret=SECRET)
    with app:
        access = Access.of(app.settings, app.store)
        app.store.add(NewJob(JobSpec("sync"), name="waits"))
        with served(asgi(app, access=access)) as url:
            yield Site(app, access, url, browser)


def test_without_a_worker_every_screen_says_that_nothing_runs(
    still_site: Site, colours: str
) -> None:
    for path in ("/", "/jobs", "/runs", "/distribution", "/timeline", "/workers", "/settings"):
        page = still_site.visit("viewer", path, color_scheme=colours)
        expect(page.locator("#banner")).to_contain_text("No worker is alive: nothing runs.")
        assert accessibility_problems(page) == []
    assert still_site.leave() == []


def test_it_goes_when_a_worker_comes_and_comes_when_all_is_paused(still_site: Site) -> None:
    page, store = still_site.visit("operator", "/jobs"), still_site.app.store
    expect(page.locator("#banner")).to_be_visible()
    worker = still_site.app.worker()
    worker.start()
    try:
        wait_for(lambda: store.read.standstill().workers, "the worker")
        page.reload()
        expect(page.locator("#banner")).to_be_hidden()
        store.control.everywhere(JobFilter(), store.control.pause)
        store.upkeep.count_jobs()
        page.reload()
        expect(page.locator("#banner")).to_contain_text("Everything is paused")
        store.control.everywhere(JobFilter(), store.control.resume)
        store.upkeep.count_jobs()
        store.control.pause_queue("default")
        page.reload()
        expect(page.locator("#banner")).to_contain_text("1 job is held back.")
    finally:
        store.control.resume_queue("default")
        worker.stop(grace=1)
    assert still_site.leave() == []


@pytest.mark.parametrize(
    ("state", "lag", "words"),
    [
        (WELL, 0.0, ""),
        (WELL._replace(workers=0, jobs_wait=False), 0.0, ""),
        (WELL._replace(workers=0, last_heartbeat=NOW - 9 * MINUTE), 0.0,
         "No worker is alive since 11:51:00 UTC: nothing runs. Start one: evenbeat worker"),
        (WELL._replace(free=0, held_back=7), 0.0,
         "Everything is paused, jobs or their queues: 7 jobs are held back."),
        (WELL._replace(counted_at=NOW - 20 * MINUTE), 0.0,
         "No maintenance since 11:40:00 UTC: figures are old, lost runs may go unnoticed."),
        (WELL._replace(counted_at=NOW - 20 * MINUTE, oldest_start=NOW - MINUTE), 0.0, ""),
        (WELL, 301.0, "What you see is 5 min 1 s old: the replica is behind."),
    ],
)  # fmt: skip
def test_the_gravest_is_said(state: Standstill, lag: float, words: str) -> None:
    assert standstill(state, lag, NOW, UTC) == words
