"""Celery's beat schedule, from a real application without a broker."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from celery import Celery
from celery.schedules import BaseSchedule, crontab, schedule

from evenbeat.domain.schedule import parse_schedule
from evenbeat.errors import InvalidInput
from evenbeat.importers.celery_beat import celery_app_in, read_celery
from evenbeat.importers.source import Balance, ImportSource


class Tides(BaseSchedule):
    """A schedule of somebody's own."""


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("shop", set_as_current=False)
    app.conf.timezone = "Europe/Berlin"

    @app.task(name="shop.report", bind=True, shared=False)
    def report(self: Any, kind: str, copies: int = 1) -> None: ...

    @app.task(name="shop.anything", shared=False)
    def anything(*things: object) -> None: ...

    yield app
    app.close()


def read(app: Celery, entries: dict[str, Any], **options: Any) -> ImportSource:
    app.conf.beat_schedule = entries
    return read_celery(app, origin="shop.celery", **options)


def entry(when: Any, **more: Any) -> dict[str, Any]:
    return {"task": "shop.report", "schedule": when} | more


def test_entries_become_jobs(app: Celery) -> None:
    source = read(
        app,
        {
            "nightly": entry(crontab(hour=2, minute=30), args=("sales",), kwargs={"copies": 2}),
            "often": entry(30.0, kwargs={"kind": "x"}, options={"queue": "fast"}),
            "hourly": {"task": "elsewhere.sync", "schedule": timedelta(hours=1)},
            "explicit": {"task": "elsewhere.sync", "schedule": schedule(run_every=90)},
        },
    )
    tags = ["imported:celery:shop.celery"]
    assert not source.reviews
    assert {job.where: job.document for job in source.jobs} == {
        "nightly": {
            "name": "nightly",
            "task": "shop.report",
            "payload": {"kind": "sales", "copies": 2},
            "schedule": "30 2 * * *",
            "timezone": "Europe/Berlin",
            "tags": tags,
        },
        "often": {
            "name": "often",
            "task": "shop.report",
            "payload": {"kind": "x"},
            "schedule": "@every 30s",
            "queue": "fast",
            "tags": tags,
        },
        "hourly": {
            "name": "hourly",
            "task": "elsewhere.sync",
            "payload": {},
            "schedule": "@every 1h",
            "tags": tags,
        },
        "explicit": {
            "name": "explicit",
            "task": "elsewhere.sync",
            "payload": {},
            "schedule": "@every 1m30s",
            "tags": tags,
        },
    }


def test_tasks_that_add_themselves_are_found(app: Celery) -> None:
    @app.on_after_finalize.connect
    def add(sender: Celery, **_: Any) -> None:
        sender.add_periodic_task(10.0, sender.tasks["shop.report"].s("daily"), name="by itself")

    (job,) = read_celery(app, origin="shop").jobs
    assert job.document["name"] == "by itself"
    assert job.document["payload"] == {"kind": "daily"}


CRONTABS = [
    (crontab(), "* * * * *"),
    (crontab(minute="*/15"), "*/15 * * * *"),
    (crontab(minute=0, hour="*/6"), "0 */6 * * *"),
    (crontab(minute="0,30", hour="8-17", day_of_week="mon-fri"), "0,30 8-17 * * 1-5"),
    (crontab(minute=0, hour=4, day_of_week="thu-mon"), "0 4 * * 0-1,4-6"),
    (crontab(minute=0, hour=4, day_of_week="1-3"), "0 4 * * 1-3"),
    (crontab(minute=0, hour="22-4"), "0 0-4,22-23 * * *"),
    (crontab(minute=0, hour=0, day_of_month="1-7,15-21"), "0 0 1-7,15-21 * *"),
    (crontab(minute=0, hour=0, day_of_month="*/2", day_of_week=1), "0 0 */2 * 1"),
    (crontab(minute=0, hour=0, day_of_month=1, month_of_year="jan,jul"), "0 0 1 1,7 *"),
    (crontab(minute=0, hour=0, day_of_month=13, day_of_week="*/2"), "0 0 13 * */2"),
    (crontab(minute={5, 10}, hour=[1, 2]), "5,10 1-2 * * *"),
]


@pytest.mark.parametrize(("given", "expression"), CRONTABS)
def test_crontabs_fire_on_the_same_minutes(app: Celery, given: crontab, expression: str) -> None:
    app.conf.timezone = "UTC"
    (job,) = read(app, {"x": entry(given, kwargs={"kind": "a"})}).jobs
    assert job.document["schedule"] == expression
    ours = parse_schedule(expression)
    start = datetime(2026, 3, 1, tzinfo=UTC)
    days = [start + timedelta(days=n) for n in range(70)]
    theirs = [
        day.replace(hour=hour, minute=minute)
        for day in days
        if day.day in given.day_of_month
        and day.month in given.month_of_year
        and day.isoweekday() % 7 in given.day_of_week
        for hour in sorted(given.hour)
        for minute in sorted(given.minute)
    ]
    assert ours.preview(start - timedelta(minutes=1), len(theirs[:500])) == theirs[:500]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (entry(crontab(day_of_month=13, day_of_week=5)), "which cron cannot say"),
        (entry(Tides()), "Its schedule is a Tides"),
        (entry(None), "Its schedule is a NoneType"),
        (entry(0.5), "from 1s"),
        (entry(timedelta(days=9999)), "to 3650d"),
        (entry(60, args=(1, 2, 3, 4)), "do not fit the parameters"),
        (entry(60, task="shop.unknown", args=(1,)), "arguments without names"),
        (entry(60, task="shop.anything", args=(1,)), "arguments that have no names"),
        (entry(60, kwargs={"kind": object()}), "cannot be written as JSON"),
        (entry(60, kwargs={"kind": float("nan")}), "cannot be written as JSON"),
        (entry(60, task=None), "needs a task"),
    ],
)
def test_what_has_no_counterpart_is_told(app: Celery, given: dict[str, Any], why: str) -> None:
    source = read(app, {"odd": given, "fine": entry(60, kwargs={"kind": "a"})})
    assert [job.where for job in source.jobs] == ["fine"]
    assert [one.where for one in source.reviews] == ["odd"]
    assert why in source.reviews[0].why


def test_options_that_are_not_carried_over_are_told(app: Celery) -> None:
    source = read(app, {"x": entry(60, options={"queue": "q", "expires": 5, "priority": 3})})
    assert source.jobs[0].document["queue"] == "q"
    assert "without its options expires, priority" in source.reviews[0].why


def test_balance_turns_simple_crontabs_into_intervals(app: Celery) -> None:
    source = read(
        app,
        {"a": entry(crontab(minute=0)), "b": entry(crontab(minute=0, hour=7))},
        balance=Balance(intervals=True),
    )
    assert [job.document["schedule"] for job in source.jobs] == ["@every 1h", "0 7 * * *"]
    assert [job.remark for job in source.jobs] == [
        "was 0 * * * *",
        "stays cron: it names a time of day",
    ]


# -- finding the application ---------------------------------------------------------------------


def module_of(**values: Any) -> ModuleType:
    module = ModuleType("shop")
    vars(module).update(values)
    return module


def test_the_application_of_a_module(app: Celery) -> None:
    assert celery_app_in(module_of(x=1, whatever=app), None) is app
    assert celery_app_in(module_of(other=Celery(set_as_current=False), celery=app), None) is app
    assert celery_app_in(module_of(inner=module_of(it=app)), "inner.it") is app
    assert celery_app_in(module_of(a=app, b=Celery(set_as_current=False)), None) is app


def test_no_application(app: Celery) -> None:
    with pytest.raises(InvalidInput, match="no Celery application in shop"):
        celery_app_in(module_of(app="x"), None)
    with pytest.raises(InvalidInput, match=r"no Celery application app in shop\. .* shop:a\."):
        celery_app_in(module_of(a=app, app=3), "app")


def test_reading_it_does_not_take_celery() -> None:
    assert "celery" in sys.modules  # by this test
    import evenbeat.importers.celery_beat as reader

    assert not any(
        str(getattr(v, "__module__", "")).startswith("celery.") for v in vars(reader).values()
    )
