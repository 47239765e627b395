"""The overview: figures, what needs attention, what comes next; live, themed, under any prefix."""

import threading
from datetime import timedelta
from uuid import uuid4

import httpx
from browsing import Site, accessibility_problems, weight
from fastapi import FastAPI
from playwright.sync_api import Page, expect

from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import COOKIE
from evenbeat.asgi import asgi
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.store.lists import JobFilter
from loopback import SECRET, served
from waiting import wait_for


def _empty(site: Site) -> None:
    store = site.app.store
    store.control.everywhere(JobFilter(), store.control.delete)


def _hourly(task: str, name: str) -> NewJob:
    queue = "mail" if task == "send_report" else "default"
    spec = JobSpec(task=task, queue=queue, schedule=Interval(timedelta(hours=1)))
    payload = {"to": "a@b.c"} if task == "send_report" else {}
    return NewJob(spec, payload, name=name, start=timedelta(minutes=40))


def _figure(page: Page, label: str) -> str:
    figure = page.locator(".figure").filter(has=page.get_by_text(label, exact=True))
    return figure.locator("dd").inner_text().split("\n")[0].strip()


def test_an_empty_one_says_what_to_do_first(site: Site) -> None:
    _empty(site)
    page = site.visit("operator", "/")
    expect(page.get_by_role("heading", name="Nothing is scheduled yet")).to_be_visible()
    expect(page.locator("pre").first).to_contain_text("evenbeat worker --app")
    expect(page.locator("pre").last).to_contain_text(f"curl -X POST {site.url}/api/v1/jobs")
    page.get_by_role("link", name="New job").first.click()
    page.wait_for_url("**/jobs/new")


def test_figures_move_and_failures_show_without_reload(site: Site, gate: threading.Event) -> None:
    _empty(site)
    site.app.enqueue_many([_hourly("send_report", f"report {n}") for n in range(12)])
    broken = site.app.add(_hourly("break_down", "the broken one")).id
    waiting = site.app.add(_hourly("wait_for_it", "the patient one")).id
    page = site.visit("viewer", "/")
    expect(page.locator("#live")).to_contain_text("Live")
    assert (_figure(page, "Jobs"), _figure(page, "Running")) == ("14", "0")
    expect(page.locator("#upcoming tbody tr")).to_have_count(10)
    expect(page.locator("#attention")).to_contain_text("All clear")
    expect(page.locator("#spread .chart-bars")).to_be_visible()
    page.evaluate("window.untouched = true")

    site.app.store.control.run_now([waiting, broken])
    expect(page.locator(".figure-run dd a")).to_have_text("1")
    expect(page.locator("#attention")).to_contain_text("the broken one")
    expect(page.locator("#attention")).to_contain_text("row 7: 'abc' is not a number")
    gate.set()
    expect(page.locator(".figure-run")).to_have_count(0)
    gate.clear()
    site.app.store.upkeep.count_outcomes(now=site.app.store.clock() + timedelta(minutes=5))
    page.reload()
    assert int(_figure(page, "Failed in 24 h")) >= 1
    expect(page.locator("#hours .chart-failed")).to_have_count(1)
    assert page.locator("main button").count() == 0


def test_work_that_nobody_can_do_needs_attention(site: Site) -> None:
    _empty(site)
    past = site.app.store.clock() - timedelta(hours=1)
    spec = JobSpec(task="unknown_here", queue="nobody")
    site.app.add(NewJob(spec, name="orphan", start=past))
    page = site.visit("viewer", "/")
    words = "No live worker takes the task 'unknown_here' from the queue 'nobody'"
    expect(page.locator("#attention")).to_contain_text(words)
    expect(page.locator("#attention")).to_contain_text("Start a worker whose application knows")
    page.locator("#attention a").click()
    expect(page.locator("#results tbody tr")).to_have_count(1)


def test_broken_rules_need_attention_with_the_jobs_they_are_about(site: Site) -> None:
    _empty(site)
    store = site.app.store
    past = store.clock() - timedelta(hours=2)
    store.add_many([NewJob(JobSpec(task="far", queue="far"))] * 1001, now=past)
    flaky = site.app.add(_hourly("break_down", "the flaky one")).id
    for _ in range(10):
        store.control.run_now([flaky])
        wait_for(lambda: store.read.job(flaky).status == "scheduled", "the run")
    store.upkeep.count_outcomes(now=store.clock() + timedelta(minutes=5))
    # A run of two hours, of which nobody else is there to tell.
    (hung,) = store.claim(uuid4(), 1, queues=["far"], lease=timedelta(hours=9), now=past)
    page = site.visit("viewer", "/")
    attention = page.locator("#attention")
    expect(attention).to_contain_text("No live worker takes the task 'far' from the queue 'far'")
    expect(attention).to_contain_text("Running for over 1 h: 1 run of 'far'")
    expect(attention).to_contain_text("Failing: 100% of the runs of 'break_down'")
    expect(attention).to_contain_text("runs failed within the last")
    expect(attention).to_contain_text("Fewer than 80% of the runs succeed: 1 job of 'break_down'")
    expect(attention).not_to_contain_text("Long queue")  # a thousand are due, and one more runs
    store.add(NewJob(JobSpec(task="far", queue="far")), now=past)
    page.reload()
    expect(attention).to_contain_text("Long queue: 1,001 jobs due in 'far'")
    assert accessibility_problems(page) == []
    page.get_by_role("link", name="Fewer than 80%").click()
    page.wait_for_url(f"**/jobs/{flaky}")
    page.goto("/")
    page.get_by_role("link", name="Running for over 1 h").click()
    page.wait_for_url(f"**/jobs/{hung.id}")
    page.goto("/settings")
    expect(page.locator("#health")).to_contain_text("Long queue: 1,001 jobs due in 'far'")
    expect(page.locator("#health")).to_contain_text("evenbeat job list --status running")


def test_equal_failures_are_one_line_and_all_are_counted(site: Site) -> None:
    _empty(site)
    store = site.app.store
    news = [_hourly("break_down", f"broken {n}") for n in range(12)]
    ids = [one.id for one in site.app.enqueue_many(news)]
    store.control.run_now(ids)
    wait_for(lambda: all(store.read.job(id_).error_message for id_ in ids), "the failures")
    page = site.visit("viewer", "/")
    line = page.locator("#attention li.bad")
    expect(line).to_have_count(1)
    expect(line).to_contain_text("break_down: 12 jobs failing")
    expect(line).to_contain_text("ValueError")
    line.get_by_role("link").click()
    expect(page.locator("#results tbody tr").first).to_contain_text("ValueError")
    assert page.locator("#results tbody tr").count() >= 12


def test_colours_and_times_are_remembered(site: Site) -> None:
    _empty(site)
    site.app.add(_hourly("send_report", "report"))
    page = site.visit("viewer", "/", timezone_id="Asia/Kolkata")
    utc = page.locator("#upcoming time").last.inner_text()
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Local").click()
    expect(page.get_by_role("button", name="Local")).to_have_attribute("aria-pressed", "true")
    local = page.locator("#upcoming time").last
    assert local.inner_text() != utc
    assert "IST" in (local.get_attribute("title") or "")
    page.goto("/jobs")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="UTC").click()
    expect(page.get_by_role("button", name="UTC")).to_have_attribute("aria-pressed", "true")


def test_it_is_light_and_accessible(site: Site, colours: str) -> None:
    _empty(site)
    added = site.app.enqueue_many([_hourly("break_down", f"job {n}") for n in range(12)])
    site.app.store.control.run_now([one.id for one in added])
    page = site.visit("operator", "/", color_scheme=colours)
    expect(page.locator("#attention li").first).to_be_visible()
    requests, size = weight(site.of(page))
    assert requests <= 6
    assert size <= 150_000
    assert accessibility_problems(page) == []


def test_a_phone_shows_it_without_scrolling_sideways(site: Site) -> None:
    _empty(site)
    site.app.enqueue_many([_hourly("send_report", f"report {n}") for n in range(3)])
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    page = site.visit("operator", "/", **phone)
    for path in ("/", "/jobs", "/jobs/new"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        expect(page.get_by_role("navigation", name="Screens")).to_be_in_viewport()
        assert accessibility_problems(page) == [], path


def test_the_navigation_of_a_phone_is_legible_and_shows_where_one_is(site: Site) -> None:
    cut = "[...document.querySelectorAll('.nav a span')].filter(s => s.scrollWidth > s.clientWidth)"
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    page = site.visit("operator", "/", **phone)
    entries = page.get_by_role("navigation", name="Screens").get_by_role("link")
    for entry in entries.all():
        expect(entry).to_be_in_viewport(ratio=1)
    page.set_viewport_size({"width": 320, "height": 640})
    for path in ("/", "/webhooks", "/settings"):
        page.goto(path)
        expect(page.locator(".nav [aria-current]")).to_be_in_viewport(ratio=1)
        assert page.evaluate(f"{cut}.map(s => s.textContent)") == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path


def test_it_works_inside_another_application(site: Site) -> None:
    _empty(site)
    job_id = site.app.add(_hourly("send_report", "mounted")).id
    outer = FastAPI()
    outer.mount("/ops/evenbeat", asgi(site.app, access=site.access))
    with served(outer) as url:
        code = site.access.login_code(Role.OPERATOR)
        page = site.visit(None, f"{url}/ops/evenbeat/login?code={code}")
        assert page.url == f"{url}/ops/evenbeat/"
        expect(page.locator("#live")).to_contain_text("Live")
        page.get_by_role("navigation", name="Screens").get_by_role("link", name="Jobs").click()
        page.get_by_label("Run now: mounted").click()
        expect(page.locator(".notice")).to_contain_text("Started 1 job.")
        assert page.url == f"{url}/ops/evenbeat/jobs"
        page.get_by_role("link", name="mounted").click()
        expect(page.locator("#runs .status-completed")).to_be_visible()
        assert page.url == f"{url}/ops/evenbeat/jobs/{job_id}"
        page.locator("#runs summary").click()
        expect(page.locator("#runs pre").first).to_contain_text("a@b.c")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{url}/ops/evenbeat/login")


def test_a_database_that_is_gone_is_a_page_that_says_so(site: Site) -> None:
    from evenbeat import Evenbeat
    from evenbeat.api.auth.tokens import Access
    from evenbeat.store.store import Store

    app = Evenbeat("postgresql://127.0.0.1:1/none", auth_secret=SECRET)
    app._store = Store("postgresql://127.0.0.1:1/none", timeout=0.2)
    with app, served(asgi(app, access=Access.open())) as url:
        answer = httpx.get(f"{url}/jobs", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "The database cannot be reached right now" in answer.text
    assert COOKIE not in answer.cookies
