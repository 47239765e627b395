"""The movable jobs of a rebalance, period by period, as columns of numbers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenbeat.placement import periodic_load
from evenbeat.placement.periodic_load import WEEK, Ints, Load


class MovableJobs(NamedTuple):
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
        return periodic_load.box_of(self.period, 1).height

    def only(self, chosen: NDArray[np.bool_] | Ints | slice) -> "MovableJobs":
        """Some of them."""
        return MovableJobs(self.period, *(column[chosen] for column in self[1:]))

    def starts(self, since: int) -> Ints:
        """When in the fold of the week from `since` each runs."""
        return (self.next_run - since) % self.fold

    def touched(self) -> Ints:
        """How many seconds a run of each touches."""
        return -(-self.duration_ms // 1000)

    def boxes(self) -> list[Ints]:
        """Their runs as arrays (whole, part, height)."""
        whole, rest = np.divmod(self.duration_ms, 1000)
        return [whole, -(-rest * self.height // 1000), np.full_like(whole, self.height)]

    def load(self, since: int) -> Load:
        """Their load over a fold of the week from `since`."""
        return periodic_load.fold_load(self.starts(since), self.boxes(), self.fold)

    def shift(self, since: int, to: Ints) -> Load:
        """How that changes if they start at other seconds of the fold."""
        starts = np.concatenate([to, self.starts(since)])
        whole, part, height = self.boxes()
        both = np.tile(whole, 2), np.append(part, -part), np.append(height, -height)
        return periodic_load.fold_load(starts, list(both), self.fold)

    def times(self, starts: Ints, since: int) -> Ints:
        """The next runs that start at these seconds of the fold: of the moments allowed, the one
        nearest to the present one."""
        first = self.low + (starts + since - self.low) % self.fold
        folds = np.rint((self.next_run - first) / self.fold).astype(np.int64)
        nearest: Ints = first + np.clip(folds, 0, (self.high - first) // self.fold) * self.fold
        return nearest


def by_period(table: Ints, due: Ints, earliest: Ints) -> list[MovableJobs]:
    """Longest interval first, then longest run, then as in the snapshot.

    Rows are (period, phase, duration in ms); `due` gives the next runs in microseconds since 1970,
    `earliest` the seconds from which on they may be put.
    """
    if not len(table):
        return []
    half = table[:, 0] * 500_000
    low = np.maximum(-((half - due) // 1_000_000), earliest)
    columns = (np.arange(len(table)), table[:, 1], table[:, 2], low, (due + half) // 1_000_000)
    order = np.lexsort((columns[0], -table[:, 2], -table[:, 0]))
    # A job that fills over half its interval meets every peak wherever it goes.
    order = order[2 * table[order, 2] <= 1000 * np.minimum(table[order, 0], WEEK)]
    edges = np.flatnonzero(np.diff(table[order, 0])) + 1
    groups = [rows for rows in np.split(order, edges) if len(rows)]
    return [MovableJobs(int(table[rows[0], 0]), *(c[rows] for c in columns)) for rows in groups]
