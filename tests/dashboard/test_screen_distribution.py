"""The distribution: how even it is, a rebalance by keyboard alone, and its undoing."""

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import httpx
import pytest
from browsing import Site, accessibility_problems, weight
from playwright.sync_api import Page, expect

from evenbeat.api.auth.tokens import Role
from evenbeat.dashboard.distribution import shifted
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval, parse_schedule
from evenbeat.store.lists import JobFilter

HOUR = timedelta(hours=1)


def empty(site: Site) -> None:
    store = site.app.store
    store.control.everywhere(JobFilter(), store.control.delete)


def bunched(site: Site, count: int = 12) -> list[UUID]:
    """Jobs that all run at one moment, 100 minutes from now, for four minutes each; beside them
    a cron job and a paused one, which must stay."""
    empty(site)
    at = (site.app.store.clock() + timedelta(minutes=100)).replace(microsecond=0)
    spec = JobSpec(
        "send_report", "mail", schedule=Interval(4 * HOUR, at), cost=timedelta(minutes=4)
    )
    jobs = [NewJob(spec, {"to": "a@b.c"}, name=f"bunched {n:02}") for n in range(count)]
    ids = [added.id for added in site.app.enqueue_many(jobs)]
    apart = at + timedelta(hours=2)
    daily = parse_schedule(f"{apart.minute} {apart.hour} * * *")
    cron = JobSpec("send_report", "mail", schedule=daily)
    site.app.add(NewJob(cron, {"to": "a@b.c"}, name="by cron"))
    paused = site.app.add(NewJob(spec, {"to": "a@b.c"}, name="resting")).id
    site.app.store.control.pause([paused])
    return ids


def next_runs(site: Site, ids: list[UUID]) -> list[datetime]:
    return [site.app.store.read.job(id_).next_run_at for id_ in ids]


def focused(page: Page) -> str:
    return page.evaluate("document.activeElement?.id || document.activeElement?.innerText || ''")


def press_until(page: Page, key: str, wanted: str, most: int = 40) -> None:
    for _ in range(most):
        page.keyboard.press(key)
        if focused(page) == wanted:
            return
    raise AssertionError(f"{key} never led to {wanted!r}, last to {focused(page)!r}")


def test_an_empty_one_says_what_to_do_first(site: Site) -> None:
    empty(site)
    page = site.visit("operator", "/distribution")
    expect(page.get_by_role("heading", name="No recurring jobs yet")).to_be_visible()
    assert page.locator("#rebalance").count() == 0


def test_it_shows_the_day_the_week_and_both_measures(site: Site) -> None:
    bunched(site)
    page = site.visit("viewer", "/distribution")
    expect(page.locator("#figures")).to_contain_text("1 would suffice")
    assert page.locator(".figure dd").nth(0).inner_text().split()[0] == "12"
    expect(page.locator("#advice")).to_contain_text("12 workers are needed at once")
    expect(page.locator("#day .chart-peak")).to_have_count(1)
    expect(page.locator("#day")).to_contain_text("starts by hour, UTC")
    assert page.locator("#day rect").count() == 24
    assert page.locator("#week .chart-tip").count() == 168
    assert "12 at once" in page.locator("#week .chart").get_attribute("aria-label")
    page.locator("#day").get_by_role("link", name="Load").click()
    expect(page.locator("#day")).to_contain_text("expected load by quarter of an hour")
    assert page.locator("#day rect").count() == 96
    page.locator("#week").get_by_role("link", name="Count").click()
    assert "starts" in page.locator("#week .chart").get_attribute("aria-label")
    assert "day=load" in page.url
    assert page.locator("main button").count() == 0


def test_a_viewer_is_refused_by_the_server_too(site: Site) -> None:
    ids = bunched(site)
    before = next_runs(site, ids)
    page = site.visit("viewer", "/distribution")
    assert page.locator("#rebalance").count() == 0
    token = site.access.issue(Role.VIEWER, HOUR, subject="looker").token
    with httpx.Client(base_url=site.url, headers={"Authorization": f"Bearer {token}"}) as client:
        assert client.get("/distribution/rebalance").status_code == 403
        answer = client.post("/distribution/rebalance", data={"plan_id": ""})
        assert answer.status_code == 403
        assert "operator" in answer.text
        undo = f"/distribution/rebalances/{ids[0]}/undo"
        assert client.post(undo, data={}).status_code == 403
    assert next_runs(site, ids) == before


def test_rebalance_and_undo_by_keyboard_alone(site: Site) -> None:
    ids = bunched(site)
    before = next_runs(site, ids)
    page = site.visit("operator", "/distribution")
    press_until(page, "Tab", "rebalance")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Rebalance")
    expect(dialog).to_contain_text("Workers needed")
    expect(dialog.locator(".changes .figure").first).to_contain_text("→")
    expect(dialog.locator(".chart-before-after")).to_be_visible()
    moves = dialog.locator("#moves tbody tr").count()
    assert moves > 5
    assert focused(page) == "Back"
    for _ in range(15):
        page.keyboard.press("Tab")
        assert page.evaluate("!document.activeElement.closest('main, header')")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert focused(page) == "rebalance"

    page.keyboard.press("Enter")
    expect(dialog.locator("#moves")).to_be_visible()
    dialog.locator("#stays summary").focus()
    page.keyboard.press("Enter")
    expect(dialog.locator(".stays")).to_contain_text("It goes by cron")
    expect(dialog.locator(".stays")).to_contain_text("by cron")
    expect(dialog.locator(".stays")).to_contain_text("resting")
    press_until(page, "Tab", f"Move {moves} jobs")
    page.keyboard.press("Enter")

    notice = page.locator(".notice")
    expect(notice).to_contain_text(f"Moved {moves} jobs: 1 worker needed")
    expect(notice).to_contain_text("instead of 12")
    assert focused(page) == "rebalance"
    after = next_runs(site, ids)
    assert sum(old != new for old, new in zip(before, after, strict=True)) == moves
    assert all(abs(new - old) <= 2 * HOUR for old, new in zip(before, after, strict=True))
    expect(page.locator("#rebalances tbody tr").first).to_contain_text("a operator")
    figures = page.locator("#figures .figure").filter(has_text="Workers needed")
    expect(figures).to_contain_text(re.compile(r"1\s*at once; 1 would suffice"))

    press_until(page, "Shift+Tab", "Undo")
    page.keyboard.press("Enter")
    expect(page.locator(".notice")).to_contain_text(f"Put back {moves} jobs.")
    assert next_runs(site, ids) == before
    expect(page.locator("#rebalances tbody tr").first).to_contain_text("undone")


def test_fewer_moves_can_be_asked_for(site: Site) -> None:
    bunched(site)
    page = site.visit("operator", "/distribution")
    page.locator("#rebalance").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("At most").fill("some")
    dialog.get_by_role("button", name="Preview again").click()
    expect(dialog.get_by_role("alert")).to_contain_text("A whole number from 1 to 1,000,000")
    site.of(page).tolerate("422")
    dialog.get_by_label("At most").fill("3")
    dialog.get_by_role("button", name="Preview again").click()
    expect(dialog.locator("#moves tbody tr")).to_have_count(3)
    dialog.get_by_role("button", name="Move 3 jobs").click()
    expect(page.locator(".notice")).to_contain_text("Moved 3 jobs")

    page.locator("#rebalances").get_by_role("link", name="3 jobs").first.click()
    expect(page.get_by_role("dialog").locator("tbody tr")).to_have_count(3)
    page.get_by_role("dialog").get_by_role("link", name="Close").click()
    page.locator("#rebalances").get_by_role("button", name="Undo").first.click()
    expect(page.locator(".notice")).to_contain_text("Put back 3 jobs.")


def test_what_no_longer_holds_is_said(site: Site) -> None:
    bunched(site)
    token = site.access.issue(Role.OPERATOR, HOUR, subject="maria").token
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=site.url, headers=headers, follow_redirects=True) as client:
        gone = client.post("/distribution/rebalance", data={"plan_id": "of yesterday"})
        assert "the schedule has changed since the preview" in gone.text
        done = site.app.balancer.rebalance(by="maria")
        undo = f"/distribution/rebalances/{done.id}/undo"
        assert "Put back" in client.post(undo, data={}).text
        assert "notice-refused" in client.post(undo, data={}).text
        assert client.post("/distribution/rebalances/nonsense/undo", data={}).status_code == 404
        empty(site)
        nothing = client.get("/distribution/rebalance")
        assert "nothing to gain" in nothing.text
        assert "Move 0" not in nothing.text


def test_history_is_drawn_once_there_is_some(site: Site) -> None:
    bunched(site)
    now = site.app.store.clock()
    for hours, score in ((30, 0.4), (20, 0.5), (1, 0.8)):
        site.app.store.placement.record_distribution(
            score=score, peak_load=2, mean_load=1, total_jobs=9, now=now - hours * HOUR
        )
    page = site.visit("viewer", "/distribution")
    expect(page.locator("#score .chart-line")).to_be_visible()


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns"])
def test_slots_are_those_of_the_visitors_zone(zone: str) -> None:
    at = datetime(2026, 1, 5, 3, 45, tzinfo=UTC)
    slots = [0] * 96
    slots[at.hour * 4 + at.minute // 15] = 1
    there = at.astimezone(ZoneInfo(zone))
    assert shifted(slots, at, ZoneInfo(zone)).index(1) == there.hour * 4 + there.minute // 15


def test_it_is_light_accessible_and_fits_a_phone(site: Site, colours: str) -> None:
    bunched(site)
    page = site.visit("operator", "/distribution", color_scheme=colours)
    requests, size = weight(site.of(page))
    assert requests <= 6
    assert size <= 150_000
    assert accessibility_problems(page) == []
    page.locator("#rebalance").click()
    expect(page.locator("dialog .chart")).to_be_visible()
    assert accessibility_problems(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/distribution")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_advice_on_an_interval_stands_on_the_screen_in_the_preview_and_in_the_form(site: Site):
    empty(site)
    for every in ("30m", "1h", "2h", "1d"):
        spec = JobSpec("send_report", schedule=parse_schedule(every), cost=timedelta(minutes=1))
        site.app.enqueue_many([NewJob(spec, {"to": "a@b.c"}) for _ in range(5)])
    odd = JobSpec("send_report", schedule=parse_schedule("37m"), cost=timedelta(minutes=1))
    site.app.add(NewJob(odd, {"to": "a@b.c"}))
    words = "Every 37m meets other runs about 23 times a day wherever it starts; every 36m hardly"
    page = site.visit("operator", "/distribution")
    expect(page.locator("#intervals")).to_contain_text(words)
    assert accessibility_problems(page) == []
    page.goto(f"{page.url}/rebalance")
    expect(page.locator("main")).to_contain_text(words)
    page = site.visit("operator", "/jobs/new")
    page.get_by_label("Task").fill("send_report")
    page.locator("#every").fill("37m")
    expect(page.locator("#preview-hint")).to_contain_text("every 36m")
