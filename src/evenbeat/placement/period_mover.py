"""One period's part in a round: its jobs leave the seconds above the target for places below it.

Jobs of one period add the same to each of its repetitions. So the search needs no week, only one
fold: for every second of it the highest load that its repetitions meet. What was changed there is
laid over the week once, at the end.
"""

import numpy as np
from numpy.typing import NDArray

from evenbeat.placement import periodic_load
from evenbeat.placement.movable_jobs import MovableJobs
from evenbeat.placement.periodic_load import Box, Ints, Load
from evenbeat.placement.start_candidates import folded_peak, highest_ahead, middle

# After so many jobs of one period that fit nowhere, others are likely alike.
_MOST_MISFITS = 16
# Up to so many jobs each gets the best place there is; more are poured into all places at once.
_FEW_JOBS = 24
# So many of those that pouring left over are placed one by one before the next period's turn.
_MOST_SINGLES = 400

_GOLDEN = 0.618_033_988_749_894_9


class PeriodMover:
    """The jobs of a period on their way below the target."""

    def __init__(self, jobs: MovableJobs, since: int, week: Load, target: int) -> None:
        self.jobs = jobs
        self.since = since
        self.target = target
        self.crest = folded_peak(week, jobs.fold)
        self.change: Load = np.zeros(jobs.fold, np.int32)
        self.moved = 0
        self._misfits = 0

    def run(self, to: Ints, budget: int) -> None:
        """Move jobs while any of them runs above the target, and note in `to` where they go. One
        that fits nowhere stays; it may fit once others have made room."""
        left = self.jobs
        while self._misfits < _MOST_MISFITS and self.moved <= budget:
            excess = self.crest - np.int32(self.target)
            above = np.flatnonzero(excess > 0)
            left = left.only(_touching(above, left.starts(self.since), left.touched(), left.fold))
            chosen = too_many(excess, left.starts(self.since), left.touched(), left.height)
            if not len(chosen):
                return
            batch = left.only(chosen[: budget + 1 - self.moved])
            for some in _alike(batch):
                self._move(some, to)
            left = left.only(_others(len(left.number), chosen))

    # ------------------------------------------------------------ many at once

    def _move(self, batch: MovableJobs, to: Ints) -> None:
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
        """Spread jobs over the room within their reach, thick where there is much of it; tell
        which found a place."""
        box = periodic_load.box_of(batch.period, int(batch.duration_ms[0]))
        seen = highest_ahead(self.crest, box.seconds)
        room = np.maximum(0, (self.target - seen.astype(np.int64)) // batch.height)
        reach = np.concatenate([[0], np.cumsum(np.concatenate([room, room]))])
        begin = (batch.low - self.since) % batch.fold
        width = np.clip(batch.high - batch.low + 1, 0, batch.fold)
        within = reach[begin + width] - reach[begin]
        fitting = np.flatnonzero(within > 0)[: max(1, int(within.max()) // box.seconds)]
        share = (_evenly(len(fitting)) * within[fitting]).astype(np.int64)
        starts = np.searchsorted(reach, reach[begin[fitting]] + share, side="right") - 1
        kept = self._below(batch.only(fitting), starts % batch.fold)
        self._put(batch.only(fitting[kept]), starts[kept] % batch.fold, to)
        chosen: Ints = fitting[kept]
        return chosen

    def _below(self, batch: MovableJobs, starts: Ints) -> Ints:
        """Which of the jobs may start there: of those that together exceed the target, fewer."""
        kept = np.arange(len(starts))
        while True:
            added = periodic_load.fold_load(starts[kept], batch.only(kept).boxes(), batch.fold)
            excess = self.crest + added - np.int32(self.target)
            over = too_many(excess, starts[kept], batch.touched()[kept], batch.height)
            if not len(over):
                return kept
            kept = kept[_others(len(kept), over)]

    # ------------------------------------------------------------ one by one

    def _move_one(self, job: MovableJobs, to: Ints) -> bool:
        """Move a job to the lowest place within its reach, if the target allows that."""
        box = periodic_load.box_of(job.period, int(job.duration_ms[0]))
        start = int(job.starts(self.since)[0])
        _add(self.crest, box, start, -1)
        begin, width = int(job.low[0] - self.since) % job.fold, int(job.high[0] - job.low[0]) + 1
        seen = self._seen(box, begin, min(width, job.fold))
        _add(self.crest, box, start, 1)
        if not len(seen) or int(seen.min()) + job.height > self.target:
            return False
        ties = np.sort((np.flatnonzero(seen == seen.min()) + begin) % job.fold)
        self._put(job, np.array([middle(ties, job.fold)]), to)
        return True

    def _seen(self, box: Box, begin: int, width: int) -> Load:
        """What a run would meet from each of the `width` seconds on."""
        if width <= 0:
            return self.crest[:0]
        return np.roll(highest_ahead(self.crest, box.seconds), -begin)[:width]

    def _put(self, batch: MovableJobs, starts: Ints, to: Ints) -> None:
        if len(starts) == 1:
            box = periodic_load.box_of(batch.period, int(batch.duration_ms[0]))
            for level in (self.crest, self.change):
                _add(level, box, int(batch.starts(self.since)[0]), -1)
                _add(level, box, int(starts[0]), 1)
        elif len(starts):
            change = batch.shift(self.since, starts)
            self.crest += change
            self.change += change
        to[batch.number] = batch.times(starts, self.since)
        self.moved += len(starts)


def too_many(excess: Load, starts: Ints, touched: Ints, height: int) -> Ints:
    """Which runs to take away: at the summit of every hill above zero as many as are too many
    there, the first of those that touch it. Hills that no run touches do not count."""
    fold = len(excess)
    above = np.flatnonzero(excess > 0)
    above = above[_covered(above, starts, touched, fold)]
    if not len(above):
        return above
    summits, tops = _summits(above, excess[above])
    following = np.searchsorted(summits, starts)
    ahead = np.append(summits, summits[0] + fold)[following] - starts
    there = np.flatnonzero(ahead < touched)
    hill = following[there] % len(summits)
    ranked: Ints = np.sort(there[_rank(hill) < -(-tops // height)[hill]])
    return ranked


def _summits(above: Ints, excess: Load) -> tuple[Ints, Ints]:
    """The first highest second of every stretch of neighbours, and how high it is."""
    firsts = np.flatnonzero(np.diff(above, prepend=-2) > 1)
    tops = np.maximum.reduceat(excess, firsts)
    hill = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(above)))
    highest = np.flatnonzero(excess == tops[hill])
    _, first = np.unique(hill[highest], return_index=True)
    return above[highest[first]], tops.astype(np.int64)


def _rank(groups: Ints) -> Ints:
    """The how-manieth of its group each is, from zero."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
    sizes = np.diff(firsts, append=len(groups))
    rank = np.empty_like(groups)
    rank[order] = np.arange(len(groups)) - np.repeat(firsts, sizes)
    return rank


def _covered(seconds: Ints, starts: Ints, touched: Ints, fold: int) -> NDArray[np.bool_]:
    """Which of these seconds of the fold any run touches."""
    begun, ended = np.sort(starts), np.sort(starts + touched)
    rounds = [
        np.searchsorted(begun, at, side="right") - np.searchsorted(ended, at, side="right")
        for at in (seconds, seconds + fold)
    ]
    covered: NDArray[np.bool_] = rounds[0] + rounds[1] > 0
    return covered


def _touching(seconds: Ints, starts: Ints, touched: Ints, fold: int) -> NDArray[np.bool_]:
    """Which runs touch one of these seconds of the fold."""
    if not len(seconds):
        return np.zeros(len(starts), np.bool_)
    following = np.append(seconds, seconds[0] + fold)[np.searchsorted(seconds, starts)]
    touching: NDArray[np.bool_] = following - starts < touched
    return touching


def _alike(batch: MovableJobs) -> list[MovableJobs]:
    """The batch, longest runs first, cut where runs are half as long as the first of their part."""
    lengths = np.log2(np.maximum(1, batch.touched())).astype(np.int64)
    edges = np.flatnonzero(np.diff(lengths)) + 1
    return [batch.only(rows) for rows in np.split(np.arange(len(lengths)), edges) if len(rows)]


def _others(count: int, chosen: Ints) -> NDArray[np.bool_]:
    others = np.ones(count, np.bool_)
    others[chosen] = False
    return others


def _evenly(count: int) -> NDArray[np.float64]:
    """Numbers between 0 and 1 at equal distances, neighbours in order far from one another."""
    rank = np.empty(count)
    rank[np.argsort(np.arange(count) * _GOLDEN % 1, kind="stable")] = np.arange(count)
    shares: NDArray[np.float64] = (rank + 0.5) / max(1, count)
    return shares


def _add(level: Load, box: Box, start: int, sign: int) -> None:
    """Add a box to a fold, or take it away, going around its end."""
    fold, end = len(level), start + box.whole
    level[start:end] += sign * box.height
    if end > fold:
        level[: end - fold] += sign * box.height
    if box.part:
        level[end % fold] += sign * box.part
