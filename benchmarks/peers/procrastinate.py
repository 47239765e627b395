"""Procrastinate: async jobs in one worker, concurrency raised as its guide on throughput says."""

import asyncio

import psycopg
from peers import stage
from procrastinate import App, PsycopgConnector

NAME = "procrastinate"
TITLE = "Procrastinate"
PACKAGES = ("procrastinate", "psycopg")
REQUIREMENTS = (
    "procrastinate==3.10.0",
    "psycopg[binary]==3.3.8",
    "psycopg-pool==3.3.3",
)
NEEDS = "postgres"
DURABLE = True
NOTE = (
    "concurrency=20 (default 1), a pool as large, finished jobs kept as by default; by default "
    "nobody retries the jobs of a killed worker: its guide has a periodic task to be written for it"
)
RHYTHM = "planned"

CONCURRENCY = 20


def application(url: str) -> App:
    """Three tasks on an app."""
    app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=CONCURRENCY))

    @app.task(name="ran")
    async def ran(i: int, sent_at: float) -> None:
        stage.ran(i, sent_at)

    @app.task(name="sleeps")
    async def sleeps(i: int, seconds: float) -> None:
        await asyncio.sleep(stage.began(i, seconds))

    @app.task(name="fires")
    async def fires(timestamp: int, i: int) -> None:
        stage.fired(i, timestamp)

    return app


async def setup(url: str) -> None:
    """Its schema in an empty one."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    app = application(url)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


def left(url: str) -> int:
    """Jobs that are not done."""
    global _looking  # noqa: PLW0603
    if _looking is None:
        _looking = psycopg.connect(url, autocommit=True)
    found = _looking.execute(
        "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
    ).fetchone()
    return int(found[0]) if found else 0


_looking: "psycopg.Connection | None" = None


class Client:
    """An app that defers."""

    def __init__(self, url: str) -> None:
        self.app = application(url)

    async def open(self) -> None:
        await self.app.open_async()
        self.ran, self.sleeps = self.app.tasks["ran"], self.app.tasks["sleeps"]

    async def send(self, i: int, sent_at: float) -> None:
        await self.ran.defer_async(i=i, sent_at=sent_at)

    async def send_many(self, numbers: list[int], sent_at: float) -> None:
        await self.ran.batch_defer_async(*({"i": i, "sent_at": sent_at} for i in numbers))

    async def send_sleeps(self, i: int, seconds: float) -> None:
        await self.sleeps.defer_async(i=i, seconds=seconds)

    async def close(self) -> None:
        await self.app.close_async()


async def worker(url: str, concurrency: int | None) -> None:
    """One process, one event loop."""
    app = application(url)
    async with app.open_async():
        stage.ready()
        await app.run_worker_async(concurrency=max(CONCURRENCY, concurrency or 0))


def schedule_many(url: str, idle: int, firing: int) -> None:
    """Nothing: what is periodic is declared in the worker's code."""


async def scheduler(url: str, idle: int, firing: int) -> None:
    """A worker whose code declares every schedule."""
    app = application(url)
    fires, later = app.tasks["fires"], stage.months_away()
    for i in range(firing):
        declare = app.periodic(cron="* * * * * *", periodic_id=f"{i}", task_kwargs={"i": i})
        declare(fires)
    for i in range(firing, firing + idle):
        cron = f"{i % 60} {i // 60 % 24} {later.tm_mday} {later.tm_mon} *"
        app.periodic(cron=cron, periodic_id=f"{i}", task_kwargs={"i": i})(fires)
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY)
