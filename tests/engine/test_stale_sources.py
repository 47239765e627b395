"""Sources that nobody has crawled for long are queued again, each at most once."""

from datetime import timedelta
from uuid import UUID

import pytest

from evenbeat import Evenbeat
from evenbeat.crawl.documents import Documents, Lease
from evenbeat.crawl.task import CREATED_BY, queue_stale_sources
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.domain.unique import dedup_key
from evenbeat.store.lists import JobFilter
from evenbeat.testing import Harness

URL = "https://example.com/"


@pytest.fixture
def app(database_url):
    app = Evenbeat(database_url, stale_days=10)

    @app.task(name="crawl")
    def crawl(url: str, source_id: str, max_pages: int = 1, fail: bool = False) -> None: ...

    return app


@pytest.fixture
def harness(app):
    with Harness(app) as harness:
        yield harness


def crawled(harness: Harness, source: str, *, succeeds: bool = True, **payload) -> UUID:
    """A source that was crawled just now, by a job that has ended."""
    store, now = harness.app.store, harness.clock.now()
    given = {"url": URL, "source_id": source} | payload
    added = store.add(NewJob(JobSpec("crawl", queue="web"), given), now=now)
    (job,) = store.claim(UUID(int=1), 1, now=now)
    lease = Lease(job.id, job.lock_token)
    Documents(store.database).begin(lease, source, URL, None, now=now)
    if succeeds:
        Documents(store.database).end(lease, source, items_crawled=1, items_indexed=1, now=now)
    store.control.cancel([job.id], now=now)
    return added.id


def stale_jobs(app: Evenbeat) -> list[tuple[str, str]]:
    """The crawls that were queued, by source and state."""
    jobs = app.store.read.jobs(JobFilter(), limit=100).jobs
    return sorted(
        (job.payload["source_id"], job.status) for job in jobs if job.created_by == CREATED_BY
    )


def look(harness: Harness) -> int:
    return queue_stale_sources(harness.app)


def test_a_stale_source_is_queued_once_as_it_was_asked_for(harness, app):
    crawled(harness, "old", max_pages=7)
    harness.skip("9d")
    crawled(harness, "young")
    assert look(harness) == 0
    harness.skip("2d")
    assert look(harness) == 1
    assert look(harness) == 0
    (job,) = [j for j in app.store.read.jobs(JobFilter()).jobs if j.created_by == CREATED_BY]
    assert job.payload == {"url": URL, "source_id": "old", "max_pages": 7}
    assert (job.queue, job.dedup_key, job.schedule_kind) == ("web", "crawl:old", "once")
    assert Documents(app.store.database).source("old").queued_at == harness.clock.now()


def test_one_whose_crawls_fail_is_tried_once_a_day(harness, app):
    crawled(harness, "old", succeeds=False)
    harness.skip("11d")
    assert look(harness) == 1
    (job,) = app.store.read.jobs(JobFilter(statuses=["pending"])).jobs
    app.store.control.cancel([job.id], now=harness.clock.now())
    harness.skip("23h")
    assert look(harness) == 0
    harness.skip("2h")
    assert look(harness) == 1
    assert stale_jobs(app) == [("old", "cancelled"), ("old", "pending")]


@pytest.mark.parametrize("state", ["pending", "scheduled", "paused"])
def test_a_source_with_a_live_job_is_left_to_it(harness, app, state):
    crawled(harness, "old")
    harness.skip("11d")
    schedule = JobSpec("crawl") if state == "pending" else JobSpec(
        "crawl", schedule=Interval(timedelta(days=60))
    )  # fmt: skip
    job = app.add(NewJob(schedule, {"url": URL, "source_id": "old"}))
    if state == "paused":
        app.store.control.pause([job.id], now=harness.clock.now())
    assert app.store.read.job(job.id).status == state
    assert look(harness) == 0
    app.store.control.cancel([job.id], now=harness.clock.now())
    assert look(harness) == 1


def test_sources_that_are_taken_care_of_do_not_hide_others(harness, app):
    names = [f"taken {number}" for number in range(3)]
    for name in (*names, "old"):
        crawled(harness, name)
    app.enqueue_many(
        NewJob(JobSpec("crawl"), {"url": f"{URL}#{name}", "source_id": name}) for name in names
    )
    harness.skip("11d")
    stale = Documents(app.store.database).stale(timedelta(days=10), now=harness.clock.now())
    assert [source for source, _payload, _queue in stale] == ["old"]


def test_the_worker_does_it_by_itself_unless_told_otherwise(harness, app, database_url):
    crawled(harness, "old")
    harness.skip("11d")
    named = {chore.name for chore in harness.worker.maintenance._chores}
    assert "stale_sources" in named
    harness.worker.maintenance.run_once()
    assert stale_jobs(app) == [("old", "pending")]

    off = Evenbeat(database_url, stale_days=0)
    off.include_builtins()
    without = Evenbeat(database_url)
    for other in (off, without):
        with Harness(other) as idle:
            chores = idle.worker.maintenance._chores
            assert "stale_sources" not in {chore.name for chore in chores}


def test_keys_are_names_whatever_the_source_is_called():
    assert dedup_key("crawl", "news") == "crawl:news"
    for odd in ("x" * 300, " padded ", "line\nbreak"):
        assert len(dedup_key("crawl", odd)) == 70
    assert dedup_key("crawl", "x" * 300) != dedup_key("crawl", "x" * 301)
