"""Keep leases alive, from threads that no handler can hold up."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from evenbeat.domain.job import JobRecord
from evenbeat.domain.step import Step
from evenbeat.engine.clock import Clock
from evenbeat.engine.loop import Loop
from evenbeat.engine.outcome import encode_progress
from evenbeat.engine.registration import Registration
from evenbeat.engine.run import ActiveRuns, Run, StopReason
from evenbeat.engine.run_logs import RunLogWriter
from evenbeat.observe.telemetry import NO_TELEMETRY, Telemetry
from evenbeat.store.store import Store


class LeaseKeeper(Loop):
    """Renews every lease of this worker in one statement, writes progress, and sends the worker's
    heartbeat. It is the `Leases` of every run's context."""

    name = "leases"
    during = "renew"

    def __init__(
        self,
        store: Store,
        runs: ActiveRuns,
        clock: Clock,
        registration: Registration,
        *,
        lease: timedelta,
        renew_seconds: float,
        logs: RunLogWriter,
        application: Any = None,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        super().__init__(telemetry)
        self.application = application
        self.log_level, self.keep_record = logs.level, logs.keep_record
        self._store = store
        self._runs = runs
        self._clock = clock
        self._registration = registration
        self._lease = lease
        self._renew_seconds = renew_seconds
        self._last_renewal = self._last_beat = self._monotonic()
        self._renewed_at: dict[UUID, float] = {}
        self._progress: dict[UUID, str] = {}

    @property
    def beat_age(self) -> float:
        """Seconds since the last heartbeat that reached the registry."""
        return self._monotonic() - self._last_beat

    def trouble(self) -> str:
        return f"cannot renew {len(self._runs)} leases"

    def start(self) -> None:
        self._last_renewal = self._last_beat = self._monotonic()
        super().start()

    def run_once(self) -> float:
        """Take the steps whose time has come. One that fails must not keep the others from theirs,
        and is tried again at the next tick."""
        now = self._monotonic()
        if now - self._last_renewal >= self._rhythm() and self._succeeds(self.renew_all):
            self._last_renewal = now
        is_due = now - self._last_beat >= self._renew_seconds or self._registration.has_news()
        if is_due and self._succeeds(self._registration.beat):
            self._last_beat = now
        if self._progress:
            self._succeeds(self._write_progress)
        return self.tick()

    def renew_all(self) -> list[Run]:
        """Renew all leases; runs whose lease is lost are stopped, and returned."""
        runs = self._runs.all()
        if not runs:
            return []
        begun = self._monotonic()
        held = self._store.renew(
            [run.job for run in runs], lease=self._lease, now=self._clock.override()
        )
        renewed = [token for token, is_renewed in held.items() if is_renewed]
        skipped = {token: self._renewed_at.get(token, 0.0) for token in held.keys() - renewed}
        self._renewed_at = dict.fromkeys(renewed, begun) | skipped
        self._telemetry.renewed(len(renewed), self._monotonic() - begun)
        lost = [run for run in runs if run.token not in held and not run.ended]
        for run in lost:
            run.stop(StopReason.LOST)
        return lost

    def give_up_expired(self) -> list[Run]:
        """Stop runs whose lease is about to run out unrenewed: others may run them then."""
        soon = self._monotonic() + self.tick() / 2
        expired = [
            run
            for run in self._runs.all()
            if not run.ended
            and soon - max(run.leased_at, self._renewed_at.get(run.token, 0.0))
            >= (run.job.lease_seconds or self._lease.total_seconds())
        ]
        for run in expired:
            run.stop(StopReason.LOST)
        return expired

    def report_progress(self, job: JobRecord, progress: dict[str, Any]) -> None:
        """Remember a run's newest progress; it is written with the next tick."""
        if job.lock_token is not None:
            self._progress[job.lock_token] = encode_progress(progress)

    def renew(self, job: JobRecord) -> bool:
        """Renew one lease now; whether it still holds."""
        return bool(self._store.renew([job], lease=self._lease, now=self._clock.override()))

    def now(self) -> datetime:
        """The present."""
        return self._clock.now()

    def steps(self, job: JobRecord) -> list[Step]:
        """What runs of this occurrence have done."""
        return self._store.steps.of(job.id, job.plan_time)

    def keep_step(self, job: JobRecord, step: Step) -> Step | None:
        """Keep a step, fenced by the run's lease."""
        return self._store.steps.keep(step, job.lock_token)

    def tick(self) -> float:
        """Seconds between two looks at what is to be done."""
        return min(1.0, self._rhythm() / 2)

    def _rhythm(self) -> float:
        """How often to renew: three times before a lease runs out, or as often as a job asks for.
        The shortest of all counts."""
        usual = self._renew_seconds
        return min(
            (
                min(usual, job.lease_seconds / 3, job.heartbeat_seconds or usual)
                for run in self._runs.all()
                if (job := run.job).lease_seconds is not None
            ),
            default=usual,
        )

    def _write_progress(self) -> None:
        progress, self._progress = self._progress, {}
        self._store.progress(list(progress.items()))

    def _succeeds(self, step: Callable[[], object]) -> bool:
        try:
            step()
        except Exception as error:
            self.failed(error)
            return False
        return True


class LeaseWatch(Loop):
    """Gives up what was not renewed in time. A thread of its own, because the lease keeper may be
    waiting for a database that does not answer."""

    name = "lease-watch"

    def __init__(self, keeper: LeaseKeeper) -> None:
        super().__init__()
        self._keeper = keeper

    def trouble(self) -> str:
        return "cannot give up expired leases"

    def run_once(self) -> float:
        """Stop what has expired."""
        self._keeper.give_up_expired()
        return self._keeper.tick() / 4
