"""Runners: a number of slots, and a short line before them. Each kind performs handlers in its own
way: on an event loop, in threads, or in child processes (`child_process.py`)."""

import asyncio
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, ClassVar

from evenbeat.engine.alarm import Alarm
from evenbeat.engine.outcome import stopped
from evenbeat.engine.pipeline import Attempt, Pipeline
from evenbeat.engine.run import Run, StopReason
from evenbeat.engine.slots import SharedSlots, Slots
from evenbeat.engine.worker_loop import WorkerLoop
from evenbeat.tasks.hooks import await_inside, call_inside
from evenbeat.tasks.registry import RunnerKind

AHEAD_SECONDS = 0.05
MOST_AHEAD_SECONDS = 0.2
AHEAD_CLAIMS = 4


class Runner(ABC):
    """Runs up to `slots` handlers at once, together with the worker's other runners no more than
    `shared` has, and differs from the others in how it performs one.

    The claimer asks for its `capacity()`: the free slots, and a little ahead of its pace. Where
    claims are slow, because many workers share a database or it is far away, they are larger and
    fewer: each fetches enough for the time of `AHEAD_CLAIMS`.
    """

    place: ClassVar[str]
    """Where its handlers run: `loop`, `thread` or `process`."""

    kind: ClassVar[RunnerKind]
    """Which tasks it is for."""

    def __init__(
        self,
        slots: int,
        shared: SharedSlots,
        tasks: Sequence[str],
        pipeline: Pipeline,
        alarm: Alarm,
        *,
        worker_loop: WorkerLoop,
    ) -> None:
        self.tasks = list(tasks)
        self._worker_loop = worker_loop
        self._slots = Slots(slots)
        self._shared = shared
        self._pipeline = pipeline
        self._alarm = alarm
        self._waiting: deque[Run] = deque()
        self._stuck = False
        """Whether it cannot start what it has, although slots are free."""
        self._claim_seconds = 0.0

    @property
    def slots(self) -> int:
        """How many handlers it runs at once."""
        return self._slots.total

    @property
    def ahead_seconds(self) -> float:
        """For how long ahead it claims."""
        return min(max(AHEAD_SECONDS, self._claim_seconds * AHEAD_CLAIMS), MOST_AHEAD_SECONDS)

    def capacity(self) -> int:
        """How many runs this runner would take now."""
        if self._stuck:
            return 0
        seconds = self.ahead_seconds
        return min(self._slots.capacity(seconds), self._shared.capacity(seconds))

    def claim_took(self, seconds: float) -> None:
        """How long the last claim for this runner took."""
        self._claim_seconds += (seconds - self._claim_seconds) / 4

    @property
    def active(self) -> int:
        """Runs taken and not yet over, waiting ones included."""
        return self._slots.active

    @property
    def running(self) -> int:
        """Runs whose handler has started."""
        return self.active - len(self._waiting)

    @property
    def waiting(self) -> int:
        """Runs taken whose handler has not started."""
        return len(self._waiting)

    @property
    def lag(self) -> float | None:
        """How late this runner's event loop is, in seconds; None without one."""
        return None

    def held(self) -> list[Run]:
        """Runs that are over, while their handlers still have a slot."""
        return []

    @abstractmethod
    def start(self) -> None:
        """Be ready to take runs."""

    def take(self, runs: Sequence[Run]) -> None:
        """Run these, in this order, as slots are free. Called by one thread at a time."""
        self._slots.claim(len(runs))
        self._shared.claim(len(runs))
        self._waiting.extend(runs)
        self._start_waiting(len(runs))

    @abstractmethod
    def _start_waiting(self, new: int) -> None:
        """So many more runs wait for a slot."""

    def give_back(self, waited_seconds: float) -> list[Run]:
        """Runs that have waited too long for a slot, for another worker to take."""
        deadline = time.monotonic() - waited_seconds
        late: list[Run] = []
        while self._waiting and self._waiting[0].claimed_at < deadline:
            try:
                late.append(self._waiting.popleft())
            except IndexError:
                break
        self._slots.give_back(len(late))
        self._shared.give_back(len(late))
        return late

    @abstractmethod
    def close(self) -> None:
        """End the runner's own threads; runs must be over."""

    def _free_slot(self) -> None:
        """A handler has returned. That may be long after its run was over."""
        self._slots.end()
        self._shared.end()
        self._shared.leave()
        self._alarm.slot_freed()


# -- on an event loop ----------------------------------------------------------------------------


class LoopRunner(Runner):
    """On the worker's event loop. A handler that blocks it holds up the other async handlers, but
    neither claiming nor the renewal of leases, which have threads of their own."""

    place = "loop"
    kind = RunnerKind.ON_LOOP

    def __init__(
        self,
        slots: int,
        shared: SharedSlots,
        tasks: Sequence[str],
        pipeline: Pipeline,
        alarm: Alarm,
        *,
        worker_loop: WorkerLoop,
    ) -> None:
        super().__init__(slots, shared, tasks, pipeline, alarm, worker_loop=worker_loop)
        self.loop = worker_loop.loop
        self._in_line = False

    async def perform(self, run: Run) -> None:
        """Await the handler."""
        with Attempt(self._pipeline, run, self.loop.call_later):
            task, arguments = run.task, run.arguments()
            if around := task.middleware:
                handle = partial(task.handler, **arguments)
                run.value = await await_inside(around, run.context, handle)
            else:
                run.value = await task.handler(**arguments)
        self._free_slot()
        self._fill_slots()

    @property
    def lag(self) -> float:
        return self._worker_loop.lag

    def start(self) -> None:
        self._worker_loop.started()

    def give_back(self, waited_seconds: float) -> list[Run]:
        """If runs wait although slots are free, a handler blocks the loop. Until it ends no more
        are taken, otherwise the same runs would come and go all the time."""
        late = super().give_back(waited_seconds)
        self._stuck = self._stuck or bool(late and not self._shared.is_full)
        return late

    def _start_waiting(self, new: int) -> None:  # noqa: ARG002 - it looks at all of them
        self.loop.call_soon_threadsafe(self._fill_slots)

    def close(self) -> None:
        self._worker_loop.close()

    def _fill_slots(self) -> None:
        self._stuck = False
        while self._waiting and not self._in_line:
            self._in_line = not self._shared.enter(self._slot_is_free)
            if not self._in_line:
                self._start_next()

    def _slot_is_free(self) -> None:
        with suppress(RuntimeError):  # the loop has closed
            self.loop.call_soon_threadsafe(self._leave_line)

    def _leave_line(self) -> None:
        self._in_line = False
        self._start_next()
        self._fill_slots()

    def _start_next(self) -> None:
        try:
            run = self._waiting.popleft()
        except IndexError:  # given back meanwhile
            self._shared.leave()
            return
        task = self.loop.create_task(self.perform(run), context=Context())  # nothing of another run
        run.interrupt = partial(self._cancel, task)

    def _cancel(self, task: "asyncio.Task[None]") -> None:
        with suppress(RuntimeError):  # the loop has closed: so has the run
            self.loop.call_soon_threadsafe(task.cancel)


# -- in threads ----------------------------------------------------------------------------------


class SlotRunner(Runner):
    """Each of its threads performs one run after the other."""

    def __init__(
        self,
        slots: int,
        shared: SharedSlots,
        tasks: Sequence[str],
        pipeline: Pipeline,
        alarm: Alarm,
        *,
        worker_loop: WorkerLoop,
    ) -> None:
        super().__init__(slots, shared, tasks, pipeline, alarm, worker_loop=worker_loop)
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._performed: list[Run | None] = [None] * slots
        """What each thread is at."""
        self._threads = [
            threading.Thread(target=self._serve, args=(n,), name=f"evenbeat-slot-{n}", daemon=True)
            for n in range(slots)
        ]

    @abstractmethod
    def perform(self, run: Run) -> Any:
        """Run the handler; returns what it returned."""

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _start_waiting(self, new: int) -> None:
        for _ in range(new):
            self._wake.put(True)

    def close(self) -> None:
        for _ in self._threads:
            self._wake.put(False)

    def _serve(self, number: int) -> None:
        slot_is_free = threading.Event()
        while self._wake.get():
            if not self._shared.enter(slot_is_free.set):
                slot_is_free.wait()
                slot_is_free.clear()
            try:
                run = self._waiting.popleft()
            except IndexError:  # given back meanwhile
                self._shared.leave()
                continue
            self._performed[number] = run
            with Attempt(self._pipeline, run, _start_timer):
                run.value = Context().run(self.perform, run)
            self._performed[number] = None
            self._free_slot()


class ThreadRunner(SlotRunner):
    """A thread cannot be ended from outside. A run that is cancelled or times out is over for the
    job at once; its thread goes on until the function looks at `ctx.cancelled` and returns, and
    what it returns is thrown away. Until then it holds its slot."""

    place = "thread"
    kind = RunnerKind.IN_THREAD

    def perform(self, run: Run) -> Any:
        """Call the handler."""
        run.interrupt = lambda: self._pipeline.end(run, stopped(run))
        began_ns = time.thread_time_ns()
        try:
            handle = partial(run.task.call, run.arguments())
            around, loop = run.task.middleware, self._worker_loop.started
            return call_inside(around, run.context, handle, loop)
        finally:
            run.cpu_ms = (time.thread_time_ns() - began_ns) / 1e6

    def held(self) -> list[Run]:
        """Runs that were stopped and have not returned."""
        return [run for run in self._performed if run and run.ended and run.stop_reason]


def _start_timer(
    seconds: float, stop: Callable[[StopReason], None], reason: StopReason
) -> threading.Timer:
    timer = threading.Timer(seconds, stop, (reason,))
    timer.daemon = True
    timer.start()
    return timer
