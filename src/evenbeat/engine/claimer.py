"""Claim: find out how much this worker can take, take it, and rest until there may be more."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.decision import Revision, revise
from evenbeat.domain.job import Job
from evenbeat.engine.clock import Clock
from evenbeat.engine.run import Run
from evenbeat.engine.runners.base import Runner
from evenbeat.errors import StoreError
from evenbeat.observe.telemetry import NO_TELEMETRY, Telemetry
from evenbeat.store.database import Connection
from evenbeat.store.outcomes import Release
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)

LINGER_SECONDS = 0.002
YIELD_SECONDS = 0.0002
"""Lets the runner's thread have the interpreter at once; an idle worker starts a job sooner so."""

WAITED_TOO_LONG = 1.0
UNREADABLE_PAUSE = timedelta(minutes=1)
MOST_AT_ONCE = 1000


class Skipped(NamedTuple):
    """Plans that a catch-up policy gave up."""

    job: Job
    plans: int
    reason: str


class Claimer:
    """Asks for work when a hint, a due time, a free slot or the poll says so. Hints may be lost:
    the poll alone suffices."""

    def __init__(
        self,
        store: Store,
        runners: Sequence[Runner],
        clock: Clock,
        *,
        worker_id: UUID,
        queues: Sequence[str] | None,
        lease: timedelta,
        poll_seconds: float,
        begin: Callable[[Runner, list[Job]], list[Run]],
        skipped: Callable[[list[Skipped]], None] = lambda _skipped: None,
        give_back: Callable[[list[Run]], None] = lambda _runs: None,
        held_up: Callable[[], bool] = lambda: False,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self._store = store
        self._runners = runners
        self._clock = clock
        self._worker_id = worker_id
        self._queues = queues
        self._lease = lease
        self._poll_seconds = poll_seconds
        self._begin = begin
        self._skipped = skipped
        self._give_back = give_back
        self._held_up = held_up
        self._telemetry = telemetry
        self._checked_at = time.monotonic()
        self._wake = threading.Event()
        self._full = False
        self._claiming = threading.Lock()
        self._closed = False
        self._looked = False
        self._expecting = threading.Lock()
        self._expected: datetime | None = None
        self._resting_until: datetime | None = None

    @property
    def age(self) -> float:
        """Seconds since the last look for work that went well."""
        return time.monotonic() - self._checked_at

    def wake(self) -> None:
        """There may be something to claim."""
        self._wake.set()

    def hinted(self, connection: Connection | None) -> None:
        """There is something to claim. An idle worker claims it right here, on the connection that
        brought the hint: that spares the wake-up of another thread and of another backend."""
        try:
            if connection is not None and self._claiming.acquire(blocking=False):
                try:
                    if not self._closed and not self._held_up():
                        self._looked = not self._claim_all(connection)
                finally:
                    self._claiming.release()
        finally:
            self._wake.set()

    def expect(self, dues: Sequence[datetime | None]) -> None:
        """Jobs were put back, due at these times: do not sleep through one of them. What is due no
        sooner than the rest ends needs no look before."""
        earliest = min((due for due in dues if due is not None), default=None)
        if earliest is None:
            return
        with self._expecting:
            if self._resting_until is None:
                self._expected = min(earliest, self._expected or earliest)
            elif earliest < self._resting_until:
                self._wake.set()

    def slot_freed(self) -> None:
        """A run ended; matters only when there was no room."""
        if self._full:
            self._full = False
            self._wake.set()

    def run(self, stopping: threading.Event) -> None:
        """Claim until told to stop. An unreachable database is tried again, ever more patiently."""
        pause = 0.1
        self._checked_at = time.monotonic()
        while not stopping.is_set():
            try:
                with self._claiming:
                    rest = self.run_once()
                self._checked_at, pause = time.monotonic(), 0.1
            except StoreError as error:
                logger.warning("cannot claim: %s", error)
                self._telemetry.database_failed("claim")
                rest, pause = pause, min(pause * 2, self._poll_seconds)
            except Exception:
                logger.exception("claiming failed, going on")
                rest, pause = pause, min(pause * 2, self._poll_seconds)
            if rest > 0:
                self._wake.wait(self._resting(rest))
                self._wake.clear()
                self._resting_until = None
        with self._claiming:
            self._closed = True

    def _resting(self, rest: float) -> float:
        """How long to rest, by what was put back since we looked."""
        now = self._clock.now()
        with self._expecting:
            if self._expected is not None:
                rest = max(0.0, min(rest, (self._expected - now).total_seconds()))
            self._resting_until = now + timedelta(seconds=rest)
        return rest

    def run_once(self) -> float:
        """Claim once for every runner that has room; returns how long to rest unless woken."""
        with self._expecting:
            self._expected = None  # what was put back until now is seen by the statements below
        self._give_back_late()
        if self._held_up():
            return LINGER_SECONDS
        looked, self._looked = self._looked, False
        if not looked and self._claim_all():
            return 0 if self._any_room() else self._wait_for_slot()
        tasks = [task for runner in self._runners if runner.capacity() > 0 for task in runner.tasks]
        return min(self._until_next_due(tasks), self._poll_seconds)

    def _claim_all(self, connection: Connection | None = None) -> bool:
        """Claim for every runner that has room; returns whether there may be more to claim."""
        more = False
        for runner in self._runners:
            if (room := self._room(runner)) > 0:
                more = len(self._claim(runner, room, connection)) == room or more
        return more

    def _any_room(self) -> bool:
        return any(runner.capacity() > 0 for runner in self._runners)

    def _wait_for_slot(self) -> float:
        """Rest until a run ends, and look once more before resting: one may just have ended."""
        self._full = True
        if self._any_room():
            self._full = False
            return 0
        return self._poll_seconds

    def _room(self, runner: Runner) -> int:
        """The runner's room; when it is little, a moment's patience makes a better batch."""
        room = runner.capacity()
        if 0 < room < runner.slots // 4:
            time.sleep(LINGER_SECONDS)
            room = runner.capacity()
        if room <= 0:
            self._full = True
        return min(room, MOST_AT_ONCE)

    def _claim(self, runner: Runner, room: int, connection: Connection | None = None) -> list[Job]:
        asked_at = time.monotonic()
        jobs = self._store.claim(
            self._worker_id,
            room,
            queues=self._queues,
            tasks=runner.tasks,
            lease=self._lease,
            connection=connection,
            now=self._clock.override(),
        )
        took = time.monotonic() - asked_at
        runner.claim_took(took)
        if jobs:
            if jobs[0].started_at is not None:
                self._clock.observe(jobs[0].started_at, asked_at=asked_at)
            self._start(runner, jobs)
            if len(jobs) < room:
                time.sleep(YIELD_SECONDS)
            logger.debug("Jobs claimed", extra={"jobs": len(jobs), "runner": runner.place})
        self._telemetry.claimed(len(jobs), took)
        return jobs

    def _start(self, runner: Runner, jobs: list[Job]) -> None:
        """Hand jobs to their runner. Those that need no second look go first: what goes wrong with
        the others must not keep them."""
        if not any(job.schedule_kind != "once" or job.execution_window for job in jobs):
            runner.take(self._begin(runner, jobs))
            return
        now = self._clock.now()
        revisions, unreadable = _looked_over(jobs, now)
        touched = {job.id for job, _ in revisions} | {job.id for job in unreadable}
        runner.take(self._begin(runner, [job for job in jobs if job.id not in touched]))
        if revisions:
            runner.take(self._begin(runner, self._caught_up(revisions, now)))
        if unreadable:
            self._hand_on(unreadable, now)

    def _caught_up(self, revisions: list[tuple[Job, Revision]], now: datetime) -> list[Job]:
        """Replace plans that a later one has overtaken, as each job's catch-up policy wants it."""
        self._skipped([Skipped(job, r.skipped, job.catch_up) for job, r in revisions])
        self._postpone([(job, r) for job, r in revisions if r.start_at > now])
        return self._replan([(job, r) for job, r in revisions if r.start_at <= now])

    def _hand_on(self, jobs: list[Job], now: datetime) -> None:
        """Leave jobs that this node cannot read to another one."""
        self._store.release(
            [Release(job, None, now + UNREADABLE_PAUSE) for job in jobs],
            error_code="unreadable",
            error_message="The worker could not read the job's schedule; see its log.",
            now=self._clock.override(),
        )

    def _replan(self, revisions: list[tuple[Job, Revision]]) -> list[Job]:
        """Give runs their new plan times; one that was lost meanwhile is not run."""
        if not revisions:
            return []
        held = self._store.revise([(job, revision.plan_time) for job, revision in revisions])
        return [
            job._replace(plan_time=revision.plan_time)
            for job, revision in revisions
            if job.lock_token in held
        ]

    def _postpone(self, revisions: list[tuple[Job, Revision]]) -> None:
        if revisions:
            self._store.release(
                [Release(job, r.plan_time, r.start_at) for job, r in revisions],
                error_code="postponed",
                error_message="Too late for this plan, or outside the job's execution window.",
                now=self._clock.override(),
            )

    def _give_back_late(self) -> None:
        late = [run for runner in self._runners for run in runner.give_back(WAITED_TOO_LONG)]
        if late:
            self._give_back(late)

    def _until_next_due(self, tasks: list[str]) -> float:
        if not tasks:
            return self._poll_seconds
        asked_at = time.monotonic()
        due, seen = self._store.next_due(
            queues=self._queues, tasks=tasks, now=self._clock.override()
        )
        self._clock.observe(seen, asked_at=asked_at)
        if due is None:
            return self._poll_seconds
        return max(0.0, (due - self._clock.now()).total_seconds())


def _looked_over(jobs: list[Job], now: datetime) -> tuple[list[tuple[Job, Revision]], list[Job]]:
    """The jobs whose plans must change, and those whose schedules make no sense here: a node with
    older time zones than the one that stored the job does not know every name."""
    revisions, unreadable = [], []
    for job in jobs:
        try:
            if (revision := revise(job, now)) is not None:
                revisions.append((job, revision))
        except Exception:
            logger.exception("the schedule of job %s cannot be read", job.id)
            unreadable.append(job)
    return revisions, unreadable
