"""The load that periodic jobs add to a week, in whole numbers.

Load is counted second by second in units of 1/1024 of a run. Whole numbers make adding and removing
exact in any order, so two nodes that know the same jobs compute the same load to the bit.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenbeat.domain.moments import EPOCH
from evenbeat.domain.schedule import Cron

WEEK = 604_800
CELL = 60
SLOT = 900
RUN = 1024  # units: one run, throughout one second
HALF = RUN // 2
UNKNOWN_MS = 60_000.0  # the assumed duration of a job until its first run has been measured
LONGEST_MS = 2**53  # longer than any interval, and still exact as a float
GOLDEN = 0.618_033_988_749_894_9  # multiples of it, modulo one, lie evenly without a memory

_SECOND = timedelta(seconds=1)
_CHUNK = 2_000_000

Ints = NDArray[np.int64]
Load = NDArray[np.int32]


class Beat(NamedTuple):
    """A job as placement sees it: its interval, any one plan (seconds since 1970), its duration."""

    period: int
    phase: int
    duration_ms: int

    @classmethod
    def at(cls, every: timedelta, plan: datetime, cost_ms: float | None = None) -> "Beat":
        """The beat of a job with a plan at `plan`; a run of unknown cost counts as 60 seconds."""
        return cls(int(every.total_seconds()), epoch_second(plan), duration_ms(cost_ms))


class RunShape(NamedTuple):
    """What a run adds to the week: `height` for `whole` seconds, then `part` for one.

    It repeats every `cycle` seconds: the interval, or the week if that is shorter.
    """

    cycle: int
    whole: int
    part: int
    height: int

    @classmethod
    def of(cls, period: int, duration_ms: int, run: int = RUN) -> "RunShape":
        """One job never overlaps itself, so a run fills its interval at most. An interval longer
        than a week counts in every week, weighted by how often it falls into one."""
        cycle = min(period, WEEK)
        height = max(1, round(run * cycle / period))
        whole, rest = divmod(min(duration_ms, cycle * 1000), 1000)
        return cls(cycle, whole, -(-rest * height // 1000), height)

    @property
    def seconds(self) -> int:
        return self.whole + (self.part > 0)


def epoch_second(moment: datetime) -> int:
    """The whole second since 1970 that contains `moment`."""
    return (moment - EPOCH) // _SECOND


def at_second(second: int) -> datetime:
    """The moment of a whole second since 1970."""
    return EPOCH + timedelta(seconds=second)


def duration_ms(cost_ms: float | None) -> int:
    """The expected duration in whole milliseconds, at least one."""
    return max(1, round(UNKNOWN_MS if cost_ms is None else cost_ms))


# ---------------------------------------------------------------- intervals


def add_runs(week: Load, shape: RunShape, start: int, count: int) -> None:
    """Add the runs of `count` equal jobs to the seconds of a week, in place."""
    cycle = shape.cycle
    rows = WEEK // cycle
    body, tail = week[: rows * cycle].reshape(rows, cycle), week[rows * cycle :]
    start %= cycle
    end = (start + shape.whole) % cycle
    over = max(0, start + shape.whole - cycle)  # what passes the end of a cycle goes around
    for low, high, value in (
        (start, start + shape.whole - over, shape.height),
        (0, over, shape.height),
        (end, end + 1, shape.part),
    ):
        body[:, low:high] += value * count
        tail[low:high] += value * count


def cycle_load(starts: Ints, durations_ms: Ints, shape: RunShape, counts: Ints | int = 1) -> Load:
    """The load of many jobs of one period over one cycle; all have the height of `shape`."""
    cycle = shape.cycle
    whole, rest = np.divmod(np.minimum(durations_ms, cycle * 1000), 1000)
    height = np.broadcast_to(shape.height * counts, starts.shape)
    part = -(-rest * shape.height // 1000) * counts
    ends = starts + whole
    places = np.concatenate([starts, ends, ends + 1])
    values = np.concatenate([height, part - height, -part])
    changes = np.zeros(cycle, np.int64)
    _add_at(changes, places % cycle, values)
    # What begins in one cycle and ends in the next is already running when a cycle begins.
    changes[0] += values[places < cycle].sum()
    # Sums may leave 32 bits on the way, but they return: the load itself fits.
    level: Load = np.cumsum(changes.astype(np.int32), dtype=np.int32)
    return level


def add_cycle(week: Load, level: Load) -> None:
    """Add the load of a cycle to the whole week, in place."""
    cycle = len(level)
    rows = WEEK // cycle
    week[: rows * cycle].reshape(rows, cycle)[:] += level
    tail = week[rows * cycle :]
    tail += level[: len(tail)]


def _add_at(sums: NDArray[Any], places: Ints, values: Ints) -> None:
    """Add each value at its place, whichever way is faster for so many."""
    if 8 * len(places) < len(sums):
        np.add.at(sums, places, values)
    else:
        added = np.bincount(places, weights=values, minlength=len(sums))
        sums += added.astype(sums.dtype, copy=False)


# ---------------------------------------------------------------- cron


@lru_cache(maxsize=256)
def cron_starts(cron: Cron, since: int) -> Ints:
    """Every plan of a cron job in the week from `since`, in seconds from there, preceded by the
    one before. Plans are whole minutes, so there are 10,080 at most."""
    begin, end = at_second(since) - _SECOND, at_second(since + WEEK) - _SECOND
    before = cron.latest_until(begin) or begin + _SECOND - timedelta(days=36_500)
    plans = [before, *cron.preview(begin, cron.count(begin, end))]
    return np.array([epoch_second(plan) - since for plan in plans], np.int64)


def add_cron_changes(
    changes: NDArray[np.float64], starts: Ints, durations_ms: Sequence[int], run: int = RUN
) -> None:
    """Note where cron jobs that share their plans, one duration for each job, change the load of
    the week; `level_of` adds up. That way many expressions cost one pass over the week."""
    gaps = np.append(np.diff(starts), WEEK)
    rows = max(1, _CHUNK // len(starts))  # so many jobs at a time fit into memory
    for first in range(0, len(durations_ms), rows):
        durations = np.array(durations_ms[first : first + rows], np.int64)
        lasting = np.minimum(durations[:, None], gaps[None, :] * 1000)
        begin = np.broadcast_to(starts, lasting.shape)
        end = begin + lasting // 1000
        part = -(-(lasting % 1000) * run // 1000)
        for places, values in ((begin, run + 0 * part), (end, part - run), (end + 1, -part)):
            _add_at(changes, np.clip(places, 0, WEEK).ravel(), values.ravel())


def level_of(changes: NDArray[np.float64]) -> Load:
    """The load of the week by its changes, which are whole numbers."""
    level: Load = np.cumsum(changes)[:WEEK].astype(np.int32)
    return level
