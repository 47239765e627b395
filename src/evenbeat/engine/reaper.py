"""Expired leases: whose worker is gone, and what becomes of the job."""

import logging
import random
from functools import partial

import psutil  # type: ignore[import-untyped]

from evenbeat.domain.decision import RunEnd, decide, lost_lease
from evenbeat.domain.job import JobRecord
from evenbeat.engine.clock import Clock
from evenbeat.engine.registration import Identity, process_birth
from evenbeat.errors import StoreError
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 500
MOST_NAMED = 3
GRACE_SECONDS = 5.0
"""After an outage, workers get so much time to write what has finished meanwhile."""
_spread = partial(random.uniform, -1, 1)


class Reaper:
    """Any node may reap at any time: the write itself makes sure that the lease has expired and
    that nobody else was first."""

    def __init__(self, store: Store, clock: Clock, identity: Identity) -> None:
        self._store = store
        self._clock = clock
        self._identity = identity

    def run_once(self) -> list[RunEnd]:
        """Give up expired runs, and those of dead workers on this host; returns what was reaped."""
        if self._store.database.availability.seconds_back < GRACE_SECONDS:
            return []
        self._expire_dead_neighbours()
        reaped: list[RunEnd] = []
        while jobs := self._store.expired(MOST_AT_ONCE, now=self._clock.override()):
            ends = self._reap(jobs)
            reaped += ends
            if len(jobs) < MOST_AT_ONCE or not ends:
                break
        self._store.dependencies.catch_up(now=self._clock.override())
        return reaped

    def _expire_dead_neighbours(self) -> None:
        """A worker of this very host whose process is gone will never renew: do not wait for it."""
        dead = [
            worker.id
            for worker in self._store.upkeep.workers()
            if worker.host == self._identity.host
            and not _is_alive(worker.pid, worker.process_started_at)
        ]
        if dead:
            ended = self._store.expire_leases_of(dead, now=self._clock.override())
            self._store.upkeep.forget_workers(dead)
            logger.warning("A worker of this host died; %d of its leases were ended", ended)

    def _reap(self, jobs: list[JobRecord]) -> list[RunEnd]:
        try:
            return self._reap_together(jobs)
        except StoreError:
            raise
        except Exception:
            logger.exception("reaping %d jobs failed, going on", len(jobs))
            if len(jobs) == 1:
                return []
            # One job that cannot be reaped must not hold up the others.
            return [end for job in jobs for end in self._reap([job])]

    def _reap_together(self, jobs: list[JobRecord]) -> list[RunEnd]:
        now = self._clock.override() or self._store.clock()
        ends = []
        for job in jobs:
            outcome = lost_lease(job)
            if job.started_at is not None and job.lock_expires_at is not None:
                lived = (job.lock_expires_at - job.started_at).total_seconds()
                outcome.duration_ms = max(0.0, lived * 1000)
            ends.append(decide(job, outcome, now, _spread()))
        held = self._store.finish(ends, expired_only=True, now=self._clock.override())
        reaped = [end for end in ends if end.job.lock_token in held]
        # Most of these are due again at once: nobody should have to wait for a poll.
        queues = {e.job.queue for e in reaped if e.decision and e.decision.next_run_at is not None}
        if queues:
            self._store.notify(*(f"due:{queue}" for queue in sorted(queues)))
        if len(reaped) > MOST_NAMED:  # a worker that dies is one event, however many it ran
            tasks = ", ".join(sorted({end.job.task for end in reaped}))
            fields: dict[str, object] = {"jobs": len(reaped), "tasks": tasks}
            logger.warning("Cleared stale locks", extra=fields)
            return reaped
        for job, *_ in reaped:
            age = (now - (job.lock_acquired_at or now)).total_seconds()
            fields = {"job_id": str(job.id), "task": job.task, "lock_age": f"{age:.0f}s"}
            logger.warning("Cleared stale lock", extra=fields)
        return reaped


def _is_alive(pid: int, started_at: float) -> bool:
    """Whether that process, and not another one that got its pid, is still there."""
    try:
        same = abs(process_birth(pid) - started_at) < 1.0
        return bool(same and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True
