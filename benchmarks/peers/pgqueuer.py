"""PgQueuer: as its guide on performance tuning advises, with its default durability."""

import asyncio
from collections.abc import Iterable

import asyncpg
import uvloop
from peers import stage
from pgqueuer import PgQueuer, Queries
from pgqueuer.models import Job, Schedule

NAME = "pgqueuer"
TITLE = "PgQueuer"
PACKAGES = ("pgqueuer", "asyncpg", "uvloop")
REQUIREMENTS = ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0")
NEEDS = "postgres"
DURABLE = True
NOTE = (
    "durable tables, its autovacuum settings, batch_size=250 (default 10; its guide: larger for "
    "short jobs; the fastest of 10 to 1,000 here), one asyncpg connection, uvloop as in its own "
    "command line; finished jobs stay in its log"
)
RHYTHM = "seconds"

BATCH = 250


async def setup(url: str) -> None:
    """`pgq install` and `pgq autovac`, in a database without it."""
    connection = await asyncpg.connect(url)
    queries = Queries.from_asyncpg_connection(connection)
    if await queries.schema_is_installed():
        await queries.uninstall()
    await queries.install()
    await queries.optimize_autovacuum()
    await connection.close()


async def left(url: str) -> int:
    """Rows that are queued or picked."""
    global _looking  # noqa: PLW0603
    if _looking is None:
        _looking = await asyncpg.connect(url)
    return int(await _looking.fetchval("SELECT count(*) FROM pgqueuer"))


_looking: asyncpg.Connection | None = None


class Client:
    """One connection; lists are enqueued in one statement."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pool: asyncpg.Pool | None = None

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.url)
        self.queries = Queries.from_asyncpg_connection(self.connection)

    async def send(self, i: int, sent_at: float) -> None:
        await self.queries.enqueue("ran", f"{i} {sent_at}".encode())

    async def send_many(self, numbers: list[int], sent_at: float) -> None:
        payloads = [f"{i} {sent_at}".encode() for i in numbers]
        await self.queries.enqueue(["ran"] * len(numbers), payloads, [0] * len(numbers))

    async def send_at_once(self, numbers: Iterable[int]) -> None:
        """Through a pool of ten connections, as many as Evenbeat opens."""
        if self.pool is None:
            self.pool = await asyncpg.create_pool(self.url, min_size=10, max_size=10)
        queries = Queries.from_asyncpg_pool(self.pool)
        payloads = [f"{i} 0.0".encode() for i in numbers]
        await asyncio.gather(*(queries.enqueue("ran", payload) for payload in payloads))

    async def send_sleeps(self, i: int, seconds: float) -> None:
        await self.queries.enqueue("sleeps", f"{i} {seconds}".encode())

    async def close(self) -> None:
        await self.connection.close()
        if self.pool is not None:
            await self.pool.close()


def worker(url: str, concurrency: int | None) -> None:  # noqa: ARG001  it has no limit by default
    """One process, one event loop."""

    async def run() -> None:
        pgq = PgQueuer.from_asyncpg_connection(await asyncpg.connect(url))

        @pgq.entrypoint("ran")
        async def ran(job: Job) -> None:
            i, sent_at = job.payload.split()
            stage.ran(int(i), float(sent_at))

        @pgq.entrypoint("sleeps")
        async def sleeps(job: Job) -> None:
            i, seconds = job.payload.split()
            await asyncio.sleep(stage.began(int(i), float(seconds)))

        stage.ready()
        await pgq.run(batch_size=BATCH)

    uvloop.run(run())


def schedule_many(url: str, idle: int, firing: int) -> None:
    """Nothing: a schedule needs a function in the worker, which stores it when it starts."""


def scheduler(url: str, idle: int, firing: int) -> None:
    """One process that has every schedule."""

    async def run() -> None:
        pgq = PgQueuer.from_asyncpg_connection(await asyncpg.connect(url))
        for i in range(firing):

            async def fires(schedule: Schedule, i: int = i) -> None:  # noqa: ARG001
                stage.fired(i)

            pgq.schedule(f"fires{i}", "* * * * * *")(fires)
        later = stage.months_away()
        for i in range(idle):

            async def idles(schedule: Schedule, i: int = firing + i) -> None:  # noqa: ARG001
                stage.fired(i)

            pgq.schedule(f"idles{i}", f"{i % 60} {i // 60 % 24} {later.tm_mday} {later.tm_mon} *")(
                idles
            )
        await pgq.run(batch_size=BATCH)

    uvloop.run(run())
