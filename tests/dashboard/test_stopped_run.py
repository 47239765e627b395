"""Stopping one run of a recurring job, apart from ending its schedule."""

import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
import pytest
from browsing import Site
from playwright.sync_api import expect

from evenbeat.api.auth.tokens import Role
from evenbeat.domain.job import JobRecord, JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.errors import Conflict
from waiting import wait_for


def running(site: Site, schedule: Interval | None = None) -> tuple[JobRecord, UUID]:
    """A job at work, and its run."""
    spec = JobSpec("wait_for_it") if schedule is None else JobSpec("wait_for_it", schedule=schedule)
    store = site.app.store
    id_ = site.app.add(NewJob(spec, name="the nightly load")).id
    store.control.run_now([id_])
    job = wait_for(lambda: (j := store.read.job(id_)).started_at and j.lock_token and j, "a run")
    assert job.lock_token is not None
    return job, job.lock_token


def over(site: Site, job: JobRecord) -> None:
    """Leave nothing behind."""
    site.app.store.control.delete([job.id])


HOURLY = Interval(timedelta(hours=1))


def test_one_run_is_stopped_and_the_schedule_stays(site: Site, gate: threading.Event):
    job, run = running(site, HOURLY)
    store = site.app.store
    page = site.visit("operator", f"/jobs/{job.id}")
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It will not run again, also where it has a schedule")
    dialog.get_by_role("link", name="Stop only this run").click()
    expect(dialog).to_contain_text("The schedule stays: the next run follows as planned.")
    expect(dialog).to_contain_text("a plain function cannot be ended from outside")
    expect(dialog.get_by_role("link", name="Back")).to_be_focused()
    dialog.get_by_role("button", name="Stop the run").click()
    expect(page.locator(".notice")).to_contain_text("Stopped the run. The schedule stays")

    after = store.read.job(job.id)
    assert (after.status, after.lock_token, after.is_paused) == ("scheduled", None, False)
    assert after.next_run_at is not None
    assert after.next_run_at > datetime.now(UTC)
    assert after.error_message is None  # it has not failed
    ended = store.read.execution(run)
    assert (ended.status, ended.error_code) == ("cancelled", "cancelled")
    figures = f"{site.url}/metrics"
    wait_for(
        lambda: (
            'evenbeat_running{runner="thread"} 0.0'
            in httpx.get(figures, headers=_operator(site)).text
        ),
        "the handler to have been told",
    )
    page.goto(f"/executions/{run}")
    expect(page.locator("main")).to_contain_text("A person stopped this run; its job goes on.")
    assert not gate.is_set()
    over(site, job)


def test_a_run_that_is_over_cannot_be_stopped_and_a_one_off_ends_with_its_run(site: Site):
    job, run = running(site)
    cancel = f"{site.url}/api/v1/executions/{run}/cancel"
    stopped = httpx.post(cancel, headers=_operator(site))
    assert (stopped.status_code, stopped.json()["status"]) == (200, "cancelled")
    assert site.app.store.read.job(job.id).status == "cancelled"
    again = httpx.post(cancel, headers=_operator(site))
    assert again.status_code == 409
    assert "this one is cancelled" in again.json()["detail"]
    with pytest.raises(Conflict):
        site.app.store.stop_run(run)
    (entry, *_), _ = site.app.store.audit.page(limit=1)
    assert (entry.action, entry.ids, entry.actor) == ("execution.cancel", [job.id, run], "x")
    over(site, job)


def test_the_next_run_is_not_hit_by_the_word_to_the_one_before(site: Site, gate: threading.Event):
    job, run = running(site, HOURLY)
    store = site.app.store
    store.stop_run(run)
    store.control.run_now([job.id])
    second = wait_for(lambda: store.read.job(job.id).lock_token, "a second run")
    store.notify(f"cancel:{run}")  # late
    gate.set()
    wait_for(lambda: store.read.execution(second).status == "completed", "it to complete")
    gate.clear()
    over(site, job)


def _operator(site: Site) -> dict[str, str]:
    token = site.access.issue(Role.OPERATOR, timedelta(hours=1), subject="x").token
    return {"Authorization": f"Bearer {token}"}
