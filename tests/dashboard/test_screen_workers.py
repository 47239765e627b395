"""Workers and queues: who works on what, draining one, pausing a queue, live."""

import threading
from datetime import timedelta

import httpx
from browsing import Site, accessibility_problems, weight
from playwright.sync_api import expect

from evenbeat import Evenbeat
from evenbeat.api.auth.tokens import Access, Role
from evenbeat.asgi import asgi
from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.store.lists import JobFilter
from evenbeat.store.upkeep import NewWorker
from loopback import served


def empty(site: Site) -> None:
    store = site.app.store
    store.control.everywhere(JobFilter(), store.control.delete)


def test_a_worker_shows_what_it_is_at_and_what_it_has(site: Site, gate: threading.Event) -> None:
    empty(site)
    page = site.visit("viewer", "/workers")
    row = page.locator("#workers tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("active")
    expect(row).to_contain_text("nothing")
    expect(row.locator("time[data-relative]")).to_contain_text("ago")
    expect(page.locator("#tasks")).to_contain_text("Send a report by mail.")
    expect(page.locator("#live")).to_contain_text("Live")
    page.evaluate("window.untouched = true")

    spec = JobSpec(task="wait_for_it")
    site.app.add(NewJob(spec, name="the patient one"))
    expect(row.get_by_role("link", name="the patient one")).to_be_visible()
    gate.set()
    expect(row.get_by_role("link", name="the patient one")).to_have_count(0)
    gate.clear()
    assert page.evaluate("window.untouched")
    assert page.locator("main button, main .button").count() == 0


def test_a_queue_is_paused_and_resumed(site: Site) -> None:
    empty(site)
    page = site.visit("operator", "/workers")
    page.get_by_role("button", name="Pause the queue mail").click()
    expect(page.locator(".notice")).to_contain_text("Paused queue mail")
    row = page.locator("#queues tbody tr").filter(has=page.get_by_role("link", name="mail"))
    expect(row).to_contain_text("paused")
    added = site.app.add(NewJob(JobSpec("send_report", "mail"), {"to": "a@b.c"}))
    page.reload()
    expect(row.locator("td").nth(1)).to_have_text("1")
    expect(row.locator("time")).to_contain_text("ago")
    expect(page.locator(".figures")).to_contain_text("due and not started")
    assert site.app.store.read.job(added.id).status == "pending"

    page.get_by_role("button", name="Resume the queue mail").click()
    expect(page.locator(".notice")).to_contain_text("Resumed queue mail.")
    expect(row.locator("td").nth(1)).to_have_text("0")
    expect(row).not_to_contain_text("paused")


def test_a_worker_is_drained(site: Site) -> None:
    second = site.app.worker()
    second.start()
    try:
        page = site.visit("operator", "/workers")
        drain = page.locator(f"#drain-{second.identity.id}")
        drain.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("takes no more jobs")
        dialog.get_by_role("link", name="Back").click()
        expect(dialog).to_be_hidden()
        drain.click()
        dialog.get_by_role("button", name="Drain").click()
        expect(page.locator(".notice")).to_contain_text("finishes those that it has")
        expect(page.locator("#workers")).to_contain_text("draining")
        expect(drain).to_have_count(0)
    finally:
        second.stop(grace=1)


def test_one_without_a_sign_of_life_is_lost(site: Site) -> None:
    upkeep = site.app.store.upkeep
    gone = NewWorker(uuid7(), "far-away", 77, 0.0, "0.1", 20)
    upkeep.register_worker(gone, now=site.app.store.clock() - timedelta(minutes=5))
    page = site.visit("operator", "/workers")
    row = page.locator("#workers tbody tr").filter(has_text="far-away:77")
    expect(row).to_contain_text("lost")
    expect(row).to_contain_text("5 min ago")
    assert row.locator(".button").count() == 0
    upkeep.forget_workers([gone.id])


def test_changes_need_an_operator_and_something_that_is_there(site: Site) -> None:
    def client(role: Role) -> httpx.Client:
        token = site.access.issue(role, timedelta(hours=1), subject="x").token
        return httpx.Client(base_url=site.url, headers={"Authorization": f"Bearer {token}"})

    worker = site.app.store.upkeep.workers()[0].id
    with client(Role.VIEWER) as viewer:
        assert viewer.post("/queues/pause", data={"queue": "mail"}).status_code == 403
        assert viewer.post("/queues/resume", data={"queue": "mail"}).status_code == 403
        assert viewer.get(f"/workers/{worker}/drain").status_code == 403
        assert viewer.post(f"/workers/{worker}/drain", data={}).status_code == 403
    with client(Role.OPERATOR) as operator:
        assert operator.post(f"/workers/{uuid7()}/drain", data={}).status_code == 404
        assert operator.post("/workers/nonsense/drain", data={}).status_code == 404
        assert operator.post("/queues/pause", data={"queue": " "}).status_code == 422
        assert operator.post("/queues/pause", data={"queue": "x" * 5_000}).status_code == 422
    assert site.app.store.upkeep.workers()[0].status == "active"


def test_where_nothing_is_yet_each_screen_says_what_to_do(empty_database_url: str) -> None:
    with Evenbeat(empty_database_url) as app, served(asgi(app, access=Access.open())) as url:
        app.store.migrate()
        workers = httpx.get(f"{url}/workers").text
        assert "No worker is running" in workers
        assert "evenbeat worker --app" in workers
        assert "Queues appear with the first job" in workers
        assert "No recurring jobs yet" in httpx.get(f"{url}/distribution").text
        assert "nothing is scheduled" in httpx.get(f"{url}/timeline").text
        assert httpx.get(f"{url}/settings").status_code == 200


def test_it_is_light_accessible_and_fits_a_phone(site: Site, colours: str) -> None:
    page = site.visit("operator", "/workers", color_scheme=colours)
    requests, size = weight(site.of(page))
    assert requests <= 6
    assert size <= 150_000
    assert accessibility_problems(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/workers")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
