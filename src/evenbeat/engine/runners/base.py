"""What the three runners have in common: a number of slots, and a short line before them."""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from evenbeat.engine.alarm import Alarm
from evenbeat.engine.pipeline import Pipeline
from evenbeat.engine.run import Run

AHEAD_SECONDS = 0.05
MOST_AHEAD_SECONDS = 0.2
AHEAD_CLAIMS = 4
MOST_AHEAD = 1000


class Runner(ABC):
    """Runs up to `slots` handlers at once, and differs from the others in how it performs one.

    The claimer asks for its `capacity()`: the free slots, plus as many more as the recent pace will
    use up within `AHEAD_SECONDS`. So short jobs are fetched in large batches, and long ones are
    never taken from other workers. Where claims are slow, because many workers share a database or
    it is far away, they are larger and fewer: each fetches enough for the time of `AHEAD_CLAIMS`.
    """

    place: ClassVar[str]
    """Where its handlers run: `loop`, `thread` or `process`."""

    def __init__(self, slots: int, tasks: Sequence[str], pipeline: Pipeline, alarm: Alarm) -> None:
        self.slots = slots
        self.tasks = list(tasks)
        self._pipeline = pipeline
        self._alarm = alarm
        self._waiting: deque[Run] = deque()
        self._lock = threading.Lock()
        self._stuck = False
        """Whether it cannot start what it has, although slots are free."""
        self._taken = 0
        self._over = 0
        self._returned = 0
        self._claim_seconds = 0.0
        self._pace = 0.0
        self._pace_over = 0
        self._pace_at = time.monotonic()

    def capacity(self) -> int:
        """How many runs this runner would take now."""
        if self._stuck:
            return 0
        now = time.monotonic()
        elapsed = now - self._pace_at
        if elapsed >= 0.05:
            latest = (self._over - self._pace_over) / elapsed
            self._pace += (latest - self._pace) * min(1.0, elapsed / 0.2)
            self._pace_over, self._pace_at = self._over, now
        seconds = min(max(AHEAD_SECONDS, self._claim_seconds * AHEAD_CLAIMS), MOST_AHEAD_SECONDS)
        return self.slots + min(MOST_AHEAD, int(self._pace * seconds)) - self.active

    def claim_took(self, seconds: float) -> None:
        """How long the last claim for this runner took."""
        self._claim_seconds += (seconds - self._claim_seconds) / 4

    @property
    def active(self) -> int:
        """Runs taken and not yet over, waiting ones included."""
        return self._taken - self._over - self._returned

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

    @abstractmethod
    def start(self) -> None:
        """Be ready to take runs."""

    @abstractmethod
    def take(self, runs: Sequence[Run]) -> None:
        """Run these, in this order, as slots are free. Called by one thread at a time."""

    def give_back(self, waited_seconds: float) -> list[Run]:
        """Runs that have waited too long for a slot, for another worker to take."""
        deadline = time.monotonic() - waited_seconds
        late: list[Run] = []
        while self._waiting and self._waiting[0].claimed_at < deadline:
            try:
                late.append(self._waiting.popleft())
            except IndexError:
                break
        self._returned += len(late)
        return late

    @abstractmethod
    def close(self) -> None:
        """End the runner's own threads; runs must be over."""

    def _free_slot(self) -> None:
        """A handler has returned. That may be long after its run was over."""
        with self._lock:
            self._over += 1
        self._alarm.slot_freed()
