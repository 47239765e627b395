"""Isolated handlers, each in a child process of its own: killable, and measured. First the runner,
then what happens inside the child."""

import asyncio
import importlib
import logging
import math
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, cast

from evenbeat.domain.decision import beyond_limit
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord
from evenbeat.domain.run_log import shorten
from evenbeat.domain.states import ExecutionStatus
from evenbeat.domain.step import Step
from evenbeat.engine.outcome import ChildReport, completed, encode_progress, failed
from evenbeat.engine.run import Run
from evenbeat.engine.run_logs import PrintedLines, catch_logs, kept_line
from evenbeat.engine.runners import SlotRunner
from evenbeat.errors import Fail, TaskUnknown
from evenbeat.external.supervisor import (
    Meter,
    adopt_orphans,
    kill_below,
    kill_tree,
    signal_all,
    tree_below,
)
from evenbeat.observe.logs import LogFormat, configure_logging, current_logging
from evenbeat.tasks.context import Context
from evenbeat.tasks.hooks import call_inside
from evenbeat.tasks.registry import RunnerKind, TaskDefinition

TERM_SECONDS = 0.4
"""How long a child may clean up after SIGTERM before it and all it started are killed."""

LOG_SECONDS = 1.0
"""How long a line may wait for the pipe."""

LOOK_SECONDS = 0.5
"""How often a silent child is checked on."""


# Spawned, not forked: a fork of a process with threads may deadlock in the child.
_SPAWN = multiprocessing.get_context("spawn")

# Starting a child touches process-wide state (the resource tracker), so one at a time.
_SPAWNING = threading.Lock()


class Assignment(NamedTuple):
    """What the child is to run. The handler is named, not pickled: its name is the task's."""

    module: str
    qualname: str
    task: str
    job: JobRecord
    logging: tuple[LogFormat, str] | None
    hooks: list[str]
    imports: list[str]
    log_level: float
    prints: bool


class ProcessRunner(SlotRunner):
    """A thread for each slot minds one child at a time. When the worker dies, however it dies, its
    children notice the broken pipe and end: a run never outlives its lease unseen."""

    place = "process"
    kind = RunnerKind.ISOLATED

    ahead_seconds = 0.0
    """A child takes a while to start, so none is claimed ahead."""

    def perform(self, run: Run) -> ChildReport:
        """Let a child run the handler, and pass its messages on until it reports or is gone."""
        handler = run.task.handler
        assignment = Assignment(
            handler.__module__,
            handler.__qualname__,
            run.task.name,
            run.job,
            current_logging(),
            run.task.hooks.names(),
            run.task.hooks.imports,
            math.inf if run.context.leases is None else run.context.leases.log_level,
            isinstance(sys.stdout, PrintedLines),
        )
        ours, theirs = _SPAWN.Pipe()
        child = _SPAWN.Process(
            target=serve, args=(theirs, assignment), daemon=False, name=f"run-{run.token}"
        )
        with _SPAWNING:
            child.start()
        theirs.close()
        meter = Meter(cast("int", child.pid), run.job.memory_limit, run.job.cpu_limit_seconds)
        run.interrupt = lambda: _end_group(child)
        if run.stop_reason is not None:  # stopped before the interrupt was in place
            _end_group(child)
        try:
            while True:
                if (limit := meter.exceeded()) is not None:
                    return _beyond(run, meter, limit)
                if not ours.poll(min(LOOK_SECONDS, meter.pause)):
                    # The pipe's end alone does not tell that the child is gone: a process that it
                    # forked may hold the other end open.
                    if not _alive(child) and not ours.poll(0):
                        return _died(run, child)
                    continue
                kind, content = ours.recv()
                if kind == "progress":
                    run.context.progress(**content)
                elif kind == "log":
                    if (leases := run.context.leases) is not None:
                        leases.keep_record(run.job, logging.makeLogRecord(content))
                elif kind != "ended":
                    ours.send(_answer(run, kind, content))
                else:
                    report: ChildReport = content
                    return report._replace(
                        cpu_time_ms=max(report.cpu_time_ms or 0, meter.cpu_seconds * 1000),
                        memory_peak_mb=max(report.memory_peak_mb or 0, meter.memory_bytes / 2**20),
                    )
        except (EOFError, OSError):
            return _died(run, child)
        finally:
            ours.close()
            _end_group(child)
            child.join()
            child.close()


def _answer(run: Run, question: str, content: Any) -> Any:
    """What the child asks of its run's lease."""
    leases = run.context.leases
    if question == "now" or leases is None:
        return run.context.now
    if question == "steps":
        return leases.steps(run.job)
    return leases.keep_step(run.job, content) if question == "keep_step" else run.context.renew()


def _beyond(run: Run, meter: Meter, limit: str) -> ChildReport:
    """End at once, with all that it started, a run that takes more than it may."""
    kill_tree(meter.root)
    seconds, size = meter.cpu_seconds, meter.memory_bytes
    message = beyond_limit(run.job, limit, seconds, size)
    outcome = Outcome(ExecutionStatus.FAILED, error_code=limit, error_message=message)
    return ChildReport(outcome, seconds * 1000 or None, size / 2**20 or None)


def _died(run: Run, child: BaseProcess) -> ChildReport:
    if run.stop_reason is not None:
        return ChildReport(None)
    child.join(timeout=5)
    code = child.exitcode
    how = f"killed by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
    return ChildReport(
        Outcome(
            ExecutionStatus.FAILED,
            error_code="process_died",
            error_message=f"The run's process ended by itself, {how}.",
        )
    )


def _end_group(child: BaseProcess) -> None:
    """End the child and whatever it started, also what has left its process group (Linux)."""
    try:
        pid = child.pid
    except ValueError:  # closed by its own thread
        return
    if pid is None:
        return
    if not _alive(child):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # it is gone, what it started may not be
        return
    # It adopts what loses its parents, but may be gone with the first signal: look before.
    below = set(tree_below(pid))
    signal_all(below, signal.SIGTERM)
    _signal_group(pid, signal.SIGTERM)
    deadline = time.monotonic() + TERM_SECONDS
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    signal_all(below.union(*map(tree_below, (pid, *below))), signal.SIGKILL)
    _signal_group(pid, signal.SIGKILL)


def _alive(child: BaseProcess) -> bool:
    try:
        return child.is_alive()
    except (ValueError, AssertionError):  # closed by its own thread
        return False


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
        return
    with suppress(ProcessLookupError):  # it has not become a group leader yet
        os.kill(pid, number)


# -- inside the child ----------------------------------------------------------------------------


def serve(pipe: Connection, assignment: Assignment) -> None:
    """Run one handler and report. The process's main function."""
    os.setsid()  # so that it can be ended together with whatever it starts
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which then decides
    threading.Thread(target=_end_with_worker, daemon=True).start()
    if assignment.logging is not None:  # at once, since a child may be ended at any moment
        configure_logging(*assignment.logging, buffered=False)
    leases = PipedLeases(pipe, assignment.log_level)
    context = Context(assignment.job, leases)
    run: Run | None = None
    outcome: Outcome | None
    try:
        task = _find(assignment)
        catch_logs(assignment.log_level, prints=assignment.prints)
        leases.application = task.hooks.application
        run = Run(assignment.job, task, context)
        run.started_at = time.monotonic()
        handle = partial(task.call, run.arguments())
        outcome = completed(run, call_inside(task.middleware, context, handle, _own_loop))
    except BaseException as error:
        no_task: Any = None
        outcome = failed(run or Run(assignment.job, no_task, context), error)
    leases.send("ended", _report(outcome))
    pipe.close()


class PipedLeases:
    """The `Leases` of a run in a child process: the worker, at the other end of the pipe."""

    def __init__(self, pipe: Connection, log_level: float) -> None:
        self._pipe = pipe
        self._pid = os.getpid()
        self._left_out = 0
        self.log_level = log_level
        self.application: Any = None
        self._sending = threading.Lock()

    def send(self, kind: str, content: Any) -> None:
        """Say something to the worker."""
        with self._sending:
            self._pipe.send((kind, content))

    def report_progress(self, _job: JobRecord, progress: dict[str, Any]) -> None:
        """Pass it on."""
        encode_progress(progress)  # what cannot be stored fails here, in the handler
        self.send("progress", progress)

    def keep_record(self, _job: JobRecord, record: logging.LogRecord) -> None:
        """Pass a line on, cut to what is kept of it. Where the pipe is taken for long, by a thread
        that waits for an answer or one that this call has interrupted, the line is left out. A
        process that this one forked must not write to the pipe."""
        if os.getpid() != self._pid:
            return
        level, source, text = kept_line(record)
        if not self._sending.acquire(timeout=LOG_SECONDS):
            self._left_out += 1
            return
        try:
            if self._left_out:
                text = f"({self._left_out} lines before this one were left out)\n{text}"
            fields = {"levelname": level, "name": source, "msg": shorten(text)}
            self._pipe.send(("log", fields))
            self._left_out = 0
        except (OSError, ValueError):  # the run has ended, or its worker has
            self._left_out += 1
        finally:
            self._sending.release()

    def renew(self, _job: JobRecord) -> bool:
        """Ask the worker to renew."""
        return bool(self._ask("heartbeat"))

    def now(self) -> datetime:
        """Ask the worker what time it is."""
        moment: datetime = self._ask("now")
        return moment

    def steps(self, _job: JobRecord) -> list[Step]:
        """Ask the worker what is done."""
        steps: list[Step] = self._ask("steps")
        return steps

    def keep_step(self, _job: JobRecord, step: Step) -> Step | None:
        """Let the worker keep it."""
        kept: Step | None = self._ask("keep_step", step)
        return kept

    def _ask(self, kind: str, content: Any = None) -> Any:
        with self._sending:
            self._pipe.send((kind, content))
            return self._pipe.recv()


def _find(assignment: Assignment) -> TaskDefinition:
    """The task that the decorator left in its module: by the function's name, or by another."""
    for module in assignment.imports:
        importlib.import_module(module)
    home = importlib.import_module(assignment.module)
    named: Any = home
    for part in assignment.qualname.split("."):
        named = getattr(named, part, None)
    for one in (named, *vars(home).values()):
        definition = getattr(one, "__dict__", {}).get("definition")
        if isinstance(definition, TaskDefinition) and definition.name == assignment.task:
            break
    else:
        raise TaskUnknown(
            f"The isolated task {assignment.task!r} must stand at the top level of a module: "
            f"{assignment.module}.{assignment.qualname} is not a task there."
        )
    known = definition.hooks.names()
    if missing := [name for name in assignment.hooks if name not in known]:
        raise Fail(
            f"The worker has {', '.join(missing)} around its runs, which the process of this "
            f"isolated run does not: it imports {assignment.module} only. Register them in a "
            "module that this one imports.",
            code="hooks_missing",
        )
    return definition


def _own_loop() -> asyncio.AbstractEventLoop:
    """For async middleware of a plain handler."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _report(outcome: Outcome | None) -> ChildReport:
    if outcome is not None:
        outcome.error = (
            None  # its trace goes with it as text; an exception may not let itself pickle
        )
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
    kill_below(os.getpid())  # daemons have left the group
    os.killpg(0, signal.SIGKILL)
