"""The runs of all jobs: from a figure to just those runs, by error, and running them again."""

import threading
from datetime import timedelta
from uuid import UUID

import httpx
import pytest
from browsing import Site, accessibility_problems, weight
from playwright.sync_api import expect

from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import COOKIE
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.store.lists import JobFilter
from evenbeat.store.runs import RunFilter
from waiting import wait_for


@pytest.fixture
def jobs(site: Site) -> dict[str, UUID]:
    """Two jobs that failed (one of them twice), one that succeeded."""
    store = site.app.store
    store.control.everywhere(JobFilter(), store.control.delete)
    tasks = {"broken": "break_down", "beyond repair": "break_down", "fine": "send_report"}
    jobs = {}
    for name, task in tasks.items():
        spec = JobSpec(
            task,
            "mail" if name == "fine" else "default",
            schedule=Interval(timedelta(hours=6)),
            retry=site.app.registry.get(task).spec.retry,
        )
        payload = {"to": "a@b.c"} if name == "fine" else {}
        start = timedelta(hours=3)
        jobs[name] = site.app.add(NewJob(spec, payload, name=name, start=start)).id
    for name in ("fine", "broken", "beyond repair", "broken"):
        _run(site, jobs[name])
    return jobs


def _run(site: Site, job_id: UUID) -> None:
    store, before = site.app.store, site.app.store.read.job(job_id).run_count
    store.control.run_now([job_id]).only()
    wait_for(
        lambda: (
            store.read.job(job_id).run_count > before and store.read.job(job_id).status != "running"
        ),
        "the run",
    )


def test_the_failures_of_a_day_lead_to_just_these_runs(site: Site, jobs: dict[str, UUID]) -> None:
    store = site.app.store
    store.upkeep.count_outcomes(now=store.clock() + timedelta(minutes=5))
    page = site.visit("operator", "/")
    figure = page.locator(".figure").filter(has=page.get_by_text("Failed in 24 h", exact=True))
    assert figure.locator("dd a").inner_text() == "3"
    figure.locator("dd a").click()
    page.wait_for_url("**/runs?status=failed&since=*")
    expect(page.locator("#results tbody tr")).to_have_count(3)
    expect(page.locator(".pager")).to_contain_text("3 runs match")
    group = page.locator("#by-error tbody tr")
    expect(group).to_have_count(1)
    for words in ("ValueError", "break_down", "3", "2", "row 7: 'abc' is not a number"):
        expect(group).to_contain_text(words)
    page.goto("/")
    page.locator("#hours .chart-failed").last.click()
    page.wait_for_url("**/runs?status=failed&since=*&until=*")
    expect(page.locator("#results tbody tr")).to_have_count(3)


def test_every_condition_is_in_the_address(site: Site, jobs: dict[str, UUID]) -> None:
    page = site.visit("viewer", "/runs")
    rows = page.locator("#results tbody tr")
    expect(rows).to_have_count(4)
    assert page.locator("main button, main tbody input").count() == 0
    page.get_by_label("Search by error, job or task").fill("BEYOND")
    expect(rows).to_have_count(1)
    page.get_by_label("Search by error, job or task").fill("")
    page.get_by_label("Task", exact=True).select_option("send_report")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("fine")
    page.get_by_label("Task", exact=True).select_option("")
    expect(rows).to_have_count(4)
    page.get_by_role("link", name="Failed", exact=True).click()
    expect(rows).to_have_count(3)
    page.get_by_role("link", name="1 h", exact=True).or_(page.get_by_text("1h")).click()
    expect(rows).to_have_count(3)
    assert "status=failed" in page.url
    assert "since=1h" in page.url
    page.get_by_label("Until").fill("2020-01-01T00:00")
    expect(page.get_by_text("No run matches")).to_be_visible()
    page.reload()
    expect(page.get_by_text("No run matches")).to_be_visible()
    page.goto(f"/runs?job_id={jobs['broken']}")
    expect(rows).to_have_count(2)
    expect(page.locator("main")).to_contain_text("Only of broken")
    worker = site.app.store.runs.page(RunFilter(), 1).runs[0].execution.worker_id
    page.goto(f"/runs?worker_id={worker}&error_code=ValueError")
    expect(rows).to_have_count(3)
    rows.first.get_by_role("link").first.click()
    page.wait_for_url("**/executions/*")


def test_last_nights_failures_run_again_each_job_once(site: Site, jobs: dict[str, UUID]) -> None:
    page = site.visit("operator", "/runs?status=failed&since=24h")
    page.get_by_label("all 3 that match").check()
    page.get_by_role("button", name="Run their jobs again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Run now: 2 jobs?")
    dialog.get_by_role("button", name="Run 2 jobs now").click()
    expect(page.locator(".notice")).to_contain_text("Started 2 jobs.")
    expect(page.locator("#results tbody tr")).to_have_count(5)  # live
    assert site.app.store.read.job(jobs["fine"]).run_count == 1

    page.get_by_role("checkbox", name="Select the run of beyond repair").first.check()
    page.get_by_role("button", name="Run their jobs again").click()
    expect(dialog.get_by_role("heading")).to_have_text("Run now: beyond repair?")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()


def test_a_run_in_progress_is_listed_with_its_progress(
    site: Site, jobs: dict[str, UUID], gate: threading.Event
) -> None:
    job_id = site.app.add(NewJob(JobSpec("wait_for_it"), name="patient")).id
    page = site.visit("viewer", "/runs?status=running")
    expect(page.locator("#results tbody tr")).to_contain_text("waiting 1 of 4")
    gate.set()
    expect(page.get_by_text("No run matches")).to_be_visible()
    gate.clear()
    wait_for(lambda: site.app.store.read.job(job_id).status == "completed", "the end")


def test_runs_in_progress_are_stopped_and_schedules_stay(site: Site, jobs: dict[str, UUID]) -> None:
    spec = JobSpec("wait_for_it", schedule=Interval(timedelta(hours=6)))
    ids = [site.app.add(NewJob(spec, start=timedelta(0))).id for _ in range(2)]
    page = site.visit("operator", "/runs")
    page.get_by_role("link", name="Running", exact=True).click()
    expect(page.locator("#results tbody tr")).to_have_count(2)
    page.get_by_label("all 2 that match").check()
    page.get_by_role("button", name="Stop these runs").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Schedules stay")
    expect(dialog.get_by_role("link", name="Back")).to_be_focused()
    dialog.get_by_role("button", name="Stop 2 runs").click()
    expect(page.locator(".notice")).to_contain_text("Stopped 2 runs.")
    assert {site.app.store.read.job(id_).status for id_ in ids} == {"scheduled"}


@pytest.mark.parametrize("query", ["status=strange", "since=x", "job_id=1", "search=%00"])
def test_a_strange_address_is_answered_with_a_page(site: Site, query: str) -> None:
    cookies = {COOKIE: site.access.issue(Role.VIEWER, timedelta(hours=1), subject="v").token}
    answer = httpx.get(f"{site.url}/runs?{query}", cookies=cookies)
    assert answer.status_code == 422
    assert "<h1>" in answer.text


def test_it_is_light_and_accessible(site: Site, jobs: dict[str, UUID], colours: str) -> None:
    page = site.visit("operator", "/runs", color_scheme=colours)
    page.wait_for_load_state("load")
    requests, size = weight(site.of(page))
    assert requests <= 6
    assert size <= 150_000
    assert accessibility_problems(page, everything=True) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert accessibility_problems(page, everything=True) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
