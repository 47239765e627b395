"""One round of a rebalance: take jobs off the seconds above a target, and put them below it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenbeat.placement import periodic_load
from evenbeat.placement.movable_jobs import MovableJobs
from evenbeat.placement.period_mover import PeriodMover
from evenbeat.placement.periodic_load import RUN, Ints, Load

STAYS = -1


class Round(NamedTuple):
    """What a round that reached its target leads to: the load, and for each job the second (since
    1970) of its next run, or that it stays."""

    seconds: Load
    to: Ints


class Attempt:
    """A round under way."""

    def __init__(self, since: int, seconds: Load, target: int, budget: int) -> None:
        self.since = since
        self.seconds = seconds.copy()
        self.target = target
        self.budget = budget
        self.moved = 0

    def run(self, periods: Sequence[MovableJobs], count: int) -> Round | None:
        """Relieve the periods in turn, again and again while that helps: what fits nowhere now may
        fit once others have made room. `count` is that of all jobs, whichever of them may move."""
        to = np.full(count, STAYS)
        helped = True
        while helped and self.moved <= self.budget:
            before = self.moved
            for jobs in periods:
                self._relieve(jobs.only(to[jobs.number] == STAYS), to)
            helped = self._hopeful(self.moved - before)
        reached = int(self.seconds.max()) <= self.target and self.moved <= self.budget
        return Round(self.seconds, to) if reached else None

    def _relieve(self, jobs: MovableJobs, to: Ints) -> None:
        if not len(jobs.number) or self.moved > self.budget:
            return
        relief = PeriodMover(jobs, self.since, self.seconds, self.target)
        relief.run(to, self.budget - self.moved)
        if relief.moved:
            periodic_load.lay(self.seconds, relief.change)
            self.moved += relief.moved

    def _hopeful(self, moved: int) -> bool:
        """Is it worth another turn? Not if the last one moved few beside what is too much."""
        excess = int(self.seconds.max()) - self.target
        return excess > 0 and 8 * moved * RUN >= excess
