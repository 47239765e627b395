"""Jobs that run after others, as their authors use them: on a virtual clock and by real workers."""

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from evenbeat import AfterCondition, Awaited, Context, Evenbeat, Scope
from evenbeat.declared import static_scopes
from evenbeat.errors import InvalidInput, InvalidSchedule
from evenbeat.observe.explain import explain
from evenbeat.store.store import Store
from waiting import wait_for

HOUR = timedelta(hours=1)


@pytest.fixture
def app() -> Evenbeat:
    return Evenbeat(name="after")


def test_a_job_runs_after_what_enqueue_gave(app, evenbeat_harness):
    ran: list[str] = []

    @app.task
    def step(name: str) -> None:
        ran.append(name)

    harness = evenbeat_harness(app)
    a = step.enqueue("a")
    b = step.options(after=a).enqueue("b")
    c = step.options(after=[a, b.id]).enqueue("c")
    step.options(after=str(c.id), after_on="any").enqueue("d")
    assert harness.drain() == 4
    assert ran == ["a", "b", "c", "d"]


def test_a_failed_one_runs_what_waits_for_that(app, evenbeat_harness):
    ran: list[str] = []

    @app.task(max_retries=0)
    def fails() -> None:
        raise ValueError("no")

    @app.task
    def step(name: str) -> None:
        ran.append(name)

    harness = evenbeat_harness(app)
    bad = fails.enqueue()
    step.options(after=[Awaited(bad.id, AfterCondition.FAILURE)]).enqueue("clean up")
    waits = step.options(after=bad, name="publish").enqueue("publish")
    harness.drain()
    assert ran == ["clean up"]
    assert (
        "it must succeed"
        in explain(app.store.read.circumstances(waits.id, now=harness.clock.now())).summary
    )


def test_a_week_of_schedules_each_followed_once(app, evenbeat_harness):
    counts = {"load": 0, "report": 0, "alarm": 0}

    @app.every("6h", max_retries=0)
    def load() -> None:
        counts["load"] += 1
        if counts["load"] % 10 == 0:
            raise ValueError("every tenth fails")

    @app.after(load)
    def report() -> None:
        counts["report"] += 1

    @app.after("load", on="failure", schedule_name="on-call")
    def alarm() -> None:
        counts["alarm"] += 1

    harness = evenbeat_harness(app)
    harness.advance("8d")
    assert counts["load"] in (31, 32, 33)
    failed = counts["load"] // 10
    assert counts == {"load": counts["load"], "report": counts["load"] - failed, "alarm": failed}
    starts = {run.plan_time for run in harness.executions("load") if run.status == "completed"}
    assert {run.plan_time for run in harness.executions("report")} == starts


def test_declared_ones_follow_the_code(app, evenbeat_harness):
    @app.every("1h")
    def load() -> None: ...

    @app.every("2h")
    def check() -> None: ...

    @app.after(load)
    def report() -> None: ...

    harness = evenbeat_harness(app)

    def awaited() -> list[tuple[str | None, str]]:
        job = app.store.read.job_by_name("report")
        assert job is not None
        found = app.store.dependencies.awaited_by([job.id])[job.id]
        return [(one.name, one.wanted) for one in found]

    assert awaited() == [("load", "success")]
    assert app.sync_schedules().changed == 0

    del app.declared["report"]  # as in the next release
    app.after("load", Awaited("check", AfterCondition.ANY), name="report")(report.__wrapped__)
    assert app.sync_schedules().updated == ["report"]
    assert awaited() == [("load", "success"), ("check", "any")]
    assert app.sync_schedules().changed == 0

    del app.declared["report"]
    app.every("1d", name="report")(report.__wrapped__)
    assert app.sync_schedules().updated == ["report"]
    assert awaited() == []
    assert harness.advance("1d")


def test_each_scope_follows_its_own(app, evenbeat_harness):
    ran: list[tuple[str, str]] = []
    scopes = static_scopes(Scope("tenant", "1"), Scope("tenant", "2"))

    @app.every("1h", scopes=scopes)
    def load() -> None: ...

    @app.after(load, scopes=scopes)
    def report(*, ctx: Context) -> None:
        ran.append((ctx.scope.kind, ctx.scope.id))

    harness = evenbeat_harness(app)
    one = app.store.read.job_by_name("load", Scope("tenant", "1"))
    app.store.control.pause([one.id], now=harness.clock.now())
    harness.advance("3h")
    assert ran == [("tenant", "2")] * 3


def test_a_circle_in_code_is_refused_when_the_worker_starts(app, evenbeat_harness):
    app.after("b", name="a")(lambda: None)
    app.after("a", name="b")(lambda: None)
    with pytest.raises(InvalidSchedule, match="a → b → a"):
        evenbeat_harness(app)


def test_options_that_make_no_sense_are_refused(app):
    @app.task
    def step() -> None: ...

    with pytest.raises(InvalidInput, match="name them by after"):
        step.options(after_on="any")
    with pytest.raises(InvalidInput, match="1 to 100,000 others"):
        step.options(after=[])
    with pytest.raises(InvalidInput, match="cannot be waited for"):
        step.options(after=3)


# -- real workers, killed --------------------------------------------------------------------------

WORKER = """
import os, signal, sys, threading
from evenbeat import Evenbeat
from evenbeat.store.dependencies import Dependencies

app = Evenbeat(sys.argv[1], lease_seconds=3, renew_seconds=1, reap_seconds=0.5, poll_seconds=0.5)

@app.task(max_retries=0)
def step(name: str) -> None:
    with open(sys.argv[2], "a") as ledger:
        ledger.write(name + "\\n")

if sys.argv[3] == "dies":
    # The end of a job is written; the process is gone before anything follows from it.
    Dependencies.start_if_possible = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
app.worker().run(stop)
app.close()
"""


def _step(name: str) -> None:
    """What the workers have under this name."""


def test_a_worker_killed_between_an_end_and_what_follows_loses_nothing(
    store: Store, database_url: str, tmp_path: Path
):
    """Every worker dies at its first end until the last; each link of the chain runs once."""
    program, ledger = tmp_path / "worker.py", tmp_path / "ledger"
    program.write_text(WORKER)
    sender = Evenbeat(database_url)
    step = sender.task(name="step", max_retries=0)(_step)
    links = ["a", "b", "c"]
    before = None
    for name in links:
        chosen = (
            step.options(name=name) if before is None else step.options(name=name, after=before)
        )
        before = chosen.enqueue(name=name)
    sender.close()

    def start(mood: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(program), database_url, str(ledger), mood]
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    for count in (1, 2):
        doomed = start("dies")
        assert doomed.wait(60) == -signal.SIGKILL
        assert len(ledger.read_text().split()) == count
    living = [start("lives"), start("lives")]
    try:
        wait_for(lambda: store.read.job(before.id).status == "completed", "the chain is through")
    finally:
        for process in living:
            process.terminate()
        for process in living:
            process.wait(30)
    assert ledger.read_text().split() == links
