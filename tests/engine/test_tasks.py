"""Tasks as their authors use them: calling, enqueueing, options, results, retries."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from evenbeat import Context, Evenbeat, Fail, Retry, Scope
from evenbeat.errors import InvalidInput

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def app() -> Evenbeat:
    return Evenbeat(name="tasks")


def last_run(app, added):
    return app.store.read.executions_of(added.id).executions[0]


def test_a_task_stays_a_function(app):
    @app.task
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    @app.task
    async def triple(n: int) -> int:
        return 3 * n

    assert double(4) == 8
    assert asyncio.run(triple(4)) == 12
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")


def test_async_plain_and_isolated_handlers_run_and_keep_their_results(app, evenbeat_harness):
    @app.task
    async def on_loop(n: int) -> dict:
        await asyncio.sleep(0)
        return {"n": n}

    @app.task
    def in_thread(n: int) -> list[int]:
        return [n, n]

    harness = evenbeat_harness(app)
    first, second = on_loop.enqueue(1), in_thread.enqueue(n=2)
    assert harness.drain() == 2
    assert last_run(app, first).result == {"n": 1}
    assert last_run(app, second).result == [2, 2]


def test_arguments_arrive_as_the_types_of_the_signature(app, evenbeat_harness):
    arrived = []

    @app.task
    def typed(when: datetime, amount: Decimal, id: UUID, copy: bool = True, **rest: int) -> None:
        arrived.append((when, amount, id, copy, rest))

    harness = evenbeat_harness(app)
    some = UUID(int=7)
    typed.enqueue(NOON, Decimal("1.10"), id=some, extra=3)
    harness.drain()
    assert arrived == [(NOON, Decimal("1.10"), some, True, {"extra": 3})]


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "the argument 'to' is missing"),
        (("a@b.c",), {"subjekt": "x"}, "there is no argument 'subjekt'"),
        (("a@b.c",), {"to": "x"}, "multiple values for argument 'to'"),
        (("a@b.c", "hi", 1, 2), {}, "too many positional arguments"),
        (("a@b.c",), {"tries": "many"}, "argument 'tries': input should be a valid integer"),
        (("a@b.c",), {"ctx": None}, "there is no argument 'ctx'"),
    ],
)
def test_a_wrong_argument_fails_in_the_caller(app, args, kwargs, says):
    @app.task
    def send(to: str, subject: str = "", tries: int = 1, *, ctx: Context) -> None: ...

    with pytest.raises(InvalidInput) as caught:
        send.enqueue(*args, **kwargs)
    assert says in str(caught.value)
    assert "It takes (to: str, subject: str = '', tries: int = 1)" in str(caught.value)


def test_a_handler_that_cannot_be_given_json_is_refused_when_declared(app):
    with pytest.raises(InvalidInput, match="takes \\*args"):

        @app.task
        def bad(*args: int) -> None: ...

    with pytest.raises(InvalidInput, match="cannot be carried as JSON"):

        @app.task
        def worse(stream: asyncio.StreamReader) -> None: ...


def test_options_apply_to_the_jobs_and_not_to_the_task(app, evenbeat_harness):
    @app.task(queue="mail", priority=5, timeout="30s", max_retries=1)
    def send() -> None: ...

    evenbeat_harness(app)
    plain = app.store.read.job(send.enqueue().id)
    assert (plain.queue, plain.priority, plain.timeout_seconds, plain.max_retries) == (
        "mail", 5, 30, 1,
    )  # fmt: skip
    special = send.options(priority=80, delay="10m", dedup_key="x", max_retries=0, queue="slow",
                           metadata={"a": 1}, scope=Scope("tenant", "7"))  # fmt: skip
    job = app.store.read.job(special.enqueue().id)
    assert (job.queue, job.priority, job.max_retries, job.scope_id) == ("slow", 80, 0, "7")
    assert job.next_run_at == job.created_at + timedelta(minutes=10)
    assert special.enqueue().created is False
    assert send.enqueue().created is True


def test_an_unknown_option_lists_the_known_ones(app):
    with pytest.raises(TypeError, match=r"no option 'timeot'.*timeout"):

        @app.task(timeot=3)
        def typo() -> None: ...


def test_enqueue_many_and_async_enqueue(app, evenbeat_harness):
    @app.task
    async def noop(n: int) -> None: ...

    harness = evenbeat_harness(app)
    assert len(app.enqueue_many(noop.job(n) for n in range(250))) == 250

    async def some() -> None:
        assert (await noop.enqueue_async(1)).created
        assert len(await app.enqueue_many_async([noop.job(2)])) == 1

    asyncio.run(some())
    assert harness.drain() == 252
    assert app.store.read.counts_by_status() == {"completed": 252}


def test_failures_wait_and_retry_until_the_retries_are_used_up(app, evenbeat_harness):
    tried = []

    @app.task(max_retries=2, retry_backoff="1m")
    def broken(ctx: Context) -> None:
        tried.append(ctx.attempt)
        raise ValueError("no luck")

    harness = evenbeat_harness(app)
    added = broken.enqueue()
    harness.drain()
    job = app.store.read.job(added.id)
    assert (job.status, job.current_retry_count, job.error_message) == ("scheduled", 1, "no luck")
    assert timedelta(seconds=48) <= job.next_run_at - harness.clock.now() <= timedelta(seconds=72)
    harness.advance("1h")
    assert tried == [1, 2, 3]
    assert app.store.read.job(added.id).status == "failed"
    run = last_run(app, added)
    assert (run.error_code, run.retry_attempt) == ("ValueError", 2)
    assert 'raise ValueError("no luck")' in run.stack_trace


def test_a_handler_can_say_when_to_retry_or_that_it_is_pointless(app, evenbeat_harness):
    @app.task
    async def busy(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise Retry("come back", after="7m")
        return "done"

    @app.task
    async def hopeless() -> None:
        raise Fail("the account is closed")

    @app.task(never_retry=[KeyError])
    async def listed() -> None:
        raise KeyError("x")

    harness = evenbeat_harness(app)
    jobs = [task.enqueue() for task in (busy, hopeless, listed)]
    harness.drain()
    states = [app.store.read.job(job.id) for job in jobs]
    assert [job.status for job in states] == ["scheduled", "failed", "failed"]
    assert states[0].next_run_at == harness.clock.now() + timedelta(minutes=7)
    assert last_run(app, jobs[1]).error_code == "fail"
    harness.advance("7m")
    assert last_run(app, jobs[0]).result == "done"


def test_a_payload_that_no_longer_fits_fails_for_good(app, evenbeat_harness):
    @app.task
    async def old(name: str) -> None: ...

    job = old.job("x")
    object.__setattr__(job, "payload", {"renamed": "x"})
    harness = evenbeat_harness(app)
    added = app.add(job)
    harness.drain()
    run = last_run(app, added)
    assert (run.error_code, app.store.read.job(added.id).status) == ("invalid_payload", "failed")
    assert "'name' is missing" in run.error_message


def test_figures_and_cpu_time_are_per_run(app, evenbeat_harness):
    @app.task
    async def on_loop(ctx: Context) -> None:
        await asyncio.sleep(0)
        ctx.report(items_crawled=3, rows_affected=1)
        ctx.report(items_crawled=2)

    @app.task
    def in_thread(seconds: float) -> None:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    harness = evenbeat_harness(app)
    runs = [on_loop.enqueue(), in_thread.enqueue(seconds=0.05), in_thread.enqueue(seconds=0)]
    harness.drain()
    async_run, busy_run, idle_run = (last_run(app, added) for added in runs)
    assert busy_run.cpu_time_ms > 45
    assert idle_run.cpu_time_ms < 30, "a neighbour's CPU time was counted"
    assert async_run.cpu_time_ms is None, (
        "runs that take turns on a thread have no time of their own"
    )
    assert (async_run.items_crawled, async_run.rows_affected) == (5, 1)
    with pytest.raises(TypeError, match="measured by Evenbeat"):
        Context(app.store.read.job(runs[0].id)).report(cpu_time_ms=1)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"at": NOON}, {"at": "2030-01-01T12:00:00Z"}),
        ("nul \x00 inside", "nul \ufffd inside"),
        ("C:\\u0000", "C:\\u0000"),
        (object(), {"type": "object"}),
        ("x" * 100_000, {"type": "str"}),
        (float("nan"), {"type": "float"}),
    ],
)
def test_any_return_value_leaves_a_result(app, evenbeat_harness, value, kept):
    @app.task
    async def returns() -> object:
        return value

    harness = evenbeat_harness(app)
    added = returns.enqueue()
    harness.drain()
    assert app.store.read.job(added.id).status == "completed"
    result = last_run(app, added).result
    if isinstance(kept, dict) and "type" in kept:
        assert result["type"] == kept["type"]
        assert result["omitted"]
    else:
        assert result == kept
    assert json.dumps(result)


# -- the caller's own transaction ----------------------------------------------------------------


def test_enqueue_in_a_sqlalchemy_transaction(app, evenbeat_harness, server_url):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import Session

    @app.task
    async def noop() -> None: ...

    evenbeat_harness(app)
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=lambda: __import__("psycopg").connect(server_url)
    )
    with engine.connect() as connection:
        noop.options(connection=connection).enqueue()
        connection.rollback()
        assert app.store.read.jobs().total == 0
        noop.options(connection=connection).enqueue()
        connection.commit()
    with Session(engine) as session:
        app.enqueue_many([noop.job()], connection=session)
        assert app.store.read.jobs().total == 1
        session.commit()
    assert app.store.read.jobs().total == 2
    engine.dispose()


def test_enqueue_in_a_django_transaction(app, evenbeat_harness, server_url):
    django = pytest.importorskip("django")
    from django.conf import settings
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(server_url)
    if not settings.configured:
        settings.configure(
            DATABASES={
                "default": {
                    "ENGINE": "django.db.backends.postgresql",
                    "NAME": parts["dbname"],
                    "USER": parts.get("user", ""),
                    "PASSWORD": parts.get("password", ""),
                    "HOST": parts.get("host", ""),
                    "PORT": parts.get("port", ""),
                }
            }
        )
        django.setup()
    from django.db import connection, transaction

    @app.task
    async def noop() -> None: ...

    evenbeat_harness(app)
    with transaction.atomic():
        noop.options(connection=connection).enqueue()
        transaction.set_rollback(True)
    assert app.store.read.jobs().total == 0
    with transaction.atomic():
        noop.options(connection=connection).enqueue()
    assert app.store.read.jobs().total == 1
    connection.close()


def test_other_connections_are_refused_with_what_would_work(app, evenbeat_harness):
    import sqlite3

    @app.task
    async def noop() -> None: ...

    with (
        sqlite3.connect(":memory:") as connection,
        pytest.raises(InvalidInput, match=r"sqlite3\.Connection.*psycopg 3"),
    ):
        noop.options(connection=connection).enqueue()
    connection.close()
