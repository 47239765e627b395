"""Decide and finish: what became of runs, in batches, each written only if its lease holds."""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.decision import Decision, decide
from evenbeat.domain.execution import Outcome
from evenbeat.engine.clock import Clock
from evenbeat.engine.run import Run, Runs, StopReason
from evenbeat.errors import InvalidInput, StoreError
from evenbeat.observe.telemetry import NO_TELEMETRY, Telemetry
from evenbeat.store.outcomes import Finished, Release
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 1000
_spread = partial(random.uniform, -1, 1)


class Settled(NamedTuple):
    """A run whose end is written down, or (not `kept`) was nobody's business any more."""

    run: Run
    outcome: Outcome | None
    decision: Decision | None
    kept: bool


OnSettled = Callable[[list[Settled]], None]


class Finisher:
    """Collects ended runs from any thread. While one batch is written the next one gathers, so
    batches grow with the load by themselves."""

    def __init__(
        self,
        store: Store,
        runs: Runs,
        clock: Clock,
        settled: OnSettled = lambda _settled: None,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self._store = store
        self._runs = runs
        self._clock = clock
        self._settled = settled
        self._telemetry = telemetry
        self._ended: deque[tuple[Run, Outcome | None]] = deque()
        self._batch: list[tuple[Run, Outcome | None]] = []
        self._unsure = False
        self._wake = threading.Event()
        self._sleeping = False

    @property
    def backlog(self) -> int:
        """Ended runs that are not written yet; claiming pauses when it grows."""
        return len(self._ended) + len(self._batch)

    def put(self, run: Run, outcome: Outcome | None) -> None:
        """Hand over an ended run: with its outcome, or None when it was stopped from outside."""
        self._ended.append((run, outcome))
        if self._sleeping:
            self._wake.set()

    def run(self, stopping: threading.Event) -> None:
        """Write until told to stop and nothing is left. Outlasts an unreachable database."""
        pause = 0.0
        while self.backlog or not stopping.is_set():
            if not self._await_work(stopping):
                continue
            try:
                self.run_once()
                pause = 0.0
            except StoreError as error:
                pause = min(2.0, pause * 2 or 0.1)
                logger.warning("cannot write %d outcomes yet: %s", len(self._batch), error)
                self._telemetry.database_failed("finish")
                time.sleep(pause)
            except Exception:
                logger.exception("telling what became of runs failed, going on")

    def run_once(self) -> int:
        """Write one batch; returns how many runs it settled. On an error the batch stays."""
        while self._ended and len(self._batch) < MOST_AT_ONCE:
            self._batch.append(self._ended.popleft())
        if not self._batch:
            return 0
        begun = time.perf_counter()
        try:
            settled = self._write_batch()
        except StoreError:
            self._unsure = True
            raise
        self._telemetry.finished(len(settled), time.perf_counter() - begun)
        self._unsure = False
        self._batch = []
        self._runs.remove([entry.run.token for entry in settled])
        self._settled(settled)
        return len(settled)

    def _await_work(self, stopping: threading.Event) -> bool:
        if self.backlog:
            return True
        self._sleeping = True
        if not self._ended and not stopping.is_set():
            self._wake.wait(0.5)
        self._sleeping = False
        self._wake.clear()
        return bool(self._ended)

    def _write_batch(self) -> list[Settled]:
        try:
            return self._write(self._batch)
        except StoreError:
            raise
        except Exception:
            logger.exception("writing %d outcomes failed, trying each", len(self._batch))
            return [settled for entry in self._batch for settled in self._write_alone(entry)]

    def _write_alone(self, entry: tuple[Run, Outcome | None]) -> list[Settled]:
        """One outcome that cannot be written is left to the reaper, the others of its batch are
        not."""
        try:
            return self._write([entry])
        except StoreError:
            raise
        except Exception:
            logger.exception("the outcome of job %s cannot be written", entry[0].job.id)
            return [Settled(entry[0], None, None, kept=False)]

    def _write(self, batch: list[tuple[Run, Outcome | None]]) -> list[Settled]:
        over = [(run, outcome) for run, outcome in batch if outcome is not None]
        stopped = [run for run, outcome in batch if outcome is None]
        return self._finish(over) + self._let_go(stopped)

    def _finish(self, over: list[tuple[Run, Outcome]]) -> list[Settled]:
        if not over:
            return []
        now = self._clock.now()
        finished = [
            Finished(run.job, outcome, decide(run.job, outcome, now, _spread()))
            for run, outcome in over
        ]
        kept = self._kept(finished)
        return [
            Settled(run, done.outcome, done.decision, run.token in kept)
            for (run, _), done in zip(over, finished, strict=True)
        ]

    def _kept(self, finished: list[Finished]) -> set[UUID]:
        """Write, and return the tokens that held. A batch that broke off may have been written:
        then its leases are gone, but by our own hand."""
        try:
            kept = self._store.finish(finished, now=self._clock.override())
        except InvalidInput:
            return self._kept_one_by_one(finished)
        if self._unsure and len(kept) < len(finished):
            kept |= self._store.read.ended_as(
                {
                    f.job.lock_token: f.outcome
                    for f in finished
                    if f.job.lock_token is not None and f.job.lock_token not in kept
                }
            )
        return kept

    def _kept_one_by_one(self, finished: list[Finished]) -> set[UUID]:
        """One outcome that the database cannot hold must not cost the others of its batch."""
        kept: set[UUID] = set()
        for done in finished:
            try:
                kept |= self._store.finish([done], now=self._clock.override())
            except InvalidInput as error:
                plain = Outcome(
                    done.outcome.status,
                    duration_ms=done.outcome.duration_ms,
                    queued_ms=done.outcome.queued_ms,
                    error_code=done.outcome.error_code,
                    error_message=f"What the run left cannot be stored: {error}",
                )
                bare = done._replace(outcome=plain)
                kept |= self._store.finish([bare], now=self._clock.override())
        return kept

    def _let_go(self, stopped: list[Run]) -> list[Settled]:
        handed = [run for run in stopped if run.stop_reason is StopReason.SHUTDOWN]
        if handed:
            self._store.release([Release(run.job) for run in handed], now=self._clock.override())
        return [Settled(run, None, None, run.stop_reason is StopReason.SHUTDOWN) for run in stopped]
