"""Figures for those who ask often: counted once for all, every half minute."""

from datetime import timedelta

from evenbeat.engine.clock import Clock
from evenbeat.store.store import Store


class Figures:
    """Counts jobs by state and sums up the executions."""

    name = "figures"
    every = timedelta(seconds=30)

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def run_once(self) -> int:
        """Count, and keep the counts."""
        now = self._clock.override()
        upkeep, read = self._store.upkeep, self._store.read
        upkeep.save_figure("jobs", read.counts_by_status(), now=now)
        upkeep.save_figure("executions", read.execution_totals()._asdict(), now=now)
        return 2
