"""Fair waiting: what has been due for long moves up."""

from datetime import timedelta

from evenbeat.engine.clock import Clock
from evenbeat.store.store import Store
from evenbeat.store.upkeep import BATCH

WAITED = timedelta(hours=1)
RAISE = 10


class Aging:
    """Raises jobs that have waited for an hour by 10, at most to 100, every five minutes."""

    name = "aging"
    every = timedelta(minutes=5)

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def run_once(self) -> int:
        """Raise each waiting job once."""
        return self._store.upkeep.age(
            waited=WAITED, by=RAISE, limit=20 * BATCH, now=self._clock.override()
        )
