"""One round of a rebalance: take jobs off the seconds above a target, and put them below it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenbeat.placement import beats
from evenbeat.placement.beats import FEW, WEEK, Beat, Ints, Load
from evenbeat.placement.outlook import folded_peak, seen_peak, settled

# After so many jobs of one period that fit nowhere, others are likely alike.
_MOST_MISFITS = 16
# Where thousands run at once, this part of the room at a place is filled at a stroke.
_STROKE = 32
# So many jobs of one period are looked at together: what a step costs must not grow with them all.
_AT_A_TIME = 4096


class Jobs(NamedTuple):
    """The movable jobs of one period, longest runs first; times in seconds since 1970.

    `low` and `high` bound the next run: half an interval either way, after the protection window.
    """

    period: int
    number: Ints
    next_run: Ints
    duration_ms: Ints
    low: Ints
    high: Ints

    @property
    def fold(self) -> int:
        return min(self.period, WEEK)

    @property
    def height(self) -> int:
        return beats.box_of(self.period, 1).height

    def only(self, chosen: NDArray[np.bool_] | Ints | slice) -> "Jobs":
        """Some of them."""
        return Jobs(self.period, *(column[chosen] for column in self[1:]))

    def touched(self) -> Ints:
        """How many seconds a run of each touches."""
        return -(-self.duration_ms // 1000)

    def load(self, since: int) -> Load:
        """Their load over a fold of the week from `since`."""
        starts = (self.next_run - since) % self.fold
        return beats.fold_load(starts, self._boxes(), self.fold)

    def shift(self, since: int, to: Ints) -> Load:
        """How that changes if their next runs go elsewhere."""
        starts = (np.concatenate([to, self.next_run]) - since) % self.fold
        whole, part, height = self._boxes()
        both = np.tile(whole, 2), np.append(part, -part), np.append(height, -height)
        return beats.fold_load(starts, list(both), self.fold)

    def _boxes(self) -> list[Ints]:
        whole, rest = np.divmod(self.duration_ms, 1000)
        return [whole, -(-rest * self.height // 1000), np.full_like(whole, self.height)]


def by_period(all_beats: Sequence[Beat], due: Sequence[int], earliest: Sequence[int]) -> list[Jobs]:
    """Longest interval first, then longest run, then as in the snapshot.

    `due` gives the next runs in microseconds since 1970, `earliest` the seconds from which on
    they may be put.
    """
    if not all_beats:
        return []
    table, exact = beats.table_of(all_beats), np.array(due, np.int64)
    half = table[:, 0] * 500_000
    low = np.maximum(-((half - exact) // 1_000_000), np.array(earliest, np.int64))
    columns = (np.arange(len(table)), table[:, 1], table[:, 2], low, (exact + half) // 1_000_000)
    order = np.lexsort((columns[0], -table[:, 2], -table[:, 0]))
    # A job that fills over half its interval meets every peak wherever it goes.
    order = order[2 * table[order, 2] <= 1000 * np.minimum(table[order, 0], WEEK)]
    edges = np.flatnonzero(np.diff(table[order, 0])) + 1
    groups = [rows for rows in np.split(order, edges) if len(rows)]
    return [Jobs(int(table[rows[0], 0]), *(c[rows] for c in columns)) for rows in groups]


class Round(NamedTuple):
    """What a round that reached its target leads to: the load, and which job goes where."""

    seconds: Load
    moved: dict[int, int]


class Attempt:
    """A round under way."""

    def __init__(self, since: int, seconds: Load, target: int, budget: int) -> None:
        self.since = since
        self.seconds = seconds.copy()
        self.target = target
        self.budget = budget
        self.moved: dict[int, int] = {}

    def run(self, periods: Sequence[Jobs]) -> Round | None:
        """Relieve the periods in turn, again and again while that helps: what fits nowhere now may
        fit once others have made room."""
        before = -1
        while len(self.moved) > before and len(self.moved) <= self.budget:
            before = len(self.moved)
            for jobs in periods:
                self._relieve(jobs)
        reached = int(self.seconds.max()) <= self.target and len(self.moved) <= self.budget
        return Round(self.seconds, self.moved) if reached else None

    def _relieve(self, jobs: Jobs) -> None:
        """Move jobs of one period while any of them runs above the target, some at a time."""
        misfits = 0
        jobs = jobs.only(~np.isin(jobs.number, np.fromiter(self.moved, np.int64)))
        for begin in range(0, len(jobs.number), _AT_A_TIME):
            some = jobs.only(slice(begin, begin + _AT_A_TIME))
            while len(self.moved) <= self.budget:
                excess = folded_peak(self.seconds, jobs.fold) - np.int32(self.target)
                above = np.flatnonzero(excess > 0)
                if not len(above) or misfits >= _MOST_MISFITS:
                    return
                some = some.only(self._at(above, some))
                if not len(some.number):
                    break
                moved = self._move_some(some, self._how_many(excess, some))
                misfits += not moved
                some = some.only(~np.isin(some.number, moved or some.number[:1]))

    def _at(self, above: Ints, jobs: Jobs) -> NDArray[np.bool_]:
        """Which jobs run at one of these seconds of the fold."""
        starts = (jobs.next_run - self.since) % jobs.fold
        following = np.append(above, above[0] + jobs.fold)[np.searchsorted(above, starts)]
        above_ahead: NDArray[np.bool_] = following - starts < jobs.touched()
        return above_ahead

    def _how_many(self, excess: Load, jobs: Jobs) -> int:
        """How many to move at once: half of what is too much, so as not to move too many."""
        start = int(jobs.next_run[0] - self.since)
        under = (start + np.arange(int(jobs.touched()[0]))) % jobs.fold
        too_many = int(excess[under].max()) // (2 * jobs.height)
        return max(1, min(too_many, self.budget - len(self.moved)))

    def _move_some(self, jobs: Jobs, wanted: int) -> list[int]:
        """Move the first job, or several with runs and times like its own; tell which."""
        first_run, first_long = int(jobs.next_run[0]), int(jobs.duration_ms[0])
        alike = abs(jobs.next_run - first_run) <= jobs.fold // 8
        batch = jobs.only(np.flatnonzero(alike & (2 * jobs.duration_ms >= first_long))[:wanted])
        if len(batch.number) == 1:
            return self._move_one(batch)
        places = self._many_places(batch)
        if not len(places):
            return self._move_one(batch.only(np.arange(1)))
        batch = batch.only(np.arange(len(places)))
        return self._put(batch, _times(batch, places, self.since))

    def _move_one(self, job: Jobs) -> list[int]:
        box = beats.box_of(job.period, int(job.duration_ms[0]))
        start = int(job.next_run[0]) - self.since
        beats.add_beat(self.seconds, box, start, -1)
        seen = self._open(job, seen_peak(self.seconds, box))
        lowest = int(seen.min())
        beats.add_beat(self.seconds, box, start, 1)
        if lowest + job.height > self.target:
            return []
        place = settled(np.flatnonzero(seen == lowest), job.fold)
        return self._put(job, _times(job, np.array([place]), self.since))

    def _many_places(self, batch: Jobs) -> Ints:
        """Places too far apart to meet, lowest first, one for each job as far as they go."""
        box = beats.box_of(batch.period, int(batch.duration_ms[0]))
        seen = self._open(batch, seen_peak(self.seconds, box))
        blocks = seen[: batch.fold // box.seconds * box.seconds].reshape(-1, box.seconds)
        blocks = blocks[: len(blocks) // 2 * 2 : 2]
        places = np.arange(len(blocks)) * 2 * box.seconds + blocks.argmin(axis=1)
        room = (self.target - seen[places].astype(np.int64)) // batch.height
        order = np.argsort(-room, kind="stable")
        order = order[room[order] > 0]
        many = np.maximum(1, room[order] // _STROKE)
        return np.repeat(places[order], many)[: len(batch.number)]

    def _open(self, batch: Jobs, seen: Load) -> Load:
        """What is seen where all of the batch may go; nothing lower than 2**30 elsewhere."""
        low, high = int(batch.low.max()), int(batch.high.min())
        begin, width = (low - self.since) % batch.fold, high - low + 1
        if width >= batch.fold:
            return seen
        closed = np.full_like(seen, 2**30)
        closed[begin : begin + width] = seen[begin : begin + width]
        over = max(0, begin + width - batch.fold)
        closed[:over] = seen[:over]
        return closed

    def _put(self, batch: Jobs, times: Ints) -> list[int]:
        if len(times) <= FEW:
            for old, new, lasting in zip(batch.next_run, times, batch.duration_ms, strict=True):
                box = beats.box_of(batch.period, int(lasting))
                beats.add_beat(self.seconds, box, int(old) - self.since, -1)
                beats.add_beat(self.seconds, box, int(new) - self.since, 1)
        else:
            beats.lay(self.seconds, batch.shift(self.since, times))
        moved: list[int] = batch.number.tolist()
        self.moved.update(zip(moved, times.tolist(), strict=True))
        return moved


def _times(batch: Jobs, places: Ints, since: int) -> Ints:
    """The moments for places in the fold: of those allowed, the one nearest to the present."""
    low, high = int(batch.low.max()), int(batch.high.min())
    times = low + (places + since - low) % batch.fold
    weeks = np.rint((batch.next_run - times) / batch.fold).astype(np.int64)
    nearer: Ints = times + np.clip(weeks, 0, (high - times) // batch.fold) * batch.fold
    return nearer
