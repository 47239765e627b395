"""The reaper and the chores, on one thread, each when it is due."""

import logging
import threading
import time
from collections.abc import Sequence
from uuid import UUID

from evenbeat.engine.chores.base import Chore
from evenbeat.engine.clock import Clock
from evenbeat.engine.reaper import Reaper
from evenbeat.errors import StoreError
from evenbeat.observe.telemetry import NO_TELEMETRY, Telemetry
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)


class Maintenance:
    """Reaps on every tick. A chore is asked for only when it may be due again, and done only by
    the worker that gets its lease."""

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
        self._store = store
        self._clock = clock
        self._reaper = reaper
        self._chores = chores
        self._worker_id = worker_id
        self._reap_seconds = reap_seconds
        self._telemetry = telemetry
        self._asked_at: dict[str, float] = {}

    def run(self, stopping: threading.Event) -> None:
        """Tick until told to stop, the first time at once."""
        while not stopping.is_set():
            try:
                self.run_once()
            except StoreError as error:
                logger.warning("maintenance waits for the database: %s", error)
                self._telemetry.database_failed("maintenance")
            except Exception:
                logger.exception("maintenance failed, going on")
            stopping.wait(self._reap_seconds)

    def run_once(self) -> None:
        """Reap, then do the chores that are due."""
        reaped = self._reaper.run_once()
        if reaped:
            self._telemetry.reaped(len(reaped))
            self._store.upkeep.add_to_counter("stale_locks_cleared", len(reaped))
        for chore in self._chores:
            if self._may_be_due(chore):
                self.do(chore)

    def do(self, chore: Chore) -> int | None:
        """Do one chore if it is due and free; returns what it touched, None if it was not ours."""
        with self._store.upkeep.chore(
            chore.name, self._worker_id, every=chore.every, now=self._clock.override()
        ) as ours:
            return self._timed(chore) if ours else None

    def _timed(self, chore: Chore) -> int:
        begun = time.perf_counter()
        touched = chore.run_once()
        seconds = time.perf_counter() - begun
        self._telemetry.chore_done(chore.name, seconds)
        logger.debug(
            "Chore done",
            extra={"chore": chore.name, "rows": touched, "duration": f"{seconds * 1000:.3g}ms"},
        )
        return touched

    def _may_be_due(self, chore: Chore) -> bool:
        """Ask the database a few times per rhythm at most, not on every tick."""
        now, rhythm = time.monotonic(), chore.every.total_seconds()
        asked = self._asked_at.get(chore.name)
        if asked is not None and now - asked < min(60.0, rhythm / 4):
            return False
        self._asked_at[chore.name] = now
        return True
