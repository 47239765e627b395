"""Inside the child process of an isolated run."""

import asyncio
import importlib
import inspect
import os
import resource
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import Job
from evenbeat.engine.outcome import ChildReport, completed, encode_progress, failed
from evenbeat.engine.run import Run
from evenbeat.errors import TaskUnknown
from evenbeat.observe.logs import LogSettings, continue_logging
from evenbeat.tasks.context import Context
from evenbeat.tasks.registry import TaskDefinition


class Assignment(NamedTuple):
    """What the child is to run. The handler is named, not pickled: its name is the task's."""

    module: str
    qualname: str
    task: str
    job: Job
    logging: LogSettings | None


def serve(pipe: Connection, assignment: Assignment) -> None:
    """Run one handler and report. The process's main function."""
    os.setsid()  # so that it can be ended together with whatever it starts
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which then decides
    threading.Thread(target=_end_with_worker, daemon=True).start()
    continue_logging(assignment.logging)
    leases = PipedLeases(pipe)
    context = Context(assignment.job, leases)
    run: Run | None = None
    outcome: Outcome | None
    try:
        task = _find(assignment)
        run = Run(assignment.job, task, context)
        run.started_at = time.monotonic()
        if inspect.iscoroutinefunction(task.handler):
            value = asyncio.run(task.handler(**run.arguments()))
        else:
            value = task.handler(**run.arguments())
        outcome = completed(run, value)
    except BaseException as error:
        no_task: Any = type("NoTask", (), {"never_retry": ()})
        outcome = failed(run or Run(assignment.job, no_task, context), error)
    leases.send("ended", _report(outcome))
    pipe.close()


class PipedLeases:
    """The `Leases` of a run in a child process: the worker, at the other end of the pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()

    def send(self, kind: str, content: Any) -> None:
        """Say something to the worker."""
        with self._sending:
            self._pipe.send((kind, content))

    def report_progress(self, _job: Job, progress: dict[str, Any]) -> None:
        """Pass it on."""
        encode_progress(progress)  # what cannot be stored fails here, in the handler
        self.send("progress", progress)

    def renew(self, _job: Job) -> bool:
        """Ask the worker to renew."""
        with self._sending:
            self._pipe.send(("heartbeat", None))
            return bool(self._pipe.recv())


def _find(assignment: Assignment) -> TaskDefinition:
    """The task behind the name that the decorator left in its module."""
    task: Any = importlib.import_module(assignment.module)
    for part in assignment.qualname.split("."):
        task = getattr(task, part, None)
    definition = getattr(task, "definition", None)
    if not isinstance(definition, TaskDefinition):
        raise TaskUnknown(
            f"The isolated task {assignment.task!r} must stand at the top level of a module: "
            f"{assignment.module}.{assignment.qualname} is not a task there."
        )
    return definition


def _report(outcome: Outcome | None) -> ChildReport:
    used = resource.getrusage(resource.RUSAGE_SELF)
    below = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = sum(u.ru_utime + u.ru_stime for u in (used, below))
    unit = 1 if sys.platform == "darwin" else 1024
    peak = used.ru_maxrss * unit
    # On Linux, what getrusage reports begins with the size of the worker that started this process.
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        lines = (line.split() for line in status.splitlines())
        peak = next((int(words[1]) * 1024 for words in lines if words[:1] == ["VmHWM:"]), peak)
    return ChildReport(outcome, cpu * 1000, max(peak, below.ru_maxrss * unit) / 2**20)


def _end_with_worker() -> None:
    """When the worker is gone, so is its lease: end before someone else starts this run."""
    from multiprocessing import parent_process  # noqa: PLC0415 - set only inside a child

    parent = parent_process()
    if parent is not None:
        parent.join()
    os.killpg(0, signal.SIGKILL)
