"""`app.eager()`: to enqueue a job is to run it, without a database."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from evenbeat import Context, Evenbeat, Fail, Retry
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Cron
from evenbeat.errors import IllegalTransition, InvalidInput, JobFailed, TaskUnknown, TooLarge

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


@pytest.fixture
def app() -> Iterator[Evenbeat]:
    """An application whose database does not exist."""
    app = Evenbeat(NOWHERE, max_payload_bytes=2000)
    yield app
    assert "store" not in app.__dict__


class Order(BaseModel):
    id: int
    at: datetime


# -- a run -----------------------------------------------------------------------------------------


def test_a_job_has_run_when_enqueue_returns(app: Evenbeat) -> None:
    @app.task
    def send(to: str, copies: int = 1) -> dict[str, Any]:
        return {"to": to, "copies": copies}

    with app.eager() as eager:
        job: Any = send.enqueue("ann", copies=2)
        assert isinstance(job.id, UUID)
        assert job.created
        assert (job.status(), job.result()) == ("completed", {"to": "ann", "copies": 2})
        assert [one.id for one in eager.jobs] == [job.id]
        assert eager.jobs[0].record().payload == {"to": "ann", "copies": 2}


def test_arguments_and_results_take_the_way_through_json(app: Evenbeat) -> None:
    seen: list[Any] = []

    @app.task
    def ship(order: Order, days: set[int], by: timedelta, rest: Any = None) -> Any:
        seen.append((order, days, by, rest))
        return {"order": order, "tags": ("a", "b"), "when": order.at}

    order = Order(id=7, at=datetime(2030, 1, 1, tzinfo=UTC))
    rest = {"list": [1, 2]}
    with app.eager():
        job: Any = ship.enqueue(order, {1, 2}, timedelta(hours=1), rest=rest)
    ((seen_order, days, by, seen_rest),) = seen
    assert (seen_order, days, by, seen_rest) == (order, {1, 2}, timedelta(hours=1), rest)
    assert seen_order is not order
    assert seen_rest["list"] is not rest["list"]
    at = "2030-01-01T00:00:00Z"
    assert job.result() == {"order": {"id": 7, "at": at}, "tags": ["a", "b"], "when": at}


def test_what_a_worker_would_refuse_is_refused(app: Evenbeat) -> None:
    @app.task
    def count(n: int, text: str = "") -> None: ...

    with app.eager() as eager:
        with pytest.raises(InvalidInput, match="count: argument 'n'"):
            count.enqueue("many")  # type: ignore[arg-type]
        with pytest.raises(TooLarge, match="payload takes"):
            count.enqueue(1, text="x" * 3000)
        with pytest.raises(InvalidInput, match=r"metadata\.x cannot be stored"):
            count.options(metadata={"x": object()}).enqueue(1)
        with pytest.raises(TaskUnknown, match="known are: count"):
            app.add(NewJob(JobSpec("other")))
        assert eager.jobs == []


def test_a_result_that_cannot_be_stored_is_what_a_worker_would_store(app: Evenbeat) -> None:
    @app.task
    def lots() -> str:
        return "x" * 100_000

    with app.eager():
        (run,) = lots.enqueue().executions()
        assert run.result["type"] == "str"


@pytest.mark.parametrize("inside", ["plainly", "in a loop", "awaited"])
def test_async_handlers_run_wherever_they_are_enqueued(app: Evenbeat, inside: str) -> None:
    @app.task
    async def fetch(n: int, ctx: Context) -> int:
        await asyncio.sleep(0)
        return n + ctx.attempt

    async def main() -> Any:
        job: Any = fetch.enqueue(2) if inside == "in a loop" else await fetch.enqueue_async(2)
        return await job

    with app.eager():
        if inside == "plainly":
            job: Any = fetch.enqueue(2)
            assert job.result() == 3
        else:
            assert asyncio.run(main()) == 3


def test_a_plain_handler_runs_in_the_thread_of_its_caller_and_in_variables_of_its_own(
    app: Evenbeat,
) -> None:
    @app.task
    def note() -> list[Any]:
        before = tenant.get()
        tenant.set("handler")
        return [before, threading.get_ident()]

    tenant.set("caller")
    with app.eager():
        job: Any = note.enqueue()
    assert job.result() == ["nobody", threading.get_ident()]
    assert tenant.get() == "caller"


def test_a_handler_has_its_context(app: Evenbeat) -> None:
    seen: list[Any] = []

    @app.task(priority=70, max_retries=2)
    def look(ctx: Context) -> None:
        ctx.progress(1, 2)
        ctx.report(rows_affected=3)
        ctx.heartbeat()
        seen.append((ctx.job.priority, ctx.job.status, ctx.attempt, ctx.cancelled, ctx.plan_time))
        assert abs(ctx.now - datetime.now(UTC)) < timedelta(minutes=1)
        assert ctx.execution_id

    later = datetime(2040, 1, 1, tzinfo=UTC)
    with app.eager():
        look.options(run_at=later, created_by="ann", metadata={"a": 1}).enqueue()
    assert seen == [(70, "running", 1, False, later)]


def test_a_handle_has_what_a_real_one_has(app: Evenbeat) -> None:
    @app.task
    def ship(order: Order, ctx: Context) -> Order:
        ctx.progress(1, 2, "packed")
        ctx.report(rows_affected=3)
        return order

    order = Order(id=7, at=datetime(2030, 1, 1, tzinfo=UTC))
    with app.eager():
        job = ship.enqueue(order)
        assert app.job(job.id) is job
        assert app.job(str(job.id)) == job
    assert job.result() == order
    assert job.wait() == "completed"
    assert job.progress() == {"done": 1, "total": 2, "message": "packed"}
    (run,) = job.executions()
    assert (run.rows_affected, run.job_id, run.status) == (3, job.id, "completed")
    with pytest.raises(IllegalTransition, match="completed cannot be cancelled"):
        job.cancel()

    async def in_async_code() -> None:
        assert await job == await job.result_async() == order
        assert await job.wait_async(timeout=1) == await job.status_async() == "completed"
        assert (await job.record_async(), await job.executions_async()) == (job.record(), [run])
        assert await job.progress_async() == job.progress()
        with pytest.raises(IllegalTransition):
            await job.cancel_async()

    asyncio.run(in_async_code())


def test_jobs_enqueue_jobs(app: Evenbeat) -> None:
    @app.task
    def child(n: int) -> int:
        return n * n

    @app.task
    async def parent() -> int:
        jobs: Any = [await child.enqueue_async(n) for n in range(3)]
        return sum(job.result() for job in jobs)

    with app.eager() as eager:
        job: Any = parent.enqueue()
        assert job.result() == 5
        assert [one.record().task for one in eager.jobs] == ["parent", "child", "child", "child"]
        added: Any = app.enqueue_many(child.job(n) for n in (5, 6))
        assert [one.result() for one in added] == [25, 36]


def test_many_jobs_at_once_are_not_nested(app: Evenbeat) -> None:
    @app.task
    async def fetch(n: int) -> int:
        await asyncio.sleep(0.05)
        return n

    async def main() -> list[Any]:
        jobs = await asyncio.gather(*(fetch.enqueue_async(n) for n in range(120)))
        return [await job for job in jobs]

    with app.eager():
        assert asyncio.run(main()) == list(range(120))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_that_enqueues_itself_for_ever_is_told_so(app: Evenbeat, is_async: bool) -> None:
    def plain() -> None:
        again.options(delay="1h").enqueue()

    async def later() -> None:
        await again.options(delay="1h").enqueue_async()

    again: Any = app.task(later if is_async else plain, name="again")

    with app.eager(), pytest.raises(InvalidInput, match=r"of the task 'again'\. Does it enqueue"):
        again.enqueue()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("inside", ["plainly", "awaited"])
def test_middleware_is_around_and_variables_are_carried(
    app: Evenbeat, is_async: bool, inside: str
) -> None:
    seen: list[Any] = []

    @app.around
    @contextmanager
    def outer(ctx: Context) -> Iterator[None]:
        seen.append(f"outer {ctx.job.task}")
        yield
        seen.append("left outer")

    @asynccontextmanager
    async def inner(ctx: Context) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        seen.append("inner")
        try:
            yield
        finally:
            seen.append("left inner")

    def plain() -> str:
        seen.append(tenant.get())
        return tenant.get()

    async def later() -> str:
        return plain()

    app.carry(tenant)
    task: Any = app.task(later if is_async else plain, name="look", around=[inner])

    async def main() -> Any:
        return await (await task.enqueue_async())

    with app.eager():
        tenant.set("shop 7")
        assert (asyncio.run(main()) if inside == "awaited" else task.enqueue().result()) == "shop 7"
    assert seen == ["outer look", "inner", "shop 7", "left inner", "left outer"]


def test_what_middleware_raises_is_the_runs_error(app: Evenbeat) -> None:
    @app.around
    @contextmanager
    def closed(_ctx: Context) -> Iterator[None]:
        raise PermissionError("closed on Sundays")
        yield

    @app.task
    def look() -> None:
        raise AssertionError

    with app.eager(), pytest.raises(PermissionError, match="closed on Sundays"):
        look.enqueue()


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [ValueError("row 7"), Fail("no such order"), Retry("busy", after="1h")], ids=repr
)
def test_what_a_handler_raises_comes_out_of_enqueue(app: Evenbeat, error: Exception) -> None:
    runs: list[int] = []

    @app.task(max_retries=5)
    def breaks() -> None:
        runs.append(1)
        raise error

    with app.eager() as eager:
        with pytest.raises(type(error)) as caught:
            breaks.enqueue()
        assert caught.value is error
        (job,) = eager.jobs
        assert (job.status(), job.raised) == ("failed", error)
        assert job.record().error_message == str(error)
    assert runs == [1]


@pytest.mark.parametrize("is_async", [False, True])
def test_or_is_kept_with_the_job(app: Evenbeat, is_async: bool) -> None:
    def breaks() -> None:
        raise ValueError("row 7")

    async def breaks_later() -> None:
        raise ValueError("row 7")

    task: Any = app.task(breaks_later if is_async else breaks)
    with app.eager(raise_errors=False):
        job = task.enqueue()
        assert job.status() == "failed"
        with pytest.raises(JobFailed, match="failed with ValueError: row 7"):
            job.result()
        with pytest.raises(JobFailed):
            asyncio.run(job.result_async())
        (run,) = job.executions()
        assert (run.status, run.error_code, run.error_message) == ("failed", "ValueError", "row 7")
        assert "in breaks" in run.stack_trace


# -- what it does not do ---------------------------------------------------------------------------


def test_a_job_that_waits_for_others_or_recurs_does_not_run(app: Evenbeat) -> None:
    @app.task
    def first() -> None: ...

    @app.task
    def second() -> None:
        raise AssertionError

    with app.eager() as eager:
        waiting: Any = second.options(after=first.enqueue()).enqueue()
        assert waiting.status() == "pending"
        recurring: Any = app.add(NewJob(JobSpec("second", schedule=Cron("@daily"))))
        assert recurring.status() == "scheduled"
        for verb in (waiting.result, waiting.wait):
            with pytest.raises(InvalidInput, match="has not run"):
                verb()
        assert (waiting.executions(), waiting.progress()) == ([], None)
        waiting.cancel()
        assert waiting.status() == "cancelled"
        scheduled = app.schedule(second, every="1h", name="hourly")
        assert (scheduled.status(), scheduled.record().name) == ("scheduled", "hourly")
        assert app.schedule(second, every="1h", name="hourly", replace=True).id != scheduled.id
        assert len(eager.jobs) == 5


def test_it_ends_with_its_block(app: Evenbeat, database_url: str) -> None:
    runs: list[int] = []
    real = Evenbeat(database_url)

    @real.task
    def note() -> None:
        runs.append(1)

    with real:
        with real.eager() as outer:
            with real.eager() as inner:
                note.enqueue()
            note.enqueue()
        with pytest.raises(RuntimeError, match="the test's own"), real.eager():
            raise RuntimeError("the test's own")
        added = note.enqueue()
        assert runs == [1, 1]
        assert (len(outer.jobs), len(inner.jobs)) == (1, 1)
        assert [job.id for job in real.store.read.jobs().jobs] == [added.id]


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    """No test's variable is seen by the next one."""
    token = tenant.set("nobody")
    yield
    tenant.reset(token)


def values_of(row: Any) -> dict[str, Any]:
    """What of a row does not depend on when and by whom it was claimed."""
    changing = {
        "id", "job_id", "created_at", "updated_at", "plan_time", "next_run_at", "lock_token",
        "locked_by", "lock_acquired_at", "lock_expires_at", "started_at", "completed_at",
        "worker_id", "duration_ms", "wait_ms", "cpu_time_ms", "average_duration_ms",
    }  # fmt: skip
    return {name: value for name, value in row._asdict().items() if name not in changing}


def test_a_handler_sees_the_same_job_as_in_a_harness(
    app: Evenbeat, evenbeat_harness: Callable[..., Any]
) -> None:
    """Whatever a column is called or defaults to, the row in eager mode is that of a worker."""
    real, seen, runs, ended = Evenbeat(name="real"), [], [], []
    for one in (app, real):

        @one.task(priority=7, timeout="1m", retry_delays=["1s", "2s"], concurrency_key="k:{n}")
        def look(n: int, ctx: Context) -> list[int]:
            seen.append(ctx.job)
            ctx.report(items_crawled=n)
            return [n]

        options = {"metadata": {"a": [1]}, "created_by": "ann", "dedup_key": "d", "name": "x"}
        task = look.options(**options)  # type: ignore[arg-type]
        if one is app:
            with app.eager():
                job = task.enqueue(1)
        else:
            harness = evenbeat_harness(real)
            job = task.enqueue(1)
            assert harness.drain() == 1
        runs += job.executions()
        ended.append(job.record())
    for eager, worker in (seen, runs, ended):
        assert values_of(eager) == values_of(worker)
