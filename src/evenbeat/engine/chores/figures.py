"""Figures for those who ask often: counted once for all, every half minute."""

from datetime import timedelta

from evenbeat.engine.clock import Clock
from evenbeat.store.store import Store

BATCH = 50_000
MOST_BATCHES = 20

# Counting all jobs reads the whole table: it may take a twentieth of the time, not more.
_SHARE = 20


class Figures:
    """Adds what has ended to the hourly outcomes, and counts jobs by state, queue and task."""

    name = "figures"
    every = timedelta(seconds=30)

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def run_once(self) -> int:
        """Count, and keep the counts; returns how many runs were looked at."""
        now = self._clock.override()
        upkeep, read = self._store.upkeep, self._store.read
        seen = 0
        for _ in range(MOST_BATCHES):
            batch = upkeep.count_outcomes(batch=BATCH, now=now)
            seen += batch
            if batch < BATCH:
                break
        upkeep.save_figure("executions", read.counted_totals()._asdict(), now=now)
        if self._may_count_jobs():
            upkeep.count_jobs(now=now)
        return seen

    def _may_count_jobs(self) -> bool:
        last = self._store.upkeep.figures().get("job_counts")
        if last is None:
            return True
        pause = timedelta(milliseconds=_SHARE * last.value["took_ms"])
        return abs(self._clock.now() - last.updated_at) >= pause
