"""A FastAPI application with a worker inside, and endpoints that leave jobs behind."""

from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Annotated

import pytest
from fastapi import FastAPI, HTTPException
from fastapi.testclient import TestClient

from evenbeat import Evenbeat
from evenbeat.contrib.fastapi import Jobs, enqueueing, lifespan
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
    def make_order(order_id: int, jobs: Annotated[Jobs, enqueueing(app)]) -> int:
        jobs += [send_receipt.job(order_id), send_receipt.job(-order_id)]
        if order_id > 100:
            raise HTTPException(409)
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
