"""Steps of a run, what it waits for, and the page behind a link that a person is sent."""

from datetime import timedelta
from uuid import UUID

import pytest
from browsing import Site, accessibility_problems
from playwright.sync_api import expect

from evenbeat import Job
from evenbeat.api.auth.tokens import Role
from evenbeat.asgi import event_link
from evenbeat.domain.job import JobSpec, NewJob
from waiting import wait_for


@pytest.fixture
def waiting(site: Site) -> Job[object]:
    """A job that waits for an approval."""
    job: Job[object] = site.app.job(site.app.add(NewJob(JobSpec("buy"), name=None)).id)
    wait_for(lambda: len(job.steps()) == 3 and job.status() == "scheduled", "it waits")
    return job


def link_for(site: Site, job_id: UUID, **options: object) -> str:
    payload = {"approved": True}
    return event_link(site.app, job_id, "approved", site.url, payload=payload, **options)  # type: ignore[arg-type]


def test_somebody_without_an_account_approves_by_a_link(site: Site, waiting: Job[object]):
    page = site.visit("viewer", f"/jobs/{waiting.id}")
    steps = page.locator("#steps")
    expect(steps).to_contain_text("charge")
    expect(steps).to_contain_text("event “approved”")
    expect(steps).to_contain_text("waiting until")
    expect(page.locator("#why")).to_contain_text("It has waited for the event 'approved' since")

    link = link_for(site, waiting.id)
    person = site.visit(None, link)
    assert accessibility_problems(person) == []
    expect(person.get_by_role("heading")).to_have_text("Send “approved”?")
    expect(person.locator("pre")).to_contain_text('"approved": true')
    assert waiting.status() == "scheduled"  # opening it does nothing
    person.get_by_role("button", name="Send").click()
    expect(person.get_by_role("heading")).to_have_text("Sent")

    wait_for(lambda: waiting.status() == "completed", "it goes on")
    assert waiting.result() == {"receipt": 17, "approved": True}
    expect(steps).to_contain_text("by link")
    steps.get_by_role("group").first.locator("summary").click()
    expect(steps).to_contain_text('"receipt": 17')

    again = site.visit(None, link)
    again.get_by_role("button", name="Send").click()
    expect(again.get_by_role("alert")).to_contain_text("completed, so it takes no event")
    site.of(again).tolerate("409")


def test_a_link_sends_once(site: Site, waiting: Job[object]):
    waiting.send_event("approved", {})
    wait_for(lambda: waiting.status() == "completed", "it goes on")
    other = site.app.job(site.app.add(NewJob(JobSpec("buy"), start=timedelta(days=1))).id)
    link = link_for(site, other.id)
    for said in ("Sent", "Nothing was sent"):
        person = site.visit(None, link)
        person.get_by_role("button", name="Send").click()
        expect(person.get_by_role("heading")).to_have_text(said)
    expect(person.get_by_role("alert")).to_have_text("This was sent already.")
    site.of(person).tolerate("409")
    assert len(other.steps()) == 1


@pytest.mark.parametrize("kind", ["changed", "a token", "none"])
def test_a_bad_link_tells_nothing(site: Site, waiting: Job[object], kind: str):
    link = link_for(site, waiting.id)
    if kind == "changed":
        link = link[:-9] + "AAAA" + link[-5:]
    if kind == "a token":
        issued = site.access.issue(Role.ADMIN, timedelta(hours=1), subject="an admin")
        link = f"{site.url}/event?link={issued.token}"
    if kind == "none":
        link = f"{site.url}/event"
    assert "This link is not good, or not any more." in visited(site, link)


def visited(site: Site, link: str) -> str:
    page = site.visit(None, link)
    site.of(page).tolerate("404")
    return page.content()


def test_the_page_of_a_run_has_its_steps(site: Site, waiting: Job[object]):
    first, second = sorted(waiting.executions(), key=lambda run: run.id)
    page = site.visit("viewer", f"/executions/{first.id}")
    expect(page.locator("#run")).to_contain_text("charge")
    expect(page.locator("#run")).not_to_contain_text("approved")
    page.goto(f"/executions/{second.id}")
    expect(page.locator("#run")).to_contain_text("event “approved”")
    assert accessibility_problems(page) == []
    waiting.cancel()
