"""Jobs that take part in a transaction of the caller's, on every kind of connection."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session

from evenbeat import BatchCounts, BatchStatus, Evenbeat, Task
from evenbeat.errors import EvenbeatError, InvalidInput


class Lent(NamedTuple):
    source: Any
    commit: Callable[[], Awaitable[Any]]
    rollback: Callable[[], Awaitable[Any]]


def asyncpg_options(url: str) -> dict[str, Any]:
    parts = conninfo_to_dict(url)
    return {name: parts[key] for name, key in _NAMES.items() if key in parts}


_NAMES = {"host": "host", "port": "port", "user": "user", "database": "dbname"}


@asynccontextmanager
async def of_psycopg(url: str) -> AsyncIterator[Lent]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Lent(connection, connection.commit, connection.rollback)


@asynccontextmanager
async def of_asyncpg(url: str) -> AsyncIterator[Lent]:
    connection = await asyncpg.connect(**asyncpg_options(url))
    await connection.execute("BEGIN")

    async def end(how: str) -> None:
        await connection.execute(f"{how}; BEGIN")

    try:
        yield Lent(connection, lambda: end("COMMIT"), lambda: end("ROLLBACK"))
    finally:
        await connection.close()


@asynccontextmanager
async def engine_of(driver: str, url: str) -> AsyncIterator[AsyncEngine]:
    async def connect() -> Any:
        if driver == "asyncpg":
            return await asyncpg.connect(**asyncpg_options(url))
        return await psycopg.AsyncConnection.connect(url)

    engine = create_async_engine(f"postgresql+{driver}://", async_creator=connect)
    try:
        yield engine
    finally:
        await engine.dispose()


def of_sqlalchemy(driver: str, kind: str) -> Callable[[str], Any]:
    @asynccontextmanager
    async def lend(url: str) -> AsyncIterator[Lent]:
        async with engine_of(driver, url) as engine:
            if kind == "scoped":
                scoped = async_scoped_session(
                    async_sessionmaker(engine), scopefunc=asyncio.current_task
                )
                yield Lent(scoped, scoped.commit, scoped.rollback)
                await scoped.remove()
                return
            opened: Any = AsyncSession(engine) if kind == "session" else AsyncConnection(engine)
            async with opened:
                yield Lent(opened, opened.commit, opened.rollback)

    return lend


ASYNC = {
    "psycopg": of_psycopg,
    "asyncpg": of_asyncpg,
    "AsyncSession on psycopg": of_sqlalchemy("psycopg_async", "session"),
    "AsyncSession on asyncpg": of_sqlalchemy("asyncpg", "session"),
    "AsyncConnection on psycopg": of_sqlalchemy("psycopg_async", "connection"),
    "AsyncConnection on asyncpg": of_sqlalchemy("asyncpg", "connection"),
    "async_scoped_session on asyncpg": of_sqlalchemy("asyncpg", "scoped"),
}


@pytest.fixture
def app() -> Evenbeat:
    return Evenbeat(name="borrowed")


@pytest.fixture
def noop(app: Evenbeat, evenbeat_harness: Any) -> Task[[], None]:
    @app.task
    async def noop() -> None: ...

    evenbeat_harness(app)
    return noop


def total(app: Evenbeat) -> int:
    return app.store.read.jobs().total


@pytest.mark.parametrize("kind", ASYNC)
def test_a_job_is_there_after_commit_and_not_after_rollback(
    app: Evenbeat, noop: Task[[], None], server_url: str, kind: str
) -> None:
    async def run() -> None:
        async with ASYNC[kind](server_url) as lent:
            await noop.options(connection=lent.source).enqueue_async()
            await lent.rollback()
            assert total(app) == 0
            await noop.options(connection=lent.source).enqueue_async()
            assert total(app) == 0
            await lent.commit()
            assert total(app) == 1

    asyncio.run(run())


@pytest.mark.parametrize("kind", ASYNC)
def test_many_jobs_with_keys_names_and_dependencies_commit_and_roll_back_as_one(
    app: Evenbeat, noop: Task[[], None], server_url: str, kind: str
) -> None:
    first = noop.options(name="first", dedup_key="a").enqueue()
    hourly = noop.options(delay="1h", window="08:00-20:00")

    async def run() -> None:
        async with ASYNC[kind](server_url) as lent:
            for end in (lent.rollback, lent.commit):
                jobs = [
                    noop.options(name="first", dedup_key="a").job(),
                    noop.options(name="new ünïcode\\", metadata={"a": "\n\t\\"}).job(),
                    hourly.job(),
                    noop.options(after="first").job(),
                    noop.options(concurrency_key="k", concurrency_limit=1).job(),
                ]
                added = await app.enqueue_many_async(jobs, connection=lent.source)
                assert [done.created for done in added] == [False, True, True, True, True]
                assert added[0].id == first.id
                assert total(app) == 1
                await end()
            assert total(app) == 5
            with pytest.raises(EvenbeatError):
                await noop.options(connection=lent.source, metadata={"nul": "\x00"}).enqueue_async()

    asyncio.run(run())


@pytest.mark.parametrize("kind", ASYNC)
def test_calls_that_a_job_of_the_transaction_stands_for(
    app: Evenbeat, noop: Task[[], None], server_url: str, kind: str
) -> None:
    async def run() -> None:
        async with ASYNC[kind](server_url) as lent:
            bound = noop.options(connection=lent.source)
            ways = [bound.options(unique_for="1h"), bound.options(debounce="1h")]
            for way in ways:
                first = await way.enqueue_async()
                assert first.created
                assert not (await way.enqueue_async()).created
                (again,) = await app.enqueue_many_async([way.job()], connection=lent.source)
                assert (again, again.created) == (first, False)
            await lent.rollback()
            assert [(await way.enqueue_async()).created for way in ways] == [True, True]
            await lent.commit()
        assert not noop.options(unique_for="1h").enqueue().created

    asyncio.run(run())


@pytest.mark.parametrize("kind", ASYNC)
def test_a_batch_and_a_schedule_belong_to_the_transaction_too(
    app: Evenbeat, noop: Task[[], None], server_url: str, kind: str
) -> None:
    async def run() -> None:
        async with ASYNC[kind](server_url) as lent:
            for end, jobs in ((lent.rollback, 0), (lent.commit, 5)):
                batch = await app.batch_async(
                    [noop.job(), noop.job()], then=noop, connection=lent.source
                )
                empty = await app.batch_async([], then=noop, connection=lent.source)
                hourly = {"every": "1h", "name": "hourly", "connection": lent.source}
                assert (await app.schedule_async(noop, **hourly)).created
                assert total(app) == 0
                await end()
                assert total(app) == jobs
            assert batch.counts() == BatchCounts(pending=2)
            assert empty.status() == BatchStatus.COMPLETED

    asyncio.run(run())


@pytest.mark.parametrize("driver", ["psycopg_async", "asyncpg"])
def test_plain_code_within_run_sync_takes_part(
    app: Evenbeat, noop: Task[[], None], server_url: str, driver: str
) -> None:
    def plain(session: Session) -> None:
        session.execute(text("SELECT 1"))
        noop.options(connection=session).enqueue()
        noop.options(connection=session.connection()).enqueue()
        app.enqueue_many([noop.job()], connection=session)
        noop.enqueue()  # in a transaction of its own

    async def run() -> None:
        async with engine_of(driver, server_url) as engine, AsyncSession(engine) as session:
            await session.run_sync(plain)
            await session.rollback()
            assert total(app) == 1
            await session.run_sync(plain)
            await session.commit()
            assert total(app) == 5

    asyncio.run(run())


def test_plain_connections_may_be_lent_to_the_async_form(
    app: Evenbeat, noop: Task[[], None], server_url: str
) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(server_url))

    async def run() -> None:
        with psycopg.connect(server_url) as connection:
            await noop.options(connection=connection).enqueue_async()
            connection.rollback()
            assert total(app) == 0
            await app.enqueue_many_async([noop.job()], connection=connection)
            connection.commit()
        with Session(engine) as session:
            await noop.options(connection=session).enqueue_async()
            assert total(app) == 1
            session.commit()
        assert total(app) == 2

    asyncio.run(run())
    engine.dispose()


def test_an_async_connection_in_plain_code_is_refused_with_what_to_do(
    app: Evenbeat, noop: Task[[], None], server_url: str
) -> None:
    async def run() -> None:
        for kind, lend in ASYNC.items():
            async with lend(server_url) as lent:
                with pytest.raises(InvalidInput, match="enqueue_async"):
                    noop.options(connection=lent.source).enqueue()
                with pytest.raises(InvalidInput, match="enqueue_many_async"):
                    app.enqueue_many([noop.job()], connection=lent.source)
            assert total(app) == 0, kind

    asyncio.run(run())


def test_what_is_no_connection_is_refused_in_async_code_too(
    app: Evenbeat, noop: Task[[], None]
) -> None:
    async def run() -> None:
        with (
            sqlite3.connect(":memory:") as connection,
            pytest.raises(InvalidInput, match="asyncpg"),
        ):
            await noop.options(connection=connection).enqueue_async()

    asyncio.run(run())


def test_a_pool_is_no_connection_that_a_transaction_could_be_open_on(
    app: Evenbeat, noop: Task[[], None], server_url: str
) -> None:
    async def run() -> None:
        async with asyncpg.create_pool(**asyncpg_options(server_url), min_size=1) as pool:
            with pytest.raises(InvalidInput, match=r"asyncpg\.pool\.Pool.* Pass a connection"):
                await noop.options(connection=pool).enqueue_async()
            async with pool.acquire() as connection, connection.transaction():
                await noop.options(connection=connection).enqueue_async()

    asyncio.run(run())
    assert total(app) == 1


def test_enqueueing_waits_for_no_thread_of_the_default_executor(
    app: Evenbeat, noop: Task[[], None]
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, time.sleep, 3)
        await asyncio.gather(*(noop.enqueue_async() for _ in range(50)))
        assert not busy.done()
        await busy

    asyncio.run(run())
    assert total(app) == 50


def test_the_loop_goes_on_while_a_row_is_locked_and_a_cancelled_call_leaves_the_pool_whole(
    app: Evenbeat, noop: Task[[], None], server_url: str
) -> None:
    async def run() -> None:
        with psycopg.connect(server_url) as blocker:
            blocker.execute(f'LOCK TABLE "{app.settings.db_schema}".jobs IN EXCLUSIVE MODE')
            calls = [asyncio.create_task(noop.enqueue_async()) for _ in range(30)]
            await asyncio.sleep(0.3)  # returns: the loop is free
            assert not any(call.done() for call in calls)
            for call in calls[:20]:
                call.cancel()
            ended = await asyncio.gather(*calls[:20], return_exceptions=True)
            assert all(isinstance(error, asyncio.CancelledError) for error in ended)
            blocker.rollback()
        await asyncio.gather(*calls[20:])
        await asyncio.gather(*(noop.enqueue_async() for _ in range(20)))

    asyncio.run(run())
    assert total(app) >= 30


def test_without_asyncios_loop_the_message_says_what_to_do(noop: Task[[], None]) -> None:
    call = noop.enqueue_async()
    with pytest.raises(EvenbeatError, match="asyncio"):
        call.send(None)
