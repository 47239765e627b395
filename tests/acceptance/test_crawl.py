"""Crawling a real site on loopback, from the request that adds the job to the search that finds."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from crawled_site import SLUGS, CrawledSite, crawled_site
from real_processes import Start
from starlette.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.api.auth.tokens import Access
from evenbeat.asgi import asgi
from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.store.store import Store
from evenbeat.testing import Harness
from waiting import wait_for

CALENDAR = 40
"""How many pages of one pattern the crawls here may fetch."""
ALL = 1 + len(SLUGS) + 1 + CALENDAR
"""The home page, the articles, the notes, and what is fetched of the calendar."""

FAST = {"delay": 0, "page_timeout": 8, "max_per_pattern": CALENDAR, "max_depth": 100}
CHILD = "evenbeat.crawl.child"


@pytest.fixture
def site() -> Iterator[CrawledSite]:
    with crawled_site() as site:
        yield site


@pytest.fixture
def app(database_url: str) -> Iterator[Evenbeat]:
    app = Evenbeat(
        database_url, allow_private_addresses=True, poll_seconds=0.2, crawl_user_agent="Beatle/1.0"
    )
    app.include_builtins()
    with app:
        yield app


@pytest.fixture
def client(app: Evenbeat) -> TestClient:
    """A client of an open service, on a loopback address."""
    api = asgi(app, access=Access.open())
    return TestClient(api, base_url="http://127.0.0.1", client=("127.0.0.1", 50000))


def add(client: TestClient, site: CrawledSite, **payload: Any) -> dict[str, Any]:
    """Add a crawl as those do who know nothing of tasks."""
    body = {
        "source_id": "news-site",
        "source_name": "example.com",
        "url": f"{site.url}/",
        "schedule_enabled": False,
        "dedup_key": None,  # several crawls of the source may be live
        "payload": FAST | payload,
    }
    answer = client.post("/api/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def latest(client: TestClient, job_id: str) -> dict[str, Any]:
    return client.get(f"/api/v1/jobs/{job_id}/executions").json()["executions"][0]


def search(client: TestClient, **query: Any) -> dict[str, Any]:
    answer = client.get("/api/v1/documents", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def titles(found: dict[str, Any]) -> list[str]:
    return [document["title"] for document in found["documents"]]


def test_a_site_is_crawled_searched_and_crawled_again(
    site: CrawledSite, app: Evenbeat, client: TestClient
):
    with crawled_site() as elsewhere, Harness(app) as harness:
        site.elsewhere = f"{elsewhere.url}/"
        first = add(client, site)
        assert (first["task"], first["source_id"], first.get("warnings")) == (
            "crawl", "news-site", None,
        )  # fmt: skip
        harness.drain()

        run = latest(client, first["id"])
        assert run["status"] == "completed", run
        assert (run["items_crawled"], run["items_indexed"]) == (ALL, ALL)
        result = run["result"]
        assert result["ended_by"] == "complete"
        assert result["forbidden_by_robots"] == 2
        assert result["left_the_site"] == 1
        assert result["not_text"] == 1
        assert (result["errors"], result["gone"]) == (4, 1)
        assert {problem["url"].removeprefix(site.url) for problem in result["problems"]} == {
            "/slow", "/broken", "/torn", "/missing",
        }  # fmt: skip

        # Nothing was asked for twice, nothing that robots.txt forbids, nothing of another site.
        assert len(site.paths) == len(set(site.paths))
        assert not [path for path in site.paths if path.startswith("/private/")]
        assert elsewhere.seen == []
        assert {agent for _, agent in site.seen} == {"Beatle/1.0"}

        # The calendar has no end; the crawl has.
        assert len([path for path in site.paths if path.startswith("/calendar/")]) == CALENDAR
        assert result["beyond_pattern_limit"] > 0
        assert result["patterns_cut"].keys() == {"/calendar/0/0"}

        # A phrase is found, the words as they stand side by side, and highlighted.
        site_wide = search(client, q='"gentle falcon"')
        assert (site_wide["total"], titles(site_wide)) == (1, ["The gentle-falcon"])
        assert "<mark>gentle</mark> <mark>falcon</mark>" in site_wide["documents"][0]["snippet"]
        assert search(client, q='"falcon gentle"')["total"] == 0
        assert search(client, q="hidden var")["total"] == 0
        assert titles(search(client, q="silver compass")) == ["Plain notes"]
        assert search(client, q="falcon", source_id="news-site")["total"] == 15
        assert search(client, q="falcon", source_id="another")["total"] == 0

        # A second crawl indexes what has changed, and forgets what is gone.
        for slug in ("brave-bridge", "calm-candle", "odd-tower"):
            site.texts[slug] += " Now with a surprising twist."
        site.statuses["/articles/odd-river"] = 410
        site.moved["/articles/odd-signal"] = "/articles/odd-tower"
        site.gate.set()
        harness.skip("1d")
        second = add(client, site)
        harness.drain()

        run = latest(client, second["id"])
        assert (run["items_crawled"], run["items_indexed"]) == (ALL - 2, 3)
        assert sorted(titles(search(client, q="surprising twist"))) == [
            "The brave-bridge", "The calm-candle", "The odd-tower",
        ]  # fmt: skip
        assert search(client, q='"odd river" or "odd signal"')["total"] == 0
        assert search(client)["total"] == ALL - 2
        assert titles(search(client, limit=3)) == titles(search(client))[:3]
        assert set(titles(search(client, limit=3))) == {
            "The brave-bridge", "The calm-candle", "The odd-tower",
        }  # fmt: skip
        (source,) = client.get("/api/v1/sources").json()["sources"]
        assert (source["id"], source["items_crawled"], source["items_indexed"]) == (
            "news-site", ALL - 2, 3,
        )  # fmt: skip
        assert source["job_id"] == second["id"]


def test_limits_end_a_crawl_that_counts_as_done(
    site: CrawledSite, app: Evenbeat, client: TestClient
):
    site.gate.set()
    with Harness(app) as harness:
        few = add(client, site, max_pages=7)
        flat = add(client, site, max_depth=0)
        fenced = add(client, site, allowed_paths=["/calendar"], max_per_pattern=5)
        harness.drain()
    run = latest(client, few["id"])
    assert (run["status"], run["result"]["ended_by"]) == ("completed", "max_pages")
    assert 0 < run["items_crawled"] <= 7
    assert latest(client, flat["id"])["items_crawled"] == 1
    run = latest(client, fenced["id"])
    assert (run["items_crawled"], run["result"]["ended_by"]) == (6, "complete")


def test_requests_that_know_nothing_of_tasks_are_taken(app: Evenbeat, client: TestClient):
    body = {
        "source_id": "news-site", "source_name": "example.com", "url": "https://example.com",
        "interval_minutes": 30, "interval_type": "minutes", "schedule_enabled": True,
        "max_retries": 3, "retry_backoff_seconds": 60,
        "metadata": {"category": "news", "priority": "high"},
    }  # fmt: skip
    job = client.post("/api/v1/jobs", json=body).json()
    assert (job["task"], job["status"], job["url"]) == ("crawl", "scheduled", body["url"])
    body = {
        "name": "daily-askreddit", "description": "Daily crawl of AskReddit", "subreddit_id": 1,
        "cron_expression": "@daily", "enabled": True, "priority": 10,
    }  # fmt: skip
    answer = client.post("/api/admin/scheduled-jobs", json=body)
    assert answer.status_code == 201, answer.text
    assert (answer.json()["task"], answer.json()["payload"]) == ("crawl", {"subreddit_id": 1})


# -- ended from outside --------------------------------------------------------------------------


def crawlers(parent: int | None = None) -> list[psutil.Process]:
    """The crawlers that a process of this test has started."""
    return [
        process
        for process in psutil.Process(parent or os.getpid()).children(recursive=True)
        if process.is_running()
        and process.status() != psutil.STATUS_ZOMBIE
        and CHILD in _command_line(process)
    ]


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def hold_from(site: CrawledSite, number: int) -> None:
    """Let articles from this one on answer only once the gate is open."""
    site.held |= {f"/articles/{slug}" for slug in SLUGS[number:]}


def test_cancelling_ends_the_crawler(site: CrawledSite, app: Evenbeat, client: TestClient):
    hold_from(site, 20)
    worker = app.worker()
    worker.start()
    try:
        job = add(client, site, page_timeout=60)
        wait_for(lambda: any(path in site.held for path in site.paths), "the crawl to be under way")
        wait_for(lambda: latest(client, job["id"])["progress"], "progress")
        (child,) = crawlers()
        assert not [name for name in child.environ() if name.startswith("EVENBEAT_")]

        assert client.post(f"/api/v1/jobs/{job['id']}/cancel").status_code == 200
        wait_for(lambda: not crawlers(), "the crawler to be gone")
        wait_for(lambda: not worker.running, "the run to be over")
        assert latest(client, job["id"])["status"] == "cancelled"
    finally:
        worker.stop(grace=0)


def test_a_crawl_that_has_lost_its_lease_writes_nothing_more(
    site: CrawledSite, app: Evenbeat, client: TestClient, connect
):
    hold_from(site, 50)
    worker = app.worker()
    worker.start()
    try:
        job = add(client, site, page_timeout=60)
        wait_for(lambda: search(client)["total"] > 10, "the first pages")
        with connect() as thief:  # as another worker does that takes the job over
            thief.execute(
                "UPDATE evenbeat.jobs SET lock_token = %s WHERE id = %s", (uuid7(), job["id"])
            )
        before = search(client)["total"]
        site.gate.set()
        wait_for(lambda: not crawlers(), "the crawler to be gone")
        wait_for(lambda: not worker.running, "the run to be over")
        assert search(client)["total"] == before
        assert client.get("/api/v1/sources").json()["sources"][0]["crawled_at"] is None
    finally:
        worker.stop(grace=0)


def test_the_crawler_ends_with_a_worker_that_is_killed(
    site: CrawledSite, store: Store, database_url: str, start: Start
):
    """The worker is one without an application: it has the built-in tasks."""
    hold_from(site, 0)
    running = start(
        "-m", "evenbeat", "worker",
        EVENBEAT_DATABASE_URL=database_url, EVENBEAT_ALLOW_PRIVATE_ADDRESSES="true",
    )  # fmt: skip
    assert "crawl" in running.wait_for_line("Serving")
    payload = FAST | {"url": site.url, "page_timeout": 60}
    store.add(NewJob(JobSpec("crawl"), payload))
    wait_for(lambda: site.held & set(site.paths), "the crawl to be under way")
    (child,) = crawlers(running.process.pid)
    running.process.kill()
    wait_for(lambda: _is_over(child), "the crawler to be gone")


def _is_over(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# -- what is missing -----------------------------------------------------------------------------


def test_without_scrapy_the_run_says_what_to_install(
    app: Evenbeat, client: TestClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "scrapy", None)
    with Harness(app) as harness:
        added = app.add(NewJob(JobSpec("crawl"), {"url": "http://127.0.0.1:9/"}))
        harness.drain()
        assert app.store.read.job(added.id).status == "failed"
    run = latest(client, str(added.id))
    assert run["error_code"] == "crawl_not_installed"
    assert "pip install 'evenbeat[crawl]'" in run["error_message"]
