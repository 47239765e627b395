"""Async handlers, on an event loop that runs nothing else."""

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine, Generator, Sequence
from typing import Any

from evenbeat.engine.alarm import Alarm
from evenbeat.engine.pipeline import Pipeline
from evenbeat.engine.run import Run
from evenbeat.engine.runners.base import Runner

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.5
"""How often the loop shows that it is not blocked."""


class LoopRunner(Runner):
    """One thread with one event loop. A handler that blocks it holds up the other async handlers,
    but neither claiming nor the renewal of leases, which have threads of their own."""

    place = "loop"

    def __init__(self, slots: int, tasks: Sequence[str], pipeline: Pipeline, alarm: Alarm) -> None:
        super().__init__(slots, tasks, pipeline, alarm)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="evenbeat-loop", daemon=True)
        self._started = 0
        self._closing = False
        self._late = 0.0
        self._tick_due = float("inf")

    async def perform(self, run: Run) -> None:
        """Await the handler."""
        with self._pipeline.attempt(run, self.loop.call_later):
            run.value = await run.task.handler(**run.arguments())
        self._started -= 1
        self._free_slot()
        self._fill_slots()

    @property
    def lag(self) -> float:
        """How late the last tick was, or how late the next one is by now."""
        return max(self._late, time.monotonic() - self._tick_due)

    def start(self) -> None:
        self._thread.start()

    def give_back(self, waited_seconds: float) -> list[Run]:
        """If runs wait although slots are free, a handler blocks the loop. Until it ends no more
        are taken, otherwise the same runs would come and go all the time."""
        free = self._started < self.slots
        late = super().give_back(waited_seconds)
        self._stuck = self._stuck or bool(late and free)
        return late

    def take(self, runs: Sequence[Run]) -> None:
        self._taken += len(runs)
        self._waiting.extend(runs)
        self.loop.call_soon_threadsafe(self._fill_slots)

    def close(self) -> None:
        self._closing = True
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self.loop.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._tick)
        while not self._closing:
            try:
                self.loop.run_forever()
            except BaseException as error:
                # `sys.exit()` in a task that a handler made falls through the loop. The handler
                # that awaits it gets the error; the others go on.
                logger.warning("a handler's own task raised %s", type(error).__name__)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())

    def _tick(self) -> None:
        now = time.monotonic()
        self._late = max(0.0, now - self._tick_due)
        self._tick_due = now + TICK_SECONDS
        self.loop.call_later(TICK_SECONDS, self._tick)

    def _fill_slots(self) -> None:
        self._stuck = False
        while self._started < self.slots and self._waiting:
            try:
                run = self._waiting.popleft()
            except IndexError:
                return
            self._started += 1
            task = self.loop.create_task(_Metered(self.perform(run), run))
            run.interrupt = _canceller(self.loop, task)


def _canceller(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> Any:
    def cancel() -> None:
        try:
            loop.call_soon_threadsafe(task.cancel)
        except RuntimeError:  # the loop has closed: so has the run
            return

    return cancel


class _Metered(Coroutine[Any, Any, None]):
    """A coroutine whose every step adds to its run's CPU time, so that the runs that share a thread
    are measured separately."""

    __slots__ = ("_coroutine", "_run")

    def __init__(self, coroutine: Coroutine[Any, Any, None], run: Run) -> None:
        self._coroutine = coroutine
        self._run = run

    def send(self, value: Any) -> Any:
        self._run.step_began_ns = time.thread_time_ns()
        try:
            return self._coroutine.send(value)
        finally:
            self._run.meter()

    def throw(self, *error: Any) -> Any:
        self._run.step_began_ns = time.thread_time_ns()
        try:
            return self._coroutine.throw(*error)
        finally:
            self._run.meter()

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._coroutine.__await__()
