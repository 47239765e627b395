"""What `enqueue` gives: a handle that knows how its job stands, and waits for its result."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import trio

from evenbeat import Context, Evenbeat, Fail, Job, JobCancelled, JobFailed
from evenbeat.engine import ends
from evenbeat.errors import DatabaseUnavailable, InvalidInput, NotFound, ResultNotKept
from waiting import wait_for


@pytest.fixture
def app(empty_database_url: str) -> Iterator[Evenbeat]:
    app = Evenbeat(empty_database_url, name="handles")
    yield app
    app.close()


@contextmanager
def working(app: Evenbeat) -> Iterator[None]:
    worker = app.worker(concurrency=8)
    worker.start()
    try:
        yield
    finally:
        worker.stop(grace=5)


def test_a_result_arrives_as_the_type_of_the_annotation(app: Evenbeat) -> None:
    @app.task
    def next_day(day: date) -> date:
        return day + timedelta(days=1)

    @app.task
    async def nothing() -> None: ...

    @app.task
    def plain():
        return {"a": [1, 2]}

    with working(app):
        job = next_day.enqueue(date(2030, 1, 31))
        assert job.created
        assert job.result(timeout="20s") == date(2030, 2, 1)
        assert job.status() == "completed"
        assert nothing.enqueue().result(20) is None
        assert plain.enqueue().result(20) == {"a": [1, 2]}
        # Anybody may ask, by the id alone.
        assert app.job(str(job.id)).result() == date(2030, 2, 1)
        assert app.job(job.id) == job
        assert [run.status for run in job.executions()] == ["completed"]


def test_a_failure_is_raised_with_what_the_worker_knows(app: Evenbeat) -> None:
    @app.task(max_retries=0)
    def broken() -> None:
        raise KeyError("käse")

    @app.task
    def given_up() -> None:
        raise Fail("no such customer", code="no_customer")

    with working(app):
        job = broken.enqueue()
        with pytest.raises(JobFailed, match=r"broken.*käse") as caught:
            job.result(20)
        assert (caught.value.job_id, caught.value.task) == (job.id, "broken")
        assert 'raise KeyError("käse")' in (caught.value.trace or "")
        assert "käse" in caught.value.__notes__[0]
        assert job.wait() == "failed"
        with pytest.raises(JobFailed) as caught:
            given_up.enqueue().result(20)
        assert caught.value.error_code == "no_customer"


def test_cancelling_ends_the_wait(app: Evenbeat) -> None:
    started = threading.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.sleep(600)

    with working(app), ThreadPoolExecutor() as threads:
        running = endless.enqueue()
        result = threads.submit(running.result, 20)
        assert started.wait(20)
        running.cancel()
        with pytest.raises(JobCancelled, match=r"^The job \S+ \(endless\) was cancelled\.$"):
            result.result(20)
        later = endless.options(delay="1h").enqueue()
        result = threads.submit(later.result, 20)
        later.cancel()
        with pytest.raises(JobCancelled):
            result.result(20)


def test_progress_is_that_of_the_latest_run(app: Evenbeat) -> None:
    go_on = threading.Event()

    @app.task
    def long(ctx: Context) -> None:
        ctx.progress(40, 100)
        go_on.wait(20)

    with working(app):
        job = long.enqueue()
        wait_for(lambda: (job.progress() or {}).get("done") == 40, "progress is seen")
        go_on.set()
        job.wait(20)


def test_a_timeout_leaves_the_job_alone(app: Evenbeat) -> None:
    @app.task
    def later() -> int:
        return 7

    job = later.enqueue()
    for timeout in (0, 0.2, "200ms"):
        with pytest.raises(TimeoutError, match=r"later.*pending"):
            job.result(timeout)
    with working(app):
        assert job.result(20) == 7


def test_what_has_no_end_or_does_not_exist_is_refused(app: Evenbeat) -> None:
    @app.every("1h")
    def hourly() -> None: ...

    app.sync_schedules()
    named = app.store.read.job_by_name("hourly")
    assert named is not None
    with pytest.raises(InvalidInput, match=r"recurs.*executions"):
        app.job(named.id).result()
    with pytest.raises(NotFound):
        app.job(uuid4()).wait()
    with pytest.raises(InvalidInput, match="UUID"):
        app.job("7")


def test_a_job_that_is_deleted_while_somebody_waits_is_not_found(app: Evenbeat) -> None:
    @app.task
    def never() -> None: ...

    job = never.options(delay="1h").enqueue()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(job.wait, 20)
        wait_for(lambda: app.ends._watched, "somebody waits")
        app.store.control.delete([job.id])
        with pytest.raises(NotFound):
            waiting.result(20)


def test_a_thousand_results_are_awaited_in_async_code(app: Evenbeat) -> None:
    @app.task
    async def square(n: int) -> int:
        return n * n

    async def run() -> list[int]:
        jobs = await asyncio.gather(*(square.enqueue_async(n) for n in range(1000)))
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        begun = time.monotonic()
        results = await asyncio.gather(*jobs)
        ticking.cancel()
        assert ticks > (time.monotonic() - begun) * 10, "the loop was free"
        return results

    with working(app):
        assert asyncio.run(run()) == [n * n for n in range(1000)]


def test_async_forms_run_in_threads_under_trio(app: Evenbeat) -> None:
    @app.task
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    async def run() -> None:
        jobs = await app.enqueue_many_async(double.job(n) for n in range(3))
        assert [await job for job in jobs] == [0, 2, 4]
        later = await double.options(delay="1h").enqueue_async(5)
        with trio.move_on_after(0.2) as waiting:
            await later
        assert waiting.cancelled_caught
        assert [job.id for job in await app.jobs.list_async(status="scheduled")] == [later.id]
        with pytest.raises(NotFound):
            await app.job(uuid4()).status_async()

    with working(app):
        trio.run(run)


def test_async_forms_of_the_rest(app: Evenbeat) -> None:
    @app.task
    async def never() -> None: ...

    async def run() -> None:
        job: Job[None] = await never.options(delay="1h").enqueue_async()
        assert await job.status_async() == "scheduled"
        assert await job.executions_async() == []
        assert await job.progress_async() is None
        with pytest.raises(TimeoutError):
            await job.wait_async(0.1)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(job.result_async(), 0.1)
        await job.cancel_async()
        with pytest.raises(JobCancelled):
            await job

    asyncio.run(run())


def test_a_notification_wakes_who_waits(app: Evenbeat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "FIRST_PAUSE", 60.0)
    monkeypatch.setattr(ends, "LONGEST_PAUSE", 60.0)
    go_on = threading.Event()

    @app.task
    def held() -> int:
        go_on.wait(20)
        return 1

    with working(app), ThreadPoolExecutor() as threads:
        job = held.enqueue()
        result = threads.submit(job.result, 20)
        wait_for(lambda: app.ends._announced.get(job.id), "the workers were told")
        wait_for(lambda: job.status() == "running", "it runs")
        time.sleep(0.2)  # the workers have heard of it
        go_on.set()
        assert result.result(10) == 1


def test_without_notifications_polling_finds_the_end(
    app: Evenbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def quick() -> int:
        return 1

    monkeypatch.setattr(app.store, "notify_ended", lambda _ids: None)
    with working(app):
        assert [quick.enqueue().result(20) for _ in range(3)] == [1, 1, 1]


def test_a_wait_outlasts_the_end_of_its_connection(app: Evenbeat) -> None:
    @app.task
    def late() -> int:
        return 3

    with ThreadPoolExecutor() as threads:
        job = late.enqueue()
        result = threads.submit(job.result, 30)
        wait_for(lambda: app.ends._announced.get(job.id), "somebody waits")
        assert app.ends._listener is not None
        pid = app.ends._listener.connection.info.backend_pid
        with psycopg.connect(app.store.database.url) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [pid])
        with working(app):
            assert result.result(30) == 3


def test_closing_the_application_ends_the_wait(app: Evenbeat) -> None:
    @app.task
    def never() -> None: ...

    with ThreadPoolExecutor() as threads:
        result = threads.submit(never.options(delay="1h").enqueue().result, 20)
        wait_for(lambda: "ends" in vars(app) and app.ends._watched, "somebody waits")
        app.close()
        with pytest.raises(DatabaseUnavailable, match="closed"):
            result.result(10)


def test_the_thread_ends_when_nobody_waits_any_more(
    app: Evenbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "IDLE_SECONDS", 0.2)

    @app.task
    def quick() -> int:
        return 1

    with working(app):
        for _ in range(2):
            assert quick.enqueue().result(20) == 1
            wait_for(lambda: app.ends._thread is None, "the thread has ended")


def test_a_result_that_does_not_fit_its_annotation_says_so(app: Evenbeat) -> None:
    @app.task
    def wrong() -> int:
        lie: Any = "text"
        return lie  # type: ignore[no-any-return]

    with working(app):
        job = wrong.enqueue()
        with pytest.raises(InvalidInput, match=r"wrong: .* does not fit int, the annotation"):
            job.result(20)


def test_a_result_that_was_not_kept_is_no_result(app: Evenbeat) -> None:
    @app.task
    def lots() -> str:
        return "x" * 100_000

    @app.task
    def anything():  # type: ignore[no-untyped-def]  # its result would fit whatever comes
        return object()

    with working(app):
        for job, why in ((lots.enqueue(), "100,002 bytes"), (anything.enqueue(), "unknown type")):
            with pytest.raises(ResultNotKept, match=f"completed, but its result .*{why}"):
                job.result(20)
            assert job.status() == "completed"
    with app.eager(), pytest.raises(ResultNotKept, match="lots"):
        lots.enqueue().result()
