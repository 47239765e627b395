"""Maintenance: the reaper, and chores that one worker at a time does for all of them."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from evenbeat.engine.clock import Clock
from evenbeat.engine.loop import Loop
from evenbeat.engine.reaper import Reaper
from evenbeat.observe.telemetry import NO_TELEMETRY, Telemetry
from evenbeat.store.api_tables import LIFETIME
from evenbeat.store.part import BATCH, Between, go_on
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)


class ChoreInterrupted(Exception):
    """A chore ends before its next batch; it stays due, for whoever comes next."""


class Chore(Protocol):
    """A name, a rhythm, and one thing to do. What follows a colon in the name tells apart those who
    do it each for themselves; it is not in the metrics."""

    name: str
    every: timedelta

    def run_once(self, between: Between = go_on, /) -> int:
        """Do it, with a call of `between` before each batch if it may take minutes; returns how
        many rows it touched."""


@dataclass(slots=True)
class SimpleChore:
    """A chore that is just a function."""

    name: str
    every: timedelta
    function: Callable[[], int]

    def run_once(self, _: Between = go_on, /) -> int:
        """Call it."""
        return self.function()


class Aging:
    """Fair waiting: raises jobs that have been due for an hour by 10, at most to 100."""

    name = "aging"
    every = timedelta(minutes=5)

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def run_once(self, _: Between = go_on, /) -> int:
        """Raise each waiting job once."""
        return self._store.upkeep.age(
            waited=timedelta(hours=1), by=10, limit=20 * BATCH, now=self._clock.override()
        )


class CountRuns:
    """Adds ended runs to the hourly outcomes, and counts jobs by state, queue and task, so that
    those who ask often need not count."""

    name = "figures"
    every = timedelta(seconds=30)

    batch = 50_000
    most_batches = 20
    job_count_share = 20
    """Counting all jobs reads the whole table: it may take a twentieth of the time, not more."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def run_once(self, between: Between = go_on, /) -> int:
        """Count, and store the counts; returns how many runs were looked at."""
        now = self._clock.override()
        upkeep, read = self._store.upkeep, self._store.read
        runs = 0
        for _ in range(self.most_batches):
            between()
            counted = upkeep.count_outcomes(batch=self.batch, now=now)
            runs += counted
            if counted < self.batch:
                break
        upkeep.save_figure(
            "executions", read.execution_totals(counted_only=True)._asdict(), now=now
        )
        last = upkeep.figures().get("job_counts")
        if last is None or abs(self._clock.now() - last.updated_at) >= timedelta(
            milliseconds=self.job_count_share * last.value["took_ms"]
        ):
            upkeep.count_jobs(now=now)
        return runs


class LookAtBatches:
    """Ends batches whose jobs have ended, where the worker of the last one was killed before it
    looked, and counts large ones."""

    name = "batches"
    every = timedelta(seconds=10)

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def run_once(self, between: Between = go_on, /) -> int:
        """Look at each batch that is not over."""
        return self._store.batches.look(between, now=self._clock.override())


class Retention:
    """Keeps the tables small: removes what runs logged, old history (but a job's newest runs),
    finished one-off jobs, old webhook deliveries, unused keys, and workers and tasks that nobody
    has heard from."""

    name = "retention"
    every = timedelta(hours=1)

    hourly_outcomes_for = timedelta(days=8)
    unused_keys_for = timedelta(days=1)
    silent_workers_for = timedelta(hours=1)

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        days: int,
        executions: int,
        audit_days: int = 365,
        log_days: int = 7,
    ) -> None:
        self._store = store
        self._clock = clock
        self._age = timedelta(days=days)
        self._executions = executions
        self._audit_age = timedelta(days=audit_days)
        self._log_age = timedelta(days=min(days, log_days))

    def run_once(self, between: Between = go_on, /) -> int:
        """Remove it, in batches."""
        upkeep, now = self._store.upkeep, self._clock.now()
        cutoff = now - self._age
        removed = self._store.run_logs.prune(older_than=now - self._log_age, between=between)
        # Jobs first, so that the walk over the history takes theirs along.
        removed += upkeep.prune_jobs(older_than=cutoff, between=between, now=now)
        removed += upkeep.prune_jobs(older_than=now, own_rule=True, between=between, now=now)
        removed += self._store.batches.prune(older_than=cutoff, between=between)
        removed += upkeep.prune_executions(
            older_than=cutoff, keep=self._executions, between=between, now=now
        )
        removed += self._store.idempotency.prune(older_than=now - LIFETIME, between=between)
        removed += self._store.webhooks.prune(older_than=cutoff, between=between)
        removed += self._store.audit.prune(older_than=now - self._audit_age, between=between)
        removed += self._store.limits.prune(older_than=now - self.unused_keys_for)
        upkeep.fold_outcomes(older_than=now - self.hourly_outcomes_for)
        removed += upkeep.forget_tasks(older_than=cutoff)
        removed += upkeep.forget_chores(older_than=cutoff) + upkeep.forget_alerts()
        silent = upkeep.silent_workers(self.silent_workers_for, now=self._clock.override())
        return removed + (upkeep.forget_workers(silent) if silent else 0)


class Maintenance(Loop):
    """Reaps on every tick. A chore is asked for only when it may be due again, and done only by
    the worker that gets its lease."""

    name = during = "maintenance"

    pauses = 6
    """A chore of many batches rests this many times as long as each took: without a pause,
    retention took a third of the jobs per second from a worker beside it."""

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
        self._ticked_at = self._monotonic()

    def trouble(self) -> str:
        return "maintenance waits for the database"

    def run_once(self) -> float:
        """Reap, then do the chores that are due."""
        self._ticked_at = self._monotonic()
        reaped = self._reaper.run_once()
        if reaped:
            self._telemetry.reaped(len(reaped))
        for chore in self._chores:
            if self._stopping:
                break
            # The database is asked a few times in each rhythm at most, not on every tick.
            now, asked_at = self._monotonic(), self._asked_at.get(chore.name)
            if asked_at is None or now - asked_at >= min(60.0, chore.every.total_seconds() / 4):
                self._asked_at[chore.name] = now
                self.do(chore)
        return 0.0 if self._stopping else self._reap_seconds  # a rest in a chore took the wake

    def do(self, chore: Chore) -> int | None:
        """Do one chore if it is due and free; returns what it touched, None if it was not ours or
        not ours to the end."""
        upkeep, override = self._store.upkeep, self._clock.override
        batch_began = self._monotonic()

        def between() -> None:
            nonlocal batch_began
            if not self._stopping:
                took = self._monotonic() - batch_began
                self.rest(min(self.pauses * took, self._reap_seconds))
            if self._stopping:
                raise ChoreInterrupted("the worker stops")
            if not upkeep.renew_chore(chore.name, self._worker_id, now=override()):
                raise ChoreInterrupted("another worker has taken it over")
            if self._monotonic() - self._ticked_at >= self._reap_seconds:
                self.run_once()  # neither lost runs nor other chores wait for the end of this one
            batch_began = self._monotonic()

        try:
            with upkeep.chore(
                chore.name, self._worker_id, every=chore.every, now=override()
            ) as ours:
                if not ours:
                    return None
                begun = time.perf_counter()
                touched = chore.run_once(between)
                seconds = time.perf_counter() - begun
        except ChoreInterrupted as reason:
            logger.debug("Chore interrupted: %s", reason, extra={"chore": chore.name})
            return None
        self._telemetry.chore_done(chore.name.partition(":")[0], seconds)
        fields = {"chore": chore.name, "rows": touched, "duration": f"{seconds * 1000:.3g}ms"}
        logger.debug("Chore done", extra=fields)
        return touched
