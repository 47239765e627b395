"""Keeping the tables small: old history, finished one-off jobs, webhooks, silent workers."""

from datetime import timedelta

from evenbeat.engine.clock import Clock
from evenbeat.store.idempotency import LIFETIME
from evenbeat.store.store import Store

SILENT_AFTER = timedelta(hours=1)
HOURS_KEPT = timedelta(days=8)
KEYS_KEPT = timedelta(days=1)


class Retention:
    """Removes what is neither young nor among its job's newest, once an hour."""

    name = "retention"
    every = timedelta(hours=1)

    def __init__(self, store: Store, clock: Clock, *, days: int, executions: int) -> None:
        self._store = store
        self._clock = clock
        self._age = timedelta(days=days)
        self._executions = executions

    def run_once(self) -> int:
        """Remove it, in batches."""
        upkeep, now = self._store.upkeep, self._clock.now()
        cutoff = now - self._age
        removed = upkeep.prune_executions(older_than=cutoff, keep=self._executions)
        removed += upkeep.prune_jobs(older_than=cutoff)
        removed += self._store.idempotency.prune(older_than=now - LIFETIME)
        removed += self._store.webhooks.prune(older_than=cutoff)
        removed += self._store.limits.prune(older_than=now - KEYS_KEPT)
        upkeep.fold_outcomes(older_than=now - HOURS_KEPT)
        removed += upkeep.forget_tasks(older_than=cutoff)
        silent = upkeep.silent_workers(SILENT_AFTER, now=self._clock.override())
        return removed + (upkeep.forget_workers(silent) if silent else 0)
