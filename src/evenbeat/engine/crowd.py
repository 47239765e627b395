"""Stand back: processes beyond the number of cores add no speed to a backlog that the cores limit,
only switches between them. So they leave it to their fellows on the machine while that holds."""

import errno
import hashlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import psutil  # type: ignore[import-untyped]

logger = logging.getLogger(__name__)

FIRST_LOOK_SECONDS = 0.05
REST_SECONDS = 0.5
BUSY_SHARE = 0.85
"""Of the machine's cores, from which on they count as the limit."""
IDLE_LOOKS = 2
"""So many looks in a row must find cores idle: a disk that stalls for a moment is no reason."""
LONGEST_SECONDS = 10.0
"""So long a process stands back at a stretch, whatever it sees."""
MISTAKEN_SECONDS = 20.0
"""So long it does not try again when cores fell idle after it stood back."""


class Seats(Protocol):
    """One for each core, shared by all processes of the machine that claim the same jobs."""

    def take(self) -> bool:
        """Whether this process has a seat, or got one just now."""

    def leave(self) -> None:
        """Give the seat up, if there is one."""


class Crowd:
    """Decides whether a runner goes on claiming from a backlog or leaves it to its fellows.

    It stands back only while its claims come back full, fellows hold all seats, the cores are busy,
    and its own slots are not what was short. If the cores fall idle then, the jobs wait for
    something other than a core and every hand is of use: it goes on, and does not try again for a
    while. If they stayed busy, it stands back from the next backlog after its first full claim.
    Nothing rests on any of this but speed: a claim is as safe with a seat as without.
    """

    def __init__(
        self,
        seats: Seats,
        busy: Callable[[], float],
        short_of_slots: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seats = seats
        self._busy = busy
        self._short_of_slots = short_of_slots
        self._monotonic = monotonic
        self._backlog = False
        self._standing_since: float | None = None
        self._idle_looks = 0
        self._look_at = 0.0
        self._not_before = 0.0
        self._was_right = False
        self._told = False

    @property
    def standing_back(self) -> bool:
        """What the last look decided."""
        return self._standing_since is not None

    @property
    def rest(self) -> float:
        """Seconds until the next look can decide otherwise."""
        return max(0.0, self._look_at - self._monotonic())

    def claimed(self, *, full: bool) -> None:
        """A claim came back; when it is full, there may be more to claim."""
        if not full:
            self.leave()
        elif not self._backlog:
            self._backlog = True
            if not self._seats.take():
                self._busy()  # the next look tells of the time since this one
                self._met(self._monotonic())

    def look(self) -> bool:
        """Whether to claim nothing now. If so, look again after `rest`."""
        if not self._backlog:
            return False
        if self._seats.take():
            if self.standing_back:
                self._come_back(right=self._idle_looks == 0)
        elif (now := self._monotonic()) >= self._look_at:
            self._decide(now, self._busy() >= BUSY_SHARE)
            self._look_at = now + REST_SECONDS
        return self.standing_back

    def leave(self) -> None:
        """There is no backlog any more, or this process stops: make room."""
        if self._backlog:
            self._seats.leave()
            self._backlog = False
            self._standing_since = None

    def _met(self, now: float) -> None:
        """A backlog begins, and others hold the seats. Who was right to stand back from the last
        one need not see the cores busy first; what jobs these are, the first look tells."""
        self._look_at = now + FIRST_LOOK_SECONDS
        if self._was_right and not self._short_of_slots():
            self._stand_back(now)

    def _decide(self, now: float, busy: bool) -> None:
        since, short_of_slots = self._standing_since, self._short_of_slots()
        if since is None:
            if busy and now >= self._not_before and not short_of_slots:
                self._stand_back(now)
            return
        self._idle_looks = 0 if busy else self._idle_looks + 1
        if short_of_slots:
            self._come_back(right=False)
        elif self._idle_looks == IDLE_LOOKS:
            self._not_before = now + MISTAKEN_SECONDS
            self._come_back(right=False)
        elif now - since >= LONGEST_SECONDS:
            self._come_back(right=True)

    def _stand_back(self, now: float) -> None:
        self._standing_since, self._idle_looks = now, 0
        self._tell()

    def _come_back(self, *, right: bool) -> None:
        self._standing_since, self._was_right = None, right

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            logger.info(
                "All cores are busy, and as many worker processes as there are cores claim these "
                "jobs: this one leaves them to the others while that is so. Said once."
            )


class NamedSeats:
    """Seats are names of local sockets, of which the kernel gives each to one process only, and
    takes it back however that process ends. They leave nothing on disk. Where no socket is to be
    had, nobody goes without a seat."""

    def __init__(self, of: Iterable[str], number: int) -> None:
        digest = hashlib.sha256("\n".join(of).encode()).hexdigest()[:32]
        self._names = [f"\0evenbeat-{digest}-{seat}" for seat in range(number)]
        self._seat: socket.socket | None = None

    def take(self) -> bool:
        """Try each name, unless there is a seat already."""
        if self._seat is not None:
            return True
        try:
            self._seat = self._free_one()
        except OSError:
            return True
        return self._seat is not None

    def leave(self) -> None:
        """Close the socket, and the name is free."""
        if self._seat is not None:
            self._seat.close()
            self._seat = None

    def _free_one(self) -> socket.socket | None:
        for name in self._names:
            seat = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                seat.bind(name)
            except OSError as error:
                seat.close()
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return seat
        return None


class SeatForAll:
    """Where seats cannot be kept, nobody goes without one."""

    def take(self) -> bool:
        """Always."""
        return True

    def leave(self) -> None:
        """Nothing to do."""


class Cores:
    """How busy the machine's cores are, whoever uses them. Time that they wait for a disk counts
    as idle, as more hands make use of it; time that the host took away counts as busy."""

    def __init__(self) -> None:
        self._idle = self._total = 0.0

    def busy(self) -> float:
        """The share of their time since the last call; 0 where nobody can tell."""
        try:
            times = psutil.cpu_times()
        except (OSError, psutil.Error):
            return 0.0
        idle = times.idle + getattr(times, "iowait", 0.0)
        # What guests used is in `user` and `nice` already.
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        elapsed, rested = total - self._total, idle - self._idle
        self._idle, self._total = idle, total
        return 1 - rested / elapsed if elapsed > 0 else 0.0


def alone() -> Crowd:
    """Nobody else is there: one that never stands back."""
    return Crowd(SeatForAll(), lambda: 0.0)


def crowd_of(who: Iterable[str], short_of_slots: Callable[[], bool]) -> Crowd:
    """The crowd on this machine of those that have `who` in common: the database and the jobs."""
    if sys.platform != "linux":
        return alone()
    return Crowd(NamedSeats(who, os.cpu_count() or 1), Cores().busy, short_of_slots)
