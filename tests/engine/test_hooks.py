"""Middleware around runs, lifespans of workers, and context variables that are carried to runs; on
a worker that really runs."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any
from uuid import UUID

import pytest

from evenbeat import Context, Evenbeat, Fail, Retry, State, WorkerEvent
from evenbeat.domain.execution import Execution
from evenbeat.engine import worker_loop
from evenbeat.errors import InvalidInput, LifespanFailed
from evenbeat.tasks.builtin import webhook
from waiting import wait_for

TENANT: ContextVar[Any] = ContextVar("tenant")
Ran = Callable[..., Execution]


@pytest.fixture
def app(database_url: str) -> Iterator[Evenbeat]:
    app = Evenbeat(database_url, name="hooks", concurrency=4, threads=2)
    yield app
    app.close()


@contextmanager
def working(app: Evenbeat) -> Iterator[None]:
    worker = app.worker()
    worker.start()
    try:
        yield
    finally:
        worker.stop(grace=5)


def last_run(app: Evenbeat, job_id: UUID) -> Execution | None:
    runs = app.store.read.executions_of(job_id).executions
    return runs[0] if runs and runs[0].status != "running" else None


@pytest.fixture
def ran(app: Evenbeat) -> Ran:
    """Enqueues a job, lets a worker run it once and gives the run."""

    def run(task: Any, *args: Any) -> Execution:
        added = task.enqueue(*args)
        with working(app):
            found = wait_for(lambda: last_run(app, added.id), "the run to end")
        assert found is not None
        return found

    return run


def handlers(app: Evenbeat, **options: Any) -> dict[str, Any]:
    """The same task as an async and as a plain function."""

    @app.task(max_retries=0, **options)
    async def on_loop(ctx: Context, wrong: bool = False) -> list[str]:
        await asyncio.sleep(0)
        return handle(wrong)

    @app.task(max_retries=0, **options)
    def in_thread(ctx: Context, wrong: bool = False) -> list[str]:
        return handle(wrong)

    def handle(wrong: bool) -> list[str]:
        if wrong:
            raise KeyError("handler")
        return [TENANT.get("nobody"), threading.current_thread().name]

    return {"loop": on_loop, "thread": in_thread}


PLACES = pytest.mark.parametrize("place", ["loop", "thread"])


# -- middleware ----------------------------------------------------------------------------------


@PLACES
def test_middleware_runs_in_order_around_the_handler(app, ran, place):
    steps: list[str] = []

    def noting(name: str) -> Callable[[Context], AbstractContextManager[None]]:
        @contextmanager
        def note(ctx: Context) -> Iterator[None]:
            steps.append(f"{name} in {ctx.job.task}")
            yield
            steps.append(f"{name} out")

        return note

    @asynccontextmanager
    async def asynchronous(ctx: Context) -> AsyncIterator[None]:
        steps.append(f"async in {threading.current_thread().name}")
        await asyncio.sleep(0)
        yield
        await asyncio.sleep(0)
        steps.append("async out")

    for middleware in (noting("first"), asynchronous):
        assert app.around(middleware) is middleware
    task = handlers(app, around=[noting("own")])[place]
    app.around(noting("later"))
    assert ran(task).status == "completed"
    name = task.name
    assert steps == [
        f"first in {name}", "async in evenbeat-loop", f"later in {name}", f"own in {name}",
        "own out", "later out", "async out", "first out",
    ]  # fmt: skip


@PLACES
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_what_the_handler_raises_passes_through_and_may_be_replaced(app, ran, place, kind):
    seen: list[BaseException] = []

    @app.around
    @contextmanager
    def replacing(ctx: Context) -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            raise Fail("not there", code="gone") from error

    if kind == "plain":

        @app.around
        @contextmanager
        def watching(ctx: Context) -> Iterator[None]:
            try:
                yield
            except BaseException as error:
                seen.append(error)
                raise
    else:

        @app.around
        @asynccontextmanager
        async def watching(ctx: Context) -> AsyncIterator[None]:
            try:
                yield
            except BaseException as error:
                seen.append(error)
                raise

    run = ran(handlers(app)[place], True)
    assert [(type(error), error.args) for error in seen] == [(KeyError, ("handler",))]
    assert (run.status, run.error_code) == ("failed", "gone")
    assert run.error_message.startswith("not there (raised by the middleware ")


@PLACES
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_an_error_that_middleware_swallows_is_a_success_without_a_result(app, ran, place, kind):
    if kind == "plain":

        @app.around
        @contextmanager
        def lenient(ctx: Context) -> Iterator[None]:
            with suppress(KeyError):
                yield
    else:

        @app.around
        @asynccontextmanager
        async def lenient(ctx: Context) -> AsyncIterator[None]:
            with suppress(KeyError):
                yield

    run = ran(handlers(app)[place], True)
    assert (run.status, run.result) == ("completed", None)


@contextmanager
def no_entry(ctx: Context) -> Iterator[None]:
    raise ConnectionError("no database")
    yield


@asynccontextmanager
async def no_entry_async(ctx: Context) -> AsyncIterator[None]:
    raise ConnectionError("no database")
    yield


@contextmanager
def no_exit(ctx: Context) -> Iterator[None]:
    yield
    raise ConnectionError("no database")


@asynccontextmanager
async def no_exit_async(ctx: Context) -> AsyncIterator[None]:
    yield
    raise ConnectionError("no database")


def broken(ctx: Context) -> AbstractContextManager[None]:
    raise ConnectionError("no database")


BROKEN = [no_entry, no_entry_async, no_exit, no_exit_async, broken]


@PLACES
@pytest.mark.parametrize("middleware", BROKEN)
def test_middleware_that_fails_is_named(app, ran, place, middleware):
    app.around(middleware)
    run = ran(handlers(app)[place])
    assert (run.status, run.error_code) == ("failed", "ConnectionError")
    name = f"{__name__}.{middleware.__qualname__}"
    assert run.error_message == f"no database (raised by the middleware {name})"


def nothing(ctx: Context) -> Any:
    return None


@PLACES
def test_middleware_without_a_context_manager_fails_the_run(app, ran, place):
    run = ran(handlers(app, around=[nothing])[place])
    assert run.error_code == "TypeError"
    assert f"raised by the middleware {__name__}.nothing" in run.error_message


@PLACES
def test_middleware_may_ask_for_a_retry(app, database_url, place):
    tries: list[int] = []

    @app.around
    @contextmanager
    def locked_at_first(ctx: Context) -> Iterator[None]:
        tries.append(ctx.attempt)
        if ctx.attempt == 1:
            raise Retry("locked", after=0)
        yield

    added = handlers(app)[place].options(max_retries=1).enqueue()
    with working(app):
        wait_for(lambda: app.store.read.job(added.id).status == "completed", "the second try")
    assert tries == [1, 2]


def _generator(ctx: Context) -> Iterator[None]:
    yield


async def _async_generator(ctx: Context) -> AsyncIterator[None]:
    yield


async def _coroutine(ctx: Context) -> None: ...


def ask() -> None: ...


@contextmanager
def _takes_nothing() -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("middleware", "message"),
    [
        (_generator, "returns no context manager. Decorate it: @contextlib.contextmanager."),
        (_async_generator, "Decorate it: @contextlib.asynccontextmanager."),
        (_coroutine, "Decorate it: @contextlib.asynccontextmanager, with a yield in it."),
        (_takes_nothing, "must take one argument: the run's Context."),
        ("tenant", "The middleware must be a function that takes the run's Context"),
    ],
)
def test_what_cannot_be_middleware_is_refused_when_it_is_registered(middleware, message):
    app = Evenbeat(name="hooks")
    with pytest.raises(InvalidInput, match=re.escape(message)):
        app.around(middleware)
    with pytest.raises(InvalidInput, match=re.escape(message)):
        app.task(ask, around=[middleware])


def test_middleware_runs_around_the_built_in_tasks_but_not_around_deliveries(app):
    app.around(no_entry)
    app.include_builtins()
    app.worker().loop.close()
    around = {task.name: task.middleware for task in app.registry}
    assert not around.pop(webhook.TASK)
    assert around == {"http": [no_entry], "crawl": [no_entry]}


# -- in isolated runs ----------------------------------------------------------------------------

ISOLATED = Evenbeat(name="hooks")
ISOLATED.carry(TENANT)


@ISOLATED.around
@contextmanager
def marked(ctx: Context) -> Iterator[None]:
    ctx.report(rows_affected=20)
    yield


@ISOLATED.around
@asynccontextmanager
async def marked_too(ctx: Context) -> AsyncIterator[None]:
    await asyncio.sleep(0)
    ctx.report(rows_affected=3)
    yield


@ISOLATED.task(isolate=True)
async def isolated() -> str:
    return str(TENANT.get())


@ISOLATED.task(isolate=True)
def isolated_plain() -> str:
    return asyncio.run(isolated())


@ISOLATED.task(isolate=True, max_retries=0)
def wants_state(ctx: Context) -> str:
    return str(ctx.state.pool)


@pytest.mark.parametrize("task", [isolated, isolated_plain])
def test_in_an_isolated_run_all_of_it_is_in_the_child_process(evenbeat_harness, task):
    harness = evenbeat_harness(ISOLATED)
    token = TENANT.set("acme")
    added = task.enqueue()
    TENANT.reset(token)
    harness.drain()
    run = last_run(ISOLATED, added.id)
    assert (run.status, run.result, run.rows_affected) == ("completed", "acme", 23)


def test_an_isolated_run_is_told_that_the_workers_state_is_elsewhere(evenbeat_harness):
    harness = evenbeat_harness(ISOLATED)
    added = wants_state.enqueue()
    harness.drain()
    assert "An isolated run is in another process" in last_run(ISOLATED, added.id).error_message


def test_middleware_that_the_child_process_does_not_know_fails_the_run(
    evenbeat_harness, monkeypatch
):
    hooks = ISOLATED.registry.hooks
    monkeypatch.setattr(hooks, "around", [*hooks.around, no_exit])
    harness = evenbeat_harness(ISOLATED)
    added = isolated.enqueue()
    harness.drain()
    run = last_run(ISOLATED, added.id)
    assert (run.status, run.error_code) == ("failed", "hooks_missing")
    assert f"The worker has {__name__}.no_exit around its runs" in run.error_message


# -- lifespans -----------------------------------------------------------------------------------


def test_lifespans_give_resources_to_runs_and_end_after_the_drain(app):
    steps: list[str] = []
    loops: list[Any] = []
    release = threading.Event()

    @app.lifespan
    @asynccontextmanager
    async def pool(state: State) -> AsyncIterator[None]:
        loops.append(asyncio.get_running_loop())
        state.pool = "pool"
        yield
        steps.append("pool closed")

    @app.lifespan
    @contextmanager
    def client(state: State) -> Iterator[None]:
        state.client = f"client on {state.pool}"
        yield
        steps.append("client closed")

    @app.task
    async def on_loop(ctx: Context) -> str:
        loops.append(asyncio.get_running_loop())
        return str(ctx.state.client)

    @app.task
    def slow(ctx: Context) -> str:
        release.wait(30)
        steps.append("run over")
        return str(ctx.state.pool)

    first, second = on_loop.enqueue(), slow.enqueue()
    worker = app.worker()
    worker.start()
    wait_for(lambda: worker.running and last_run(app, first.id), "the first to end")
    threading.Timer(0.2, release.set).start()
    worker.stop(grace=30)
    assert last_run(app, first.id).result == "client on pool"
    assert last_run(app, second.id).result == "pool"
    assert steps == ["run over", "client closed", "pool closed"]
    assert loops[0] is loops[1]


def test_a_lifespan_needs_no_async_task_and_the_harness_enters_it(evenbeat_harness):
    app = Evenbeat(name="hooks")
    left: list[bool] = []

    @app.lifespan
    @asynccontextmanager
    async def pool(state: State) -> AsyncIterator[None]:
        state.pool = "pool"
        yield
        left.append(True)

    @app.task
    def plain(ctx: Context) -> str:
        return str(ctx.state.pool)

    harness = evenbeat_harness(app)
    added = plain.enqueue()
    harness.drain()
    assert last_run(app, added.id).result == "pool"
    harness.close()
    assert left == [True]


@pytest.mark.parametrize("broken", [no_entry, no_entry_async])
def test_a_lifespan_that_fails_at_the_start_fails_the_worker_and_ends_the_others(app, broken):
    left: list[bool] = []

    @app.lifespan
    @asynccontextmanager
    async def pool(state: State) -> AsyncIterator[None]:
        try:
            yield
        finally:
            left.append(True)

    app.lifespan(broken)
    worker = app.worker()
    name = f"{__name__}.{broken.__qualname__}"
    with pytest.raises(LifespanFailed, match=rf"no database \(raised by the lifespan {name}\)"):
        worker.start()
    assert left == [True]
    assert app.store.upkeep.workers() == []
    worker.loop.close()


def test_a_lifespan_that_fails_or_hangs_at_the_end_does_not_keep_the_worker(
    app, caplog, monkeypatch
):
    monkeypatch.setattr(worker_loop, "LEAVE_SECONDS", 0.2)

    @app.lifespan
    @asynccontextmanager
    async def hangs(state: State) -> AsyncIterator[None]:
        yield
        await asyncio.sleep(3600)

    with working(app):
        pass
    assert "a lifespan of the worker has not ended within 0.2 s" in caplog.text
    app.registry.hooks.lifespans[:] = [no_exit_async]
    with working(app):
        pass
    assert "a lifespan of the worker failed when it ended" in caplog.text
    assert f"raised by the lifespan {__name__}.no_exit_async" in caplog.text


def test_state_that_no_lifespan_has_set_is_explained(app, ran):
    @app.lifespan
    @contextmanager
    def pool(state: State) -> Iterator[None]:
        state.pool = "pool"
        yield

    @app.task(max_retries=0)
    def plain(ctx: Context) -> str:
        return str(ctx.state.pol)

    message = ran(plain).error_message
    assert message.startswith("No lifespan of this worker has set state.pol; it has pool.")


def test_the_life_of_a_worker_is_told_in_events(app):
    heard: list[tuple[str, UUID, Any]] = []

    @app.on("worker:start")
    @app.on("worker:stop")
    def note(event: WorkerEvent) -> None:
        heard.append((event.kind, event.worker_id, event.queues))

    worker = app.worker(queues=["mail"])
    worker.start()
    worker.stop(grace=5)
    me = worker.identity.id
    assert heard == [("worker:start", me, ("mail",)), ("worker:stop", me, ("mail",))]


# -- context variables ---------------------------------------------------------------------------


@PLACES
def test_carried_variables_are_set_in_the_run_and_in_what_it_enqueues(app, ran, place):
    app.carry(TENANT)
    task = handlers(app)[place]

    @app.task
    def parent() -> str:
        return str(task.enqueue().id)

    token = TENANT.set({"name": "acme", "tier": 2})
    added = task.enqueue()
    (many,) = app.enqueue_many([task.job()])

    async def enqueue() -> list[UUID]:
        one, others = await task.enqueue_async(), await app.enqueue_many_async([task.job()])
        return [one.id, others[0].id]

    in_async = asyncio.run(enqueue())
    run = ran(parent)
    TENANT.reset(token)
    later = task.enqueue()
    ids = [added.id, many.id, *in_async, UUID(run.result), later.id]
    with working(app):
        wait_for(lambda: all(last_run(app, id_) for id_ in ids), "all to end")
    results = [last_run(app, id_).result[0] for id_ in ids]
    assert results == [{"name": "acme", "tier": 2}] * 5 + ["nobody"]


def test_a_schedule_carries_nothing_and_metadata_of_the_caller_counts(app):
    app.carry(TENANT)

    @app.every("1h")
    async def often() -> None: ...

    @app.on_enqueue
    def add() -> dict[str, Any]:
        return {"source": "hook", "release": 7}

    token = TENANT.set("acme")
    app.sync_schedules()
    made = app.schedule(often, after="often", name="after")
    added = often.options(metadata={"source": "me"}).enqueue()
    TENANT.reset(token)
    assert app.store.read.job_by_name("often").metadata == {}
    assert app.store.read.job(made.id).metadata == {}
    assert app.store.read.job(added.id).metadata == {
        "source": "me",
        "release": 7,
        "context_variables": {"tenant": "acme"},
    }


@pytest.mark.parametrize("value", [UUID(int=1), {1: "a"}, [b"x"], float("nan"), (1, 2)])
def test_a_carried_value_must_be_json(app, value):
    app.carry(TENANT)
    task = handlers(app)["loop"]
    token = TENANT.set(value)
    with pytest.raises(InvalidInput, match=r"'tenant' is carried to runs, but its value .* is not"):
        task.enqueue()
    TENANT.reset(token)


def test_what_cannot_be_carried_is_refused(app):
    app.carry(TENANT)
    app.carry(TENANT)
    with pytest.raises(InvalidInput, match="Two carried context variables are named 'tenant'"):
        app.carry(ContextVar("tenant"))
    with pytest.raises(InvalidInput, match=r"carry\(\) takes context variables, got 'tenant'"):
        app.carry("tenant")


@PLACES
def test_a_run_sees_no_variable_of_those_who_made_the_worker(app, ran, place):
    token = TENANT.set("whoever made the worker")
    run = ran(handlers(app)[place])
    TENANT.reset(token)
    assert run.result[0] == "nobody"


@PLACES
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_variable_that_middleware_sets_is_seen_by_the_handler(app, ran, place, kind):
    if kind == "plain":

        @app.around
        @contextmanager
        def tenant(ctx: Context) -> Iterator[None]:
            TENANT.set("acme")
            yield
    else:

        @app.around
        @asynccontextmanager
        async def tenant(ctx: Context) -> AsyncIterator[None]:
            TENANT.set("acme")
            yield

    assert ran(handlers(app)[place]).result[0] == "acme"
