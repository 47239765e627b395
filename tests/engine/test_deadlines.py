"""Deadlines: late starts, missing successes, and who is told, on the virtual clock."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evenbeat import Evenbeat
from evenbeat.domain.clock_time import parse_clock_time
from evenbeat.engine.deadlines import WatchDeadlines
from evenbeat.errors import InvalidInput
from evenbeat.observe.alerts import alerts
from evenbeat.testing import Harness

START = datetime(2030, 1, 1, tzinfo=UTC)  # a Tuesday
HOUR = timedelta(hours=1)


@pytest.fixture
def works() -> dict[str, bool]:
    """Whether the handler succeeds."""
    return {"now": True}


@pytest.fixture
def harness(database_url: str, works: dict[str, bool]) -> Iterator[Harness]:
    app = Evenbeat(database_url)

    @app.task(max_retries=0)
    def backup() -> None:
        if not works["now"]:
            raise RuntimeError("disk full")

    @app.cron("0 2 * * *", must_finish_by="08:00 Europe/Berlin", max_retries=0)
    def nightly() -> None:
        backup()

    @app.cron("0 * * * *", must_succeed_every="3h", max_retries=0)
    def hourly() -> None:
        backup()

    @app.cron("30 * * * *", must_start_within="10m", max_retries=0)
    def prompt() -> None: ...

    with Harness(app, START) as harness:
        yield harness


@pytest.fixture
def told(harness: Harness) -> list[tuple[str, str]]:
    heard: list[tuple[str, str]] = []
    for kind in ("job:late", "job:overdue", "job:recovered"):
        harness.app.on(kind)(lambda event: heard.append((event.kind, event.job.task)))
    return heard


def watched(harness: Harness) -> int:
    """The chore looks, and what it emits is delivered."""
    worker = harness.worker
    changed = WatchDeadlines(harness.app.store, harness.clock, worker.events).run_once()
    harness.app.events.deliver_pending()
    return changed


def of(told: list[tuple[str, str]], task: str) -> list[str]:
    return [kind for kind, name in told if name.endswith(task)]


def pause(harness: Harness, task: str) -> Any:
    (job,) = [one for one in harness.jobs() if one.task.endswith(task)]
    return harness.app.store.control.pause([job.id], now=harness.now).only()


def test_a_nightly_run_that_fails_is_overdue_in_the_morning_and_recovers(harness, works, told):
    harness.advance("5h")
    assert watched(harness) == 0
    works["now"] = False
    harness.advance("21h30m")  # the run of 02:00 fails
    watched(harness)
    assert of(told, "nightly") == []  # it is 02:30: there is time until 08:00 in Berlin
    harness.advance("4h15m")
    watched(harness)
    assert of(told, "nightly") == []
    harness.advance("30m")  # 07:15 UTC is 08:15 in Berlin
    watched(harness)
    watched(harness)
    assert of(told, "nightly") == ["job:overdue"]
    works["now"] = True
    (job,) = [one for one in harness.jobs() if one.task.endswith("nightly")]
    harness.app.store.control.run_now([job.id], now=harness.now)
    harness.drain()
    watched(harness)
    assert of(told, "nightly") == ["job:overdue", "job:recovered"]


def test_no_success_for_too_long_is_overdue_whatever_the_reason(harness, works, told):
    harness.advance("2h30m")
    pause(harness, "hourly")
    harness.advance("2h")
    watched(harness)
    assert of(told, "hourly") == []
    harness.advance("40m")  # the last success was at 02:00
    watched(harness)
    assert of(told, "hourly") == ["job:overdue"]
    (missed,) = harness.app.store.deadlines.missed().values()
    assert missed == "It must succeed at least every 3 h. The last: 2030-01-01 02:00 UTC."


def test_a_start_that_is_late_is_told_while_it_waits_and_recovers_with_one_in_time(harness, told):
    harness.advance("2h")
    harness.skip("40m")  # 02:40: it has been due for ten minutes
    watched(harness)
    assert of(told, "prompt") == []
    harness.skip("1m")
    watched(harness)
    assert of(told, "prompt") == ["job:late"]
    harness.drain()  # it starts, late
    watched(harness)
    assert of(told, "prompt") == ["job:late"]
    harness.advance("1h")  # the next one starts in time
    watched(harness)
    assert of(told, "prompt") == ["job:late", "job:recovered"]


def test_a_late_start_between_two_looks_is_told_too(harness, told):
    harness.advance("2h")
    harness.skip("45m")
    harness.drain()
    watched(harness)
    assert of(told, "prompt") == ["job:late"]


def test_a_paused_job_is_not_late_and_a_cancelled_one_misses_nothing(harness, told):
    harness.advance("2h")
    pause(harness, "prompt")
    (hourly,) = [one for one in harness.jobs() if one.task.endswith("hourly")]
    harness.app.store.control.cancel([hourly.id], now=harness.now)
    harness.skip("2h")
    watched(harness)
    assert of(told, "prompt") == []
    assert of(told, "hourly") == []


def test_a_one_off_job_has_until_the_next_such_time(harness, told):
    job = harness.app.task_named("backup").options(must_finish_by="06:00", delay="1h").enqueue()
    harness.skip("5h")
    watched(harness)
    assert of(told, "backup") == []
    harness.skip("2h")
    watched(harness)
    assert of(told, "backup") == ["job:overdue"]
    harness.drain()
    watched(harness)
    assert job.status() == "completed"
    assert of(told, "backup") == ["job:overdue", "job:recovered"]


def test_who_deletes_the_job_or_takes_the_deadline_away_hears_no_more(harness, told):
    harness.advance("2h")
    harness.skip("10h")
    watched(harness)
    assert len(harness.app.store.deadlines.missed()) == 2  # the nightly run succeeded at 02:00
    by_task = {one.task.rpartition(".")[2]: one for one in harness.jobs()}
    harness.app.store.control.delete([by_task["hourly"].id], now=harness.now)
    harness.app.jobs.update(by_task["prompt"].id, must_start_within=None)
    watched(harness)
    assert harness.app.store.deadlines.missed() == {}
    assert {kind for kind, _ in told} == {"job:late", "job:overdue"}


def test_a_worker_that_dies_after_noting_it_tells_nobody_twice(harness, told):
    harness.advance("2h")
    harness.skip("4h")
    assert watched(harness) > 0
    before = list(told)
    assert watched(harness) == 0
    assert told == before


def test_webhooks_hear_of_it_with_the_deadline(harness):
    app = harness.app
    events = ["job.late", "job.overdue", "job.recovered"]
    hook = app.store.webhooks.add("https://receiver.example", events, now=harness.now)
    harness.advance("2h")
    pause(harness, "hourly")
    harness.skip("4h")
    watched(harness)
    messages, _ = app.store.webhooks.messages(hook.id)
    by_event = {one.event: app.store.webhooks.message(one.id)[1] for one in messages}
    deadline = by_event["job.overdue"]["data"]["deadline"]
    assert deadline["kind"] == "overdue"
    assert deadline["message"].startswith("It must succeed at least every 3 h.")
    assert by_event["job.late"]["data"]["job"]["task"].endswith("prompt")
    assert by_event["job.late"]["data"]["execution"] is None


def test_it_needs_attention(harness):
    harness.advance("2h")
    pause(harness, "hourly")
    harness.skip("4h")
    watched(harness)
    found = alerts(harness.app.store.database.rows, harness.now)
    overdue = next(one for one in found if one.rule.name == "overdue" and "hourly" in one.title)
    assert overdue.rule.severity == "error"
    assert "must_succeed_every" in overdue.detail
    assert any(one.rule.name == "late_start" for one in found)


@pytest.mark.parametrize("text", ["8", "25:00", "08:60", "08:00 Mars/Base", "", 8, None, "8:0"])
def test_what_is_no_time_of_day_is_refused(text):
    with pytest.raises(InvalidInput):
        parse_clock_time(text)


def test_a_time_of_day_follows_its_zone():
    berlin = parse_clock_time(" 8:00 Europe/Berlin")
    assert str(berlin) == "08:00 Europe/Berlin"
    assert berlin.next_after(datetime(2030, 1, 1, tzinfo=UTC)) == START + 7 * HOUR
    assert berlin.latest_until(START + 7 * HOUR) == START + 7 * HOUR
    summer = datetime(2030, 7, 1, tzinfo=UTC)
    assert berlin.next_after(summer) == summer + 6 * HOUR
