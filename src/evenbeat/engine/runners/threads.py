"""Plain functions: a thread for each slot. Child processes are minded by such threads as well."""

import queue
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from evenbeat.engine.alarm import Alarm
from evenbeat.engine.outcome import stopped
from evenbeat.engine.pipeline import Pipeline
from evenbeat.engine.run import Run, StopReason
from evenbeat.engine.runners.base import Runner


class SlotRunner(Runner):
    """Each of its threads performs one run after the other."""

    def __init__(self, slots: int, tasks: Sequence[str], pipeline: Pipeline, alarm: Alarm) -> None:
        super().__init__(slots, tasks, pipeline, alarm)
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"evenbeat-slot-{n}", daemon=True)
            for n in range(slots)
        ]

    @abstractmethod
    def perform(self, run: Run) -> Any:
        """Run the handler; returns what it returned."""

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def take(self, runs: Sequence[Run]) -> None:
        self._taken += len(runs)
        self._waiting.extend(runs)
        for _ in runs:
            self._wake.put(True)

    def close(self) -> None:
        for _ in self._threads:
            self._wake.put(False)

    def _serve(self) -> None:
        while self._wake.get():
            try:
                run = self._waiting.popleft()
            except IndexError:  # given back meanwhile
                continue
            with self._pipeline.attempt(run, _start_timer):
                run.value = self.perform(run)
            self._free_slot()


class ThreadRunner(SlotRunner):
    """A thread cannot be ended from outside. A run that is cancelled or times out is over for the
    job at once; its thread goes on until the function looks at `ctx.cancelled` and returns, and
    what it returns is thrown away."""

    place = "thread"

    def perform(self, run: Run) -> Any:
        """Call the handler."""
        run.interrupt = lambda: self._pipeline.end(run, stopped(run))
        run.step_began_ns = time.thread_time_ns()
        return run.task.handler(**run.arguments())


def _start_timer(
    seconds: float, stop: Callable[[StopReason], None], reason: StopReason
) -> threading.Timer:
    timer = threading.Timer(seconds, stop, (reason,))
    timer.daemon = True
    timer.start()
    return timer
