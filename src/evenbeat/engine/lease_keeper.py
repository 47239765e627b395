"""Keep leases alive, from a thread that no handler can hold up."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from evenbeat.domain.job import Job
from evenbeat.engine.clock import Clock
from evenbeat.engine.executor import encode_progress
from evenbeat.engine.run import Run, Runs, StopReason
from evenbeat.errors import StoreError
from evenbeat.observe.telemetry import NO_TELEMETRY, Telemetry
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)


class LeaseKeeper:
    """Renews every lease of this worker in one statement, writes progress, and beats for the
    registry. A lease that cannot be renewed in time is given up here, before others may take it.
    """

    def __init__(
        self,
        store: Store,
        runs: Runs,
        clock: Clock,
        *,
        lease: timedelta,
        renew_seconds: float,
        beat: Callable[[], None] = lambda: None,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self._store = store
        self._runs = runs
        self._clock = clock
        self._lease = lease
        self._renew_seconds = renew_seconds
        self._beat = beat
        self._telemetry = telemetry
        self._beaten_at = time.monotonic()
        self._renewed_at: dict[UUID, float] = {}
        self._progress: dict[UUID, str] = {}

    @property
    def beat_age(self) -> float:
        """Seconds since the last sign of life that reached the registry."""
        return time.monotonic() - self._beaten_at

    def report_progress(self, token: UUID, progress: dict[str, object]) -> None:
        """Remember a run's newest progress; it is written with the next tick."""
        self._progress[token] = encode_progress(progress)

    def run(self, stopping: threading.Event) -> None:
        """Tick until told to stop; keeps on while the worker drains."""
        renewed = beaten = self._beaten_at = time.monotonic()
        while not stopping.wait(self._tick()):
            now = time.monotonic()
            if now - renewed >= self._rhythm() and self._did(self.run_once):
                renewed = now
            if now - beaten >= self._renew_seconds and self._did(self._beat):
                beaten = self._beaten_at = now
            self._did(self.write_progress)

    def watch(self, stopping: threading.Event) -> None:
        """Give up what was not renewed in time. Beside `run`, which may be waiting for a database
        that does not answer."""
        while not stopping.wait(self._tick() / 4):
            self.give_up_expired()

    def _did(self, step: Callable[[], object]) -> bool:
        """Whether a step went well; a failed one must not keep the others from their turn."""
        try:
            step()
        except StoreError as error:
            logger.warning("cannot renew %d leases: %s", len(self._runs), error)
            self._telemetry.database_failed("renew")
        except Exception:
            logger.exception("keeping leases failed, going on")
        else:
            return True
        return False

    def run_once(self) -> list[Run]:
        """Renew all leases; runs whose lease is lost are stopped, and returned."""
        held = self._runs.all()
        if not held:
            return []
        begun = time.monotonic()
        kept = self._store.renew(
            [run.job for run in held], lease=self._lease, now=self._clock.override()
        )
        self._renewed_at = dict.fromkeys(kept, begun)
        self._telemetry.renewed(len(kept), time.monotonic() - begun)
        lost = [run for run in held if run.token not in kept and not run.ended]
        for run in lost:
            run.stop(StopReason.LOST)
        return lost

    def write_progress(self) -> None:
        """Write the newest progress of each run that reported any."""
        if self._progress:
            progress, self._progress = self._progress, {}
            self._store.progress(list(progress.items()))

    def give_up_expired(self) -> list[Run]:
        """Stop runs whose lease is about to run out unrenewed: others may run them then."""
        now, margin = time.monotonic(), self._tick() / 2
        gone = [run for run in self._runs.all() if self._is_expired(run, now + margin)]
        for run in gone:
            run.stop(StopReason.LOST)
        return gone

    def _rhythm(self) -> float:
        """How often to renew: a job with a short lease or a heartbeat of its own wants it often."""
        return min(
            (_own_rhythm(run.job, self._renew_seconds) for run in self._runs.all()),
            default=self._renew_seconds,
        )

    def _is_expired(self, run: Run, now: float) -> bool:
        length = run.job.lease_seconds or self._lease.total_seconds()
        held_since = max(run.claimed_at, self._renewed_at.get(run.token, 0.0))
        return not run.ended and now - held_since >= length

    def _tick(self) -> float:
        return min(1.0, self._rhythm() / 2)


def _own_rhythm(job: Job, usual: float) -> float:
    """How often the lease of this job wants to be renewed: three times before it runs out."""
    if job.lease_seconds is None:
        return usual
    return min(usual, job.lease_seconds / 3, job.heartbeat_seconds or usual)
