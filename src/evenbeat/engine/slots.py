"""How many runs fit: into one runner, and into the worker, whatever runs them."""

import threading
import time
from collections import deque
from collections.abc import Callable

MOST_AHEAD = 1000


class Slots:
    """A number of places for runs, from their claim to the end of their handlers.

    More runs are claimed than there are places: as many as the recent pace will start within a
    moment. So short jobs are fetched in large batches, and long ones are never taken from other
    workers.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._claimed = self._over = self._returned = 0
        self._lock = threading.Lock()
        self._pace = 0.0
        self._pace_over = 0
        self._pace_at = time.monotonic()

    @property
    def active(self) -> int:
        """Runs claimed and not yet over, waiting ones included."""
        return self._claimed - self._over - self._returned

    @property
    def over(self) -> int:
        """Handlers that have returned."""
        return self._over

    def capacity(self, seconds: float) -> int:
        """How many runs may be claimed, if those that will start within these seconds count."""
        now = time.monotonic()
        elapsed = now - self._pace_at
        if elapsed >= 0.05:
            latest = (self._over - self._pace_over) / elapsed
            self._pace += (latest - self._pace) * min(1.0, elapsed / 0.2)
            self._pace_over, self._pace_at = self._over, now
        ahead = min(MOST_AHEAD, int(self._pace * seconds))
        return self.total + ahead - (self._claimed - self._over - self._returned)

    def claim(self, runs: int) -> None:
        """So many runs are claimed. Called by one thread at a time, as is `give_back`."""
        self._claimed += runs

    def give_back(self, runs: int) -> None:
        """So many of them will not start here."""
        self._returned += runs

    def end(self) -> None:
        """A handler has returned."""
        with self._lock:
            self._over += 1


class SharedSlots(Slots):
    """The places of a worker, for runners of every kind. A handler enters before it starts; those
    that find no place wait in line, so that a busy runner does not keep out the others."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._free = total
        self._line: deque[Callable[[], object]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether no handler could start now."""
        return self._free == 0

    def enter(self, when_free: Callable[[], object]) -> bool:
        """Take a place. False if none is free: then the caller is in line, and the thread that
        leaves a place for it calls `when_free`."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            self._line.append(when_free)
            return False

    def leave(self) -> None:
        """Leave a place to the first in line."""
        with self._lock:
            if not self._line:
                self._free += 1
                return
            first = self._line.popleft()
        first()
