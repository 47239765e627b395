"""Limits as authors of tasks use them: keys from arguments, schedules, workers that keep them."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evenbeat import Evenbeat
from evenbeat.errors import InvalidInput
from evenbeat.observe.explain import explain

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def app() -> Evenbeat:
    return Evenbeat(name="limits")


def limits_of(app: Evenbeat, job_id: Any) -> tuple[str | None, int | None, str | None]:
    job = app.store.read.job(job_id)
    return job.concurrency_key, job.concurrency_limit, job.rate_limit


def test_a_key_is_made_of_the_arguments(app: Evenbeat, evenbeat_harness: Any):
    @app.task(concurrency_key="customer:{customer_id}", concurrency_limit=2, rate_limit="100/min")
    def bill(customer_id: int, note: str | None = None) -> None: ...

    evenbeat_harness(app)
    assert limits_of(app, bill.enqueue(42).id) == ("customer:42", 2, "100/m")
    assert limits_of(app, bill.enqueue(customer_id=7).id) == ("customer:7", 2, "100/m")
    several = app.enqueue_many(bill.job(number) for number in range(3))
    assert [limits_of(app, added.id)[0] for added in several] == [
        "customer:0", "customer:1", "customer:2",
    ]  # fmt: skip
    own = bill.options(concurrency_key="note:{note}", concurrency_limit=1, rate_limit="1/s")
    assert limits_of(app, own.enqueue(1, note="x").id) == ("note:x", 1, "1/s")


def test_an_argument_that_is_missing_is_refused_when_the_job_is_added(
    app: Evenbeat, evenbeat_harness: Any
):
    @app.task(concurrency_key="customer:{customer_id}")
    def bill(customer_id: int | None = None) -> None: ...

    evenbeat_harness(app)
    for wrong in ({}, {"customer_id": None}):
        with pytest.raises(InvalidInput, match="'customer_id', which is missing"):
            bill.enqueue(**wrong)
    assert app.store.read.jobs().total == 0
    assert app.store.limits.page().total == 0


def test_a_key_made_of_what_the_handler_does_not_take_is_refused_where_it_is_written(app: Evenbeat):
    with pytest.raises(InvalidInput, match=r"does not take.*customer_id"):

        @app.task(concurrency_key="{customer}")
        def bill(customer_id: int) -> None: ...

    with pytest.raises(InvalidInput, match="braces"):

        @app.task(concurrency_key="{customer")
        def bill_again(customer_id: int) -> None: ...

    with pytest.raises(InvalidInput, match="is not a rate"):

        @app.task(rate_limit="often")
        def send() -> None: ...

    @app.task(concurrency_key="{anything}")
    def takes_all(**arguments: str) -> None: ...


def test_schedules_have_limits_too(app: Evenbeat, evenbeat_harness: Any):
    @app.every("1h", concurrency_key="region:{region}", payload={"region": "eu"})
    def hourly(region: str) -> None: ...

    @app.cron("0 * * * *", rate_limit="5 per 30s")
    def by_cron() -> None: ...

    harness = evenbeat_harness(app)
    found = {job.name: job for job in app.store.read.jobs().jobs}
    assert found["hourly"].concurrency_key == "region:eu"
    assert (found["by_cron"].concurrency_key, found["by_cron"].rate_limit) == ("by_cron", "5/30s")
    assert app.sync_schedules().changed == 0
    assert harness.advance("3h") == 6


def test_one_after_the_other_and_all_of_them(app: Evenbeat, evenbeat_harness: Any):
    running, most = 0, 0

    @app.task(concurrency_key="only-one")
    async def alone() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1

    harness = evenbeat_harness(app)
    app.enqueue_many(alone.job() for _ in range(10))
    assert harness.drain() == 10
    assert most == 1


def test_an_hour_of_a_rate(app: Evenbeat, evenbeat_harness: Any):
    @app.task(rate_limit="10/min")
    def paced() -> None: ...

    @app.task
    def free() -> None: ...

    harness = evenbeat_harness(app)
    app.enqueue_many(paced.job() for _ in range(100))
    assert harness.drain() == 1
    free.enqueue()
    assert harness.advance("5m") == 51
    assert harness.advance("10m") == 49
    assert app.store.read.counts_by_status() == {"completed": 101}


def test_a_worker_uses_what_is_free_without_polling(app: Evenbeat, database_url: str):
    """One place, plain and async handlers behind one key: each end lets the next one start."""
    lock, running, most = threading.Lock(), 0, 0

    def begin() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)

    def end() -> None:
        nonlocal running
        with lock:
            running -= 1

    @app.task(concurrency_key="shared")
    def plain() -> None:
        begin()
        end()

    @app.task(concurrency_key="shared")
    async def on_loop() -> None:
        begin()
        await asyncio.sleep(0)
        end()

    app.configure(database_url=database_url, poll_seconds=60)
    done = threading.Event()
    count = 30
    finished = 0

    @app.on("job:complete")
    def heard(_event: Any) -> None:
        nonlocal finished
        finished += 1
        if finished == count:
            done.set()

    worker = app.worker()
    worker.start()
    try:
        app.enqueue_many((plain if n % 2 else on_loop).job() for n in range(count))
        assert done.wait(60), app.store.read.counts_by_status()
    finally:
        worker.stop(grace=0)
        app.close()
    assert most == 1


def test_a_key_waits_for_the_time_its_rate_gives(app: Evenbeat, evenbeat_harness: Any):
    @app.task(rate_limit="1/h")
    def rare() -> None: ...

    harness = evenbeat_harness(app)
    rare.enqueue()
    later = rare.enqueue()
    assert harness.drain() == 1
    told = explain(app.store.read.circumstances(later.id, now=harness.clock.now()))
    assert told.facts[0].code in ("rate_limit", "no_worker")
    assert harness.advance(timedelta(minutes=59)) == 0
    assert harness.advance(timedelta(minutes=1)) == 1
