"""A run's own page: its log while it grows, the line that decides, its attempts, and running it
again."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, time
from statistics import median

import pytest
from browsing import Site, accessibility_problems
from playwright.sync_api import Page, expect

from evenbeat import Execution, Job
from evenbeat.domain.job import JobSpec, NewJob
from waiting import stretched, wait_for


@pytest.fixture
def talking(site: Site, gate: threading.Event) -> Iterator[tuple[Job[object], Execution]]:
    """A job that logs a thousand lines, and twenty a second from then on; and its first run."""
    gate.clear()
    app, task = site.app, site.app.registry.get("talk")
    spec = JobSpec("talk", queue="talks", retry=task.spec.retry)
    job: Job[object] = app.job(app.add(NewJob(spec, {"lines": 1000})).id)
    run = wait_for(lambda: (runs := job.executions()) and runs[0], "a run")
    yield job, run
    gate.set()
    wait_for(lambda: job.status() == "completed", "its end")
    gate.clear()


def newest_line_age(page: Page) -> float:
    moment = time.fromisoformat(page.locator("#log-lines time").last.inner_text())
    now = datetime.now(UTC)
    return (now - datetime.combine(now, moment, UTC)).total_seconds() % 86_400


def test_a_log_is_shown_live_within_a_second(
    site: Site, talking: tuple[Job[object], Execution], gate: threading.Event
):
    _, run = talking
    wait_for(lambda: site.app.store.run_logs.page(run.id).after > 1000, "its lines")
    page = site.visit("viewer", f"/executions/{run.id}")
    log = page.get_by_role("log", name="Log")
    expect(log).to_contain_text("line 0")
    expect(log).to_contain_text("line 999")
    assert accessibility_problems(page) == []
    shown = log.locator("> div").count()
    ages = []
    for _ in range(20):
        page.wait_for_timeout(100)
        ages.append(newest_line_age(page))
    assert log.locator("> div").count() > shown
    assert median(ages) < stretched(1.0)
    below = "log => log.scrollHeight - log.scrollTop - log.clientHeight"
    assert log.evaluate(below) < 40  # the newest line is in sight

    log.evaluate("log => { log.scrollTop = 0 }")
    shown = log.locator("> div").count()
    wait_for(lambda: log.locator("> div").count() > shown + 10, "more lines")
    assert log.evaluate("log => log.scrollTop") == 0  # whoever reads above is left there
    gate.set()
    expect(log).not_to_have_attribute("data-growing", "")
    expect(page.locator("#run")).to_contain_text("not yet")  # the page is refreshed around it
    requests = len(site.of(page).answers)
    page.wait_for_timeout(1500)
    tails = [one.url for one in site.of(page).answers[requests:] if "/log?" in one.url]
    assert tails == []


def test_a_live_tail_costs_little(site: Site, talking: tuple[Job[object], Execution]):
    run = talking[1]
    wait_for(lambda: site.app.store.run_logs.page(run.id).after > 1000, "its lines")
    page = site.visit("viewer", f"/executions/{run.id}")
    page.wait_for_timeout(3000)
    tails = [one for one in site.of(page).answers if "/log?" in one.url]
    assert 0 < len(tails) <= 6  # two a second
    shown = page.locator("#log-lines > div").count() - 1000
    sizes = [one.request.sizes() for one in tails]
    assert sum(size["responseHeadersSize"] for size in sizes) / len(tails) < 600
    assert sum(size["responseBodySize"] for size in sizes) < 300 * (len(tails) + shown)


def test_the_line_that_decides_comes_first_and_attempts_are_together(
    site: Site, talking: tuple[Job[object], Execution], gate: threading.Event
):
    job, first = talking
    gate.set()
    wait_for(lambda: job.status() == "completed", "the second attempt")
    second = max(job.executions(), key=lambda run: run.id)
    page = site.visit("viewer", f"/executions/{first.id}")
    run = page.locator("#run")
    text = run.inner_text()
    assert "in talk, " in text
    assert 'raise ValueError("not yet")' in text
    assert text.index("in talk, ") < text.index("Traceback")
    own = run.locator(".frame-own")
    expect(own).to_have_count(1)
    expect(own).to_contain_text("conftest.py")
    assert run.locator(".frame").count() > 1
    expect(page.locator("main")).to_contain_text('"lines": 1000')
    attempts = page.locator("#attempts")
    expect(attempts).to_contain_text("this one")
    attempts.get_by_role("link", name=str(second.execution_number)).click()
    page.wait_for_url(f"**/executions/{second.id}")
    expect(page.locator("#attempts")).to_contain_text("not yet")
    expect(page.get_by_role("log")).to_contain_text("line 999")
    assert accessibility_problems(page, everything=True) == []


def test_a_run_is_repeated_with_the_same_arguments_or_others(
    site: Site, talking: tuple[Job[object], Execution], gate: threading.Event
):
    job, _ = talking
    gate.set()
    wait_for(lambda: job.status() == "completed", "its end")
    runs = job.executions()
    page = site.visit("operator", f"/executions/{runs[0].id}")
    page.get_by_role("button", name="Run again …").click()
    page.get_by_role("dialog").get_by_role("button", name="Run").click()
    expect(page.locator(".notice")).to_be_visible()
    wait_for(lambda: len(job.executions()) > len(runs), "another run")
    wait_for(lambda: job.status() == "completed", "its end")

    page.goto(f"/executions/{runs[0].id}")
    page.get_by_role("link", name="Run with other arguments …").click()
    expect(page.get_by_label("Task", exact=True)).to_have_value("talk")
    expect(page.get_by_label("Queue")).to_have_value("talks")
    page.get_by_label("Payload").fill('{"lines": 2}')
    page.get_by_role("button", name="Add").click()
    page.wait_for_url("**/jobs/0*")
    other: Job[object] = site.app.job(page.url.rpartition("/")[2])
    assert other.id != job.id
    record = other.record()
    assert (record.payload, record.schedule_kind, record.queue) == ({"lines": 2}, "once", "talks")
    wait_for(lambda: other.status() == "completed", "its end")


def test_a_viewer_may_not_run_anything(site: Site, talking: tuple[Job[object], Execution]):
    page = site.visit("viewer", f"/executions/{talking[1].id}")
    expect(page.get_by_role("log")).to_be_visible()
    expect(page.get_by_role("button", name="Run again …")).to_have_count(0)
    expect(page.get_by_role("link", name="Run with other arguments …")).to_have_count(0)
