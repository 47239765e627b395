"""The timeline: what ran and what is to come, in lanes or as a table, bounded and live."""

import random
import re
import threading
from datetime import UTC, datetime, timedelta

import httpx
import psycopg
from browsing import Site, accessibility_problems, weight
from playwright.sync_api import Page, expect

from evenbeat.api.auth.tokens import Role
from evenbeat.charts.timeline import Bar, Lane, TimelinePeriod, arrange, together
from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import Interval
from evenbeat.store.lists import JobFilter

MINUTE = timedelta(minutes=1)
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
PERIOD = TimelinePeriod(NOON - 40 * MINUTE, NOON + 20 * MINUTE, NOON, UTC)


def empty(site: Site) -> None:
    store = site.app.store
    store.control.everywhere(JobFilter(), store.control.delete)


def add(site: Site, task: str, name: str, start: timedelta | None = None) -> NewJob:
    queue = "mail" if task == "send_report" else "default"
    schedule = {} if start is None else {"schedule": Interval(timedelta(minutes=30))}
    payload = {"to": "a@b.c"} if task == "send_report" else {}
    spec = JobSpec(task=task, queue=queue, retry=RetryPolicy(max_retries=0), **schedule)
    return site.app.add(NewJob(spec, payload, name=name, start=start))


def marks(page: Page, outcome: str) -> int:
    return page.locator(f".lanes .run-{outcome}").count()


def test_an_empty_one_says_where_to_look(site: Site) -> None:
    empty(site)
    page = site.visit("viewer", "/timeline?hours=1")
    expect(page.get_by_role("heading", name="Nothing ran and nothing is scheduled")).to_be_visible()
    page.get_by_role("link", name="Look at 24 hours").click()
    assert "hours=24" in page.url


def test_runs_show_by_outcome_and_change_without_reload(site: Site, gate: threading.Event) -> None:
    empty(site)
    add(site, "send_report", "a good one")
    add(site, "break_down", "a bad one")
    add(site, "wait_for_it", "a patient one")
    add(site, "send_report", "a coming one", start=5 * MINUTE)
    page = site.visit("viewer", "/timeline?hours=1")
    expect(page.locator(".lanes .run-running")).to_have_count(1)
    expect(page.locator(".lanes .run-completed")).to_have_count(1)
    expect(page.locator(".lanes .run-failed")).to_have_count(1)
    assert marks(page, "planned") == 1
    expect(page.locator(".lanes .now-words")).to_have_text("now")
    expect(page.locator(".lanes")).to_contain_text("to come")
    assert "fill" in page.locator(".lanes .run-failed").evaluate("e => e.getAttributeNames()")
    tips = page.locator(".lanes title").all_text_contents()
    assert any("a bad one: failed" in tip and "ValueError" in tip for tip in tips)
    assert any("a coming one: expected at" in tip for tip in tips)

    page.evaluate("window.untouched = true")
    gate.set()
    expect(page.locator(".lanes .run-running")).to_have_count(0)
    expect(page.locator(".lanes .run-completed")).to_have_count(2)
    assert page.evaluate("window.untouched")
    gate.clear()

    page.get_by_role("link", name="By job").click()
    for name in ("a good one", "a bad one", "a patient one", "a coming one"):
        expect(page.locator(".lanes")).to_contain_text(name)
    page.get_by_role("link", name="6 h").click()
    assert marks(page, "planned") == 4
    page.locator(".lanes .run-failed").click()
    expect(page.locator("main")).to_contain_text("row 7: 'abc' is not a number")


def test_the_same_as_a_table(site: Site) -> None:
    empty(site)
    add(site, "break_down", "<b>told</b> in words")
    add(site, "send_report", "later", start=10 * MINUTE)
    page = site.visit("viewer", "/timeline?hours=1")
    page.get_by_role("link", name="Show as a table").focus()
    page.keyboard.press("Enter")
    row = page.locator("#ran tbody tr").first
    expect(row).to_contain_text("<b>told</b> in words")
    expect(row).to_contain_text("failed")
    expect(row).to_contain_text("ValueError")
    expect(page.locator("#planned tbody tr").first).to_contain_text("later")


def test_what_cannot_be_shown_is_refused(site: Site) -> None:
    page = site.visit("viewer", "/timeline?hours=0")
    expect(page.locator("main")).to_contain_text("hours is one of 1, 6, 24, not '0'.")
    site.of(page).tolerate("422")
    site.visit(None, "/timeline").wait_for_url("**/login?next=*")


def test_many_runs_stay_light(site: Site) -> None:
    empty(site)
    now = site.app.store.clock()
    ids = [add(site, "send_report", f"busy {n:02}", start=n * MINUTE).id for n in range(1, 56)]
    chance = random.Random(1)  # noqa: S311
    workers = [uuid7() for _ in range(4)]
    starts = sorted(now - timedelta(seconds=chance.uniform(60, 50_000)) for _ in range(3_100))
    rows = "id, job_id, plan_time, started_at, completed_at, worker_id, status, "
    rows += "execution_number"
    with (
        psycopg.connect(site.app.store.database.url) as connection,
        connection.cursor().copy(f"COPY evenbeat.executions ({rows}) FROM STDIN") as copy,
    ):
        for number, at in enumerate(starts):
            outcome = chance.choice(["completed"] * 9 + ["failed"])
            end = at + timedelta(seconds=5)
            id_ = uuid7(at.timestamp())
            whose = chance.choice(ids), at, at, end, chance.choice(workers)
            copy.write_row((id_, *whose, outcome, number))
    token = site.access.issue(Role.VIEWER, timedelta(hours=1), subject="x").token
    for path in (
        "/timeline?hours=24",
        "/timeline?hours=24&by=job",
        "/timeline?hours=24&view=table",
    ):
        answer = httpx.get(
            site.url + path, headers={"Authorization": f"Bearer {token}"}, timeout=60
        )
        assert len(answer.content) <= 90_000, path
    page = site.visit("viewer", "/timeline?hours=24&by=job")
    requests, size = weight(site.of(page))
    assert requests <= 6
    assert size <= 150_000
    assert page.locator(".lanes path[class^=run]").count() <= 500
    expect(page.locator("main")).to_contain_text("Shown are the newest 3,")
    expect(page.locator("main")).to_contain_text("40 of 55 lanes")
    expect(page.locator("main")).to_contain_text("Dense runs are merged")


def bar(lane: str, minute: float, lasting: float = 1, outcome: str = "completed") -> Bar:
    start = NOON + minute * MINUTE
    return Bar(lane, outcome, [(start, start + lasting * MINUTE)], "tip", "/x")


def test_neighbours_become_one_only_where_there_are_too_many() -> None:
    bars = [bar("a", -29 + n / 500, 0.01) for n in range(50)] + [bar("a", -5), bar("b", -5)]
    assert together(bars, 100, PERIOD) == bars
    few = together(bars, 10, PERIOD)
    assert [len(one.times) for one in few] == [50, 1, 1]
    mixed = [bar("a", -30, outcome="failed"), *bars[:20]]
    assert {one.outcome for one in together(mixed, 2, PERIOD)} == {"failed", "completed"}


def test_bars_that_overlap_lie_below_each_other() -> None:
    lanes = [Lane("a", "worker"), Lane("b", "other")]
    bars = [bar("a", -9, 5), bar("a", -8, 5), bar("a", -1), bar("gone", 0)]
    first, second = arrange(lanes, bars, PERIOD)
    assert first.crowded_out == 0
    tops = [re.match(r"M[0-9.]+ ([0-9.]+)h", path)[1] for _, path in first.shapes]
    assert tops == ["30", "43", "30"]
    assert (second.y, second.shapes) == (first.y + first.height, [])
    first, _ = arrange(lanes, [bar("a", -9, 5) for _ in range(15)], PERIOD)
    assert first.crowded_out == 5


def test_it_is_accessible_and_fits_a_phone(site: Site, colours: str) -> None:
    empty(site)
    add(site, "break_down", "a bad one")
    add(site, "send_report", "later", start=10 * MINUTE)
    page = site.visit("viewer", "/timeline?hours=1", color_scheme=colours)
    expect(page.locator(".lanes .run-failed")).to_have_count(1)
    assert accessibility_problems(page) == []
    page.get_by_role("link", name="Table", exact=True).click()
    expect(page.locator("#ran tbody tr")).to_have_count(1)
    assert accessibility_problems(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("/timeline?view=table", "/timeline"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(page.locator("#live")).to_contain_text("Live")
    page.locator(".lanes-box").evaluate("box => box.scrollTo(60, 0)")
    add(site, "send_report", "news")
    expect(page.locator(".lanes .run-completed")).to_have_count(1)
    assert page.locator(".lanes-box").evaluate("box => box.scrollLeft") == 60
