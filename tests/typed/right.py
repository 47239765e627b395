"""Right calls of the Python API: neither mypy --strict nor pyright has anything to say here."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack, assert_type

from starlette.requests import Request

from evenbeat import (
    CURRENT,
    Batch,
    BatchCounts,
    BatchStatus,
    Caller,
    Context,
    Eager,
    EagerJob,
    Evenbeat,
    Event,
    Execution,
    ExecutionStatus,
    Job,
    JobFilters,
    JobOptions,
    JobRecord,
    JobStatus,
    NewJob,
    RetryPolicy,
    ScheduleOptions,
    State,
    Task,
    TaskDecorator,
    Worker,
    WorkerEvent,
    chain,
)

app = Evenbeat(name="typed")


@app.task
async def fetch(url: str, depth: int = 1) -> dict[str, int]:
    return {url: depth}


@app.task(max_retries=5, timeout="30s", priority=80, never_retry=[KeyError])
def store(ctx: Context, rows: list[int]) -> int:
    ctx.progress(len(rows))
    return len(rows)


@app.task(retry_on=[OSError, "httpx.HTTPError"], expires="1h", aliases=["load.all"])
def load(ctx: Context) -> None:
    assert_type(ctx.predecessor_plan_time, datetime | None)
    ctx.report(rows_affected=3, source="a.csv", parts=[1, 2])
    load.options(never_retry=[KeyError, "timeout"], expires=timedelta(minutes=5)).enqueue()
    load.options(unique_for="1h", unique_by=["user"], throttle=None, debounce=None)


@app.task(retry=RetryPolicy(max_retries=2))
def store_later(rows: list[int], *, ctx: Context = CURRENT) -> int:
    return len(rows) + ctx.attempt


@app.every("30m", placement="balanced", queue="sync")
async def sync_inventory(ctx: Context) -> None:
    await fetch("https://example.org", depth=2)


@app.cron("0 9 * * mon-fri", timezone="Europe/Berlin", catch_up="latest_only")
def report() -> str:
    return "done"


@app.every("1h", priority=80)
@app.cron("0 3 * * *", schedule_name="nightly")
async def both(ctx: Context, days: int = 1) -> int:
    return days


@app.after(report, on="failure")
def call_somebody() -> None: ...


@app.periodic(
    "rollup",
    cadence="1h",
    run_timeout="5m",
    stale_timeout="10m",
    heartbeat_interval="1m",
    queue="rollups",
)
def rollup(ctx: Context) -> None:
    assert_type(ctx.plan_time, datetime)


def nightly(**options: Unpack[ScheduleOptions]) -> TaskDecorator:
    return app.cron("0 3 * * *", **options)


@nightly(priority=20, schedule_name="sweep")
def sweep(ctx: Context, days: int = 1) -> int:
    return days


def wrapped(new: NewJob, **settings: Unpack[JobOptions]) -> list[Execution]:
    assert_type(sweep.options(**settings).enqueue(days=2), Job[int])
    (job,) = app.enqueue_many([new])
    assert_type(job.wait(), JobStatus)
    return [one for one in job.executions() if one.status == ExecutionStatus.FAILED]


def mine(**filters: Unpack[JobFilters]) -> list[JobRecord]:
    worker: Worker = app.worker(queues=["mine"])
    worker.stop()
    return app.jobs.list(limit=10, **filters)


def eagerly() -> None:
    eager: Eager
    with app.eager() as eager:
        assert_type(eager.jobs, list[EagerJob])


tenant: ContextVar[str] = ContextVar("tenant")
app.carry(tenant)


@app.around
@contextmanager
def measured(ctx: Context) -> Iterator[None]:
    yield


@app.lifespan
@asynccontextmanager
async def resources(state: State) -> AsyncIterator[None]:
    state.pool = "pool"
    yield


@app.task(around=[measured])
def audited(ctx: Context, amount: int) -> str:
    return str(ctx.state.pool)


@app.on("worker:start")
def on_start(event: WorkerEvent) -> None:
    print(event.worker_id)


@app.on("job:failed")
def on_failure(event: Event) -> None:
    print(event.job.id)


def direct_calls(ctx: Context) -> None:
    assert_type(store(ctx, [1, 2]), int)
    assert_type(store(ctx, rows=[1, 2]), int)
    both.enqueue(days=2)
    assert_type(store_later([1]), int)
    assert_type(report(), str)


async def awaited_calls(ctx: Context) -> None:
    assert_type(await fetch("https://example.org"), dict[str, int])
    await sync_inventory(ctx)


async def handles() -> None:
    job = fetch.enqueue("https://example.org")
    assert_type(job, Job[dict[str, int]])
    assert_type(job.result(timeout="5s"), dict[str, int])
    assert_type(await job, dict[str, int])
    assert_type(await job.result_async(5), dict[str, int])
    assert_type(await store.enqueue_async([1]), Job[int])
    assert_type(app.job(job.id), Job[Any])
    assert_type(sync_inventory.options(delay=5).enqueue().result(), None)
    await job.cancel_async()


async def at_run_time() -> None:
    assert_type(app.schedule(fetch, every="30m", name="fetch-a", url="a"), Job[Any])
    app.schedule(store.job([1]), cron="@daily", timezone="Europe/Berlin", name="s", replace=True)
    app.schedule("fetch", at=datetime.now(UTC), url="a")
    await app.schedule_async(report, after=[fetch, "s"], on="any")
    assert_type(app.jobs.list(status=["failed"], queue="default"), list[JobRecord])
    assert_type(await app.schedules.list_async(kind="cron"), list[JobRecord])
    assert_type(await app.jobs.count_async(tag="mine"), int)
    assert_type(app.schedules.update("s", every="2h", priority=80, payload={}), JobRecord)
    assert_type(await app.jobs.pause_async("s"), JobRecord)
    app.jobs.delete(fetch.enqueue("a"))
    (await app.task_named_async("fetch")).enqueue(url="a")


async def enqueueing() -> None:
    print(fetch.enqueue("https://example.org").id)
    fetch.enqueue(url="https://example.org", depth=3)
    store.enqueue([1, 2])
    store.enqueue(rows=[1])
    store_later.enqueue([1])
    sync_inventory.enqueue()
    fetch.options(priority=80, delay="10m", dedup_key="x").enqueue("https://example.org")
    fetch.options(run_at=datetime.now(UTC), timeout=timedelta(minutes=1)).enqueue("x", 2)
    await store.enqueue_async([1])
    app.enqueue_many(fetch.job(url) for url in ["a", "b"])
    app.enqueue_many([store.job([1]), fetch.job("a", depth=2)])
    first = fetch.enqueue("a")
    report.options(after=first).enqueue()


async def flow(ctx: Context) -> None:
    assert_type(ctx.inputs[fetch], dict[str, int])
    assert_type(ctx.inputs["fetch"], Any)
    assert_type(list(ctx.inputs.results(store)), list[int])
    assert_type(await ctx.inputs.get_async(fetch), dict[str, int])
    assert_type(ctx.batch.counts(), BatchCounts)
    batch = app.batch((fetch.job(url) for url in ["a", "b"]), then=report, on="any", name="b")
    assert_type(batch, Batch)
    assert_type(await batch.wait_async("1m"), BatchStatus)
    inner = await app.batch_async(chain(fetch.job("a"), [store.job([1])]), within=batch)
    assert_type([result async for result in inner.results_async()], list[Any])
    async with await app.open_batch_async(then=store.job([1])) as opened:
        assert_type(await opened.add_async(fetch.job("a")), int)
    report.options(after=batch, after_on="failure").enqueue()
    assert_type(app.jobs.list(batch=batch, status="failed"), list[JobRecord])
    assert_type(app.batches.get("b").callback, Job[Any] | None)


def any_task(task: Task[..., Any]) -> str:
    return task.name


def task_of_one_text(task: Task[[str], Any]) -> None:
    task.enqueue("a")


any_task(fetch)
any_task(store)
any_task(app.task(max, name="largest"))


def half(number: int) -> float:
    return number / 2


async def words(text: str, *, most: int = 3) -> list[str]:
    return text.split()[:most]


@app.task
def in_steps(ctx: Context, number: int) -> float:
    assert_type(ctx.step("half", half, number), float)
    ctx.sleep("2d")
    print(ctx.wait_event("approved", timeout=timedelta(days=3)))
    return ctx.step("again", half, number=number)


@app.task
async def in_async_steps(ctx: Context, text: str) -> list[str]:
    assert_type(await ctx.step("words", words, text, most=2), list[str])
    await ctx.sleep(60)
    await ctx.wait_event("approved")
    return await ctx.step("again", words, text=text)


def signed_in(request: Request) -> Caller | None:
    return Caller("ann", "admin") if "cookie" in request.headers else None


async def signed_in_later(request: Request) -> Caller:
    return Caller(request.headers["x-user"], "viewer")


app.asgi(auth=signed_in)
app.asgi(auth=signed_in_later)
app.asgi(auth=False)
