"""A job's way from `enqueue` to its next plan, traced through a real worker: how many functions a
newcomer has to read in order to follow it, and over how many files they are spread.

A hop is a function of Evenbeat that the job passes through, counted once. A function that calls
none of ours is not a hop: it computes a value for the one that is being read. What other threads do
meanwhile (renewing leases, chores, the claimer's look at when to wake up next) is not on the way.
`PYTHONPATH=tests python tests/engine/test_job_path.py` prints the way.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import evenbeat
from evenbeat import Evenbeat
from evenbeat.domain.schedule import Interval
from evenbeat.task import Task
from evenbeat.testing import temporary_server
from waiting import wait_for

SOURCE = f"{Path(evenbeat.__file__).parent}/"
LAST = "Reporter.ended"
NOT_ON_THE_WAY = {
    f"evenbeat-{name}" for name in ("leases", "lease-watch", "maintenance", "claimer", "events")
}

Function = tuple[str, str]


class Trace:
    """Records the calls of all threads while a job is under way."""

    def __init__(self) -> None:
        self.functions: dict[Function, None] = {}
        self._callers: set[Function] = set()
        self._recording = False
        self._over = threading.Event()

    def begin(self) -> None:
        self.functions.clear()
        self._callers.clear()
        self._over.clear()
        self._recording = True

    def wait(self) -> None:
        assert self._over.wait(60), "the job did not come to its end"

    @property
    def hops(self) -> list[Function]:
        return [function for function in self.functions if function in self._callers]

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.hops}

    def hook(self, frame: FrameType, event: str, _argument: Any) -> None:
        if not self._recording or not _is_ours(frame):
            return
        if event == "return" and frame.f_code.co_qualname == LAST:
            self._recording = False
            self._over.set()
        elif event == "call" and threading.current_thread().name not in NOT_ON_THE_WAY:
            self.functions[_function(frame)] = None
            caller = frame.f_back
            while caller is not None and not _is_ours(caller):
                caller = caller.f_back
            if caller is not None:
                self._callers.add(_function(caller))


def _is_ours(frame: FrameType) -> bool:
    code = frame.f_code
    ticks = code.co_name == "_tick"  # of the event loop, twice a second
    return code.co_filename.startswith(SOURCE) and code.co_name[0] != "<" and not ticks


def _function(frame: FrameType) -> Function:
    return frame.f_code.co_filename.removeprefix(SOURCE), frame.f_code.co_qualname


@contextmanager
def traced_worker(url: str) -> Iterator[tuple[Task[Any, Any], Callable[[Task[Any, Any]], Trace]]]:
    """A task, and a function that traces one of its jobs through a worker that was idle before."""
    trace = Trace()
    app = Evenbeat(url, poll_seconds=3600, reap_seconds=3600)

    @app.task
    async def hello(name: str) -> str:
        return f"Hello, {name}"

    def run(task: Task[Any, Any]) -> Trace:
        wait_for(lambda: worker.claimer._alarm._resting_until, "the claimer to rest")
        trace.begin()
        task.enqueue("you")
        trace.wait()
        return trace

    threading.setprofile(trace.hook)
    sys.setprofile(trace.hook)
    try:
        worker = app.worker()
        worker.start()
        for kind in (hello, recurring(hello)):  # fills caches and opens connections
            run(kind)
        yield hello, run
        worker.stop(grace=5)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        app.close()


def recurring(task: Task[Any, Any]) -> Task[Any, Any]:
    """The task with a schedule for the jobs that it enqueues, first due now."""
    again = task.options(run_at=datetime.now(UTC))
    again.spec = replace(again.spec, schedule=Interval(timedelta(hours=1)))
    return again


@pytest.mark.parametrize(("kind", "hops", "files"), [("once", 60, 24), ("recurring", 61, 24)])
def test_a_jobs_way_is_short(database_url: str, kind: str, hops: int, files: int) -> None:
    with traced_worker(database_url) as (task, run):
        trace = run(recurring(task) if kind == "recurring" else task)
    way = "\n".join(f"{file} {function}" for file, function in trace.hops)
    assert "engine/worker.py" not in trace.files, way
    assert len(trace.hops) <= hops, way
    assert len(trace.files) <= files, way


if __name__ == "__main__":
    with temporary_server() as server, traced_worker(server) as (task, run):
        for job in (task, recurring(task)):
            trace = run(job)
            way = "".join(f"  {file} {function}\n" for file, function in trace.hops)
            sys.stdout.write(f"{len(trace.hops)} hops over {len(trace.files)} files\n{way}")
