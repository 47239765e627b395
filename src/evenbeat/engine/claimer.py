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
from evenbeat.store.rows import Handed
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)

LINGER_SECONDS = 0.002
YIELD_SECONDS = 0.0002
"""Lets the runner's thread have the interpreter at once; an idle worker starts a job sooner so."""

WAITED_TOO_LONG = 1.0
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
        self._wake = threading.Event()
        self._full = False

    def wake(self) -> None:
        """There may be something to claim."""
        self._wake.set()

    def expect(self, dues: Sequence[datetime | None]) -> None:
        """Jobs were put back, due at these times: do not sleep through a near one."""
        near = self._clock.now() + timedelta(seconds=self._poll_seconds)
        if any(due is not None and due < near for due in dues):
            self._wake.set()

    def slot_freed(self) -> None:
        """A run ended; matters only when there was no room."""
        if self._full:
            self._full = False
            self._wake.set()

    def run(self, stopping: threading.Event) -> None:
        """Claim until told to stop. An unreachable database is tried again, ever more patiently."""
        pause = 0.1
        while not stopping.is_set():
            try:
                rest = self.run_once()
                pause = 0.1
            except StoreError as error:
                logger.warning("cannot claim: %s", error)
                rest, pause = pause, min(pause * 2, self._poll_seconds)
            except Exception:
                logger.exception("claiming failed, going on")
                rest, pause = pause, min(pause * 2, self._poll_seconds)
            if rest > 0:
                self._wake.wait(rest)
                self._wake.clear()

    def run_once(self) -> float:
        """Claim once for every runner that has room; returns how long to rest unless woken."""
        self._give_back_late()
        if self._held_up():
            return LINGER_SECONDS
        more = False
        waiting_for: list[str] = []
        for runner in self._runners:
            room = self._room(runner)
            if room <= 0:
                continue
            jobs = self._claim(runner, room)
            more = more or len(jobs) == room
            waiting_for += runner.tasks
        if more:
            return 0 if self._any_room() else self._wait_for_slot()
        return min(self._until_next_due(waiting_for), self._poll_seconds)

    def _any_room(self) -> bool:
        return any(runner.room() > 0 for runner in self._runners)

    def _wait_for_slot(self) -> float:
        """Rest until a run ends, and look once more before resting: one may just have ended."""
        self._full = True
        if self._any_room():
            self._full = False
            return 0
        return self._poll_seconds

    def _room(self, runner: Runner) -> int:
        """The runner's room; when it is little, a moment's patience makes a better batch."""
        room = runner.room()
        if 0 < room < runner.slots // 4:
            time.sleep(LINGER_SECONDS)
            room = runner.room()
        if room <= 0:
            self._full = True
        return min(room, MOST_AT_ONCE)

    def _claim(self, runner: Runner, room: int) -> list[Job]:
        jobs = self._store.claim(
            self._worker_id,
            room,
            queues=self._queues,
            tasks=runner.tasks,
            lease=self._lease,
            now=self._clock.override(),
        )
        if jobs:
            if jobs[0].started_at is not None:
                self._clock.observe(jobs[0].started_at)
            runner.take(self._begin(runner, self._caught_up(jobs)))
            if len(jobs) < room:
                time.sleep(YIELD_SECONDS)
        return jobs

    def _caught_up(self, jobs: list[Job]) -> list[Job]:
        """Replace plans that a later one has overtaken, as each job's catch-up policy wants it."""
        if not any(job.schedule_kind != "once" or job.execution_window for job in jobs):
            return jobs
        now = self._clock.now()
        revisions = [(job, revision) for job in jobs if (revision := revise(job, now)) is not None]
        if not revisions:
            return jobs
        self._skipped([Skipped(job, r.skipped, job.catch_up) for job, r in revisions])
        self._postpone([(job, r) for job, r in revisions if r.start_at > now])
        replanned = self._replan([(job, r) for job, r in revisions if r.start_at <= now])
        revised = {job.id for job, _ in revisions}
        return [job for job in jobs if job.id not in revised] + replanned

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
                [Handed(job, r.plan_time, r.start_at) for job, r in revisions],
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
        due, seen = self._store.next_due(
            queues=self._queues, tasks=tasks, now=self._clock.override()
        )
        self._clock.observe(seen)
        if due is None:
            return self._poll_seconds
        return max(0.0, (due - self._clock.now()).total_seconds())
