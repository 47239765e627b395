"""What runs log is kept with them: `ctx.logger`, standard logging, on request what they print."""

import asyncio
import logging
import sys
import threading
from contextvars import copy_context

import pytest

from evenbeat import Context, Evenbeat
from evenbeat.domain.run_log import HEAD_BYTES, TAIL_BYTES
from evenbeat.testing import Harness
from waiting import wait_for

logger = logging.getLogger("shop.orders")

isolating = Evenbeat(name="isolating")


@isolating.task(isolate=True)
def far_away(lines: int, *, ctx: Context) -> None:
    ctx.logger.info("begins")
    for n in range(lines):
        logger.warning("line %d", n)
    print("printed far away")
    ctx.progress(1, 2)


class Unspeakable:
    def __str__(self) -> str:
        return str(1 / 0)


def texts(harness: Harness, of) -> list[str]:
    return [line.text for line in harness.logs(of)]


@pytest.fixture
def app() -> Evenbeat:
    return Evenbeat(name="logging")


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_run_keeps_its_own_lines_and_no_others(app, evenbeat_harness, kind):
    if kind == "async":

        @app.task(name="sell")
        async def sell(order: int, ctx: Context) -> None:
            ctx.logger.info("order %d", order, extra={"items": 3, "job_id": "mine"})
            await asyncio.sleep(0)
            await asyncio.create_task(later(order))

        async def later(order: int) -> None:
            await asyncio.sleep(0.01)
            logger.warning("shipped %d", order)
            await asyncio.to_thread(logger.error, "billed %d", order)

    else:

        @app.task(name="sell")
        def sell(order: int, ctx: Context) -> None:
            ctx.logger.info("order %d", order, extra={"items": 3, "job_id": "mine"})
            logger.warning("shipped %d", order)
            other = threading.Thread(
                target=copy_context().run, args=(logger.error, "billed %d", order)
            )
            other.start()
            other.join()

    harness = evenbeat_harness(app)
    jobs = [sell.enqueue(order) for order in range(20)]
    logger.error("nobody's")
    harness.drain()
    for order, job in enumerate(jobs):
        lines = harness.logs(job)
        said = [(line.number, line.level, line.logger, line.text) for line in lines]
        assert said == [
            (1, "INFO", "evenbeat.task.sell", f"order {order} items=3"),
            (2, "WARNING", "shop.orders", f"shipped {order}"),
            (3, "ERROR", "shop.orders", f"billed {order}"),
        ]
        assert {line.at for line in lines} == {harness.now}


def test_tracebacks_are_kept_and_evenbeats_own_lines_are_not(app, evenbeat_harness):
    @app.task(max_retries=0)
    def fail(ctx: Context) -> object:
        try:
            int("out of stock")
        except ValueError as error:
            logger.exception("cannot sell")
            ctx.logger.info("again", exc_info=error)
            ctx.logger.info("and again", exc_info=True)
        ctx.logger.info("%d items", "no number")
        ctx.logger.info("worse", extra={"it": Unspeakable()})
        ctx.logger.info("it is %s", Unspeakable())
        ctx.logger.info("postgresql://me:secret@host/db")
        return object()  # of which the worker's log says that it is not kept

    harness = evenbeat_harness(app)
    job = fail.enqueue()
    harness.drain()
    first, second, third, bad, *worse, url = texts(harness, job)
    assert first.startswith("cannot sell\nTraceback")
    assert all(one.endswith("10: 'out of stock'") for one in (first, second, third))
    assert bad == "'%d items' cannot be formatted: TypeError"
    assert worse == [
        "'worse' cannot be formatted: ZeroDivisionError",
        "'it is %s' cannot be formatted: ZeroDivisionError",
    ]
    assert url == "postgresql://me:***@host/db"


@pytest.mark.parametrize(("level", "kept"), [("debug", 4), ("warning", 2), ("off", 0)])
def test_the_level_is_a_setting(evenbeat_harness, level, kept):
    app = Evenbeat(name="levels", run_log_level=level)

    @app.task
    async def talk(ctx: Context) -> None:
        for name in ("debug", "info", "warning", "error"):
            getattr(ctx.logger, name)(name)

    handlers = list(logging.root.handlers)
    harness = evenbeat_harness(app)
    job = talk.enqueue()
    harness.drain()
    assert texts(harness, job) == ["debug", "info", "warning", "error"][4 - kept :]
    harness.close()
    assert logging.root.handlers == handlers


def test_what_is_printed_is_kept_on_request(evenbeat_harness, capsys):
    app = Evenbeat(name="printing", run_log_print=True)

    @app.task
    def say(number: int) -> None:
        print("begins", number, end="")
        print(" and ends", number)
        print("two\nlines")

    harness = evenbeat_harness(app)
    jobs = [say.enqueue(n) for n in range(10)]
    print("nobody's")
    harness.drain()
    for n, job in enumerate(jobs):
        assert texts(harness, job) == [f"begins {n} and ends {n}", "two", "lines"]
        assert {(line.logger, line.level) for line in harness.logs(job)} == {("print", "INFO")}
    assert "begins 3" in capsys.readouterr().out
    harness.close()
    assert type(sys.stdout).__name__ != "PrintedLines"


def test_isolated_runs_log_too(evenbeat_harness):
    isolating.configure(run_log_print=True)
    harness = evenbeat_harness(isolating)
    job = far_away.enqueue(1000)
    harness.drain()
    lines = texts(harness, job)
    assert lines == ["begins", *(f"line {n}" for n in range(1000)), "printed far away"]


def test_a_flood_costs_lines_and_never_the_run(app, evenbeat_harness):
    @app.task
    def flood() -> str:
        for n in range(100_000):
            logger.warning("line %d of very many", n)
        logger.warning("a\0b \ud800 ä")
        logger.warning("x" * 1_000_000)
        return "done"

    harness = evenbeat_harness(app)
    job = flood.enqueue()
    harness.drain()
    (run,) = harness.executions(job)
    assert run.result == "done"
    page = app.store.run_logs.page(run.id)
    every = harness.logs(job)
    assert [line.text for line in every[:2]] == ["line 0 of very many", "line 1 of very many"]
    assert [line.number for line in every[-3:]] == [100_000, 100_001, 100_002]
    assert every[-2].text == "a\N{REPLACEMENT CHARACTER}b ? ä"
    assert every[-1].text.startswith("xxx")
    assert every[-1].text.endswith("more characters)")
    size = sum(len(line.text.encode()) + 1 for line in every)
    assert HEAD_BYTES < size <= HEAD_BYTES + TAIL_BYTES
    left_out = page.left_out
    while page.has_more:
        page = app.store.run_logs.page(run.id, after=page.after)
        left_out += page.left_out
    assert len(every) + left_out == 100_002
    assert page.after == 100_002


def test_a_thousand_lines_are_kept_and_seen_while_the_run_goes_on(database_url):
    """Through a started worker: its own thread writes them, before the run has ended."""
    app = Evenbeat(database_url, poll_seconds=0.1)
    gate = threading.Event()

    @app.task
    def talk() -> None:
        for n in range(1000):
            logger.warning("line %d", n)
        gate.wait(60)
        logger.warning("over")

    with app:
        worker = app.worker()
        worker.start()
        job = talk.enqueue()
        run = wait_for(lambda: (runs := job.executions()) and runs[0], "a run")
        log = app.store.run_logs
        wait_for(lambda: log.page(run.id).after == 1000, "its lines", within=5)
        assert job.status() == "running"
        assert [line.text for line in log.page(run.id).lines] == [f"line {n}" for n in range(1000)]
        gate.set()
        job.result(timeout=60)
        assert [line.text for line in log.page(run.id, after=1000).lines] == ["over"]
        worker.stop(grace=5)


def test_what_is_logged_after_the_end_is_nobodys(database_url):
    app = Evenbeat(database_url, poll_seconds=0.1)
    gate, said = threading.Event(), threading.Event()

    @app.task(timeout=0.2, max_retries=0)
    def hang(ctx: Context) -> None:
        ctx.logger.info("before")
        gate.wait(60)
        ctx.logger.info("after")
        logger.error("after")
        said.set()

    with app:
        worker = app.worker()
        worker.start()
        job = hang.enqueue()
        wait_for(lambda: job.status() == "failed", "the timeout")
        gate.set()
        assert said.wait(60)
        (run,) = job.executions()
        assert [line.text for line in app.store.run_logs.page(run.id).lines] == ["before"]
        wait_for(lambda: not worker.run_logs._logs, "nothing to be held in memory")
        worker.stop(grace=5)


def test_a_run_that_logs_nothing_writes_nothing(app, evenbeat_harness, monkeypatch):
    @app.task
    async def quiet() -> None: ...

    @app.task
    async def loud() -> None:
        logger.warning("a line")

    harness = evenbeat_harness(app)
    names: list[str] = []
    rows = app.store.database.rows

    def counted(name, *args, **options):
        names.append(name)
        return rows(name, *args, **options)

    monkeypatch.setattr(app.store.database, "rows", counted)
    for _ in range(50):
        quiet.enqueue()
    harness.drain()
    assert "finish" in names
    assert "add_log_lines" not in names
    for _ in range(50):
        loud.enqueue()
    names.clear()
    harness.drain()
    assert 0 < names.count("add_log_lines") <= names.count("finish")


@pytest.mark.parametrize("trouble", ["gone", "locked"])
def test_lines_that_cannot_be_written_do_not_keep_a_run_from_its_end(
    app, evenbeat_harness, caplog, trouble
):
    @app.task
    async def talk() -> str:
        logger.warning("a line")
        return "done"

    harness = evenbeat_harness(app)
    table = f"{app.store.database.schema}.run_logs"
    with app.store.database.transaction() as connection:
        connection.execute(f"DROP TABLE {table}" if trouble == "gone" else f"LOCK TABLE {table}")
        if trouble == "locked":  # until the statement is given up
            jobs = [talk.enqueue() for _ in range(3)]
            harness.drain()
    if trouble == "gone":
        jobs = [talk.enqueue() for _ in range(3)]
        harness.drain()
    assert [job.result() for job in jobs] == ["done"] * 3
    assert "cannot write what runs have logged" in caplog.text
    if trouble == "locked":
        assert "The last lines of runs were not kept" in caplog.text


def test_unconfigured_logging_still_warns_on_standard_error(app, evenbeat_harness, capsys):
    handlers = logging.root.handlers[:]
    logging.root.handlers.clear()
    try:
        harness = evenbeat_harness(app)
        logging.getLogger("somewhere").warning("still said")
        logging.getLogger("somewhere").info("not said")
        silent = logging.getLogger("silent")
        silent.addHandler(logging.NullHandler())
        silent.warning("not said either")
        harness.close()
    finally:
        logging.root.handlers[:] = handlers
    assert capsys.readouterr().err.strip().splitlines() == ["still said"]
