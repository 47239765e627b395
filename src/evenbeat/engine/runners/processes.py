"""Isolated handlers, each in a child process of its own: killable, and measured."""

import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.process import BaseProcess

from evenbeat.domain.execution import Outcome
from evenbeat.domain.states import ExecutionStatus
from evenbeat.engine.outcome import ChildReport
from evenbeat.engine.run import Run
from evenbeat.engine.runners.child import Assignment, serve
from evenbeat.engine.runners.threads import SlotRunner
from evenbeat.observe.logs import current_logging

TERM_SECONDS = 0.4
"""How long a child may clean up after SIGTERM before it and all it started are killed."""

LOOK_SECONDS = 0.5
"""How often a silent child is checked on."""


# Spawned, not forked: a fork of a process with threads may deadlock in the child.
_SPAWN = multiprocessing.get_context("spawn")

# Starting a child touches process-wide state (the resource tracker), so one at a time.
_SPAWNING = threading.Lock()


class ProcessRunner(SlotRunner):
    """A thread for each slot minds one child at a time. When the worker dies, however it dies, its
    children notice the broken pipe and end: a run never outlives its lease unseen."""

    place = "process"

    def capacity(self) -> int:
        return self.slots - self.active  # a child takes a while to start: none ahead

    def perform(self, run: Run) -> ChildReport:
        """Let a child run the handler, and pass its messages on until it reports or is gone."""
        handler = run.task.handler
        assignment = Assignment(
            handler.__module__, handler.__qualname__, run.task.name, run.job, current_logging()
        )
        ours, theirs = _SPAWN.Pipe()
        child = _SPAWN.Process(
            target=serve, args=(theirs, assignment), daemon=False, name=f"run-{run.token}"
        )
        with _SPAWNING:
            child.start()
        theirs.close()
        run.interrupt = lambda: _end_group(child)
        if run.stop_reason is not None:  # stopped before the interrupt was in place
            _end_group(child)
        try:
            while True:
                # The pipe's end alone does not tell that the child is gone: a process that it
                # forked may hold the other end open.
                while not ours.poll(LOOK_SECONDS):
                    if not _alive(child) and not ours.poll(0):
                        return _died(run, child)
                kind, content = ours.recv()
                if kind == "progress":
                    run.context.progress(**content)
                elif kind == "heartbeat":
                    ours.send(run.context.renew())
                else:
                    report: ChildReport = content
                    return report
        except (EOFError, OSError):
            return _died(run, child)
        finally:
            ours.close()
            _end_group(child)
            child.join()
            child.close()


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
    """End the child and whatever it started; it leads a process group of its own."""
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
    _signal_group(pid, signal.SIGTERM)
    deadline = time.monotonic() + TERM_SECONDS
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
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
