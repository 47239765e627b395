"""APScheduler 3's job store, written by APScheduler itself."""

import os
import pickle
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from evenbeat.domain.schedule import Cron
from evenbeat.errors import InvalidInput
from evenbeat.importers.apscheduler import read_apscheduler, shown
from evenbeat.importers.source import Balance, ImportSource

NOW = datetime.now(UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def work(kind: str = "", copies: int = 1) -> None:
    """What jobs call; named in the store as module:function."""


class Thing:
    """More than JSON can say."""

    def __repr__(self) -> str:
        return "Thing()"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.sqlite"


@pytest.fixture
def scheduler(url: str) -> Iterator[BackgroundScheduler]:
    store = SQLAlchemyJobStore(url)
    scheduler = BackgroundScheduler(jobstores={"default": store}, timezone=BERLIN)
    scheduler.start(paused=True)
    yield scheduler
    scheduler.shutdown(wait=False)
    store.engine.dispose()


def read(url: str, **options: Any) -> ImportSource:
    return read_apscheduler(url, now=NOW, **options)


def documents(source: ImportSource) -> dict[str, dict[str, Any]]:
    return {job.where: job.document for job in source.jobs}


def test_cron_interval_and_date(scheduler: BackgroundScheduler, url: str) -> None:
    start = datetime(2026, 1, 1, 12, 0, 30, tzinfo=BERLIN)
    then = datetime(2100, 1, 1, tzinfo=UTC)
    scheduler.add_job(work, "cron", id="c", hour="9-17", minute="*/15", args=["x"])
    scheduler.add_job(work, "interval", id="i", minutes=90, start_date=start, kwargs={"copies": 2})
    scheduler.add_job(work, "date", id="d", run_date=then)
    tags = [f"imported:apscheduler:{url}"]
    reference = f"{__name__}:work"
    shared = {"task": "work", "description": f"{reference} of APScheduler", "tags": tags}
    source = read(url)
    assert documents(source) == {
        "c": shared
        | {
            "name": "c",
            "payload": {"kind": "x"},
            "schedule": "*/15 9-17 * * *",
            "timezone": "Europe/Berlin",
        },
        "i": shared
        | {
            "name": "i",
            "payload": {"copies": 2},
            "schedule": "@every 1h30m",
            "anchor_at": "2026-01-01T11:00:30Z",
            "placement": "pinned",
        },
        "d": shared | {"name": "d", "payload": {}, "run_at": "2100-01-01T00:00:00Z"},
    }
    assert not source.reviews
    balanced = documents(read(url, balance=Balance(intervals=True)))["i"]
    assert "anchor_at" not in balanced
    assert "placement" not in balanced


def test_jobs_without_a_chosen_id_are_named_by_their_function(
    scheduler: BackgroundScheduler, url: str
) -> None:
    job = scheduler.add_job(work, "interval", hours=1)
    assert [one["name"] for one in documents(read(url)).values()] == [f"work-{job.id[:8]}"]


def test_pauses_and_missed_runs(scheduler: BackgroundScheduler, url: str) -> None:
    scheduler.add_job(work, "interval", hours=1, id="x", coalesce=False).pause()
    job = documents(read(url))["x"]
    assert job["paused"] is True
    assert job["catch_up"] == "every_plan"


CRONS = [
    CronTrigger(minute=5, timezone="UTC"),
    CronTrigger.from_crontab("*/20 9-17 * jan,jul mon-fri", timezone=BERLIN),
    CronTrigger(day_of_week="*/2", hour=3, timezone=BERLIN),
    CronTrigger(day_of_week="6", hour=3, timezone=BERLIN),
    CronTrigger(day_of_week="sat,sun", hour="0-6/2", timezone=BERLIN),
    CronTrigger(day="last", hour=22, timezone=BERLIN),
    CronTrigger(day="2nd tue,last fri", hour=9, timezone=BERLIN),
    CronTrigger(day="*/10", day_of_week="mon-wed", timezone="UTC"),
    CronTrigger(month="2-11/3", day="1-7", timezone=BERLIN),
    CronTrigger(hour="5/6", minute="50/5", timezone=BERLIN),
]


@pytest.mark.parametrize("trigger", CRONS, ids=str)
def test_cron_fires_at_the_same_moments(
    scheduler: BackgroundScheduler, url: str, trigger: CronTrigger
) -> None:
    scheduler.add_job(work, trigger, id="x")
    job = documents(read(url))["x"]
    ours = Cron(job["schedule"], job["timezone"])
    moment, theirs = datetime(2026, 4, 1, tzinfo=UTC), []
    while len(theirs) < 100:
        job = trigger.get_next_fire_time(None, moment)
        theirs.append(job.astimezone(UTC))
        moment = theirs[-1] + timedelta(seconds=1)
    assert ours.preview(datetime(2026, 3, 31, 23, 59, tzinfo=UTC), 100) == theirs


def test_a_schedule_that_starts_later(scheduler: BackgroundScheduler, url: str) -> None:
    start = (NOW + timedelta(days=400)).replace(hour=12, minute=30, second=0, microsecond=0)
    trigger = CronTrigger(hour=9, timezone="UTC", start_date=start)
    scheduler.add_job(work, trigger, id="x")
    expected = (start + timedelta(days=1)).replace(hour=9, minute=0)
    assert datetime.fromisoformat(documents(read(url))["x"]["run_at"]) == expected


@pytest.mark.parametrize(
    ("trigger", "given", "why"),
    [
        (CronTrigger(second="*/10"), {}, "a condition on the second"),
        (CronTrigger(week=5), {}, "a condition on the week"),
        (CronTrigger(year=2099), {}, "a condition on the year"),
        (CronTrigger(day=13, day_of_week="fri"), {}, "which cron cannot say"),
        (CronTrigger(day="1,2nd tue"), {}, "mixes days of the month"),
        (CronTrigger(hour=1, end_date="2100-01-01"), {}, "schedules here have no end"),
        (IntervalTrigger(hours=1, end_date="2100-01-01"), {}, "schedules here have no end"),
        (IntervalTrigger(hours=1), {"args": [Thing()]}, "cannot be written as JSON"),
        (IntervalTrigger(hours=1), {"kwargs": {"kind": Thing()}}, "cannot be written as JSON"),
        (OrTrigger([CronTrigger(hour=1), CronTrigger(hour=2)]), {}, "Its trigger is a OrTrigger"),
    ],
    ids=str,
)
def test_what_has_no_counterpart_is_told(
    scheduler: BackgroundScheduler, url: str, trigger: Any, given: dict[str, Any], why: str
) -> None:
    scheduler.add_job(work, trigger, id="odd", **given)
    scheduler.add_job(work, "interval", hours=1, id="fine")
    source = read(url)
    assert list(documents(source)) == ["fine"]
    assert [one.where for one in source.reviews] == ["odd"]
    assert why in source.reviews[0].why


def test_what_is_not_carried_over_is_told(scheduler: BackgroundScheduler, url: str) -> None:
    trigger = IntervalTrigger(hours=1, jitter=30)
    scheduler.add_job(work, trigger, id="x", max_instances=3)
    source = read(url)
    assert len(source.jobs) == 1
    told = " ".join(one.why for one in source.reviews)
    assert "without its jitter" in told
    assert "may run 3 times at once there" in told


def test_a_moment_that_has_passed_is_told(scheduler: BackgroundScheduler, url: str) -> None:
    scheduler.add_job(work, DateTrigger(NOW + timedelta(days=1)), id="x")
    source = read_apscheduler(url, now=NOW + timedelta(days=2))
    assert "has passed" in source.reviews[0].why


# -- the store -----------------------------------------------------------------------------------


class Bomb:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


def store_with(path: Path, state: bytes) -> str:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE apscheduler_jobs (id, next_run_time, job_state)")
    connection.execute("INSERT INTO apscheduler_jobs VALUES ('x', 1, ?)", [state])
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


@pytest.mark.parametrize(
    "state",
    [
        pickle.dumps([1]),
        pickle.dumps({"trigger": IntervalTrigger(hours=1)}),
        pickle.dumps({"func": "x:y"}),
        pickle.dumps({"func": "x:y", "trigger": 5}),
        b"",
        b"\x80\x05garbage",
        b"x" * 2_000_000,
    ],
    ids=["list", "no function", "no trigger", "number", "nothing", "garbage", "huge"],
)
def test_broken_jobs_are_told(tmp_path: Path, state: bytes) -> None:
    source = read(store_with(tmp_path / "jobs.sqlite", state))
    assert not source.jobs
    (review,) = source.reviews
    assert "It cannot be read as a job of APScheduler 3" in review.why


def test_pickles_are_read_and_never_run(tmp_path: Path) -> None:
    boom = tmp_path / "boom"
    state = pickle.dumps({"func": "os:mkdir", "trigger": Bomb(boom), "args": (Bomb(boom),)})
    source = read(store_with(tmp_path / "jobs.sqlite", state))
    assert "Its trigger is a posix.mkdir" in source.reviews[0].why
    assert not boom.exists()
    with pytest.raises(FileExistsError):  # the second of both
        pickle.loads(state)  # noqa: S301 - to show that this test could fail
    assert boom.exists()


@pytest.mark.parametrize(
    ("url", "table", "why"),
    [
        ("sqlite:///nowhere.sqlite", "apscheduler_jobs", "sqlite:///nowhere.sqlite cannot be read"),
        ("sqlite:///{path}", "apscheduler_jobs", "no such table: apscheduler_jobs"),
        ("sqlite:///{path}", "x; DROP TABLE y", "is not the name of a table"),
        ("postgresql://nobody:secret@127.0.0.1:1/x", "apscheduler_jobs", "cannot be read"),
        ("nonsense://x", "apscheduler_jobs", "nonsense://x cannot be read"),
        ("jobs.sqlite", "apscheduler_jobs", "cannot be read"),
    ],
)
def test_a_store_that_cannot_be_read(tmp_path: Path, url: str, table: str, why: str) -> None:
    path = tmp_path / "empty.sqlite"
    sqlite3.connect(path).close()
    path.touch()
    with pytest.raises(InvalidInput, match=why) as refused:
        read(url.format(path=path), table=table)
    assert "secret" not in str(refused.value)


def test_a_store_in_postgresql(database_url: str, connect: Any) -> None:
    trigger = CronTrigger(hour=4, timezone="UTC")
    state = {"func": "shop:sync", "trigger": trigger, "args": (), "kwargs": {}, "name": "sync"}
    with connect() as connection:
        connection.execute("DROP SCHEMA IF EXISTS aps CASCADE; CREATE SCHEMA aps")
        connection.execute("CREATE TABLE aps.jobs (id text, next_run_time float, job_state bytea)")
        connection.execute("INSERT INTO aps.jobs VALUES ('x', 1, %s)", [pickle.dumps(state)])
    try:
        source = read(database_url, table="aps.jobs")
    finally:
        with connect() as connection:
            connection.execute("DROP SCHEMA aps CASCADE")
    assert documents(source)["x"]["schedule"] == "0 4 * * *"


def test_other_databases_are_read_by_sqlalchemy(
    scheduler: BackgroundScheduler, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.add_job(work, "interval", hours=1, id="x")
    ours = read(url)
    monkeypatch.setattr(sqlalchemy, "create_engine", partial(engine_for, url))
    assert documents(read("mysql://db/x")).keys() == documents(ours).keys() == {"x"}


def engine_for(url: str, other: str, create: Any = sqlalchemy.create_engine) -> Any:
    """The SQLite database in place of one that these tests do not have."""
    assert other == "mysql://db/x"
    return create(url)


def test_addresses_are_shown_without_their_secrets() -> None:
    assert shown("postgresql://ann:pw@db/x?password=y") == "postgresql://db/x"
    assert shown("sqlite:////var/jobs.sqlite") == "sqlite:////var/jobs.sqlite"
