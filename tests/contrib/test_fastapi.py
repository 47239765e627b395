"""A FastAPI application with a worker inside, and endpoints that leave jobs behind."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from sqlalchemy import NullPool, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from evenbeat import Evenbeat
from evenbeat.contrib.fastapi import NewJobs, enqueueing, lifespan
from evenbeat.errors import DatabaseUnavailable
from evenbeat.store.lists import JobFilter
from waiting import wait_for


@pytest.fixture
def app(database_url: str) -> Iterator[Evenbeat]:
    app = Evenbeat(database_url, name="shop")
    yield app
    app.close()


def receipts(app: Evenbeat, api: FastAPI) -> list[int]:
    """Endpoints that leave jobs behind; the runs of these."""
    sent: list[int] = []

    @app.task
    def send_receipt(order_id: int) -> None:
        sent.append(order_id)

    @api.post("/orders/{order_id}")
    def make_order(order_id: int, jobs: Annotated[NewJobs, enqueueing(app)]) -> int:
        jobs += [send_receipt.job(order_id), send_receipt.job(-order_id)]
        refuse_large(order_id)
        if order_id == 0:
            jobs.append("no job")
        return order_id

    return sent


def jobs_in(app: Evenbeat) -> int:
    return len(app.store.read.jobs(JobFilter(tasks=["send_receipt"])).jobs)


def test_a_worker_runs_what_requests_leave_behind(app):
    api = FastAPI(lifespan=lifespan(app, concurrency=3))
    sent = receipts(app, api)
    with TestClient(api) as client:
        assert client.post("/orders/7").json() == 7
        wait_for(lambda: len(sent) == 2, "the receipts")
        (status,) = app.counters.status()
        assert sum(runner.slots for runner in status.runners if runner.place == "thread") == 3
    assert sorted(sent) == [-7, 7]
    assert app.counters.status() == []


def test_an_endpoint_that_raises_leaves_nothing_and_one_that_cannot_enqueue_answers_so(app):
    api = FastAPI(lifespan=lifespan(app, worker=False))
    receipts(app, api)
    with TestClient(api, raise_server_exceptions=False) as client:
        assert client.post("/orders/101").status_code == 409
        assert client.post("/orders/0").status_code == 500
        assert jobs_in(app) == 0
        assert client.post("/orders/1").status_code == 200
        assert jobs_in(app) == 2
        assert app.counters.status() == []


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_job_belongs_to_the_transaction_of_its_endpoint(app, kind):
    api = FastAPI()
    url = make_url(app.database_url).set(drivername="postgresql+psycopg")

    @app.task
    def send_receipt(order_id: int) -> None: ...

    if kind == "plain":
        engine = create_engine(url, poolclass=NullPool)

        def plain_session() -> Iterator[Session]:
            with Session(engine) as session, session.begin():
                yield session

        @api.post("/orders/{order_id}")
        def make_order(order_id: int, session: Annotated[Session, Depends(plain_session)]) -> None:
            session.execute(text("SELECT 1"))
            send_receipt.options(connection=session).enqueue(order_id)
            refuse_large(order_id)
    else:
        async_engine = create_async_engine(url, poolclass=NullPool)

        async def async_session() -> AsyncIterator[AsyncSession]:
            async with AsyncSession(async_engine) as session, session.begin():
                yield session

        @api.post("/orders/{order_id}")
        async def make_order_async(
            order_id: int, session: Annotated[AsyncSession, Depends(async_session)]
        ) -> None:
            await session.execute(text("SELECT 1"))
            await send_receipt.options(connection=session).enqueue_async(order_id)
            refuse_large(order_id)

    client = TestClient(api)
    assert client.post("/orders/101").status_code == 409
    assert jobs_in(app) == 0
    assert client.post("/orders/7").status_code == 200
    assert jobs_in(app) == 1


def refuse_large(order_id: int) -> None:
    if order_id > 100:
        raise HTTPException(409)


def test_it_fits_into_a_lifespan_of_ones_own(app):
    steps: list[object] = []

    @asynccontextmanager
    async def own(api: FastAPI):
        async with lifespan(app)(api):
            steps.append(len(app.counters.status()))
            yield
        steps.append(len(app.counters.status()))

    @app.task
    def nothing() -> None: ...

    with TestClient(FastAPI(lifespan=own)):
        assert steps == [1]
    assert steps == [1, 0]


def test_a_database_that_is_not_there_shows_when_the_application_starts():
    app = Evenbeat("postgresql://nobody@127.0.0.1:1/none", database_timeout_seconds=0.1)
    api = FastAPI(lifespan=lifespan(app))
    with pytest.raises(DatabaseUnavailable), TestClient(api):
        pass
