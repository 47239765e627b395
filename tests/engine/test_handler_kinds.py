"""Handlers of every form run for real, or are refused; and no run sees what another one set."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from evenbeat import Evenbeat
from evenbeat.domain.catch_up import CatchUp, CatchUpMode
from evenbeat.domain.decision import decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.errors import InvalidInput
from evenbeat.tasks.registry import RunnerKind
from waiting import wait_for

USER: ContextVar[str] = ContextVar("user", default="nobody")
T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)


def plainly_decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def ended(harness: Any, task: Any) -> Any:
    job = task.enqueue()
    harness.drain()
    (run,) = harness.app.store.read.executions_of(job.id).executions
    return run


KINDS = Evenbeat(name="kinds")


@KINDS.task(isolate=True)
@plainly_decorated
async def isolated() -> str:
    await asyncio.sleep(0)
    return "ran"


@KINDS.task
@plainly_decorated
async def decorated() -> str:
    await asyncio.sleep(0)
    return "ran"


@pytest.mark.parametrize("task", [isolated, decorated])
def test_an_async_function_under_a_plain_decorator_runs(evenbeat_harness, task):
    assert ended(evenbeat_harness(KINDS), task).result == "ran"


def test_options_count_where_task_is_called_and_not_used_as_a_decorator():
    task = Evenbeat().task(_slowly, name="slow", isolate=True, timeout="3s")
    definition = task.definition
    assert (task.name, definition.runs) == ("slow", RunnerKind.ISOLATED)
    assert definition.spec.timeout == timedelta(seconds=3)


async def _slowly() -> None: ...


class AsyncCallable:
    async def __call__(self) -> str:
        await asyncio.sleep(0)
        return "ran"


def test_an_object_with_an_async_call_runs(evenbeat_harness):
    app = Evenbeat(name="kinds")
    task = app.task(AsyncCallable(), name="object")
    assert ended(evenbeat_harness(app), task).result == "ran"


def _generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("handler", [_generator, _async_generator])
def test_a_generator_is_refused_when_it_is_declared(handler):
    with pytest.raises(InvalidInput, match="is a generator: calling it runs nothing of it"):
        Evenbeat(name="kinds").task(handler, name="never")


def test_a_generator_that_is_returned_fails_the_run(evenbeat_harness):
    app = Evenbeat(name="kinds")

    @app.task
    def returns_one() -> object:
        return (n for n in range(3))

    run = ended(evenbeat_harness(app), returns_one)
    assert (run.status, run.error_code) == ("failed", "not_run")
    assert "returned a generator" in run.error_message


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_context_variables_do_not_leak_into_the_next_run(database_url, kind):
    app = Evenbeat(database_url, name="kinds", concurrency=2, threads=2)
    seen: list[str] = []

    def note(n: int) -> None:
        seen.append(USER.get())
        USER.set(f"user {n}")

    if kind == "thread":
        task = app.task(note, name="note")
    else:

        @app.task(name="note")
        async def task(n: int) -> None:
            note(n)
            await asyncio.sleep(0)

    app.enqueue_many([task.job(n) for n in range(300)])
    worker = app.worker()
    worker.start()
    try:
        wait_for(lambda: len(seen) == 300, "all have run")
    finally:
        worker.stop(grace=5)
        app.close()
    assert seen == ["nobody"] * 300


def test_running_a_late_job_drops_none_of_its_missed_plans(store):
    every_plan = JobSpec("noop", schedule=Interval(HOUR), catch_up=CatchUp(CatchUpMode.EVERY_PLAN))
    job_id = store.add(NewJob(every_plan, start=T0), now=T0 - HOUR).id
    now = T0 + 7 * HOUR
    store.control.run_now([job_id], now=now)
    plans = []
    for _ in range(20):
        jobs = store.claim(uuid4(), 1, now=now)
        if not jobs:
            break
        plans.append(jobs[0].plan_time)
        store.finish([decide(jobs[0], Outcome(), now)], now=now)
    assert plans == [T0 + n * HOUR for n in range(8)]
