"""Fair turns as authors of tasks use them: keys from arguments, and workers that take turns."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from evenbeat import Evenbeat
from evenbeat.errors import InvalidInput
from waiting import wait_for


@pytest.fixture
def app(database_url: str) -> Iterator[Evenbeat]:
    made = Evenbeat(database_url, name="fair")
    yield made
    made.close()


@contextmanager
def workers(app: Evenbeat, count: int, **settings: Any) -> Iterator[None]:
    stopping = threading.Event()
    threads = [
        threading.Thread(target=app.worker(**settings).run, args=(stopping,)) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(("count", "concurrency"), [(1, 4), (2, 1)])
def test_the_few_of_a_tenant_do_not_wait_for_the_many_of_another(
    app: Evenbeat, count: int, concurrency: int
):
    started: list[str] = []
    gate = threading.Event()

    @app.task(fair_key="{tenant}", max_retries=0)
    def work(tenant: str) -> None:
        started.append(tenant)
        gate.wait(30)
        time.sleep(0.002)

    app.enqueue_many(work.job("large") for _ in range(2000))
    with workers(app, count, concurrency=concurrency):
        wait_for(lambda: len(started) >= count * concurrency)
        app.enqueue_many(work.job("small") for _ in range(10))
        gate.set()
        wait_for(lambda: started.count("small") == 10)
        # Each worker hands on what it had claimed already, and then each tenant has half.
        assert len(started) < 400


def test_all_kinds_of_jobs_get_done_together(app: Evenbeat):
    done: list[str] = []

    @app.task(fair_key="{tenant}")
    async def fair(tenant: str) -> None:
        done.append(tenant)

    @app.task
    async def free(tenant: str) -> None:
        done.append(tenant)

    @app.task(concurrency_key="{tenant}", concurrency_limit=3)
    async def limited(tenant: str) -> None:
        done.append(tenant)

    app.enqueue_many(
        task.job(f"{task.name}-{n % 7}") for n in range(140) for task in (fair, free, limited)
    )
    with workers(app, 2):
        wait_for(lambda: len(done) == 3 * 140)


def test_a_job_for_later_and_a_retry_run_in_their_turn(app: Evenbeat):
    attempts: list[int] = []

    @app.task(fair_key="{tenant}", retry_backoff="100ms", max_retries=2, retry_jitter=0)
    async def flaky(tenant: str, number: int) -> None:
        attempts.append(number)
        if attempts.count(number) == 1:
            raise ValueError("the first time")

    flaky.options(delay="300ms").enqueue("a", 1)
    flaky.enqueue("b", 2)
    with workers(app, 1):
        wait_for(lambda: sorted(attempts) == [1, 1, 2, 2])


def test_a_key_made_of_what_the_handler_does_not_take_is_refused_where_it_is_written(app: Evenbeat):
    with pytest.raises(InvalidInput, match=r"The fair_key .* does not take.*customer") as refused:

        @app.task(fair_key="{tenant}")
        def bill(customer: int) -> None: ...

    assert refused.value.field == "fair_key"


def test_a_task_with_limits_takes_no_fair_key(app: Evenbeat):
    @app.task(rate_limit="10/s")
    def call(customer: int) -> None: ...

    with pytest.raises(InvalidInput, match="not both"):
        call.options(fair_key="acme").enqueue(1)
    assert app.store.read.jobs().total == 0


def test_a_fair_key_can_be_given_taken_away_and_changed(app: Evenbeat):
    @app.task
    def work() -> None: ...

    job = work.options(fair_key="acme", fair_weight=3).enqueue()
    stored = app.store.read.job(job.id)
    assert (stored.fair_key, stored.fair_weight) == ("acme", 3)
    app.jobs.update(job.id, fair_key="other", fair_weight=1)
    assert app.store.read.job(job.id).fair_key == "other"
    app.jobs.update(job.id, fair_key=None, concurrency_key="k", concurrency_limit=2)
    stored = app.store.read.job(job.id)
    assert (stored.fair_key, stored.concurrency_key) == (None, "k")
    assert [one.id for one in app.store.claim(uuid4(), 5)] == [job.id]


def test_a_key_that_was_made_of_an_argument_follows_its_edit(app: Evenbeat):
    @app.task(fair_key="{tenant}")
    def work(tenant: str) -> None: ...

    job = work.enqueue("a")
    app.jobs.update(job.id, payload={"tenant": "b"})
    assert app.store.read.job(job.id).fair_key == "b"
