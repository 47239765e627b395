"""Events of failed runs, as the SDK sends them; only the network is left out."""

import asyncio
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from evenbeat import Context, Evenbeat, Fail, Retry
from evenbeat.contrib.sentry import instrument
from waiting import wait_for

DSN = "https://key@sentry.invalid/1"
AS_IN_TESTS: dict[str, Any] = {
    "default_integrations": False,  # they change the whole process, and outlast this test
    "integrations": [LoggingIntegration()],
    "shutdown_timeout": 0,
}


class Kept(Transport):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        if (event := envelope.get_event()) is not None:
            self.events.append(event)


@pytest.fixture
def sent() -> Iterator[list[Any]]:
    transport = Kept()
    with sentry_sdk.isolation_scope():
        sentry_sdk.init(DSN, transport=transport, **AS_IN_TESTS)
        yield transport.events
        sentry_sdk.get_client().close()
        sentry_sdk.init()


@pytest.fixture
def make_app(database_url: str) -> Iterator[Callable[..., Evenbeat]]:
    made: list[Evenbeat] = []

    def make(**options: Any) -> Evenbeat:
        app = Evenbeat(database_url, name="shop", concurrency=4, threads=2)
        instrument(app, **options)
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


def work_until_over(app: Evenbeat, *job_ids: UUID) -> None:
    def over() -> bool:
        return all(app.store.read.job(id_).status in ("completed", "failed") for id_ in job_ids)

    worker = app.worker()
    worker.start()
    try:
        wait_for(over, "the jobs to end")
    finally:
        worker.stop(grace=5)


def tags(event: Any) -> tuple[str, str, str]:
    found = event["tags"]
    return tuple(str(found[f"evenbeat.{name}"]) for name in ("job_id", "task", "attempt"))


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_a_run_that_fails_for_good_is_one_event(make_app, sent, place):
    app = make_app()

    def fail(n: int) -> None:
        raise ConnectionError("no printer")

    if place == "loop":

        @app.task(name="print", max_retries=1, retry_backoff=0)
        async def task(n: int) -> None:
            fail(n)
    else:
        task = app.task(fail, name="print", max_retries=1, retry_backoff=0)

    job_id = task.enqueue(5).id
    work_until_over(app, job_id)
    (event,) = sent  # neither the first try nor the worker's log line is another one
    (exception,) = event["exception"]["values"]
    assert (exception["type"], exception["value"]) == ("ConnectionError", "no printer")
    assert exception["stacktrace"]["frames"][-1]["function"] == "fail"
    assert tags(event) == (str(job_id), "print", "2")
    assert event["transaction"] == "print"
    assert event["contexts"]["job"]["max_retries"] == 1
    assert "payload" not in event["contexts"]["job"]


def test_tries_that_will_be_repeated_are_events_when_asked_for(make_app, sent):
    app = make_app(report_retries=True)

    @app.task(max_retries=1, retry_backoff=0)
    async def fail() -> None:
        raise ConnectionError

    job_id = fail.enqueue().id
    work_until_over(app, job_id)
    assert [tags(event)[2] for event in sent] == ["1", "2"]


def test_an_error_that_is_never_retried_is_an_event_at_once(make_app, sent):
    app = make_app()

    @app.task(max_retries=5, never_retry=[KeyError])
    async def never() -> None:
        raise KeyError("x")

    @app.task(max_retries=5)
    async def given_up() -> None:
        raise Fail("no such customer")

    @app.task(max_retries=1)
    async def in_time(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Retry("not yet", after=0)

    work_until_over(app, *(task.enqueue().id for task in (never, given_up, in_time)))
    assert {tags(event)[1] for event in sent} == {"never", "given_up"}


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_a_failure_without_an_exception_is_an_event_too(make_app, sent, place):
    app, release = make_app(), threading.Event()

    if place == "loop":

        @app.task(name="slow", max_retries=0, timeout="100ms")
        async def slow() -> None:
            await asyncio.sleep(3600)
    else:

        @app.task(name="slow", max_retries=0, timeout="100ms")
        def slow() -> None:
            release.wait(30)
            raise ConnectionError("too late to matter")

    job_id = slow.enqueue().id
    worker = app.worker()
    worker.start()
    wait_for(lambda: sent, "the event")
    release.set()
    wait_for(lambda: worker.running == 0, "the handler to return")
    worker.stop(grace=5)
    (event,) = sent
    assert event["message"] == "slow: The run took longer than its timeout of 0.1 s."
    assert tags(event) == (str(job_id), "slow", "1")
    assert event["level"] == "error"


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_runs_do_not_see_each_others_scope(make_app, sent, place):
    app = make_app()
    together = threading.Barrier(2)

    def both(n: int) -> None:
        sentry_sdk.set_tag(f"only_{n}", True)
        sentry_sdk.add_breadcrumb(message=f"crumb {n}")

    if place == "loop":
        arrived: list[int] = []

        @app.task(name="both", max_retries=0)
        async def task(n: int) -> None:
            both(n)
            arrived.append(n)
            while len(arrived) < 2:
                await asyncio.sleep(0)
            raise ConnectionError(str(n))
    else:

        @app.task(name="both", max_retries=0)
        def task(n: int) -> None:
            both(n)
            together.wait(30)
            raise ConnectionError(str(n))

    work_until_over(app, task.enqueue(1).id, task.enqueue(2).id)
    for event in sent:
        n = event["exception"]["values"][0]["value"]
        assert [tag for tag in event["tags"] if tag.startswith("only_")] == [f"only_{n}"]
        crumbs = [crumb["message"] for crumb in event["breadcrumbs"]["values"]]
        assert [crumb for crumb in crumbs if crumb.startswith("crumb")] == [f"crumb {n}"]
    assert len(sent) == 2


# -- isolated: the child process sends for itself, here to a file ----------------------------------


class ToFile(Transport):
    """Sends late, when it is flushed."""

    waiting: list[Any] = []  # noqa: RUF012 - one for the process

    def capture_envelope(self, envelope: Envelope) -> None:
        self.waiting.append(envelope.get_event())

    def flush(self, timeout: float, callback: Any = None) -> None:  # noqa: ARG002
        with EVENTS.open("a") as file:
            file.writelines(json.dumps(event, default=str) + "\n" for event in self.waiting)
        self.waiting.clear()


SHARED = os.environ.setdefault("SENTRY_EVENTS", f"evenbeat-events-{os.getpid()}")
EVENTS = Path(tempfile.gettempdir()) / SHARED
ISOLATED = Evenbeat(name="isolated")
instrument(ISOLATED)
if __name__ != "__main__" and os.environ.get("SENTRY_CHILD"):
    sentry_sdk.init(DSN, transport=ToFile(), **AS_IN_TESTS)


@ISOLATED.task(isolate=True, max_retries=1, retry_backoff=0)
def isolated() -> None:
    raise ConnectionError("no printer")


def test_an_isolated_run_sends_its_event_before_its_process_ends(
    evenbeat_harness, sent, monkeypatch
):
    monkeypatch.setenv("SENTRY_CHILD", "1")
    harness = evenbeat_harness(ISOLATED)
    added = isolated.enqueue()
    harness.drain()
    harness.advance("1m")
    (line,) = EVENTS.read_text().splitlines()
    EVENTS.unlink()
    assert tags(json.loads(line)) == (str(added.id), "isolated", "2")
    assert sent == []  # the worker leaves it to the child
