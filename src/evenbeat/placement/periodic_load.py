"""What one recurring job adds to a week: a box at every beat, in whole numbers.

Load is counted in units of 1/1024 of a run, second by second. Whole numbers make adding and
removing exact in any order, so two nodes that know the same jobs know the same load to the bit.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenbeat.domain.moments import EPOCH
from evenbeat.domain.schedule import Cron

WEEK = 604_800
CELL = 60
SLOT = 900
RUN = 1024  # units: one run, throughout one second
HALF = RUN // 2
UNKNOWN_MS = 60_000.0  # what a job is taken to last before its first run has told
LONGEST_MS = 2**53  # longer than any interval, and still exact as a float
# Up to so many, adding beats one by one is faster than laying a whole fold over the week.
FEW = 16

_SECOND = timedelta(seconds=1)

Ints = NDArray[np.int64]
Load = NDArray[np.int32]


class Beat(NamedTuple):
    """A job as placement sees it: its interval, any one plan (seconds since 1970), how long."""

    period: int
    phase: int
    duration_ms: int

    @classmethod
    def at(cls, every: timedelta, plan: datetime, cost_ms: float | None = None) -> "Beat":
        """The beat of a job with a plan at `plan`; a run of unknown cost counts as 60 seconds."""
        return cls(int(every.total_seconds()), epoch_second(plan), duration_ms(cost_ms))


def table_of(beats: Sequence[Beat]) -> Ints:
    """Beats as rows (period, phase, duration in ms)."""
    flat = np.fromiter(chain.from_iterable(beats), np.int64, 3 * len(beats))
    return flat.reshape(-1, 3)


class Box(NamedTuple):
    """A beat within the week: it adds `height` for `whole` seconds, then `part` for one."""

    fold: int
    whole: int
    part: int
    height: int

    @property
    def seconds(self) -> int:
        """How many seconds it touches."""
        return self.whole + (self.part > 0)


def epoch_second(moment: datetime) -> int:
    """The whole second since 1970 that contains `moment`."""
    return (moment - EPOCH) // _SECOND


def epoch_microsecond(moment: datetime) -> int:
    """The same in microseconds, exactly."""
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def at_second(second: int) -> datetime:
    """The moment of a whole second since 1970."""
    return EPOCH + timedelta(seconds=second)


def duration_ms(cost_ms: float | None) -> int:
    """The expected duration in whole milliseconds, at least one."""
    return max(1, round(UNKNOWN_MS if cost_ms is None else cost_ms))


def box_of(period: int, duration: int, run: int = RUN) -> Box:
    """The box of a beat. One job never overlaps itself, so a run fills its interval at most.

    An interval longer than a week is folded onto the week, weighted by how often it falls there.
    """
    fold = min(period, WEEK)
    height = max(1, round(run * fold / period))
    whole, rest = divmod(min(duration, fold * 1000), 1000)
    return Box(fold, whole, -(-rest * height // 1000), height)


def add_beat(week: Load, box: Box, start: int, count: int) -> None:
    """Add `count` equal beats to the seconds of a week, in place."""
    start %= box.fold
    _add_stripes(week, box.fold, start, box.whole, box.height * count)
    if box.part:
        _add_stripes(week, box.fold, (start + box.whole) % box.fold, 1, box.part * count)


def _add_stripes(week: Load, fold: int, start: int, width: int, value: int) -> None:
    """Add to [start, start + width) of every fold; a stripe over the fold's end goes around."""
    over = max(0, start + width - fold)
    rows = WEEK // fold
    body, tail = week[: rows * fold].reshape(rows, fold), week[rows * fold :]
    for low, high in ((start, start + width - over), (0, over)):
        body[:, low:high] += value
        tail[low:high] += value


def fold_load(box_starts: Ints, boxes: list[Ints], fold: int) -> Load:
    """The load of many beats of one period over one fold, from arrays (whole, part, height)."""
    whole, part, height = boxes
    ends = box_starts + whole
    places = np.concatenate([box_starts, ends, ends + 1])
    values = np.concatenate([height, part - height, -part])
    changes = _gathered(places % fold, values, fold)
    # What begins in one round of the fold and ends in the next is under way when it begins.
    changes[0] += values[places < fold].sum()
    # Sums may leave 32 bits on the way, but they return: the load itself fits.
    level: Load = np.cumsum(changes.astype(np.int32), dtype=np.int32)
    return level


def _gathered(places: Ints, values: Ints, length: int) -> Ints:
    """The sum of the values at each place, whichever way is faster for so many."""
    if 8 * len(places) < length:
        sums = np.zeros(length, np.int64)
        np.add.at(sums, places, values)
        return sums
    return np.bincount(places, weights=values, minlength=length).astype(np.int64)


def lay(week: Load, level: Load) -> None:
    """Add the load of a fold to the whole week, in place."""
    fold = len(level)
    rows = WEEK // fold
    week[: rows * fold].reshape(rows, fold)[:] += level
    tail = week[rows * fold :]
    tail += level[: len(tail)]


def per_slot(fold: int, start: int, weight: int) -> Ints:
    """How many runs of one beat start in each slot of the week, times `weight`."""
    edges = np.arange(0, WEEK + 1, SLOT)
    return np.diff(-((start % fold - edges) // fold)) * weight


@lru_cache(maxsize=256)
def cron_starts(cron: Cron, since: int) -> Ints:
    """Every plan of a cron job in the week from `since`, in seconds from there, preceded by the
    one before. Plans are whole minutes, so there are 10,080 at most."""
    begin, end = at_second(since), at_second(since + WEEK)
    before = cron.latest_until(begin - timedelta(seconds=1))
    plans = [before or begin - timedelta(days=36_500), *_plans(cron, begin, end)]
    return np.array([epoch_second(plan) - since for plan in plans], np.int64)


def _plans(cron: Cron, begin: datetime, end: datetime) -> list[datetime]:
    count = cron.count(begin - timedelta(seconds=1), end - timedelta(seconds=1))
    return cron.preview(begin - timedelta(seconds=1), count)


def change(changes: NDArray[np.float64], starts: Ints, durations: Ints, run: int = RUN) -> None:
    """Note where cron jobs that share their plans, one duration in ms for each job, change the load
    of the week; `level_of` adds up. Many expressions so cost one pass over the week, not each."""
    gaps = np.append(np.diff(starts), WEEK)
    lasting = np.minimum(durations[:, None], gaps[None, :] * 1000)
    begin = np.broadcast_to(starts, lasting.shape)
    end = begin + lasting // 1000
    part = -(-(lasting % 1000) * run // 1000)
    for places, values in ((begin, run + 0 * part), (end, part - run), (end + 1, -part)):
        inside = np.clip(places, 0, WEEK).ravel()
        if 8 * len(inside) < WEEK:
            np.add.at(changes, inside, values.ravel())
        else:
            changes += np.bincount(inside, weights=values.ravel(), minlength=WEEK + 1)


def level_of(changes: NDArray[np.float64]) -> Load:
    """The load of the week by its changes, which are whole numbers."""
    level: Load = np.cumsum(changes)[:WEEK].astype(np.int32)
    return level


def cron_load(starts: Ints, durations: Ints, run: int = RUN) -> Load:
    """The week's load of cron jobs that share their plans, one duration in ms for each job."""
    changes = np.zeros(WEEK + 1)
    change(changes, starts, durations, run)
    return level_of(changes)
