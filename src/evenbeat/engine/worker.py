"""The worker: the parts of the engine put together, started, and stopped gracefully.

No job comes by here. Its way is claimer → pipeline → runner → pipeline; the parts know each other
by three small interfaces: `Runner` (what the claimer hands runs to), `Leases` (what a run's context
asks) and `Telemetry` (where measurements go).
"""

import difflib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Literal

import psutil  # type: ignore[import-untyped]

from evenbeat.domain.job import JobSpec
from evenbeat.domain.recycle import Recycle
from evenbeat.engine.alarm import Alarm
from evenbeat.engine.alerting import TellAlerts
from evenbeat.engine.child_process import ProcessRunner
from evenbeat.engine.claimer import Claimer, HintListener
from evenbeat.engine.clock import Clock, DatabaseClock
from evenbeat.engine.deadlines import WatchDeadlines
from evenbeat.engine.lease_keeper import LeaseKeeper, LeaseWatch
from evenbeat.engine.maintenance import (
    Aging,
    Chore,
    CountRuns,
    LookAtBatches,
    Maintenance,
    Retention,
)
from evenbeat.engine.pipeline import Pipeline
from evenbeat.engine.reaper import Reaper
from evenbeat.engine.registration import Registration
from evenbeat.engine.reporter import Reporter
from evenbeat.engine.run import ActiveRuns, StopReason
from evenbeat.engine.run_logs import RunLogWriter
from evenbeat.engine.runners import LoopRunner, Runner, ThreadRunner
from evenbeat.engine.slots import SharedSlots
from evenbeat.engine.worker_loop import WorkerLoop
from evenbeat.errors import Conflict, StoreError
from evenbeat.events import EventBus, EventKind, WorkerEvent
from evenbeat.observe.telemetry import NO_TELEMETRY, RunnerStatus, Telemetry, WorkerStatus
from evenbeat.settings import Settings
from evenbeat.store.store import Store
from evenbeat.store.upkeep import ApplicationCode
from evenbeat.tasks.registry import Registry, RunnerKind

logger = logging.getLogger("evenbeat.worker")

LEAST_SECONDS = 60.0
"""How long a worker works before its memory counts: a limit that is too low must not keep it from
working at all."""

PATIENCE_SECONDS = 10.0
"""How late, beyond two of its rhythms, a worker may be before it counts as stuck."""


class Worker:
    """Claims due jobs, runs their handlers and writes how they ended, until stopped.

    `start()` returns at once and `stop()` waits; `run()` does both around a wait. The parts are
    attributes, so that tests can drive each by its own `run_once()`.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        *,
        queues: Sequence[str] | None = None,
        events: EventBus | None = None,
        clock: Clock | None = None,
        chores: Sequence[Chore] = (),
        telemetry: Telemetry = NO_TELEMETRY,
        application: ApplicationCode | None = None,
        beside_start: Callable[[], object] = lambda: None,
        spread_late: Callable[[], object] = lambda: None,
    ) -> None:
        """`beside_start` is done once with each start, on a thread of its own; `spread_late` before
        the first claim after an outage."""
        self.queues = queues
        self.events = events or EventBus()
        self.clock = clock or DatabaseClock()
        self._store = store
        self._settings = settings
        self._recycle = Recycle.of(settings.recycle)
        self._beside_start = beside_start
        self._state: Literal["new", "running", "stopped"] = "new"
        self._started_at = 0.0
        self._beginner: threading.Thread | None = None
        self._telemetry = telemetry
        lease = timedelta(seconds=settings.lease_seconds)
        alarm = Alarm(self.clock)
        self.loop = WorkerLoop(registry.hooks.lifespans)
        reporter = Reporter(self.events, self.clock)
        self.runs = ActiveRuns()
        self.runners: list[Runner] = []
        self.registration = Registration(
            store,
            registry,
            self.clock,
            self.runners,
            concurrency=settings.concurrency,
            queues=queues,
            application=application,
        )
        self.identity = self.registration.identity
        level, prints = settings.run_log_level, settings.run_log_print
        self.run_logs = RunLogWriter(store, self.runs, self.clock, level=level, prints=prints)
        self.keeper = LeaseKeeper(
            store,
            self.runs,
            self.clock,
            self.registration,
            lease=lease,
            renew_seconds=settings.renew_seconds,
            logs=self.run_logs,
            application=registry.hooks.application,
            telemetry=telemetry,
        )
        self.pipeline = Pipeline(
            store,
            registry,
            self.runs,
            leases=self.keeper,
            clock=self.clock,
            alarm=alarm,
            reporter=reporter,
            logs=self.run_logs,
            state=self.loop.state,
            retry_spread=timedelta(seconds=settings.catch_up_spread_seconds),
            telemetry=telemetry,
        )
        most = settings.concurrency
        places: list[tuple[type[Runner], int, RunnerKind]] = [
            (LoopRunner, most, RunnerKind.ON_LOOP),
            (ThreadRunner, settings.threads, RunnerKind.IN_THREAD),
            (ProcessRunner, settings.child_processes or os.cpu_count() or 1, RunnerKind.ISOLATED),
        ]
        self._shared = shared = SharedSlots(most)
        for runner, slots, place in places:
            if tasks := registry.named(place):
                fits, loop = min(slots, most), self.loop
                self.runners.append(
                    runner(fits, shared, tasks, self.pipeline, alarm, worker_loop=loop)
                )
        self.claimer = Claimer(
            store,
            self.runners,
            self.pipeline,
            self.runs,
            clock=self.clock,
            alarm=alarm,
            reporter=reporter,
            worker_id=self.identity.id,
            queues=queues,
            lease=lease,
            poll_seconds=settings.poll_seconds,
            most_unwritten=5 * settings.concurrency + 1000,
            telemetry=telemetry,
            spread_late=spread_late,
        )
        listener = HintListener(store, self.claimer, self.runs)
        retention = Retention(
            store,
            self.clock,
            days=settings.retention_days,
            audit_days=settings.audit_days,
            log_days=settings.run_log_days,
            executions=settings.retention_executions,
        )
        own: list[Chore] = [
            Aging(store, self.clock),
            retention,
            CountRuns(store, self.clock),
            LookAtBatches(store, self.clock),
            WatchDeadlines(store, self.clock, self.events),
            TellAlerts(store, self.clock),
        ]
        self.maintenance = Maintenance(
            store,
            self.clock,
            Reaper(store, self.clock, self.identity),
            [*own, *chores],
            worker_id=self.identity.id,
            reap_seconds=settings.reap_seconds,
            telemetry=telemetry,
        )
        self.registration.claiming_loops = [self.maintenance, listener, self.claimer]
        self.registration.claim_age = lambda: self.claimer.age
        # While the worker drains, ends of runs are still written and leases kept.
        self._last_loops = [self.run_logs, self.pipeline, self.keeper, LeaseWatch(self.keeper)]

    def start(self) -> None:
        """Enter the lifespans, register and set everything going; once, since a thread cannot be
        started again."""
        if self._state != "new":
            problem = "runs already" if self._state == "running" else "was stopped"
            raise Conflict(
                f"This worker {problem}: a worker is started once. For another one, call "
                "app.worker() again."
            )
        asked_at = time.monotonic()
        self.clock.observe(self._store.clock(self.clock.override()), asked_at=asked_at)
        self.loop.open()
        try:
            self.registration.register()
        except BaseException:
            self.loop.leave()
            raise
        self._state, self._started_at = "running", time.monotonic()
        with suppress(StoreError):
            self._warn_of_unknown_queues(self.queues or ())
            self._warn_of_unknown_tasks()
        self.events.start()
        for runner in self.runners:
            runner.start()
        for loop in [*self._last_loops, *self.registration.claiming_loops]:
            loop.start()
        self._beginner = threading.Thread(target=self._beside_start, daemon=True)
        self._beginner.start()
        self._telemetry.watch(self.identity.id, self.status)
        self._emit(EventKind.WORKER_START)
        logger.info(
            "Starting interval scheduler",
            extra={
                "worker_id": str(self.identity.id),
                "check_interval": f"{self._settings.poll_seconds:g}s",
                "lock_duration": f"{self._settings.lease_seconds:g}s",
                "queues": ",".join(self.queues or ["*"]),
                "tasks": sum(len(runner.tasks) for runner in self.runners),
            },
        )

    def _warn_of_unknown_queues(self, queues: Sequence[str]) -> None:
        """A misspelt queue is served for ever, and never has a job."""
        if not queues:
            return
        read = self._store.read
        known = {JobSpec("any").queue, *(task.queue for task in read.tasks())}
        known |= {queue.name for queue in read.queues()}
        known |= {counted.queue for counted in read.job_counts()[0]}
        for queue in queues:
            if queue not in known:
                near = difflib.get_close_matches(queue, known, n=1)
                logger.warning(
                    "The worker serves the queue %r, which no job and no known task is in.%s",
                    queue,
                    f" Did you mean {near[0]!r}?" if near else "",
                )

    def _warn_of_unknown_tasks(self) -> None:
        """Jobs whose code is in no worker wait for ever, as where `--app` was left out."""
        lanes = self._store.read.waiting_lanes(now=self.clock.override())
        # Its own registration may not have reached the replica that lists are read from.
        own = {task for runner in self.runners for task in runner.tasks}
        waiting = Counter[str]()
        for lane in lanes:
            is_served = self.queues is None or lane.queue in self.queues
            if is_served and not lane.workers and lane.task not in own:
                waiting[lane.task] += lane.jobs
        if waiting:
            logger.warning(
                "Jobs are due that no live worker has the task for: %s. Their code belongs in "
                "the application that a worker is started with (--app).",
                ", ".join(f"{task!r} ({jobs})" for task, jobs in sorted(waiting.items())),
            )

    def drain(self) -> None:
        """Claim nothing more; what runs goes on."""
        self.registration.drain()

    def stop(self, grace: float | None = None) -> None:
        """Drain, wait up to `grace` seconds for what runs, hand the rest back to other workers."""
        if self._state == "stopped":
            return
        self._state = "stopped"
        self.drain()
        self.claimer.join(timeout=5)  # a claim that was under way gets its grace as well
        self._wait_until_idle(self._settings.stop_seconds if grace is None else grace)
        unfinished = [run for run in self.runs.all() if not run.ended]
        for run in unfinished:
            run.stop(StopReason.SHUTDOWN)
        for runner in self.runners:
            for run in runner.give_back(0):
                self.pipeline.end(run, None)
        self._wait_until_idle(5.0)
        for loop in self._last_loops:
            loop.stop()
        deadline = time.monotonic() + 5
        for loop in [*self._last_loops, *self.registration.claiming_loops]:
            loop.join(timeout=max(0.0, deadline - time.monotonic()))
        if self._beginner is not None:
            self._beginner.join(timeout=max(0.0, deadline - time.monotonic()))
        self.loop.leave()
        for runner in self.runners:
            runner.close()
        self.loop.close()
        self._emit(EventKind.WORKER_STOP)
        self.events.stop()
        self._telemetry.unwatch(self.identity.id)
        # In a thread, since the database may be down; then the reaper cleans up.
        farewell = threading.Thread(target=self.registration.deregister, daemon=True)
        farewell.start()
        farewell.join(timeout=5)
        logger.info("Stopped", extra={"handed_back": len(unfinished)})

    def run(self, stopping: threading.Event) -> None:
        """Work until the event is set, then stop gracefully."""
        self.start()
        stopping.wait()
        self.stop()

    @property
    def running(self) -> int:
        """Handlers at work right now."""
        return sum(runner.running for runner in self.runners)

    def worn_out(self) -> str | None:
        """Why a fresh process should take over, by the setting `recycle`."""
        held, memory, runs = self._recycle
        if held and self._all_held():
            return "all threads are held by runs that are over"
        if runs is not None and self._shared.over >= runs:
            return f"it has done {self._shared.over:,} runs"
        if memory is not None and time.monotonic() - self._started_at > LEAST_SECONDS:
            size = psutil.Process().memory_info().rss
            if size > memory:
                return f"it has {size / 2**20:,.0f} MB of memory"
        return None

    def _all_held(self) -> bool:
        return any(len(runner.held()) >= runner.slots for runner in self.runners)

    def status(self) -> WorkerStatus:
        """How it is right now, and why it is not ready, if it is not."""
        claim_age, beat_age = self.claimer.age, self.keeper.beat_age
        trouble = None
        if self.registration.draining:
            trouble = "The worker drains: it takes no more jobs."
        elif claim_age > 2 * self._settings.poll_seconds + PATIENCE_SECONDS:
            trouble = f"The worker has not been able to claim for {claim_age:.0f} s."
        elif beat_age > 2 * self._settings.renew_seconds + PATIENCE_SECONDS:
            trouble = f"The worker has not been able to renew its leases for {beat_age:.0f} s."
        elif (age := self.pipeline.age) > self._settings.lease_seconds:
            trouble = f"The worker has not been able to write its outcomes for {age:.0f} s."
        elif self._all_held():
            trouble = (
                "All threads of the worker are held by runs that were cancelled, timed out or lost "
                "their lease, whose functions have not returned. Restart it."
            )
        return WorkerStatus(
            runners=[
                RunnerStatus(r.place, r.slots, max(0, r.running), r.waiting, r.lag, len(r.held()))
                for r in self.runners
            ],
            leases=len(self.runs),
            backlog=self.pipeline.backlog,
            claim_age=claim_age,
            beat_age=beat_age,
            trouble=trouble,
        )

    def _emit(self, kind: EventKind) -> None:
        me, queues = self.identity, None if self.queues is None else tuple(self.queues)
        self.events.emit(WorkerEvent(kind, self.clock.now(), me.id, me.host, me.pid, queues))

    def _wait_until_idle(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(self.runs) and time.monotonic() < deadline:
            time.sleep(0.01)
