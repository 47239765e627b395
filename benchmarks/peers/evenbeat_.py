"""Evenbeat itself, this checkout, on default settings."""

import asyncio
import threading
from collections.abc import Iterable
from datetime import timedelta
from itertools import count
from typing import Any, NamedTuple

import psycopg
from peers import stage

from evenbeat import Context, Evenbeat, Task
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.store.store import Store

NAME = "evenbeat"
TITLE = "Evenbeat"
PACKAGES = ("evenbeat", "psycopg")
REQUIREMENTS = ()  # the checkout: see `arena.py`
NEEDS = "postgres"
DURABLE = True
NOTE = "default settings; every run stays in its history"
RHYTHM = "planned"


class Application(NamedTuple):
    """What a user would write, and the two tasks that a client enqueues."""

    app: Evenbeat
    ran: Task[..., Any]
    sleeps: Task[..., Any]


def application(url: str) -> Application:
    """Three tasks on an app."""
    app = Evenbeat(url)

    @app.task
    async def ran(i: int, sent_at: float) -> None:
        stage.ran(i, sent_at)

    @app.task
    async def sleeps(i: int, seconds: float) -> None:
        await asyncio.sleep(stage.began(i, seconds))

    @app.task
    async def fires(i: int, ctx: Context) -> None:
        stage.fired(i, ctx.plan_time.timestamp())

    return Application(app, ran, sleeps)


def setup(url: str) -> None:
    """A migrated schema with nothing in it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS evenbeat CASCADE")
    store = Store(url)
    store.migrate()
    store.close()


def left(url: str) -> int:
    """Jobs that are due or running."""
    global _looking  # noqa: PLW0603
    if _looking is None:
        _looking = psycopg.connect(url, autocommit=True)
    found = _looking.execute(
        "SELECT count(*) FROM evenbeat.jobs WHERE status IN ('pending', 'scheduled', 'running')"
    ).fetchone()
    return int(found[0]) if found else 0


_looking: "psycopg.Connection | None" = None


class Client:
    """An application that enqueues."""

    def __init__(self, url: str) -> None:
        self.app, self.ran, self.sleeps = application(url)

    def open(self) -> None:
        self.app.store.clock()

    def send(self, i: int, sent_at: float) -> None:
        self.ran.enqueue(i, sent_at)

    def send_many(self, numbers: list[int], sent_at: float) -> None:
        self.app.enqueue_many(self.ran.job(i, sent_at) for i in numbers)

    async def send_at_once(self, numbers: Iterable[int]) -> None:
        await asyncio.gather(*(self.ran.enqueue_async(i, 0.0) for i in numbers))

    def send_sleeps(self, i: int, seconds: float) -> None:
        self.sleeps.enqueue(i, seconds)

    def close(self) -> None:
        self.app.close()


def worker(url: str, concurrency: int | None) -> None:  # noqa: ARG001  100 at once by default
    """One worker process, as `evenbeat worker` sets it up."""
    from evenbeat.cli.processes import tune_process  # noqa: PLC0415  other revisions lack it

    it = application(url).app.worker()
    tune_process()
    it.start()
    stage.ready()
    threading.Event().wait()


def schedule_many(url: str, idle: int, firing: int) -> None:
    """Schedules are rows: one call for all of them."""
    later = stage.months_away()
    every_second = JobSpec("fires", schedule=Interval(timedelta(seconds=1)))
    jobs = [NewJob(every_second, {"i": i}) for i in range(firing)]
    number = count(firing)
    for n in range(idle):
        when = Cron(f"{n % 60} {n // 60 % 24} {later.tm_mday} {later.tm_mon} *")
        jobs.append(NewJob(JobSpec("fires", schedule=when), {"i": next(number)}))
    with application(url).app as app:
        app.enqueue_many(jobs)


def scheduler(url: str, idle: int, firing: int) -> None:  # noqa: ARG001  they are rows
    """A worker is all that it takes."""
    worker(url, None)
