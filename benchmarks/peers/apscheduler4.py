"""APScheduler 4, a pre-release: data store and event broker in PostgreSQL, through asyncpg."""

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
from apscheduler import AsyncScheduler, TaskDefaults, current_job
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.eventbrokers.asyncpg import AsyncpgEventBroker
from apscheduler.triggers.interval import IntervalTrigger
from peers import stage
from sqlalchemy.ext.asyncio import create_async_engine

NAME = "apscheduler4"
TITLE = "APScheduler 4 (pre-release)"
PACKAGES = ("APScheduler", "SQLAlchemy", "asyncpg")
REQUIREMENTS = (
    "APScheduler==4.0.0a6",
    "SQLAlchemy[asyncio]==2.1.8",
    "asyncpg==0.32.0",
    "anyio==4.9.0",  # of its day: it fails with those of today
)
NEEDS = "postgres"
DURABLE = True
NOTE = (
    "SQLAlchemyDataStore and AsyncpgEventBroker, max_concurrent_jobs=100 (default), "
    "max_running_jobs=None (the default of 1 runs a task one at a time); results are not kept "
    "(default); a list is added one by one, it has no call for many"
)
RHYTHM = "planned"


async def ran(i: int, sent_at: float) -> None:
    stage.ran(i, sent_at)


async def sleeps(i: int, seconds: float) -> None:
    await asyncio.sleep(stage.began(i, seconds))


async def fires(i: int) -> None:
    planned = current_job.get().scheduled_fire_time
    stage.fired(i, planned.timestamp() if planned else None)


def scheduler_at(url: str) -> AsyncScheduler:
    """As its documentation puts the pieces together for several processes."""
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://", 1))
    return AsyncScheduler(
        SQLAlchemyDataStore(engine),
        AsyncpgEventBroker.from_async_sqla_engine(engine),
        task_defaults=TaskDefaults(max_running_jobs=None),
    )


async def setup(url: str) -> None:
    """No table: the data store makes them."""
    connection = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    for (table,) in rows:
        await connection.execute(f'DROP TABLE "{table}" CASCADE')
    await connection.close()
    async with scheduler_at(url):
        pass


async def left(url: str) -> int:
    """A job's row is deleted when it has run."""
    global _looking  # noqa: PLW0603
    if _looking is None:
        _looking = await asyncpg.connect(url)
    return int(await _looking.fetchval("SELECT count(*) FROM jobs"))


_looking: "asyncpg.Connection | None" = None


class Client:
    """A scheduler that is not started, so that it only writes."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self) -> None:
        self.it = await scheduler_at(self.url).__aenter__()
        for function in (ran, sleeps):
            await self.it.configure_task(function)

    async def send(self, i: int, sent_at: float) -> None:
        await self.it.add_job(ran, args=(i, sent_at))

    async def send_sleeps(self, i: int, seconds: float) -> None:
        await self.it.add_job(sleeps, args=(i, seconds))

    async def close(self) -> None:
        await self.it.__aexit__(None, None, None)


async def worker(url: str, concurrency: int | None) -> None:  # noqa: ARG001  100 by default
    """One process, one event loop."""
    async with scheduler_at(url) as it:
        await it.start_in_background()
        stage.ready()
        await asyncio.Event().wait()


async def schedule_many(url: str, idle: int, firing: int) -> None:
    """One row each, ten at a time."""
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    every_second = IntervalTrigger(seconds=1, start_time=first)
    later = IntervalTrigger(days=150, start_time=first + timedelta(days=150))
    numbers = iter(range(firing + idle))
    async with scheduler_at(url) as it:

        async def add() -> None:
            for i in numbers:
                when = every_second if i < firing else later
                await it.add_schedule(fires, when, id=f"fires{i}", args=(i,))

        await asyncio.gather(*(add() for _ in range(10)))


async def scheduler(url: str, idle: int, firing: int) -> None:  # noqa: ARG001  they are rows
    """A started scheduler is all that it takes."""
    await worker(url, None)
