"""A job's own screen: its history and its reasons; editing, backfilling and adding one."""

import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
import pytest
from browsing import Site, accessibility_problems, weight
from playwright.sync_api import Page, expect

from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import COOKIE
from evenbeat.domain.job import JobRecord, JobSpec, NewJob, Placement
from evenbeat.domain.schedule import Cron, Interval, Once, Schedule, after_jobs
from evenbeat.domain.window import parse_window
from evenbeat.store.lists import JobFilter
from waiting import wait_for

_HOUR = timedelta(hours=1)


def _add(site: Site, task: str, *, name: str, **payload: object) -> UUID:
    """A job that is not due for a while, with room in its past for plans."""
    anchor = datetime.now(UTC) - timedelta(minutes=30)
    spec = JobSpec(
        task=task,
        queue="mail" if task == "send_report" else "default",
        schedule=Interval(_HOUR, anchor),
        placement=Placement.PINNED,
        retry=site.app.registry.get(task).spec.retry,
    )
    return site.app.add(NewJob(spec, payload, name=name)).id


def _ran(site: Site, job_id: UUID, times: int = 1) -> None:
    """Run it, and wait until that is over."""
    for _ in range(times):
        before = site.app.store.read.job(job_id).run_count
        site.app.store.control.run_now([job_id]).only()
        wait_for(lambda before=before: _idle(site.app.store.read.job(job_id), before))


def _idle(job: JobRecord, before: int) -> bool:
    return job.run_count > before and job.status != "running"


def _open(site: Site, job_id: UUID, role: str = "operator", **options: object) -> Page:
    return site.visit(role, f"/jobs/{job_id}", **options)


# -- looking ---------------------------------------------------------------------------------------


def test_a_failed_run_tells_its_error_and_trace(site: Site) -> None:
    job_id = _add(site, "break_down", name="broken")
    _ran(site, job_id, 2)
    page = _open(site, job_id, "viewer")
    expect(page.locator("#why")).to_contain_text("It is waiting for its next run")
    expect(page.locator("#why")).to_contain_text("failed")
    expect(page.locator("#planned li")).to_have_count(5)
    expect(page.locator("#durations .chart-failed")).to_have_count(2)
    expect(page.locator("#figures")).to_contain_text("0 %")
    run = page.locator("#runs details").first
    run.locator("summary").click()
    expect(run.locator("h3").first).to_contain_text("ValueError")
    expect(run).to_contain_text("row 7: 'abc' is not a number")
    expect(run.locator("pre")).to_contain_text("Traceback")
    run.get_by_role("link").last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Run 2")
    assert page.locator("main button").count() == 0


def test_a_good_run_tells_its_result_and_progress(site: Site) -> None:
    job_id = _add(site, "send_report", name="report", to="a@b.c")
    _ran(site, job_id)
    page = _open(site, job_id)
    run = page.locator("#runs details")
    run.locator("summary").click()
    expect(run.locator("pre").first).to_contain_text('"to": "a@b.c"')
    expect(run.locator("pre").last).to_contain_text("<a@b.c>")  # among the figures
    page.get_by_role("link", name="failed", exact=True).click()
    expect(page.locator("#runs")).to_contain_text("No run is failed.")
    assert page.locator("#durations .chart-ok").count() == 1


def test_a_run_in_progress_is_seen_and_can_be_cancelled(site: Site, gate: threading.Event) -> None:
    job_id = _add(site, "wait_for_it", name="patient")
    page = _open(site, job_id)
    expect(page.get_by_role("heading", name="It has not run yet")).to_be_visible()
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("#runs .status-running")).to_be_visible()
    expect(page.locator("#why")).to_contain_text("It has been running on")
    page.locator("#runs summary").click()
    expect(page.locator("#runs progress")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator("#runs .status-cancelled")).to_be_visible()
    expect(page.locator("#figures")).to_contain_text("cancelled")


def test_what_does_not_exist_is_a_page_that_says_so(site: Site) -> None:
    page = site.visit("viewer", "/jobs/not-an-id")
    expect(page.get_by_role("heading", name="Not Found")).to_be_visible()
    page.goto("/executions/01a1e100-0000-7000-8000-000000000000")
    expect(page.locator("main")).to_contain_text("There is no execution with id")
    page.goto("/nowhere")
    expect(page.get_by_role("heading", name="Not Found")).to_be_visible()
    assert accessibility_problems(page) == []
    site.of(page).tolerate("404")


# -- changing --------------------------------------------------------------------------------------


def test_pause_resume_retry_delete_from_its_page(site: Site) -> None:
    job_id = _add(site, "break_down", name="verbs")
    page = _open(site, job_id)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#figures .status-paused")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#figures .status-scheduled")).to_be_visible()
    site.app.store.control.cancel([job_id])
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("#runs .status-failed")).to_be_visible()
    onlooker = _open(site, job_id, "viewer")
    page.get_by_label("More actions").click()
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".notice")).to_contain_text("Deleted 1 job.")
    assert page.url == f"{site.url}/jobs"
    expect(onlooker.get_by_role("heading", name="Not Found")).to_be_visible()
    site.of(onlooker).tolerate("404")


def test_editing_keeps_what_is_not_touched(site: Site) -> None:
    job_id = _add(site, "send_report", name="to edit", to="a@b.c")
    before = site.app.store.read.job(job_id)
    page = site.visit("operator", f"/jobs/{job_id}/edit")
    assert page.get_by_label("Every", exact=True).input_value() == "1h"
    page.get_by_label("Payload").fill('{"to": "new@b.c", "pages": "many"}')
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#payload-error")).to_contain_text("argument 'pages'")
    site.of(page).tolerate("422")
    page.get_by_label("Payload").fill('{"to": "new@b.c", "pages": 4}')
    page.get_by_text("More settings").click()
    page.get_by_label("Tags").fill("mail, weekly")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".notice")).to_contain_text("Saved.")
    after = site.app.store.read.job(job_id)
    assert after.payload == {"to": "new@b.c", "pages": 4}
    assert after.metadata["tags"] == ["mail", "weekly"]
    assert (after.next_run_at, after.anchor_at, after.name, after.queue, after.placement) == (
        before.next_run_at, before.anchor_at, "to edit", "mail", "pinned",
    )  # fmt: skip

    page.get_by_label("More actions").click()
    page.get_by_role("link", name="Edit").first.click()
    page.get_by_label("By cron").check()
    page.get_by_label("Cron expression").fill("0 9 * * mon-fri")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#definition")).to_contain_text("0 9 * * mon-fri")
    assert site.app.store.read.job(job_id).timezone == "Europe/Berlin"


@pytest.mark.parametrize(
    "schedule", [Interval(_HOUR), Cron("5 4 * * sun", "Asia/Tokyo"), Once()], ids=str
)
def test_saving_what_was_not_changed_changes_nothing(site: Site, schedule: Schedule) -> None:
    spec = JobSpec(
        task="send_report",
        queue="slow",
        priority=7,
        schedule=schedule,
        window=parse_window("Mon-Fri 22:00-06:00 Europe/Berlin"),
        timeout=timedelta(seconds=90),
        cost=timedelta(seconds=1.5),
    )
    metadata = {"tags": ["a", "b"], "kept": {"as": "it is"}}
    start = timedelta(days=3) if schedule == Once() else None
    new = NewJob(spec, {"to": "a@b.c"}, name=f"still {schedule}", start=start, metadata=metadata)
    before = site.app.store.read.job(site.app.add(new).id)
    page = site.visit("operator", f"/jobs/{before.id}/edit")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".notice")).to_contain_text("Saved.")
    after = site.app.store.read.job(before.id)
    assert after._replace(updated_at=before.updated_at) == before


def test_backfill_runs_the_plans_of_a_period_once(site: Site) -> None:
    job_id = _add(site, "send_report", name="to backfill", to="a@b.c")
    page = _open(site, job_id)
    page.get_by_label("More actions").click()
    page.get_by_role("link", name="Backfill …").click()
    dialog = page.get_by_role("dialog")
    day_ago = datetime.now(UTC) - timedelta(hours=5)
    dialog.get_by_label("From").fill(f"{day_ago:%Y-%m-%dT%H:%M}")
    expect(dialog).to_contain_text("5 past runs would start now")
    dialog.get_by_label("To (UTC)").fill("2999-01-01T00:00")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.locator("#backfill-to-error")).to_contain_text("must not be in the future")
    site.of(page).tolerate("422")
    dialog.get_by_label("To (UTC)").fill(f"{datetime.now(UTC):%Y-%m-%dT%H:%M}")
    dialog.get_by_role("button", name="Start").click()
    expect(page.locator(".notice")).to_contain_text("Started 5 past runs")
    assert site.app.store.read.jobs(JobFilter(parent_id=job_id)).total == 5


# -- adding ----------------------------------------------------------------------------------------


def test_a_new_job_with_a_preview_of_its_runs_and_its_place(site: Site) -> None:
    page = site.visit("operator", "/jobs/new")
    page.get_by_label("Task").fill("send_report")
    expect(page.locator("#preview-arguments")).to_contain_text("string, required")
    page.get_by_label("Every", exact=True).fill("soon")
    expect(page.locator("[data-preview-target]")).to_contain_text("soon")
    page.get_by_label("Every", exact=True).fill("45m")
    expect(page.locator("#preview-runs li")).to_have_count(5)
    expect(page.locator("#preview-place")).to_contain_text("Placed where the load is lowest")
    page.get_by_label("Name").fill("fresh")
    page.get_by_label("Payload").fill('{"to": ')
    page.get_by_role("button", name="Add job").click()
    expect(page.locator("#payload-error")).to_contain_text("This is not JSON")
    site.of(page).tolerate("422")
    assert page.get_by_label("Every", exact=True).input_value() == "45m"
    page.get_by_label("Payload").fill('{"to": "a@b.c"}')
    page.get_by_role("button", name="Add job").click()
    expect(page.locator(".notice")).to_contain_text("Added fresh.")
    expect(page.get_by_role("heading", level=1)).to_have_text("fresh")
    job = site.app.store.read.job_by_name("fresh")
    assert job is not None
    assert (job.interval_seconds, job.queue, job.created_by) == (2700, "mail", "a operator")


def test_an_off_peak_job_shows_the_hours_that_were_found(site: Site) -> None:
    page = site.visit("operator", "/jobs/new")
    page.get_by_label("Task").fill("send_report")
    page.get_by_label("Every", exact=True).fill("1d")
    page.get_by_label("Name").fill("calm")
    page.get_by_label("Payload").fill('{"to": "a@b.c"}')
    page.get_by_text("More settings").click()
    page.get_by_label("Window", exact=True).fill("off_peak")
    expect(page.locator("#preview-runs li")).to_have_count(5)
    page.get_by_role("button", name="Add job").click()
    expect(page.locator(".notice")).to_contain_text("Added calm.")
    job = site.app.store.read.job_by_name("calm")
    assert job is not None
    assert job.execution_window is not None
    assert job.execution_window.startswith("off_peak ")
    expect(page.locator("main")).to_contain_text(job.execution_window)


def test_a_call_that_another_job_stands_for_leads_to_that_job(site: Site) -> None:
    for notice in ("Added send_report.", "A job like this was there already."):
        page = site.visit("operator", "/jobs/new?task=send_report")
        page.get_by_label("Once").check()
        page.get_by_label("Payload").fill('{"to": "only@b.c"}')
        page.get_by_text("More settings").click()
        page.get_by_label("Unique for").fill("1h")
        page.get_by_label("Unique by").fill("to")
        page.get_by_role("button", name="Add job").click()
        expect(page.locator(".notice")).to_contain_text(notice)
    added = [j for j in site.app.jobs.list(task="send_report") if j.payload == {"to": "only@b.c"}]
    assert [str(job.id) for job in added] == [page.url.rpartition("/")[2]]


def test_a_task_that_no_worker_has_is_warned_about(site: Site) -> None:
    page = site.visit("operator", "/jobs/new?task=imagined&queue=elsewhere")
    page.get_by_label("Once").check()
    page.get_by_role("button", name="Add job").click()
    expect(page.locator("#notices")).to_contain_text("No worker has the task 'imagined' yet")


@pytest.mark.parametrize(
    ("form", "place"),
    [
        ({"task": ""}, "task"),
        ({"task": "send_report", "payload": "[1]"}, "payload"),
        ({"task": "send_report", "payload": '{"to": "x", "cc": 1}'}, "payload"),
        ({"task": "send_report", "payload": '{"to": "\\u0000"}'}, "payload"),
        ({"kind": "every", "every": ""}, "every"),
        ({"kind": "every", "every": "-5m"}, "every"),
        ({"kind": "every", "every": "1e9d"}, "every"),
        ({"kind": "cron", "cron": "61 * * * *"}, "cron"),
        ({"kind": "cron", "cron": "* * * * *", "timezone": "Mars/Base"}, "timezone"),
        ({"kind": "once", "run_at": "yesterday"}, "run_at"),
        ({"priority": "101"}, "priority"),
        ({"priority": "many"}, "priority"),
        ({"max_retries": "-1"}, "max_retries"),
        ({"timeout": "0s"}, "timeout"),
        ({"window": "always"}, "window"),
        ({"name": "x" * 999}, "name"),
        ({"name": "taken"}, "name"),
        ({"placement": "nowhere", "kind": "every", "every": "1h"}, "placement"),
        ({"unique_by": "cc"}, "unique_by"),
        ({"unique_for": "1h", "throttle": "1h"}, "throttle"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(site: Site, form: dict[str, str], place: str) -> None:
    if form.get("name") == "taken" and site.app.store.read.job_by_name("taken") is None:
        _add(site, "send_report", name="taken", to="a@b.c")
    given = {"task": "send_report", "payload": '{"to": "a@b.c"}', "kind": "once", **form}
    answer = httpx.post(
        f"{site.url}/jobs/new",
        data=given,
        headers={"Sec-Fetch-Site": "same-origin"},
        cookies={COOKIE: site.access.issue(Role.OPERATOR, _HOUR, subject="o").token},
    )
    assert answer.status_code == 422
    assert f'id="{place}-error"' in answer.text, answer.text[answer.text.find("error") :][:300]


# -- for everyone ----------------------------------------------------------------------------------


def test_they_are_light_and_accessible(site: Site, colours: str) -> None:
    job_id = _add(site, "break_down", name=f"shown {colours}")
    _ran(site, job_id)
    page = _open(site, job_id, color_scheme=colours)
    requests, size = weight(site.of(page))
    assert requests <= 6
    assert size <= 150_000
    page.locator("#runs summary").click()
    expect(page.locator("#runs pre")).to_be_visible()
    assert accessibility_problems(page) == []
    page.get_by_label("More actions").click()
    page.get_by_role("link", name="Backfill …").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert accessibility_problems(page) == []
    page.goto("/jobs/new?task=send_report")
    page.get_by_text("More settings").click()
    assert accessibility_problems(page) == []


# -- after other jobs ------------------------------------------------------------------------------


def test_jobs_that_run_after_others_link_each_other_and_can_be_edited(site: Site) -> None:
    load = _add(site, "send_report", name="load-data", to="a@example.org")
    spec = JobSpec("send_report", schedule=after_jobs([load]))
    waiting = NewJob(spec, {"to": "b"}, name="follow")
    follow = site.app.add(waiting).id
    page = _open(site, follow)
    expect(page.locator("#why")).to_contain_text("It is waiting for load-data, which is scheduled")
    expect(page.locator("#definition")).to_contain_text("after load-data has completed")
    page.locator("#definition").get_by_role("link", name="load-data").click()
    expect(page.locator("#definition")).to_contain_text("Then runs")
    page.locator("#definition").get_by_role("link", name="follow").click()

    page.locator("#definition").get_by_role("link", name="Edit").click()
    expect(page.get_by_label("After these jobs")).to_have_value("load-data")
    page.get_by_label("After these jobs").fill("load-data on any")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#definition")).to_contain_text("after load-data has ended")
    ((awaited,),) = site.app.store.dependencies.awaited_by([follow]).values()
    assert (awaited.id, awaited.wanted) == (load, "any")


def test_a_job_after_another_is_added_in_the_form(site: Site) -> None:
    _add(site, "send_report", name="first of two", to="a@example.org")
    page = site.visit("operator", "/jobs/new")
    page.get_by_label("Task").fill("send_report")
    page.get_by_label("Name").fill("second of two")
    page.get_by_label("Payload").fill('{"to": "a@example.org"}')
    page.get_by_text("After other jobs").click()
    page.get_by_label("After these jobs").fill("nobody")
    page.get_by_role("button", name="Add job").click()
    expect(page.get_by_text("There is no job 'nobody' to wait for")).to_be_visible()
    site.of(page).tolerate("422")
    page.get_by_label("After these jobs").fill("first of two")
    page.get_by_role("button", name="Add job").click()
    expect(page.locator("#definition")).to_contain_text("after first of two has completed")
