"""SAQ on PostgreSQL: its worker with its default timers and listen/notify."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from peers import stage
from saq import CronJob, Queue, Worker

NAME = "saq"
TITLE = "SAQ (PostgreSQL)"
PACKAGES = ("saq", "psycopg")
REQUIREMENTS = (
    "saq[postgres]==0.26.4",
    "psycopg[binary]==3.3.8",
    "psycopg-pool==3.3.3",
)
NEEDS = "postgres"
DURABLE = True
NOTE = (
    "concurrency=20 (default 10), its pool of 4 to 20 connections, results kept for ten minutes as "
    "by default; many are enqueued at once with gather, as there is no bulk call; by default a job "
    "has one attempt and ten seconds, so that a crash ends it; recurring: every turn enqueues the "
    "next run of each cron job, idle or not, one after another, and ten thousand take seconds"
)
RHYTHM = "planned"

CONCURRENCY = 20
AT_ONCE = 1_000


async def ran(ctx: dict[str, Any], *, i: int, sent_at: float) -> None:  # noqa: ARG001
    stage.ran(i, sent_at)


async def sleeps(ctx: dict[str, Any], *, i: int, seconds: float) -> None:  # noqa: ARG001
    await asyncio.sleep(stage.began(i, seconds))


async def setup(url: str) -> None:
    """Its tables in an empty schema."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    queue = Queue.from_url(url)
    await queue.connect()
    await queue.disconnect()


def left(url: str) -> int:
    """Jobs that are queued or active."""
    global _looking  # noqa: PLW0603
    if _looking is None:
        _looking = psycopg.connect(url, autocommit=True)
    found = _looking.execute(
        "SELECT count(*) FROM saq_jobs WHERE status IN ('new', 'queued', 'active')"
    ).fetchone()
    return int(found[0]) if found else 0


_looking: "psycopg.Connection | None" = None


class Client:
    """A queue that enqueues."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self) -> None:
        self.queue = Queue.from_url(self.url)
        await self.queue.connect()

    async def send(self, i: int, sent_at: float) -> None:
        await self.queue.enqueue("ran", i=i, sent_at=sent_at)

    async def send_many(self, numbers: list[int], sent_at: float) -> None:
        for begin in range(0, len(numbers), AT_ONCE):
            some = numbers[begin : begin + AT_ONCE]
            await asyncio.gather(*(self.send(i, sent_at) for i in some))

    async def send_sleeps(self, i: int, seconds: float) -> None:
        await self.queue.enqueue("sleeps", i=i, seconds=seconds)

    async def close(self) -> None:
        await self.queue.disconnect()


async def worker(url: str, concurrency: int | None) -> None:
    """One process, one event loop."""
    await _work(url, max(CONCURRENCY, concurrency or 0), [])


def schedule_many(url: str, idle: int, firing: int) -> None:
    """Nothing: cron jobs are declared in the worker's code."""


async def scheduler(url: str, idle: int, firing: int) -> None:
    """A worker with a function for each cron job, as a cron job is known by its function's name."""
    later = stage.months_away()
    jobs = [CronJob(_fires(i), cron="* * * * * *") for i in range(firing)]
    for i in range(firing, firing + idle):
        cron = f"{i % 60} {i // 60 % 24} {later.tm_mday} {later.tm_mon} *"
        jobs.append(CronJob(_fires(i), cron=cron))
    await _work(url, CONCURRENCY, jobs)


def _fires(i: int) -> Callable[[dict[str, Any]], Awaitable[None]]:
    async def fires(ctx: dict[str, Any]) -> None:
        stage.fired(i, ctx["job"].scheduled)

    fires.__qualname__ = f"fires{i}"
    return fires


async def _work(url: str, concurrency: int, cron_jobs: list[CronJob[Any]]) -> None:
    queue = Queue.from_url(url)
    await queue.connect()
    it = Worker(queue, functions=[ran, sleeps], concurrency=concurrency, cron_jobs=cron_jobs)
    stage.ready()
    await it.start()
