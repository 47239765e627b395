"""One switch for everything: on with a reason and an end, off with exactly what was before."""

from datetime import timedelta

import httpx
from browsing import Site, accessibility_problems
from playwright.sync_api import expect

from evenbeat.api.auth.tokens import Role
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.observe import doctor
from evenbeat.observe.explain import explain
from waiting import wait_for

HOUR = timedelta(hours=1)
REPORT = {"to": "ada@example.org"}


def test_everything_is_paused_and_resumed_as_it_was(site: Site):
    store = site.app.store
    spec = JobSpec("send_report", "mail", schedule=Interval(HOUR))
    jobs = [site.app.add(NewJob(spec, REPORT, name=f"report {n}")).id for n in range(6)]
    store.control.pause(jobs[:1])
    before = {id_: store.read.job(id_) for id_ in jobs}

    page = site.visit("operator", "/workers")
    page.get_by_role("link", name="Pause everything").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("each keeps its rhythm")
    dialog.get_by_label("Reason").fill("database upgrade")
    dialog.get_by_role("button", name="Pause everything").click()
    banner = page.locator("#fleet-pause")
    expect(banner).to_contain_text("Everything is paused, by a operator, since")
    expect(banner).to_contain_text("database upgrade")
    page.goto("/")  # above every screen
    expect(banner).to_contain_text("database upgrade")
    expect(page.locator("main")).to_contain_text("Everything is paused: no worker starts a job")
    assert accessibility_problems(page) == []

    waiting = site.app.add(NewJob(JobSpec("send_report", "mail"), REPORT)).id
    why = explain(store.read.circumstances(waiting))
    assert why.facts[0].code == "everything_paused"
    assert "`evenbeat resume` ends that" in why.summary
    findings = doctor.check(store.database.url, now=store.clock() + timedelta(minutes=1))
    assert "everything_paused" in {one.code for one in findings}
    assert not {"late", "unserved", "busy"} & {one.code for one in findings}
    assert store.read.job(waiting).status == "pending"

    banner.get_by_role("button", name="Resume everything").click()
    expect(page.locator(".notice-done")).to_contain_text("as before the pause")
    wait_for(lambda: store.read.job(waiting).status == "completed", "the waiting job to run")
    assert {id_: store.read.job(id_) for id_ in jobs} == before, "jobs were not touched"
    store.control.delete(jobs)


def test_it_ends_by_itself_and_says_the_same_over_http(site: Site):
    token = site.access.issue(Role.OPERATOR, HOUR, subject="ann").token
    address, headers = f"{site.url}/api/v1/pause", {"Authorization": f"Bearer {token}"}
    store = site.app.store
    until = store.clock() + timedelta(seconds=3)
    body = {"reason": "short", "until": until.isoformat()}
    paused = httpx.put(address, json=body, headers=headers).json()
    assert (paused["reason"], paused["paused_by"]) == ("short", "ann")
    waiting = site.app.add(NewJob(JobSpec("send_report", "mail"), REPORT)).id
    assert store.read.fleet_pause() is not None
    wait_for(lambda: store.read.job(waiting).status == "completed", "it to end by itself")
    assert store.clock() > until
    assert httpx.get(address, headers=headers).json() is None
    assert httpx.put(address, json=body, headers=headers).status_code == 422  # it is in the past
    assert httpx.delete(address, headers=headers).status_code == 204
    noted = [entry.action for entry in store.audit.page(actions=["fleet"])[0]]
    assert noted.count("fleet.pause") >= 1


def test_a_job_that_is_resumed_keeps_its_place(site: Site):
    store = site.app.store
    spec = JobSpec("send_report", schedule=Interval(HOUR))
    jobs = [site.app.add(NewJob(spec, REPORT)).id for _ in range(5)]
    before = {id_: (job.anchor_at, job.next_run_at) for id_ in jobs if (job := store.read.job(id_))}
    store.control.pause(jobs)
    store.control.resume(jobs)
    after = {id_: (job.anchor_at, job.next_run_at) for id_ in jobs if (job := store.read.job(id_))}
    assert after == before
    store.control.delete(jobs)
