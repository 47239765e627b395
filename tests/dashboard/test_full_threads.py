"""All threads are taken: why nothing runs, and what cancelled functions that go on still hold."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
from browsing import Site
from playwright.sync_api import Browser, expect

from evenbeat import Evenbeat
from evenbeat.api.auth.tokens import Access
from evenbeat.asgi import asgi
from evenbeat.observe import doctor
from evenbeat.observe.alerts import alerts
from evenbeat.observe.explain import explain
from evenbeat.store.lists import JobFilter
from loopback import SECRET, served
from waiting import wait_for


@pytest.fixture
def let_go() -> Iterator[threading.Event]:
    """Lets stubborn functions return."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def full(database_url: str, browser: Browser, let_go: threading.Event) -> Iterator[Site]:
    """A worker with two threads, both at functions that look at nothing."""
    app = Evenbeat(database_url, auth_secret=SECRET, poll_seconds=0.2, threads=2)

    @app.task(max_retries=0)
    def stubborn() -> None:
        let_go.wait()

    @app.task
    async def light() -> None: ...

    with app:
        access, worker = Access.of(app.settings, app.store), app.worker()
        worker.start()
        with served(asgi(app, access=access, worker=worker)) as url:
            site = Site(app, access, url, browser)
            held = [stubborn.job(), stubborn.job()]
            app.enqueue_many(held)
            wait_for(lambda: worker.running == 2, "both threads to be taken")
            yield site
            assert site.leave() == []
        let_go.set()
        worker.stop(grace=1)


def test_full_threads_are_the_reason_and_not_a_free_worker(full: Site):
    app = full.app
    store, waiting = app.store, app.task_named("stubborn").enqueue()
    later = store.clock() + timedelta(seconds=31)

    def why() -> str:
        return explain(store.read.circumstances(waiting.id, now=later)).summary

    wait_for(lambda: "2 of 2 threads" in why(), "the registry to know of full threads")
    assert "EVENBEAT_THREADS" in why()
    (finding,) = [f for f in doctor.check(store.database.url, now=later) if f.code == "busy"]
    assert finding.title == "All 2 threads are busy: jobs wait in the queue 'default'"
    (worker,) = store.upkeep.workers()
    assert {load.runner: load.is_full for load in worker.loads} == {"async": False, "thread": True}

    page = full.visit("viewer", f"/jobs/{waiting.id}")
    expect(page.locator("main")).to_contain_text("busy (2 of 2 threads; EVENBEAT_THREADS")
    page.goto("/workers")
    expect(page.locator("#workers tbody tr")).to_contain_text("2 of 2 threads")
    app.task_named("light").enqueue().result(timeout=30)  # other runners go on


def test_cancelled_functions_that_go_on_are_seen_everywhere(full: Site, let_go: threading.Event):
    store = full.app.store
    page = full.visit("operator", "/jobs?status=running")
    page.get_by_role("link", name="stubborn").first.click()
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("a plain function cannot be ended from outside")
    dialog.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("main")).to_contain_text("cancelled, still running in its thread")
    running = store.read.ids(JobFilter(statuses=["running"]))
    store.control.cancel(running)
    ready = wait_for(
        lambda: (r := httpx.get(f"{full.url}/readyz")).status_code == 503 and r, "not to be ready"
    )
    assert "All threads of the worker are held" in ready.text

    wait_for(lambda: store.upkeep.workers()[0].held == 2, "the registry to know of both")
    later = store.clock() + timedelta(seconds=20)
    (held,) = [a for a in alerts(store.database.rows, later) if a.rule.name == "held_threads"]
    assert held.title == "Held threads: 2 runs over, but still going on"
    assert "'stubborn', cancelled, timed out or lost. 2 of 2 threads are held." in held.detail
    assert "held_threads" in {f.code for f in doctor.check(store.database.url, now=later)}
    metrics = httpx.get(f"{full.url}/metrics", headers=_token(full)).text
    assert 'evenbeat_held{runner="thread"} 2.0' in metrics
    page.goto("/workers")
    row = page.locator("#workers tbody tr")
    expect(row).to_contain_text("stubborn: cancelled, still running in its thread")
    row.get_by_role("link", name="stubborn").first.click()
    expect(page.locator("main")).to_contain_text("Cancelled, still running in its thread.")

    let_go.set()
    wait_for(lambda: httpx.get(f"{full.url}/readyz").status_code == 200, "to be ready again")
    wait_for(lambda: not store.upkeep.workers()[0].held, "the registry to know that they are over")


def _token(site: Site) -> dict[str, str]:
    token = next(iter(site.visits)).context.cookies()[0]["value"]
    return {"Authorization": f"Bearer {token}"}
