"""Claim: take as many due jobs as there is capacity for, and rest until there may be more."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from math import inf
from uuid import UUID

from evenbeat.domain.catch_up import SKIP_GRACE
from evenbeat.domain.decision import Revision, expired, revise
from evenbeat.domain.job import JobRecord
from evenbeat.domain.schedule import RECURRING_KINDS
from evenbeat.engine.alarm import Alarm
from evenbeat.engine.clock import Clock
from evenbeat.engine.loop import Loop
from evenbeat.engine.pipeline import Pipeline
from evenbeat.engine.reporter import Reporter, SkippedPlans
from evenbeat.engine.run import ActiveRuns, StopReason
from evenbeat.engine.runners import Runner
from evenbeat.errors import StoreError
from evenbeat.observe.telemetry import NO_TELEMETRY, Telemetry
from evenbeat.store.database import Connection
from evenbeat.store.listener import CannotListen, Listener
from evenbeat.store.rows import Frontier, Release
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)

LINGER_SECONDS = 0.002
YIELD_SECONDS = 0.0002
"""Gives the runner's thread the interpreter at once, so that an idle worker starts a job sooner."""

WAITED_TOO_LONG = 1.0
UNSURE_PAUSE = 2.0
LATE_PAUSE = 10.0
UNREADABLE_PAUSE = timedelta(minutes=1)
MOST_AT_ONCE = 1000
LISTEN_SECONDS = 1.0
POLL_WITHOUT_HINTS = 1.0
CANNOT_LISTEN_SECONDS = 60.0


class Claimer(Loop):
    """Claims when a hint, a due time, a free slot or the poll says so. Hints may be lost: the poll
    alone suffices."""

    name = "claimer"
    during = "claim"

    def __init__(
        self,
        store: Store,
        runners: Sequence[Runner],
        pipeline: Pipeline,
        runs: ActiveRuns,
        *,
        clock: Clock,
        alarm: Alarm,
        reporter: Reporter,
        worker_id: UUID,
        queues: Sequence[str] | None,
        lease: timedelta,
        poll_seconds: float,
        most_unwritten: int,
        telemetry: Telemetry = NO_TELEMETRY,
        spread_late: Callable[[], object] = lambda: None,
    ) -> None:
        """`spread_late` puts off recurring jobs that are late, if they are many."""
        super().__init__(telemetry)
        self._spread_late = spread_late
        self._expects_late = True  # the first worker after an outage finds what it left
        self._spread_at = -inf
        self._store = store
        self._runners = deque(runners)
        self._frontiers = {runner: Frontier() for runner in runners}
        self._pipeline = pipeline
        self._runs = runs
        self._clock = clock
        self._alarm = alarm
        self._reporter = reporter
        self._worker_id = worker_id
        self._queues = queues
        self._lease = lease
        self._poll_seconds = self.longest_pause = poll_seconds
        self._most_unwritten = most_unwritten
        self._checked_at = self._monotonic()
        self._unsure_until = self._check_unsure_at = 0.0
        self._claiming = threading.Lock()
        self._claimed_on_hint = False

    @property
    def age(self) -> float:
        """Seconds since the last successful look for work."""
        return self._monotonic() - self._checked_at

    def trouble(self) -> str:
        return "cannot claim"

    def poll_often(self) -> None:
        """No hints will come: look for work every second."""
        if self._poll_seconds > POLL_WITHOUT_HINTS:
            self._poll_seconds = POLL_WITHOUT_HINTS
            logger.info("no notifications through a pooler: looking for jobs every second")
            self.wake()

    def wake(self) -> None:
        self._alarm.wake()

    def rest(self, seconds: float) -> None:
        self._alarm.rest(seconds)

    def start(self) -> None:
        self._checked_at = self._monotonic()
        super().start()

    def run(self) -> None:
        super().run()
        with self._claiming:
            """A claim that the listener's thread has begun is over before this thread ends."""
        if self._monotonic() < self._unsure_until:
            with suppress(StoreError):
                self._hand_back_unknown()

    def claim_on_hint(self, connection: Connection | None) -> None:
        """There is something to claim. An idle worker claims it right here, on the connection that
        brought the hint: that saves waking another thread and another backend."""
        try:
            if connection is not None and self._claiming.acquire(blocking=False):
                try:
                    may_claim = not (self._stopping or self._expects_late)
                    if may_claim and self._pipeline.backlog <= self._most_unwritten:
                        self._claimed_on_hint = not self._claim_all(connection)
                finally:
                    self._claiming.release()
        finally:
            self._alarm.wake()

    def run_once(self) -> float:
        """Claim once for every runner that has capacity; returns how long to rest unless woken."""
        with self._claiming:
            seconds = self._look()
        self._checked_at = self._monotonic()
        return seconds

    def _look(self) -> float:
        self._alarm.forget_expected()
        for runner in self._runners:
            for run in runner.give_back(WAITED_TOO_LONG):  # for another worker to take
                run.stop(StopReason.SHUTDOWN)
                self._pipeline.end(run, None)
        if self._check_unsure_at < self._monotonic() < self._unsure_until:
            self._hand_back_unknown()
        if self._pipeline.backlog > self._most_unwritten:  # more runs would not help
            return LINGER_SECONDS
        if self._expects_late or self.age > SKIP_GRACE.total_seconds():
            self._look_for_late()
        has_claimed, self._claimed_on_hint = self._claimed_on_hint, False
        if not has_claimed and self._claim_all():
            # There may be more. Look for capacity again before resting: a run may just have ended.
            self._alarm.wait_for_slot(True)
            if any(runner.capacity() > 0 for runner in self._runners):
                self._alarm.wait_for_slot(False)
                return 0.0
            return self._poll_seconds
        free = [runner for runner in self._runners if runner.capacity() > 0]
        if not free:
            return self._poll_seconds
        asked_at = time.monotonic()
        since = [frontier.since for runner, frontier in self._frontiers.items() if runner in free]
        due, present = self._store.next_due(
            queues=self._queues,
            tasks=[task for runner in free for task in runner.tasks],
            since=min((one for one in since if one), default=None) if all(since) else None,
            now=self._clock.override(),
        )
        self._clock.observe(present, asked_at=asked_at)
        rests = [self._poll_seconds]
        rests += [one.full_look_at - asked_at for one in self._frontiers.values() if one.since]
        if due is not None:
            rests.append((due - self._clock.now()).total_seconds())
        return max(0.0, min(rests))

    def _look_for_late(self) -> None:
        """After an outage many recurring jobs are late. They are spread before any is claimed, by
        whichever worker is the first; one that waits for it finds nothing left to do."""
        if self._clock.override() is None:  # who moves the clock wants to see all that is due
            tasks = [task for runner in self._runners for task in runner.tasks]
            due, present = self._store.next_due(queues=self._queues, tasks=tasks)
            if due is not None and present - due > SKIP_GRACE:
                try:
                    self._spread_late()
                except Exception:  # a herd is better than jobs that never run
                    logger.exception("late jobs could not be spread; they start at once")
        self._expects_late, self._spread_at = False, self._monotonic()

    def _claim_all(self, connection: Connection | None = None) -> bool:
        """Claim for every runner that has capacity; returns whether there may be more to claim."""
        more = False
        self._runners.rotate()  # they share the worker's slots: each is the first in its turn
        for runner in self._runners:
            capacity = runner.capacity()
            if 0 < capacity < runner.slots // 4:  # a moment's patience makes a better batch
                time.sleep(LINGER_SECONDS)
                capacity = runner.capacity()
            if capacity <= 0:
                self._alarm.wait_for_slot(True)
            else:
                limit = min(capacity, MOST_AT_ONCE)
                more = self._claim(runner, limit, connection) == limit or more
        return more

    def _claim(self, runner: Runner, limit: int, connection: Connection | None) -> int:
        asked_at = time.monotonic()
        frontier = self._frontiers[runner]
        frontier.begin(asked_at)
        try:
            jobs = self._store.claim(
                self._worker_id,
                limit,
                queues=self._queues,
                tasks=runner.tasks,
                lease=self._lease,
                since=frontier.since,
                connection=connection,
                now=self._clock.override(),
            )
        except StoreError:
            self._unsure_until = time.monotonic() + 2 * self._lease.total_seconds()
            raise
        seconds = time.monotonic() - asked_at
        if self._store.database.availability.reason is not None:  # a part of it broke off
            self._unsure_until = time.monotonic() + 2 * self._lease.total_seconds()
        runner.claim_took(seconds)
        is_real = self._clock.override() is None  # who moves the clock wants to see all that is due
        if is_real and frontier.should_move(asked_at, seconds, len(jobs)):
            oldest, present = self._store.next_due(
                queues=self._queues, tasks=runner.tasks, since=frontier.since
            )
            frontier.since = min(oldest or present, present)
        usual = self._lease.total_seconds()
        if seconds > min((job.lease_seconds or usual for job in jobs), default=usual):
            logger.warning("a claim was answered after %.1f s, when its leases were over", seconds)
            self._unsure_until, jobs = time.monotonic() + usual, []
        if jobs:
            if jobs[0].started_at is not None:
                self._clock.observe(jobs[0].started_at, asked_at=asked_at)
            if any(
                job.schedule_kind != "once" or job.execution_window or job.expires_seconds
                for job in jobs
            ):
                self._start_revised(runner, jobs, asked_at)
            else:
                runner.take(self._pipeline.start_runs(jobs, asked_at))
            if len(jobs) < limit:
                time.sleep(YIELD_SECONDS)
            logger.debug("Jobs claimed", extra={"jobs": len(jobs), "runner": runner.place})
        self._telemetry.claimed(len(jobs), seconds)
        return len(jobs)

    def _hand_back_unknown(self) -> None:
        """A claim broke off, but the database may have made it: what this worker holds without
        knowing it goes back at once, and costs no attempt. It may even be made after that, so this
        is done a few times."""
        self._check_unsure_at = self._monotonic() + UNSURE_PAUSE
        known = [run.token for run in self._runs.all()]
        known += [token for token in self._runs.lost.copy() if token is not None]
        jobs = self._store.unknown_leases(self._worker_id, known, now=self._clock.override())
        free = self._store.unlocked(jobs) if jobs else ()
        jobs = [job for job in jobs if job.id in free]
        if jobs:
            self._store.release(
                [Release(job) for job in jobs],
                error_code="claim_lost",
                error_message="The answer to the claim was lost; the run did not start.",
                now=self._clock.override(),
            )
            logger.warning("handed back %d jobs whose claim was not answered", len(jobs))

    def _start_revised(self, runner: Runner, jobs: list[JobRecord], asked_at: float) -> None:
        """Start jobs of which some may be too late for their plans. Those that just start go first:
        what goes wrong with the others must not hold them up."""
        now = self._clock.now()
        expiring = [job.id for job in jobs if job.expires_seconds is not None and job.release_count]
        begun = self._store.steps.begun(expiring) if expiring else set()
        in_time: list[JobRecord] = []
        revisions: list[tuple[JobRecord, Revision]] = []
        unreadable: list[JobRecord] = []
        if self._monotonic() - self._spread_at > LATE_PAUSE:  # jobs that were resumed, for example
            self._expects_late = any(
                job.schedule_kind in RECURRING_KINDS
                and not job.current_retry_count
                and now - (job.next_run_at or now) > SKIP_GRACE
                for job in jobs
            )
        for job in jobs:
            try:
                may_expire = job.expires_seconds is not None and job.id not in begun
                if may_expire and (outcome := expired(job, now)) is not None:
                    self._pipeline.end_unstarted(job, outcome, asked_at)
                    continue
                revision = revise(job, now)
            except Exception:  # a node with older time zones does not know every name, for example
                logger.exception("the schedule of job %s cannot be read", job.id)
                unreadable.append(job)
            else:
                if revision is None:
                    in_time.append(job)
                else:
                    revisions.append((job, revision))
        runner.take(self._pipeline.start_runs(in_time, asked_at))
        if revisions:
            runner.take(self._pipeline.start_runs(self._catch_up(revisions, now), asked_at))
        if unreadable:
            self._store.release(
                [Release(job, None, now + UNREADABLE_PAUSE) for job in unreadable],
                error_code="unreadable",
                error_message="The worker could not read the job's schedule; see its log.",
                now=self._clock.override(),
            )

    def _catch_up(
        self, revisions: list[tuple[JobRecord, Revision]], now: datetime
    ) -> list[JobRecord]:
        """Give jobs another plan, as their catch-up policies say; returns those to start now."""
        for job, revision in revisions:
            self._telemetry.skipped(job.task, revision.skipped)
        self._reporter.skipped(SkippedPlans(job, r.skipped) for job, r in revisions)
        later = [(job, r) for job, r in revisions if r.start_at > now]
        if later:
            self._store.release(
                [Release(job, r.plan_time, r.start_at) for job, r in later],
                error_code="postponed",
                error_message="Too late for this plan, or outside the job's execution window.",
                now=self._clock.override(),
            )
        at_once = [(job, r.plan_time) for job, r in revisions if r.start_at <= now]
        held = self._store.revise(at_once) if at_once else set()
        return [job._replace(plan_time=plan) for job, plan in at_once if job.lock_token in held]


class HintListener(Loop):
    """Hears hints from other processes: jobs due, cancelled, waited for. Any hint may be lost
    without harm. Listens on a connection of its own and opens a new one when it breaks; then it
    wakes the claimer: hints sent meanwhile are lost. The claimer may use the connection that
    brought a hint: it is awake, and free until the next wait."""

    name = "hints"

    def __init__(self, store: Store, claimer: Claimer, runs: ActiveRuns) -> None:
        super().__init__()
        self._store = store
        self._claimer = claimer
        self._runs = runs
        self._listener: Listener | None = None
        self._failing = False

    def trouble(self) -> str:
        return "cannot listen for hints, polling meanwhile"

    def failed(self, error: Exception) -> None:
        if not self._failing and self._store.database.availability.reason is None:
            logger.warning("%s: %s", self.trouble(), error)
        self._failing = True
        super().failed(error)

    def run_once(self) -> float:
        """Wait for hints once, and act on them."""
        try:
            if self._listener is None:
                try:
                    self._listener = self._store.listen()
                except CannotListen:
                    self._claimer.poll_often()
                    return CANNOT_LISTEN_SECONDS
                self._failing = False
                self._claimer.claim_on_hint(None)
            for signal in self._listener.wait(LISTEN_SECONDS):
                if signal.kind == "due":
                    self._claimer.claim_on_hint(self._listener.claims_on)
                elif signal.kind == "cancel":
                    for run in self._runs.named(signal.subject):
                        run.stop(StopReason.CANCELLED)
                elif signal.kind == "waiting":
                    self._runs.expect_end(signal.subject)
        except Exception:
            self._close()
            raise
        return 0.0

    def run(self) -> None:
        super().run()
        self._close()

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
