"""Cron with slack: how it is written, when it runs, and where the load puts it."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from evenbeat import Evenbeat
from evenbeat.domain.load_entry import SlackCron
from evenbeat.domain.schedule import Cron, parse_schedule
from evenbeat.errors import InvalidSchedule
from evenbeat.importers.crontab import read_crontab
from evenbeat.importers.plan import canonical
from evenbeat.importers.source import Balance
from evenbeat.placement.load import RUN, CronLoad, LoadModel
from evenbeat.placement.planner import place_cron, place_crons
from evenbeat.placement.simulate import RecurringJob, forecast

NOW = datetime(2026, 2, 4, 9, 3, 27, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("0 1 * * * within 4h", "0 1 * * * within 4h"),
        ("0  1 * * *  within 240m at 2:37", "0 1 * * * within 4h at 02:37"),
        ("H H(1-4) * * *", "0 1 * * * within 4h"),
        ("H H * * 1-5", "0 0 * * 1-5 within 1d"),
        ("H * * * *", "0 * * * * within 1h"),
        ("H 3 1 * *", "0 3 1 * * within 1h"),
        ("H(15-45) 9-17 * * mon-fri", "15 9-17 * * mon-fri within 31m"),
        ("@Daily within 2h", "@daily within 2h"),
        ("0 22 * * * within 4h at 01:10", "0 22 * * * within 4h at 01:10"),
        ("0 * * * * within 1h at :37", "0 * * * * within 1h at :37"),
    ],
)
def test_slack_is_read_and_written(text: str, normal: str) -> None:
    schedule = parse_schedule(text, timezone="Europe/Berlin")
    assert schedule.text == normal
    assert parse_schedule(normal, timezone="Europe/Berlin") == schedule


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 1 * * * within 4h at 05:00", "must lie between 01:00 and 05:00"),
        ("0 1 * * * within 4h at :30", "must lie between"),
        ("0 * * * * within 1h at 01:30", "must lie between minutes 0 and 60"),
        ("0 22 * * mon within 4h", "beyond midnight only for a schedule of every day"),
        ("0 * * * * within 2h", "ends with the hour"),
        ("*/5 * * * * within 5m", "begins at one minute"),
        ("0 1 * * * within 90s", "in whole minutes"),
        ("0 1 * * * within a while", "is not a duration"),
        ("0 1 * * * within 2d", "a day at most"),
        ("0 25 * * * within 1h", "its hour field is wrong"),
        ("H/15 * * * *", "H stands for"),
        ("30 H * * *", "H stands for"),
        ("H H(4-1) * * *", "a day at most"),
    ],
)
def test_wrong_slack_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidSchedule, match=says):
        parse_schedule(text)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "America/New_York"])
def test_a_place_is_inside_on_every_day_of_the_year_once(zone: str) -> None:
    for offset in (0, 97, 239):
        cron = Cron("0 1 * * * within 4h", zone).placed(offset)
        plans = cron.preview(datetime(2026, 1, 1, tzinfo=UTC), 366)
        local = [plan.astimezone(ZoneInfo(zone)) for plan in plans]
        assert all(1 <= at.hour < 5 for at in local)
        assert set(Counter(at.date() for at in local).values()) == {1}
        assert cron.count(plans[0], plans[-1]) == 365
        assert cron.latest_until(plans[-1]) == plans[-1]


def test_without_a_place_it_runs_as_the_slack_begins() -> None:
    cron = Cron("30 1 * * * within 4h", "UTC")
    assert cron.wants_place
    assert cron.next_after(NOW) == datetime(2026, 2, 5, 1, 30, tzinfo=UTC)
    placed = cron.placed(200)
    assert (placed.wants_place, placed.placed(None)) == (False, cron)
    assert placed.describe() == "daily at 04:50 (placed between 01:30 and 05:30), UTC"
    assert Cron("0 1 * * *").placed(5) == Cron("0 1 * * *")


@pytest.mark.parametrize(
    ("expression", "gets"),
    [
        ("0 0 * * *", "0 0 * * * within 2h"),
        ("30 9 * * 1-5", "30 9 * * 1-5 within 2h"),
        ("0 23 * * *", "0 23 * * * within 2h"),
        ("0 23 * * 0", "0 23 * * 0 within 1h"),
        ("15 * * * *", "15 * * * * within 45m"),
        ("@monthly", "@monthly within 2h"),
        ("*/5 * * * *", "*/5 * * * *"),
        ("0 1 * * * within 4h", "0 1 * * * within 4h"),
    ],
)
def test_as_much_slack_as_days_and_hours_allow(expression: str, gets: str) -> None:
    assert Cron(expression).with_slack(2 * HOUR).text == gets


# ---------------------------------------------------------------- where the load puts it


def test_crons_with_slack_lie_apart() -> None:
    model = LoadModel(NOW)
    jobs = [SlackCron(str(n), Cron("0 1 * * * within 4h"), 600_000) for n in range(20)]
    placed = place_crons(model, jobs)
    assert model.peak == 1
    assert model.jobs == len({cron.text for cron in placed}) == 20
    assert (model.workers_sufficient, model.score) == (1, 1.0), "what may move is not fixed"


def test_a_cron_with_slack_avoids_what_is_there() -> None:
    model = LoadModel(NOW)
    model.add_crons({"busy": CronLoad(Cron("0-49 * * * *"), 60_000)})
    placed = place_cron(model, Cron("0 * * * * within 1h"), 300_000)
    assert placed.slack is not None
    assert placed.slack.offset in range(50, 56)
    assert not model.uncertain_load[model.seconds == 0].max() > RUN


def test_crons_of_no_day_in_this_week_lie_apart_as_well() -> None:
    model = LoadModel(NOW)
    jobs = [SlackCron(str(n), Cron("0 1 20 * * within 4h"), 60_000) for n in range(40)]
    places = Counter(cron.text for cron in place_crons(model, jobs))
    assert len(places) >= 35


def test_a_forecast_with_slack_needs_fewer_workers() -> None:
    report = [RecurringJob(f"r{n}", Cron("30 9 * * 1-5"), 10 * MINUTE) for n in range(10)]
    nightly = [RecurringJob(f"n{n}", Cron("0 0 * * *"), 10 * MINUTE) for n in range(10)]
    balanced = forecast([*report, *nightly], NOW)
    loose = forecast([*report, *nightly], NOW, 2 * HOUR)
    assert (balanced.before.peak, balanced.after.peak, loose.after.peak) == (10, 10, 1)
    assert (balanced.workers_sufficient, loose.workers_sufficient) == (10, 1)
    busy = np.flatnonzero(loose.after.per_second) % 86_400 // 60
    assert set((busy // 60).tolist()) <= {0, 1, 2, 9, 10, 11}
    own = [job._replace(schedule=Cron(f"{job.schedule.text} within 2h")) for job in report]
    assert forecast(own, NOW).after.peak == 1


# ---------------------------------------------------------------- import and export


@pytest.mark.parametrize(
    ("line", "balance", "schedule"),
    [
        ("0 0 * * * x", Balance(True, 2 * HOUR), "0 0 * * * within 2h"),
        ("0 0 * * * x", Balance(True), "@every 1d"),
        ("0 0 * * * x", Balance(False, 2 * HOUR), "0 0 * * * within 2h"),
        ("0 * * * * x", Balance(True, 2 * HOUR), "@every 1h"),
        ("15 * * * * x", Balance(True, 2 * HOUR), "15 * * * * within 45m"),
        ("*/7 * * * * x", Balance(True, 2 * HOUR), "*/7 * * * *"),
        ("H H(1-4) * * * x", Balance(), "0 1 * * * within 4h"),
    ],
)
def test_imported_cron_gets_slack_when_asked(line: str, balance: Balance, schedule: str) -> None:
    source = read_crontab(line, origin="x", timezone="UTC", user=None, balance=balance)
    assert [job.document["schedule"] for job in source.jobs] == [schedule]


def test_the_place_is_no_difference_to_an_import() -> None:
    fields = {"task": "t", "schedule": "0 1 * * * within 4h"}
    assert canonical(fields) == canonical({**fields, "schedule": "0 1 * * * within 4h at 02:37"})


def test_decorators_say_it_in_words() -> None:
    app = Evenbeat()

    @app.daily(between="01:00-05:00", timezone="Europe/Berlin")
    def clean() -> None: ...

    @app.weekly(between="22:00-24:00", on="mon,thu")
    def count() -> None: ...

    @app.monthly(between="3:30-4:00", on="L")
    def invoice() -> None: ...

    schedules = {name.rpartition(".")[2]: one.spec.schedule for name, one in app.declared.items()}
    assert schedules == {
        "clean": Cron("0 1 * * * within 4h", "Europe/Berlin"),
        "count": Cron("0 22 * * mon,thu within 2h"),
        "invoice": Cron("30 3 L * * within 30m"),
    }
    with pytest.raises(InvalidSchedule, match="between which times"):
        app.daily(between="night")
