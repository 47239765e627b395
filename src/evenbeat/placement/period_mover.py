"""One period's part in a round: its jobs leave the seconds above the target for places below it.

Jobs of one period add the same to each of its repetitions. So the search needs no week, only one
cycle: for every second of it the highest load that its repetitions meet. What moved is
counted in the week once, at the end: jobs with a window start elsewhere too, when held back.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenbeat.placement.load import GOLDEN, WEEK, Ints, Load, RunShape, add_cycle, cycle_load
from evenbeat.placement.planner import folded_peak, highest_ahead, middle, open_week
from evenbeat.placement.windowed import Hours, open_spans, weekly_runs

# After so many jobs of one period that fit nowhere, the others are likely to fail as well.
_MOST_MISFITS = 16
# Up to so many jobs each gets the best place there is; more are poured into all places at once.
_FEW_JOBS = 24
# So many of those that pouring left over are placed one by one before the next period's turn.
_MOST_SINGLES = 400


class MovableJobs(NamedTuple):
    """The movable jobs of one period and window as columns, longest runs first; times in seconds
    since 1970.

    `low` and `high` bound the next run: half an interval either way, after the protection window,
    within the opening that it lies in.
    """

    period: int
    window: str | None
    number: Ints
    next_run: Ints
    duration_ms: Ints
    low: Ints
    high: Ints

    @property
    def shape(self) -> RunShape:
        """The shape of the first one's runs; all share its cycle and its height."""
        return RunShape.of(self.period, int(self.duration_ms[0]))

    def only(self, selection: NDArray[np.bool_] | Ints | slice) -> "MovableJobs":
        columns = (column[selection] for column in self[2:])
        return MovableJobs(self.period, self.window, *columns)

    def starts(self, since: int) -> Ints:
        """When in the cycle of the week from `since` each runs."""
        return (self.next_run - since) % min(self.period, WEEK)

    def touched(self) -> Ints:
        return -(-self.duration_ms // 1000)

    def add_to(self, week: Load, since: int, next_run: Ints, count: int) -> None:
        """Add their load, if they run at these times, to the week from `since`, in place."""
        runs, period = np.column_stack([next_run, self.duration_ms]), self.period
        if self.window is not None and len(runs):
            table = np.insert(runs, 0, period, axis=1)
            runs = weekly_runs(table, Hours(self.window), since)[0][:, 1:]
            period = max(period, WEEK)
        shape = RunShape.of(period, 1)
        starts = (runs[:, 0] - since) % shape.cycle
        add_cycle(week, cycle_load(starts, runs[:, 1], shape, count))


def by_period(
    table: Ints,
    due: Ints,
    earliest: Ints,
    windows: Sequence[str | None],
    reaches: Mapping[int, tuple[int, int] | None],
) -> list[MovableJobs]:
    """Longest interval first, then longest run, then as in the snapshot.

    Rows are (period, phase, duration in ms); `due` gives the next runs in microseconds since 1970,
    `earliest` the first second to which each may move, `reaches` between which those with windows.
    """
    if not len(table):
        return []
    half = table[:, 0] * 500_000
    low, high = np.maximum(-((half - due) // 1_000_000), earliest), (due + half) // 1_000_000
    for n, bounds in reaches.items():
        if bounds is not None:
            low[n], high[n] = max(low[n], bounds[0]), min(high[n], bounds[1])
    numbers: dict[str | None, int] = {}
    group = np.array([numbers.setdefault(one, len(numbers)) for one in windows])
    columns = (np.arange(len(table)), table[:, 1], table[:, 2], low, high)
    order = np.lexsort((columns[0], -table[:, 2], group, -table[:, 0]))
    # A job that fills over half its interval meets every peak wherever it goes.
    order = order[2 * table[order, 2] <= 1000 * np.minimum(table[order, 0], WEEK)]
    edges = np.flatnonzero(np.diff(table[order, 0]) | np.diff(group[order])) + 1
    groups = [rows for rows in np.split(order, edges) if len(rows)]
    names = list(numbers)
    return [
        MovableJobs(int(table[rows[0], 0]), names[group[rows[0]]], *(c[rows] for c in columns))
        for rows in groups
    ]


class PeriodMover:
    def __init__(self, jobs: MovableJobs, since: int, week: Load, target: int) -> None:
        self.jobs = jobs
        self.since = since
        self.target = target
        if jobs.window is not None:
            # What its jobs meet; that they also start when a plan is held back, the round sees.
            week = open_week(week, open_spans(jobs.window, since), int(jobs.touched().max()))
        self.peaks = folded_peak(week, min(jobs.period, WEEK))
        self.moved = 0
        self._misfits = 0

    def run(self, to: Ints, budget: int) -> None:
        """Move jobs while any of them runs above the target, and note in `to` where they go. One
        that fits nowhere stays; it may fit once others have made room."""
        jobs, cycle = self.jobs, len(self.peaks)
        while self._misfits < _MOST_MISFITS and self.moved <= budget:
            excess = self.peaks - np.int32(self.target)
            above = np.flatnonzero(excess > 0)
            if not len(above) or not len(jobs.number):
                return
            starts = jobs.starts(self.since)
            following = np.append(above, above[0] + cycle)[np.searchsorted(above, starts)]
            jobs = jobs.only(following - starts < jobs.touched())
            if not len(jobs.number):
                return
            leaving = too_many(excess, jobs.starts(self.since), jobs.touched(), jobs.shape.height)
            if not len(leaving):
                return
            batch = jobs.only(leaving[: budget + 1 - self.moved])
            # Longest runs first, cut where runs are half as long as the first of their part.
            lengths = np.log2(np.maximum(1, batch.touched())).astype(np.int64)
            edges = np.flatnonzero(np.diff(lengths)) + 1
            for rows in np.split(np.arange(len(lengths)), edges):
                self._move_alike(batch.only(rows), to)
            jobs = jobs.only(_others(len(jobs.number), leaving))

    def _move_alike(self, batch: MovableJobs, to: Ints) -> None:
        """Move jobs with runs about as long as one another, as far as there is room."""
        while len(batch.number) > _FEW_JOBS:
            poured = self._pour(batch, to)
            batch = batch.only(_others(len(batch.number), poured))
            if 4 * len(poured) < len(batch.number):
                break
        for n in range(min(len(batch.number), _MOST_SINGLES)):
            if self._misfits >= _MOST_MISFITS:
                return
            self._misfits += not self._move_one(batch.only(slice(n, n + 1)), to)

    def _pour(self, batch: MovableJobs, to: Ints) -> Ints:
        """Spread jobs over the room within their reach, densely where there is much of it; returns
        those that got a place."""
        shape, cycle = batch.shape, len(self.peaks)
        ahead = highest_ahead(self.peaks, shape.seconds)
        room = np.maximum(0, (self.target - ahead.astype(np.int64)) // shape.height)
        reach = np.concatenate([[0], np.cumsum(np.concatenate([room, room]))])
        begin = (batch.low - self.since) % cycle
        width = np.clip(batch.high - batch.low + 1, 0, cycle)
        within = reach[begin + width] - reach[begin]
        fitting = np.flatnonzero(within > 0)[: max(1, int(within.max()) // shape.seconds)]
        # Shares between 0 and 1 at equal distances, neighbours in order far from one another.
        rank = np.empty(len(fitting))
        by_share = np.argsort(np.arange(len(fitting)) * GOLDEN % 1, kind="stable")
        rank[by_share] = np.arange(len(fitting))
        share = ((rank + 0.5) / max(1, len(fitting)) * within[fitting]).astype(np.int64)
        starts = np.searchsorted(reach, reach[begin[fitting]] + share, side="right") - 1
        starts %= cycle
        # Of those that together exceed the target, fewer.
        while True:
            durations, touched = batch.duration_ms[fitting], batch.touched()[fitting]
            excess = self.peaks + cycle_load(starts, durations, shape) - np.int32(self.target)
            over = too_many(excess, starts, touched, shape.height)
            if not len(over):
                break
            remaining = _others(len(fitting), over)
            fitting, starts = fitting[remaining], starts[remaining]
        self._put(batch.only(fitting), starts, to)
        return fitting

    def _move_one(self, job: MovableJobs, to: Ints) -> bool:
        """Move a job to the lowest place within its reach, if the target allows that."""
        shape, cycle = job.shape, len(self.peaks)
        start = int(job.starts(self.since)[0])
        begin, width = int(job.low[0] - self.since) % cycle, int(job.high[0] - job.low[0]) + 1
        _add_run(self.peaks, shape, start, -1)
        ahead = np.roll(highest_ahead(self.peaks, shape.seconds), -begin)[: max(0, width)]
        _add_run(self.peaks, shape, start, 1)
        if not len(ahead) or int(ahead.min()) + shape.height > self.target:
            return False
        ties = np.sort((np.flatnonzero(ahead == ahead.min()) + begin) % cycle)
        self._put(job, np.array([middle(ties, cycle)]), to)
        return True

    def _put(self, batch: MovableJobs, starts: Ints, to: Ints) -> None:
        if not len(starts):
            return
        before, cycle = batch.starts(self.since), len(self.peaks)
        if len(starts) == 1:
            _add_run(self.peaks, batch.shape, int(before[0]), -1)
            _add_run(self.peaks, batch.shape, int(starts[0]), 1)
        else:
            places, lasting = np.concatenate([starts, before]), np.tile(batch.duration_ms, 2)
            signs = np.repeat([1, -1], len(starts))
            self.peaks += cycle_load(places, lasting, batch.shape, signs)
        # Of the moments allowed that start at these seconds, the one nearest to the present one.
        first = batch.low + (starts + self.since - batch.low) % cycle
        cycles = np.rint((batch.next_run - first) / cycle).astype(np.int64)
        to[batch.number] = first + np.clip(cycles, 0, (batch.high - first) // cycle) * cycle
        self.moved += len(starts)


def too_many(excess: Load, starts: Ints, touched: Ints, height: int) -> Ints:
    """Which runs to take away: at the summit of every hill above zero as many as are too many
    there, the first of those that touch it. Hills that no run touches do not count."""
    cycle, above = len(excess), np.flatnonzero(excess > 0)
    begun, ended = np.sort(starts), np.sort(starts + touched)
    running = sum(
        np.searchsorted(begun, at, side="right") - np.searchsorted(ended, at, side="right")
        for at in (above, above + cycle)
    )
    above = above[running > 0]
    if not len(above):
        return above
    summits, tops = _summits(above, excess[above])
    following = np.searchsorted(summits, starts)
    ahead = np.append(summits, summits[0] + cycle)[following] - starts
    there = np.flatnonzero(ahead < touched)
    hill = following[there] % len(summits)
    leaving: Ints = np.sort(there[_rank(hill) < -(-tops // height)[hill]])
    return leaving


def _summits(above: Ints, excess: Load) -> tuple[Ints, Ints]:
    """The first highest second of every stretch of neighbours, and how high it is."""
    firsts = np.flatnonzero(np.diff(above, prepend=-2) > 1)
    tops = np.maximum.reduceat(excess, firsts)
    hill = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(above)))
    highest = np.flatnonzero(excess == tops[hill])
    _, first = np.unique(hill[highest], return_index=True)
    return above[highest[first]], tops.astype(np.int64)


def _rank(groups: Ints) -> Ints:
    """Zero-based rank of each element within its group."""
    order = np.argsort(groups, kind="stable")
    firsts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    sizes = np.diff(firsts, append=len(groups))
    rank = np.empty_like(groups)
    rank[order] = np.arange(len(groups)) - np.repeat(firsts, sizes)
    return rank


def _others(count: int, numbers: Ints) -> NDArray[np.bool_]:
    others = np.ones(count, np.bool_)
    others[numbers] = False
    return others


def _add_run(level: Load, shape: RunShape, start: int, sign: int) -> None:
    """Add a run to a cycle, or take it away, going around its end."""
    cycle, end = len(level), start + shape.whole
    level[start:end] += sign * shape.height
    if end > cycle:
        level[: end - cycle] += sign * shape.height
    if shape.part:
        level[end % cycle] += sign * shape.part
