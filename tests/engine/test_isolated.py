"""Isolated runs: a process of their own, measured, and still in touch with their lease."""

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil

from evenbeat import Context, Evenbeat
from waiting import wait_for

# At the top level, as in a user's module: a child process finds its task by name.
app = Evenbeat(name="isolated")


@app.task(isolate=True)
def greedy(megabytes: int, *, ctx: Context) -> int:
    block = bytearray(os.urandom(1) * megabytes * 2**20)
    ctx.heartbeat()
    ctx.progress(1, 2, "half")
    ctx.report(rows_affected=7)
    return len(block) // 2**20


@app.task(isolate=True)
async def asynchronous() -> int:
    await asyncio.sleep(0)
    return os.getpid()


def plain() -> str:
    return "plain"


by_another_name = app.task(plain, name="another", isolate=True)


@app.task(isolate=True, max_retries=0)
def late(*, ctx: Context) -> str:
    # Somebody takes the lease away while the child runs.
    token = ctx.execution_id
    app.configure(**{k: os.environ[f"TEST_{k.upper()}"] for k in ("database_url", "db_schema")})
    app.store.control.cancel([ctx.job.id])
    app.close()
    assert token
    ctx.heartbeat()
    return "should not get here"


def test_an_isolated_run_is_measured_and_reports(evenbeat_harness):
    harness = evenbeat_harness(app)
    added = greedy.enqueue(150)
    harness.drain()
    run = app.store.read.executions_of(added.id).executions[0]
    assert (run.status, run.result, run.rows_affected) == ("completed", 150, 7)
    assert 300 < run.memory_peak_mb < 400  # twice the block for a moment, and the interpreter
    assert run.cpu_time_ms > 10


def test_async_handlers_can_be_isolated_too(evenbeat_harness):
    harness = evenbeat_harness(app)
    added = asynchronous.enqueue()
    harness.drain()
    pid = app.store.read.executions_of(added.id).executions[0].result
    assert pid != os.getpid()


def test_a_function_that_stays_plain_is_found_by_its_task(evenbeat_harness):
    harness = evenbeat_harness(app)
    added = by_another_name.enqueue()
    harness.drain()
    assert app.store.read.executions_of(added.id).executions[0].result == "plain"


def test_the_heartbeat_of_an_isolated_run_tells_that_its_lease_is_lost(
    evenbeat_harness, monkeypatch
):
    harness = evenbeat_harness(app)
    monkeypatch.setenv("TEST_DATABASE_URL", app._overrides["database_url"])
    monkeypatch.setenv("TEST_DB_SCHEMA", app._overrides["db_schema"])
    added = late.enqueue()
    harness.drain()
    run = app.store.read.executions_of(added.id).executions[0]
    assert (run.status, run.error_code, run.result) == ("cancelled", "cancelled", None)


@app.task(isolate=True, max_retries=0, timeout=4)
def daemonise(file: str) -> None:
    if os.fork():
        time.sleep(300)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(file).write_text(str(os.getpid()))
    time.sleep(300)


def test_a_timeout_also_ends_a_daemon_that_left_the_runs_session(evenbeat_harness, tmp_path):
    harness = evenbeat_harness(app)
    file = tmp_path / "pid"
    added = daemonise.enqueue(str(file))
    harness.drain()
    assert app.store.read.executions_of(added.id).executions[0].error_code == "timeout"
    daemon = int(file.read_text())

    def ended() -> bool:
        try:
            return bool(psutil.Process(daemon).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    wait_for(ended, "the daemon to end", 10)
