"""The harness, as a user's tests have it: time, history, results, and drains that do not end."""

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from evenbeat import Context, Evenbeat, Fail, Scope, static_scopes
from evenbeat.errors import InvalidInput, NotDrained, NotFound
from evenbeat.testing import DEFAULT_START, Harness

DAY = timedelta(days=1)
HarnessFor = Callable[..., Harness]

told = Evenbeat(name="told")


@told.task(isolate=True)
def in_a_process(ctx: Context) -> list[str]:
    """At the top level of a module, where a child process finds it."""
    return [str(ctx.now), str(ctx.plan_time), str(ctx.now)]


@told.task
def in_a_thread(ctx: Context) -> list[str]:
    return [str(ctx.now), str(ctx.plan_time), str(ctx.now)]


@told.task
async def on_the_loop(ctx: Context) -> list[str]:
    return [str(ctx.now), str(ctx.plan_time), str(ctx.now)]


# -- time ------------------------------------------------------------------------------------------


def test_handlers_are_told_the_time_that_the_test_has_moved_to(
    evenbeat_harness: HarnessFor,
) -> None:
    harness = evenbeat_harness(told)
    assert harness.now == DEFAULT_START
    tasks = (in_a_process, in_a_thread, on_the_loop)
    for task in tasks:
        task.options(delay="36h").enqueue()
    harness.advance("3d")
    assert harness.now == DEFAULT_START + 3 * DAY
    then = str(DEFAULT_START + timedelta(hours=36))
    for task in tasks:
        assert harness.results(task) == [[then, then, then]]


def test_without_a_harness_it_is_the_databases_time(database_url: str) -> None:
    seen: list[tuple[datetime, datetime]] = []
    app, ran = Evenbeat(database_url), threading.Event()

    @app.task
    def look(ctx: Context) -> None:
        started = ctx.job.started_at
        assert started is not None
        seen.append((started, ctx.now))
        ran.set()

    with app:
        worker = app.worker()
        worker.start()
        look.enqueue()
        assert ran.wait(60)
        worker.stop(grace=5)
    ((started, now),) = seen
    assert timedelta(seconds=-1) < now - started < timedelta(minutes=1)


# -- history ---------------------------------------------------------------------------------------


def test_executions_of_a_task_a_name_and_a_job(evenbeat_harness: HarnessFor) -> None:
    app = Evenbeat(name="shop")

    @app.task
    def send(to: str) -> str:
        return f"sent to {to}"

    @app.every("12h", placement="grid", schedule_name="twice a day")
    def report(ctx: Context) -> int:
        return ctx.plan_time.hour

    harness = evenbeat_harness(app)
    assert harness.executions(send) == []
    assert harness.executions("send") == []
    jobs = [send.options(delay=f"{n}h").enqueue(f"p{n}") for n in (3, 1, 2)]
    harness.advance("1d")
    assert harness.results(send) == ["sent to p1", "sent to p2", "sent to p3"]
    assert harness.executions("send") == harness.executions(send)
    assert [one.job_id for one in harness.executions(send)] == [jobs[n].id for n in (1, 2, 0)]
    for of in (jobs[0], jobs[0].id, app.store.read.job(jobs[0].id)):
        assert harness.results(of) == ["sent to p3"]
    assert harness.results("twice a day") == [12, 0]
    assert harness.executions("report") == harness.executions("twice a day")
    assert harness.executions(report) == harness.executions("report")


def test_more_executions_than_one_page_has(evenbeat_harness: HarnessFor) -> None:
    app = Evenbeat(name="often")

    @app.every("1m", placement="grid")
    def tick(ctx: Context) -> str:
        return f"{ctx.plan_time:%H:%M}"

    harness = evenbeat_harness(app)
    harness.advance("17h")
    results = harness.results(tick)
    assert len(results) == 17 * 60
    assert results == sorted(results)


def test_every_scope_of_a_name_and_every_attempt_counts(evenbeat_harness: HarnessFor) -> None:
    app = Evenbeat(name="scoped")

    @app.cron("0 6 * * *", scopes=static_scopes(Scope("tenant", "a"), Scope("tenant", "b")))
    def sync(ctx: Context) -> str:
        return ctx.scope.id

    @app.task(max_retries=1, retry_backoff="1h", retry_jitter=0)
    def flaky(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise RuntimeError("not yet")
        return "at last"

    harness = evenbeat_harness(app)
    flaky.enqueue()
    harness.advance("1d")
    assert sorted(harness.results("sync")) == ["a", "b"]
    assert [one.status for one in harness.executions(flaky)] == ["failed", "completed"]
    assert harness.results(flaky) == ["at last"]


def test_what_nothing_is_called_is_an_error_that_names_the_known(
    evenbeat_harness: HarnessFor,
) -> None:
    app = Evenbeat(name="known")

    @app.task(queue="mail")
    def send() -> None: ...

    @app.every("1d", schedule_name="daily")
    def report() -> None: ...

    other = Evenbeat(name="other")

    @other.task
    def foreign() -> None: ...

    harness = evenbeat_harness(app)
    with pytest.raises(
        InvalidInput, match=r"name or task 'sned'\. There are: daily, report, send\."
    ):
        harness.executions("sned")
    with pytest.raises(InvalidInput, match="name or task 'sned'"):
        harness.results("sned")
    with pytest.raises(NotFound):
        harness.executions(uuid4())
    for no_job in (send.job(), None, 7):
        with pytest.raises(InvalidInput, match="This takes a task, or a job by its id"):
            harness.executions(no_job)  # type: ignore[arg-type]
    for wrong, message in (
        ({"task": "sned"}, "task 'sned'. There are: report, send"),
        ({"status": ["failed", "done"]}, "got 'done'"),
        ({"status": "done"}, "status must be one of pending, scheduled, running, paused"),
        ({"queue": "mial"}, "queue 'mial'. There are: default, mail"),
        ({"name": "dayly"}, "name 'dayly'. There are: daily"),
    ):
        with pytest.raises(InvalidInput, match=message):
            harness.jobs(**wrong)
    for of_another in (harness.executions, harness.jobs):
        with pytest.raises(InvalidInput, match=r"task 'foreign'\. There are: report, send"):
            of_another(foreign)


def test_jobs_by_what_they_are(evenbeat_harness: HarnessFor) -> None:
    app = Evenbeat(name="filters")

    @app.task(queue="mail")
    def send(to: str) -> None:
        if to == "nobody":
            raise Fail("no such address")

    @app.every("1d", schedule_name="daily")
    def report() -> None: ...

    harness = evenbeat_harness(app)
    ann = send.options(created_by="shop", metadata={"order": 7}).enqueue("ann")
    nobody = send.enqueue("nobody")
    later = send.options(delay="2h", name="later").enqueue("bob")
    assert [job.id for job in harness.jobs(send)] == [ann.id, nobody.id, later.id]
    assert harness.jobs("send") == harness.jobs(send) == harness.jobs(queue="mail")
    assert len(harness.jobs()) == 4
    harness.drain()
    assert [job.id for job in harness.jobs(status="completed")] == [ann.id]
    (failed,) = harness.jobs(send, status="failed")
    assert (failed.id, failed.error_message) == (nobody.id, "no such address")
    assert [job.id for job in harness.jobs(send, status="scheduled")] == [later.id]
    assert [job.payload for job in harness.jobs(name="later")] == [{"to": "bob"}]
    assert [job.id for job in harness.jobs(created_by="shop", metadata={"order": 7})] == [ann.id]
    assert harness.jobs(send, status="paused") == []
    assert len(harness.jobs(send, status=["failed", "completed"])) == 2
    assert harness.jobs(created_by="nobody else") == []


# -- drains that do not end ------------------------------------------------------------------------


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What handlers wait for; open when the test is over."""
    gate = threading.Event()
    yield gate
    gate.set()


def test_a_handler_that_waits_for_ever_ends_the_drain(
    evenbeat_harness: HarnessFor, gate: threading.Event
) -> None:
    app = Evenbeat(name="hung")

    @app.task
    def waits() -> None:
        gate.wait()

    @app.task
    async def sleeps() -> str:
        while not gate.is_set():
            await asyncio.sleep(0.01)
        return "awake"

    harness = evenbeat_harness(app)
    waits.enqueue()
    sleeps.enqueue()
    begun = time.monotonic()
    with pytest.raises(NotDrained) as caught:
        harness.drain(timeout="300ms")
    assert 0.3 <= time.monotonic() - begun < 10
    said = str(caught.value)
    assert said.startswith("After 0.3 s and 2 runs, there is still something to run: running are")
    assert "running are jobs of: waits (1), sleeps (1)" in said or (
        "running are jobs of: sleeps (1), waits (1)" in said
    )
    assert isinstance(caught.value, TimeoutError)
    gate.set()
    harness.drain()
    assert harness.results(sleeps) == ["awake"]


def test_a_hung_handler_does_not_hold_up_the_end_of_the_test(
    evenbeat_harness: HarnessFor, gate: threading.Event
) -> None:
    app, ended = Evenbeat(name="left"), threading.Event()

    @app.task
    async def sleeps() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    @app.task
    def waits(ctx: Context) -> None:
        while not ctx.cancelled:
            gate.wait(0.01)
        ended.set()

    for task in (sleeps, waits):
        ended.clear()
        with Harness(evenbeat_harness(app).app) as harness:
            task.enqueue()
            with pytest.raises(NotDrained):
                harness.drain(timeout=0.2)
        assert ended.wait(20), task


def test_a_handler_that_enqueues_itself_for_ever_ends_the_drain(
    evenbeat_harness: HarnessFor,
) -> None:
    app = Evenbeat(name="again")

    @app.task
    def again() -> None:
        again.enqueue()

    harness = evenbeat_harness(app)
    again.enqueue()
    with pytest.raises(NotDrained, match=r"After 0.2 s and \d+ runs, .* jobs of: again \(1\)"):
        harness.drain(timeout=0.2)
    with pytest.raises(
        NotDrained, match=r"After 5 runs \(most_runs is 5\), .*: running are jobs of: again \(1\)"
    ):
        harness.drain(most_runs=5)
    with pytest.raises(NotDrained):
        harness.advance("1s", timeout="100ms")


def test_what_ends_in_time_is_no_error(evenbeat_harness: HarnessFor) -> None:
    app = Evenbeat(name="ends")

    @app.task
    def chain(n: int) -> None:
        if n:
            chain.enqueue(n - 1)

    harness = evenbeat_harness(app)
    chain.enqueue(4)
    assert harness.drain(most_runs=5, timeout=None) == 5
    assert harness.drain(most_runs=0) == 0
    chain.options(delay="1d").enqueue(0)
    assert harness.drain(most_runs=0) == 0
    assert harness.advance("2d", timeout=None) == 1
    with pytest.raises(InvalidInput) as caught:
        harness.drain(timeout="soon")
    assert caught.value.field == "timeout"


# -- async tests -----------------------------------------------------------------------------------


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def shop_harness(evenbeat_harness: HarnessFor) -> Harness:
    """An async fixture of a user's, on top of ours."""
    app = Evenbeat(name="async")

    @app.task
    async def send(to: str, ctx: Context) -> str:
        await asyncio.sleep(0)
        return f"{to} at {ctx.now:%H:%M}"

    harness = evenbeat_harness(app)
    send.enqueue("ann")
    send.options(delay="90m").enqueue("bob")
    return harness


@pytest.mark.anyio
async def test_an_async_test_drains_while_its_own_loop_goes_on(shop_harness: Harness) -> None:
    import anyio

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.001)
            ticks += 1

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        assert await shop_harness.drain_async() == 1
        assert await shop_harness.advance_async("2h") == 1
        group.cancel_scope.cancel()
    assert ticks > 3
    assert shop_harness.results("send") == ["ann at 00:00", "bob at 01:30"]


@pytest.mark.anyio
async def test_and_is_told_what_does_not_end(
    evenbeat_harness: HarnessFor, gate: threading.Event
) -> None:
    app = Evenbeat(name="hung")

    @app.task
    def waits() -> None:
        gate.wait()

    harness = evenbeat_harness(app)
    waits.enqueue()
    with pytest.raises(NotDrained, match="waits"):
        await harness.drain_async(timeout="200ms")


@pytest.mark.anyio
async def test_eager_mode_in_an_async_test() -> None:
    app = Evenbeat("postgresql://nobody@127.0.0.1:1/nothing")

    @app.task
    async def fetch(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    with app.eager():
        job: Any = fetch.enqueue(1)
        assert await job == 2
        job = await fetch.enqueue_async(2)
        assert await job == 3


# -- the page about it -----------------------------------------------------------------------------


def test_the_documented_tests_pass(tmp_path: Path, server_url: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "test_shop.py").write_text("\n\n".join(blocks))
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n\n@pytest.fixture(scope='session')\n"
        f"def evenbeat_server():\n    return {server_url!r}\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "."],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{page.count('def test_')} passed" in ran.stdout
