"""`evenbeat job logs -f` and `evenbeat execution logs`, beside a worker at work."""

import json
import logging
import threading
from collections.abc import Iterator

import pytest
from said import Command

from evenbeat import Context, Evenbeat, Job
from waiting import wait_for

logger = logging.getLogger("shop")


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


@pytest.fixture
def job(database_url: str, gate: threading.Event) -> Iterator[Job[object]]:
    app = Evenbeat(database_url, poll_seconds=0.1)

    @app.task(max_retries=1, retry_delays=["0s"])
    def talk(ctx: Context) -> str:
        for n in range(1000):
            logger.warning("try %d line %d", ctx.attempt, n)
        gate.wait(60)
        ctx.logger.info("two\nlines \x1b[31m")
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return "done"

    with app:
        worker = app.worker()
        worker.start()
        job = talk.enqueue()
        wait_for(lambda: job.status() == "running" and job.executions(), "a run")
        log, run = app.store.run_logs, job.executions()[0].id
        wait_for(lambda: log.page(run).after == 1000, "its lines")
        yield job
        gate.set()
        worker.stop(grace=5)


def test_a_job_is_followed_through_its_attempts_to_its_end(
    evenbeat: Command, job: Job[object], gate: threading.Event
):
    before = evenbeat("execution", "logs", str(job.executions()[0].id))
    assert len(before.out.splitlines()) == 1000  # while it runs
    threading.Timer(1.0, gate.set).start()
    followed = evenbeat("job", "logs", str(job.id), "-f", "--every", "50ms")
    assert followed.code == 0, followed.err
    lines = followed.out.splitlines()
    said = [line[22:].strip() for line in lines if line.startswith(("0", "1", "2"))]
    assert said == [
        *(f"try 1 line {n}" for n in range(1000)),
        "two",
        *(f"try 2 line {n}" for n in range(1000)),
        "two",
    ]
    assert "    lines \\x1b[31m" in lines
    assert "-- failed: not yet" in followed.err
    assert followed.err.strip().endswith("-- completed")

    again = evenbeat("job", "logs", str(job.id), "-f")
    assert again.code == 0
    assert len(again.out.splitlines()) == 1002  # the newest run only


def test_logs_are_shown_with_what_the_executions_left_and_as_documents(
    evenbeat: Command, job: Job[object], gate: threading.Event
):
    gate.set()
    job.result(timeout=60)
    shown = evenbeat("job", "logs", str(job.id)).out
    assert shown.count("Log\n") == 2
    assert "try 1 line 999" in shown
    place = next(line for line in shown.splitlines() if "in talk: " in line)
    assert place.startswith(__file__)
    assert place.endswith('raise ValueError("not yet")')
    assert shown.index(place) < shown.index("Traceback")

    history = evenbeat("job", "logs", str(job.id), "--failed", "--json").json["executions"]
    assert [len(one["log"]["lines"]) for one in history] == [1001]
    run = history[0]["id"]
    whole = evenbeat("execution", "logs", run, "--json").json
    assert whole == history[0]["log"]
    followed = evenbeat("execution", "logs", run, "-f", "--json").out.splitlines()
    assert [json.loads(line) for line in followed] == whole["lines"]


def test_a_run_without_a_log_says_so(evenbeat: Command, database_url: str):
    app = Evenbeat(database_url)

    @app.task
    async def quiet() -> None: ...

    with app:
        worker = app.worker()
        worker.start()
        job = quiet.enqueue()
        job.result(timeout=60)
        worker.stop(grace=0)
        said = evenbeat("execution", "logs", str(job.executions()[0].id))
        assert (said.code, said.out) == (0, "")
        assert "It has logged nothing" in said.err
        followed = evenbeat("job", "logs", str(job.id), "-f")
        assert (followed.code, followed.out) == (0, "")
