"""The jobs screen: finding jobs, acting on one, on some and on all that match, and adding one."""

import threading
from datetime import timedelta
from uuid import UUID

import httpx
import pytest
from browsing import Site, accessibility_problems, weight
from playwright.sync_api import Page, expect

from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import COOKIE
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.store.lists import JobFilter

_FAR = timedelta(hours=3)


@pytest.fixture
def jobs(site: Site) -> dict[str, UUID]:
    """Thirty jobs of two queues, none of them due soon."""
    store = site.app.store
    store.control.everywhere(JobFilter(), store.control.delete)
    news = [
        NewJob(
            JobSpec(
                task="send_report" if n % 3 else "break_down",
                queue="mail" if n % 3 else "default",
                schedule=Interval(timedelta(hours=6)),
            ),
            {"to": "a@b.c"} if n % 3 else {},
            name=f"job {n:02d}",
            start=_FAR,
            metadata={"tags": ["odd"]} if n % 2 else {},
        )
        for n in range(30)
    ]
    added = site.app.enqueue_many(news)
    return {f"job {n:02d}": one.id for n, one in enumerate(added)}


def _status(site: Site, job_id: UUID) -> str:
    return site.app.store.read.job(job_id).status


def _notice(page: Page) -> str:
    return page.locator("#notices .notice p").first.inner_text()


def _row(page: Page, name: str) -> object:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


# -- finding ---------------------------------------------------------------------------------------


def test_search_filters_and_pages_are_in_the_address(site: Site, jobs: dict[str, UUID]) -> None:
    page = site.visit("viewer", "/jobs")
    rows = page.locator("#results tbody tr")
    expect(rows).to_have_count(25)
    page.get_by_role("link", name="Next", exact=True).click()
    expect(rows).to_have_count(5)
    assert page.url.endswith("/jobs?page=2")

    page.get_by_label("Search by name or task").fill("JOB 1")
    expect(rows).to_have_count(10)
    assert "search=JOB+1" in page.url
    page.get_by_label("Queue", exact=True).select_option("mail")
    expect(rows).to_have_count(7)
    page.get_by_label("Tag", exact=True).fill("odd")
    expect(rows).to_have_count(4)
    page.reload()
    expect(rows).to_have_count(4)
    assert page.get_by_label("Search by name or task").input_value() == "JOB 1"
    page.get_by_label("Tag", exact=True).fill("even")
    expect(page.get_by_text("No job matches")).to_be_visible()


def test_a_row_says_what_matters(site: Site, jobs: dict[str, UUID]) -> None:
    site.app.store.control.run_now([jobs["job 01"]])
    page = site.visit("viewer", "/jobs?search=job+01")
    row = page.locator("#results tbody tr")
    expect(row.locator(".strip")).to_have_attribute("aria-label", "1 run, 0 failed")
    text = row.inner_text()
    for words in ("job 01", "send_report", "mail", "odd", "every 6 hours", "completed"):
        assert words in text
    assert "ms" in row.locator("td").last.inner_text()


@pytest.mark.parametrize(
    "query",
    ["status=strange", "page=0", "page=x", "page=999999", "kind=x", "search=%00", "tag=%ff"],
)
def test_a_strange_address_is_answered_with_a_page(site: Site, query: str) -> None:
    cookies = {COOKIE: site.access.issue(Role.VIEWER, _FAR, subject="v").token}
    answer = httpx.get(f"{site.url}/jobs?{query}", cookies=cookies)
    assert answer.status_code == 422
    assert "<h1>" in answer.text


# -- acting ----------------------------------------------------------------------------------------


def test_every_verb_on_one_job(site: Site, jobs: dict[str, UUID], gate: threading.Event) -> None:
    one = jobs["job 05"]
    page = site.visit("operator", "/jobs?search=job+05")
    menu = page.get_by_label("More actions: job 05")

    menu.click()
    page.get_by_role("button", name="Pause", exact=True).last.click()
    expect(page.locator(".notice")).to_contain_text("Paused 1 job.")
    assert _status(site, one) == "paused"

    page.get_by_label("Resume: job 05").click()
    expect(page.locator(".notice")).to_contain_text("Resumed 1 job.")
    assert _status(site, one) == "scheduled"

    page.get_by_label("Run now: job 05").click()
    expect(page.locator(".notice")).to_contain_text("Started 1 job.")
    expect(page.locator("#results .strip")).to_be_visible()

    menu.click()
    page.locator(".menu-list").get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Cancel job 05?")
    dialog.get_by_role("link", name="Back").click()
    expect(dialog).to_be_hidden()
    assert _status(site, one) == "scheduled"
    menu.click()
    page.locator(".menu-list").get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator(".notice")).to_contain_text("Cancelled 1 job.")
    assert _status(site, one) == "cancelled"

    page.get_by_label("Retry: job 05").click()
    expect(page.locator(".notice")).to_contain_text("Retried 1 job.")

    menu.click()
    page.locator(".menu-list").get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.locator(".notice")).to_contain_text("Deleted 1 job.")
    assert site.app.store.read.jobs(JobFilter(name="job 05")).total == 0


def test_a_selection_is_asked_about_with_its_number(site: Site, jobs: dict[str, UUID]) -> None:
    page = site.visit("operator", "/jobs?search=job+0")
    bulk = page.get_by_role("group", name="Actions on several jobs")
    expect(bulk.get_by_role("button", name="Pause")).to_be_disabled()
    for name in ("job 01", "job 02", "job 03"):
        page.get_by_label(f"Select {name}").check()
    expect(bulk).to_contain_text("3 selected")
    bulk.get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Pause 3 jobs?")
    dialog.get_by_role("button", name="Pause 3 jobs").click()
    expect(page.locator(".notice")).to_contain_text("Paused 3 jobs.")
    paused = site.app.store.read.jobs(JobFilter(statuses=["paused"]))
    assert {job.name for job in paused.jobs} == {"job 01", "job 02", "job 03"}


def test_enter_in_a_dialog_changes_nothing(site: Site, jobs: dict[str, UUID]) -> None:
    page = site.visit("admin", "/jobs")
    for verb in ("Delete", "Cancel", "Pause"):
        page.get_by_label("all 30 that match").check()
        page.get_by_role("group").get_by_role("button", name=verb).click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("link", name="Back")).to_be_focused()
        expect(dialog.get_by_role("button")).to_have_text(f"{verb} 30 jobs")
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
    assert site.app.store.read.counts_by_status() == {"scheduled": 30}


def test_deleting_over_a_hundred_jobs_takes_their_number(site: Site, jobs: dict[str, UUID]) -> None:
    site.app.enqueue_many([NewJob(JobSpec("break_down"), start=_FAR)] * 101)
    page = site.visit("admin", "/jobs?task=break_down")
    page.get_by_label("all 111 that match").check()
    page.get_by_role("group").get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete 111 jobs").click()
    expect(dialog.get_by_role("alert")).to_have_text("The number must be 111. Nothing was deleted.")
    assert accessibility_problems(page) == []
    assert site.app.store.read.jobs().total == 131
    dialog.get_by_label("Type 111 to delete them").fill("111")
    dialog.get_by_role("button", name="Delete 111 jobs").click()
    expect(page.locator(".notice")).to_contain_text("Deleted 111 jobs.")
    assert site.app.store.read.jobs().total == 20


@pytest.mark.parametrize("verb", ["Pause", "Cancel"])
def test_what_was_done_is_taken_back_from_the_notice(
    site: Site, jobs: dict[str, UUID], verb: str
) -> None:
    store, ids = site.app.store, [jobs[f"job 0{n}"] for n in (1, 2, 3)]
    store.control.pause(ids[2:])
    before = [store.read.job(id_) for id_ in ids]
    page = site.visit("operator", "/jobs?search=job+0")
    page.get_by_label("all 10 that match").check()
    page.get_by_role("group").get_by_role("button", name=verb).click()
    page.get_by_role("dialog").get_by_role("button", name=verb).click()
    done = "Paused 9" if verb == "Pause" else "Cancelled 10"
    expect(page.locator(".notice")).to_contain_text(f"{done} jobs")
    expect(page.locator(".notice")).to_contain_text("Undo")
    store.control.boost(ids[:1], 5)  # somebody else is at work
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".notice")).to_contain_text("1 job has changed since: left alone.")
    after = [store.read.job(id_) for id_ in ids]
    assert after[0].status == ("paused" if verb == "Pause" else "cancelled")
    for old, new in zip(before[1:], after[1:], strict=True):
        assert new._replace(updated_at=old.updated_at) == old
    assert page.url.endswith("/jobs?search=job+0")


def test_all_that_match_are_more_than_the_page_shows(site: Site, jobs: dict[str, UUID]) -> None:
    site.app.store.control.pause([jobs["job 02"]])
    page = site.visit("operator", "/jobs")
    page.get_by_label("all 30 that match").check()
    page.get_by_role("group").get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Pause 30 jobs?")
    expect(dialog).to_contain_text("This affects every job.")
    dialog.get_by_role("button", name="Pause").click()
    expect(page.locator(".notice")).to_contain_text("Paused 29 jobs; 1 job was skipped.")
    assert site.app.store.read.counts_by_status() == {"paused": 30}


def test_deleting_all_that_match_takes_an_admin(site: Site, jobs: dict[str, UUID]) -> None:
    page = site.visit("operator", "/jobs?queue=mail")
    page.get_by_label("all 20 that match").check()
    page.get_by_role("group").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("alert")).to_contain_text("This takes the role admin or above")
    expect(page.locator("#results tbody tr")).to_have_count(20)
    site.of(page).tolerate("403")

    page = site.visit("admin", "/jobs?queue=mail")
    page.get_by_label("all 20 that match").check()
    page.get_by_role("group").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("Delete 20 jobs?")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".notice")).to_contain_text("Deleted 20 jobs.")
    assert site.app.store.read.jobs().total == 10


def test_a_refused_verb_says_what_is_possible(site: Site, jobs: dict[str, UUID]) -> None:
    page = site.visit("operator", "/jobs?search=job+07")
    site.app.store.control.cancel([jobs["job 07"]])
    page.get_by_label("More actions: job 07").click()
    page.get_by_role("button", name="Pause", exact=True).last.click()
    expect(page.locator(".notice")).to_contain_text("A job that is cancelled cannot be paused")


def test_a_viewer_sees_no_controls_and_is_refused(site: Site, jobs: dict[str, UUID]) -> None:
    page = site.visit("viewer", "/jobs")
    expect(page.locator("#results tbody tr")).to_have_count(25)
    assert page.locator("main button, main input[type=checkbox]").count() == 0
    assert page.get_by_role("link", name="New job").count() == 0
    cookies = {COOKIE: site.access.issue(Role.VIEWER, _FAR, subject="v").token}
    ours = {"Sec-Fetch-Site": "same-origin"}
    one = str(jobs["job 01"])
    for path, form in (
        ("/jobs/actions", {"verb": "pause", "id": one}),
        ("/jobs/actions", {"verb": "delete", "all": "1", "confirmed": "1"}),
        ("/jobs/new", {"task": "send_report", "kind": "once", "payload": '{"to": "x"}'}),
        (f"/jobs/{one}/edit", {"task": "send_report"}),
        (f"/jobs/{one}/backfill", {"from": "2026-01-01T00:00", "to": "2026-01-02T00:00"}),
    ):
        answer = httpx.post(site.url + path, data=form, headers=ours, cookies=cookies)
        assert answer.status_code == 403, path
        assert "takes the role operator" in answer.text
    for path in ("/jobs/new", f"/jobs/{one}/edit", f"/jobs/{one}/backfill"):
        assert httpx.get(site.url + path, cookies=cookies).status_code == 403
    assert _status(site, jobs["job 01"]) == "scheduled"


def test_it_works_without_script(site: Site, jobs: dict[str, UUID]) -> None:
    page = site.visit("operator", "/jobs?search=job+0", java_script_enabled=False)
    page.get_by_label("Select job 01").check()
    page.get_by_label("Select job 02").check()
    page.get_by_role("group").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("heading", name="Pause 2 jobs?")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    assert _notice(page) == "Paused 2 jobs."
    assert page.url.endswith("/jobs?search=job+0")


# -- live, light, and for everyone -----------------------------------------------------------------


def test_a_run_shows_without_reload_and_the_selection_stays(
    site: Site, jobs: dict[str, UUID]
) -> None:
    page = site.visit("operator", "/jobs?search=job+0")
    expect(page.locator("#live")).to_contain_text("Live")
    page.evaluate("window.untouched = true")
    page.get_by_label("Select job 04").check()
    site.app.store.control.run_now([jobs["job 08"]])
    expect(_row(page, "job 08").locator(".strip")).to_be_visible()  # type: ignore[attr-defined]
    assert page.get_by_label("Select job 04").is_checked()
    assert page.evaluate("window.untouched") is True


def test_it_is_light_and_accessible(site: Site, jobs: dict[str, UUID], colours: str) -> None:
    site.app.store.control.run_now(list(jobs.values())[:12])
    page = site.visit("operator", "/jobs", color_scheme=colours)
    page.wait_for_load_state("load")
    requests, size = weight(site.of(page))
    assert requests <= 6
    assert size <= 150_000
    assert accessibility_problems(page) == []


def test_without_jobs_it_says_what_to_do(site: Site) -> None:
    store = site.app.store
    store.control.everywhere(JobFilter(), store.control.delete)
    page = site.visit("viewer", "/jobs")
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    expect(page.locator("pre")).to_contain_text(f"curl -X POST {site.url}/api/v1/jobs")
