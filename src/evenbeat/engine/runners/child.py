"""Inside the child process of an isolated run."""

import asyncio
import importlib
import inspect
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import Job
from evenbeat.engine.executor import arguments, completed, encode_progress, failed
from evenbeat.engine.run import Run
from evenbeat.errors import TaskUnknown
from evenbeat.observe.logs import LogSettings, continue_logging
from evenbeat.tasks.context import Context
from evenbeat.tasks.registry import TaskDefinition


class Assignment(NamedTuple):
    """What the child is to run. The handler is named, not pickled: a decorator stands for it."""

    module: str
    qualname: str
    task: str
    job: Job
    logging: LogSettings | None


class Report(NamedTuple):
    """What came of it, and what it took."""

    outcome: Outcome | None
    cpu_time_ms: float
    memory_peak_mb: float


def serve(pipe: Connection, assignment: Assignment) -> None:
    """Run one handler and report. The process's main function."""
    os.setsid()  # so that it can be ended together with whatever it starts
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which then decides
    threading.Thread(target=_end_with_worker, daemon=True).start()
    continue_logging(assignment.logging)
    sending = threading.Lock()

    def send(kind: str, content: Any) -> None:
        with sending:
            pipe.send((kind, content))

    def report_progress(_job: Job, progress: dict[str, Any]) -> None:
        encode_progress(progress)  # what cannot be stored fails here, in the handler
        send("progress", progress)

    def renew(_job: Job) -> bool:
        with sending:
            pipe.send(("heartbeat", None))
            return bool(pipe.recv())

    context = Context(assignment.job, report_progress=report_progress, renew=renew)
    send("ended", _report(_perform(assignment, context)))
    pipe.close()


def _perform(assignment: Assignment, context: Context) -> Outcome | None:
    run: Run | None = None
    try:
        task = _find(assignment)
        token = context.execution_id
        run = Run(assignment.job, token, task, context)
        run.begin()
        value = _call(task.handler, arguments(run))
        return completed(run, value)
    except BaseException as error:
        return failed(run or _unprepared(assignment, context), error)


def _call(handler: Callable[..., Any], values: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(handler):
        return asyncio.run(handler(**values))
    return handler(**values)


def _find(assignment: Assignment) -> TaskDefinition:
    """The task behind the name that the decorator left in its module."""
    found: Any = importlib.import_module(assignment.module)
    for part in assignment.qualname.split("."):
        found = getattr(found, part, None)
    definition = getattr(found, "definition", None)
    if not isinstance(definition, TaskDefinition):
        raise TaskUnknown(
            f"The isolated task {assignment.task!r} must stand at the top level of a module: "
            f"{assignment.module}.{assignment.qualname} is not a task there."
        )
    return definition


def _unprepared(assignment: Assignment, context: Context) -> Run:
    """A run to hang an error on that came before there was a task."""
    empty: Any = type("NoTask", (), {"never_retry": ()})
    return Run(assignment.job, context.execution_id, empty, context)


def _report(outcome: Outcome | None) -> Report:
    used = resource.getrusage(resource.RUSAGE_SELF)
    below = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = sum(u.ru_utime + u.ru_stime for u in (used, below))
    unit = 1 if sys.platform == "darwin" else 1024
    own = _own_peak() or used.ru_maxrss * unit
    return Report(outcome, cpu * 1000, max(own, below.ru_maxrss * unit) / 2**20)


def _own_peak() -> int | None:
    """Bytes; None where the kernel does not tell. What getrusage tells begins, on Linux, with the
    size of the worker that this process was started from."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    lines = (line.split() for line in status.splitlines())
    return next((int(words[1]) * 1024 for words in lines if words[:1] == ["VmHWM:"]), None)


def _end_with_worker() -> None:
    """When the worker is gone, so is its lease: end before someone else starts this run."""
    from multiprocessing import parent_process  # noqa: PLC0415 - set only inside a child

    parent = parent_process()
    if parent is not None:
        parent.join()
    os.killpg(0, signal.SIGKILL)
