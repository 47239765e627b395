"""The worker: the parts of the engine put together, started, and stopped with grace."""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from evenbeat import __version__
from evenbeat.domain.defaults import defaults_of
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import Job
from evenbeat.domain.states import ExecutionStatus
from evenbeat.engine.chores.aging import Aging
from evenbeat.engine.chores.base import Chore
from evenbeat.engine.chores.figures import Figures
from evenbeat.engine.chores.retention import Retention
from evenbeat.engine.claimer import Claimer, Skipped
from evenbeat.engine.clock import Clock, DatabaseClock
from evenbeat.engine.finisher import Finisher, Settled
from evenbeat.engine.identity import Identity
from evenbeat.engine.lease_keeper import LeaseKeeper
from evenbeat.engine.listener import HintListener
from evenbeat.engine.maintenance import Maintenance
from evenbeat.engine.reaper import Reaper
from evenbeat.engine.reporter import Reporter
from evenbeat.engine.run import Run, Runs, StopReason
from evenbeat.engine.runners.base import Runner
from evenbeat.engine.runners.loop import LoopRunner
from evenbeat.engine.runners.processes import ProcessRunner
from evenbeat.engine.runners.threads import ThreadRunner
from evenbeat.engine.worker_status import endings, status
from evenbeat.errors import StoreError
from evenbeat.events import EventBus
from evenbeat.observe.telemetry import NO_TELEMETRY, Telemetry, WorkerStatus
from evenbeat.settings import Settings
from evenbeat.store.database import Connection
from evenbeat.store.listener import Signal
from evenbeat.store.store import Store
from evenbeat.store.upkeep import NewWorker, TaskNote
from evenbeat.tasks.context import Context
from evenbeat.tasks.registry import Registry, TaskDefinition
from evenbeat.tasks.registry import Runs as RunsWhere

logger = logging.getLogger(__name__)

_RUNNER_WORDS = {
    RunsWhere.ON_LOOP: "async",
    RunsWhere.IN_THREAD: "thread",
    RunsWhere.ISOLATED: "process",
}


class Worker:
    """Claims due jobs, runs their handlers and writes down what came of it, until stopped.

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
    ) -> None:
        self.identity = Identity()
        self.queues = queues
        self.events = events or EventBus()
        self.clock = clock or DatabaseClock()
        self._store = store
        self._registry = registry
        self._settings = settings
        self._lease = timedelta(seconds=settings.lease_seconds)
        self._stop_claiming = threading.Event()
        self._stop_all = threading.Event()
        self._threads: list[threading.Thread] = []
        self._draining = False
        self._telemetry = telemetry

        self.runs = Runs()
        self.reporter = Reporter(self.events, self.clock)
        self.finisher = Finisher(store, self.runs, self.clock, self._settled, telemetry)
        self.runners = self._make_runners()
        self.claimer = Claimer(
            store,
            self.runners,
            self.clock,
            worker_id=self.identity.id,
            queues=queues,
            lease=self._lease,
            poll_seconds=settings.poll_seconds,
            begin=self._begin,
            skipped=self._skipped,
            give_back=self._hand_back,
            held_up=lambda: self.finisher.backlog > 5 * settings.concurrency + 1000,
            telemetry=telemetry,
        )
        self.keeper = LeaseKeeper(
            store,
            self.runs,
            self.clock,
            lease=self._lease,
            renew_seconds=settings.renew_seconds,
            beat=self._beat,
            telemetry=telemetry,
        )
        self.listener = HintListener(store, self._heard)
        self.reaper = Reaper(store, self.clock, self.identity)
        self.maintenance = Maintenance(
            store,
            self.clock,
            self.reaper,
            [*self._own_chores(), *chores],
            worker_id=self.identity.id,
            reap_seconds=settings.reap_seconds,
            telemetry=telemetry,
        )

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register and set everything going."""
        asked_at = time.monotonic()
        self.clock.observe(self._store.clock(self.clock.override()), asked_at=asked_at)
        self._register()
        self.events.start()
        for runner in self.runners:
            runner.start()
        # What stops last is listed first: outcomes are written and leases kept while draining.
        self._go("finisher", self.finisher.run, self._stop_all)
        self._go("leases", self.keeper.run, self._stop_all)
        self._go("lease-watch", self.keeper.watch, self._stop_all)
        self._go("maintenance", self.maintenance.run, self._stop_claiming)
        self._go("hints", self.listener.run, self._stop_claiming)
        self._go("claimer", self.claimer.run, self._stop_claiming)
        self._telemetry.watch(self.identity.id, self.status)
        self.reporter.started(self, self._settings)

    def drain(self) -> None:
        """Claim nothing more; what runs goes on."""
        self._draining = True
        self._stop_claiming.set()
        self.claimer.wake()

    def stop(self, grace: float | None = None) -> None:
        """Drain, wait up to `grace` seconds for what runs, hand the rest back to other workers."""
        self.drain()
        self._wait_for_claimer()
        self._wait_until_idle(self._settings.stop_seconds if grace is None else grace)
        left = [run for run in self.runs.all() if not run.ended]
        for run in left:
            run.stop(StopReason.SHUTDOWN)
        self._hand_back_waiting()
        self._wait_until_idle(5.0)
        self._stop_all.set()
        deadline = time.monotonic() + 5
        for thread in self._threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
        for runner in self.runners:
            runner.close()
        self.events.stop()
        self._telemetry.unwatch(self.identity.id)
        # Beside us, because a database that is down would keep us here; the reaper buries us then.
        farewell = threading.Thread(target=self._deregister, daemon=True)
        farewell.start()
        farewell.join(timeout=5)
        self.reporter.stopped(handed_back=len(left))

    def run(self, stopping: threading.Event) -> None:
        """Work until the event is set, then stop with grace."""
        self.start()
        stopping.wait()
        self.stop()

    @property
    def running(self) -> int:
        """Handlers at work right now."""
        return sum(runner.running for runner in self.runners)

    @property
    def draining(self) -> bool:
        """Whether it takes no more jobs."""
        return self._draining

    def status(self) -> WorkerStatus:
        """How it does right now."""
        settings = self._settings
        return status(
            self, poll_seconds=settings.poll_seconds, renew_seconds=settings.renew_seconds
        )

    # -- a job's way -----------------------------------------------------------------------------

    def _begin(self, _runner: Runner, jobs: list[Job]) -> list[Run]:
        runs = [self._make_run(job) for job in jobs]
        self.runs.add(runs)
        self.reporter.starting(runs)
        return runs

    def _make_run(self, job: Job) -> Run:
        token = job.lock_token
        if token is None:
            raise AssertionError("a claimed job has a lease")
        context = Context(job, report_progress=self._report_progress, renew=self._renew)
        return Run(job, token, self._registry.get(job.task), context)

    def _report_progress(self, job: Job, progress: dict[str, Any]) -> None:
        if job.lock_token is not None:
            self.keeper.report_progress(job.lock_token, progress)

    def _renew(self, job: Job) -> bool:
        return bool(self._store.renew([job], lease=self._lease, now=self.clock.override()))

    def _settled(self, settled: list[Settled]) -> None:
        self.claimer.expect([entry.decision.next_run_at for entry in settled if entry.decision])
        unwritten = [entry.run for entry in settled if not entry.kept]
        cancelled = self._cancelled(unwritten) if unwritten else set()
        self._telemetry.ended(endings(settled, cancelled))
        self.reporter.settled(settled, cancelled)

    def _skipped(self, skipped: list[Skipped]) -> None:
        for entry in skipped:
            self._telemetry.skipped(entry.job.task, entry.plans)
        self.reporter.skipped(skipped)

    def _cancelled(self, runs: list[Run]) -> set[Any]:
        """Which of the runs that lost their lease lost it to a person who cancelled the job."""
        told = {run.token for run in runs if run.stop_reason is StopReason.CANCELLED}
        asked = [run.token for run in runs if run.token not in told]
        try:
            return told | self._store.read.ended_as(
                dict.fromkeys(asked, Outcome(ExecutionStatus.CANCELLED, error_code="cancelled"))
            )
        except StoreError:
            return told

    def _heard(self, signal: Signal, connection: Connection | None) -> None:
        if signal.kind == "due":
            self.claimer.hinted(connection)
        elif signal.kind == "cancel":
            for run in self.runs.of_job(signal.subject):
                run.stop(StopReason.CANCELLED)

    # -- parts -----------------------------------------------------------------------------------

    def _make_runners(self) -> list[Runner]:
        settings, named = self._settings, self._registry.named
        places: list[tuple[type[Runner], int, RunsWhere]] = [
            (LoopRunner, settings.concurrency, RunsWhere.ON_LOOP),
            (ThreadRunner, min(settings.threads, settings.concurrency), RunsWhere.IN_THREAD),
            (ProcessRunner, min(os.cpu_count() or 1, settings.concurrency), RunsWhere.ISOLATED),
        ]
        return [
            runner(slots, tasks, self.finisher.put, self._slot_freed)
            for runner, slots, where in places
            if (tasks := named(where))
        ]

    def _slot_freed(self) -> None:
        self.claimer.slot_freed()

    def _own_chores(self) -> list[Chore]:
        settings = self._settings
        retention = Retention(
            self._store,
            self.clock,
            days=settings.retention_days,
            executions=settings.retention_executions,
        )
        return [Aging(self._store, self.clock), retention, Figures(self._store, self.clock)]

    def _go(
        self, name: str, loop: Callable[[threading.Event], None], stopping: threading.Event
    ) -> None:
        thread = threading.Thread(
            target=loop, args=(stopping,), name=f"evenbeat-{name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _register(self) -> None:
        self._store.upkeep.register_worker(
            NewWorker(
                id=self.identity.id,
                host=self.identity.host,
                pid=self.identity.pid,
                process_started_at=self.identity.process_started_at,
                version=__version__,
                concurrency=sum(runner.slots for runner in self.runners),
                queues=self.queues,
                tasks=self._registry.named(),
            ),
            now=self.clock.override(),
        )
        notes = [_note(task) for task in self._registry]
        self._store.upkeep.know_tasks(notes, now=self.clock.override())

    def _beat(self) -> None:
        wanted = self._store.upkeep.beat(
            self.identity.id,
            running=self.running,
            draining=self._draining,
            now=self.clock.override(),
        )
        if wanted is None:
            self._register()
        elif wanted == "draining" and not self._draining:
            logger.info("Draining, as asked")
            self.drain()

    def _deregister(self) -> None:
        try:
            self._store.upkeep.forget_workers([self.identity.id])
        except StoreError as error:
            logger.warning("could not leave the registry: %s", error)

    def _wait_for_claimer(self) -> None:
        """A claim that was under way when the drain began gets its grace as well."""
        for thread in self._threads:
            if thread.name == "evenbeat-claimer":
                thread.join(timeout=5)

    def _wait_until_idle(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(self.runs) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _hand_back_waiting(self) -> None:
        for runner in self.runners:
            self._hand_back(runner.give_back(0))

    def _hand_back(self, runs: list[Run]) -> None:
        """Release runs that have not started, for other workers to take."""
        for run in runs:
            run.stop(StopReason.SHUTDOWN)
            self.finisher.put(run, None)


def _note(task: TaskDefinition) -> TaskNote:
    return TaskNote(
        task.name,
        task.spec.queue,
        _RUNNER_WORDS[task.runs],
        task.signature.json_schema(),
        task.description,
        defaults_of(task.spec),
    )
