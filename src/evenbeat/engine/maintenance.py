"""The reaper and the chores, on one thread, each when it is due."""

import logging
import time
from collections.abc import Sequence
from uuid import UUID

from evenbeat.engine.chores import Chore
from evenbeat.engine.clock import Clock
from evenbeat.engine.loop import Loop
from evenbeat.engine.reaper import Reaper
from evenbeat.observe.telemetry import NO_TELEMETRY, Telemetry
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)


class Maintenance(Loop):
    """Reaps on every tick. A chore is asked for only when it may be due again, and done only by
    the worker that gets its lease."""

    name = during = "maintenance"

    def __init__(
        self,
        store: Store,
        clock: Clock,
        reaper: Reaper,
        chores: Sequence[Chore],
        *,
        worker_id: UUID,
        reap_seconds: float,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        super().__init__(telemetry)
        self._store = store
        self._clock = clock
        self._reaper = reaper
        self._chores = chores
        self._worker_id = worker_id
        self._reap_seconds = self.longest_pause = reap_seconds
        self._asked_at: dict[str, float] = {}

    def trouble(self) -> str:
        return "maintenance waits for the database"

    def run_once(self) -> float:
        """Reap, then do the chores that are due."""
        reaped = self._reaper.run_once()
        if reaped:
            self._telemetry.reaped(len(reaped))
            self._store.upkeep.add_to_counter("stale_locks_cleared", len(reaped))
        for chore in self._chores:
            # The database is asked a few times in each rhythm at most, not on every tick.
            now, asked_at = self._monotonic(), self._asked_at.get(chore.name)
            if asked_at is None or now - asked_at >= min(60.0, chore.every.total_seconds() / 4):
                self._asked_at[chore.name] = now
                self.do(chore)
        return self._reap_seconds

    def do(self, chore: Chore) -> int | None:
        """Do one chore if it is due and free; returns what it touched, None if it was not ours."""
        with self._store.upkeep.chore(
            chore.name, self._worker_id, every=chore.every, now=self._clock.override()
        ) as ours:
            if not ours:
                return None
            begun = time.perf_counter()
            touched = chore.run_once()
            seconds = time.perf_counter() - begun
            self._telemetry.chore_done(chore.name, seconds)
            fields = {"chore": chore.name, "rows": touched, "duration": f"{seconds * 1000:.3g}ms"}
            logger.debug("Chore done", extra=fields)
            return touched
