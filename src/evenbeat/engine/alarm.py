"""What wakes the claimer: a hint, a free slot, or a job that was put back and is due soon."""

import threading
from collections.abc import Iterable
from datetime import datetime, timedelta

from evenbeat.engine.clock import Clock


class Alarm:
    """Runners and the pipeline set it, the claimer rests by it. Any thread may call anything."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake = threading.Event()
        self._full = False
        self._lock = threading.Lock()
        self._expected: datetime | None = None
        self._resting_until: datetime | None = None

    def wake(self) -> None:
        """There may be something to claim."""
        self._wake.set()

    def slot_freed(self) -> None:
        """A slot is free again, which matters only if there was none."""
        if self._full:
            self._full = False
            self._wake.set()

    def wait_for_slot(self, waiting: bool) -> None:
        """Whether the next free slot should wake the claimer."""
        self._full = waiting

    def expect(self, due_times: Iterable[datetime | None]) -> None:
        """Jobs were put back, due at these times: do not sleep through any of them."""
        earliest = min((due for due in due_times if due is not None), default=None)
        if earliest is None:
            return
        with self._lock:
            if self._resting_until is None:
                self._expected = min(earliest, self._expected or earliest)
            elif earliest < self._resting_until:
                self._wake.set()

    def forget_expected(self) -> None:
        """The claimer is about to look: it sees whatever was put back until now."""
        with self._lock:
            self._expected = None

    def rest(self, seconds: float) -> None:
        """Sleep until woken, at most until the earliest job that was put back is due."""
        now = self._clock.now()
        with self._lock:
            if self._expected is not None:
                seconds = max(0.0, min(seconds, (self._expected - now).total_seconds()))
            self._resting_until = now + timedelta(seconds=seconds)
        self._wake.wait(seconds)
        self._wake.clear()
        self._resting_until = None
