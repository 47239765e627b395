"""Isolated handlers, each in a child process of its own: killable, and measured."""

import logging
import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from evenbeat.domain.execution import Outcome
from evenbeat.domain.states import ExecutionStatus
from evenbeat.engine.executor import failed, stopped
from evenbeat.engine.run import Run, StopReason
from evenbeat.engine.runners.child import Assignment, Report, serve
from evenbeat.engine.runners.slots import SlotRunner
from evenbeat.observe.logs import current_logging

logger = logging.getLogger(__name__)

TERM_SECONDS = 0.4
"""How long a child may clean up after SIGTERM before it and all it started are killed."""

LOOK_SECONDS = 0.5
"""How often a silent child is looked at."""


# Spawned, not forked: a fork of a process with threads may deadlock in the child.
_SPAWN = multiprocessing.get_context("spawn")


class ProcessRunner(SlotRunner):
    """A thread for each slot minds one child at a time. When the worker dies, however it dies, its
    children notice the broken pipe and end: a run never outlives its lease unseen."""

    place = "process"

    def capacity(self) -> int:
        return self.slots - self.active  # a child takes a while to start: none ahead

    def _mind(self, run: Run) -> None:
        self._end_once(run, stopped(run) if run.stop_reason else self._attempt(run))

    def _attempt(self, run: Run) -> Outcome | None:
        try:
            return self._perform(run)
        except Exception as error:  # no process to be had, or a message that cannot be read
            logger.exception("an isolated run failed outside its handler")
            return failed(run, error)

    def _perform(self, run: Run) -> Outcome | None:
        ours, theirs = _SPAWN.Pipe()
        child = _SPAWN.Process(
            target=serve, args=(theirs, _assignment(run)), daemon=False, name=f"run-{run.token}"
        )
        run.begin()
        with _SPAWNING:
            child.start()
        theirs.close()
        run.interrupt = lambda: _end_group(child)
        if run.stop_reason is not None:  # stopped before the interrupt was in place
            _end_group(child)
        try:
            return self._listen(run, child, ours)
        finally:
            ours.close()
            _end_group(child)
            child.join()
            child.close()

    def _listen(self, run: Run, child: BaseProcess, pipe: Connection) -> Outcome | None:
        while True:
            try:
                if not self._spoke(run, child, pipe):
                    return self._vanished(run, child)
                kind, content = pipe.recv()
            except (EOFError, OSError):
                return self._vanished(run, child)
            if kind == "progress":
                run.context.progress(**content)
            elif kind == "heartbeat":
                pipe.send(run.context.renew())
            else:
                return _outcome(run, content)

    def _spoke(self, run: Run, child: BaseProcess, pipe: Connection) -> bool:
        """Wait for a message. The pipe's end alone does not tell that the child is gone: what it
        forked may hold the other end open."""
        while True:
            left = _time_left(run)
            if pipe.poll(LOOK_SECONDS if left is None else min(left, LOOK_SECONDS)):
                return True
            if left is not None and left <= LOOK_SECONDS:
                run.stop(StopReason.TIMEOUT)
                return False
            if not _alive(child):
                return bool(pipe.poll(0))

    def _vanished(self, run: Run, child: BaseProcess) -> Outcome | None:
        if run.stop_reason is not None:
            return stopped(run)
        child.join(timeout=5)
        return Outcome(
            ExecutionStatus.FAILED,
            duration_ms=run.duration_ms,
            queued_ms=run.queued_ms,
            error_code="process_died",
            error_message=f"The run's process ended by itself, {_how(child.exitcode)}.",
        )


# Starting a child touches process-wide state (the resource tracker), so one at a time.
_SPAWNING = threading.Lock()


def _assignment(run: Run) -> Assignment:
    handler = run.task.handler
    name = run.task.name
    return Assignment(handler.__module__, handler.__qualname__, name, run.job, current_logging())


def _outcome(run: Run, report: Report) -> Outcome | None:
    if run.stop_reason is not None and run.stop_reason is not StopReason.SHUTDOWN:
        return stopped(run)
    outcome = report.outcome
    if outcome is None:
        return None
    outcome.duration_ms, outcome.queued_ms = run.duration_ms, run.queued_ms
    outcome.cpu_time_ms, outcome.memory_peak_mb = report.cpu_time_ms, report.memory_peak_mb
    return outcome


def _time_left(run: Run) -> float | None:
    if run.job.timeout_seconds is None:
        return None
    return max(0.0, run.job.timeout_seconds - run.duration_ms / 1000)


def _end_group(child: BaseProcess) -> None:
    """End the child and whatever it started; it leads a process group of its own."""
    pid: Any = _pid(child)
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


def _pid(child: BaseProcess) -> int | None:
    try:
        return child.pid
    except ValueError:  # closed by its own thread
        return None


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


def _how(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"killed by signal {-exit_code}"
    return f"with exit code {exit_code}"
