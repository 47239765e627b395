"""One run from its claim to its report. All of its steps are in this file, in their order:

    started                                      a batch of runs, on the claimer's thread
    arguments → timeout → perform → outcome      one run, on its runner's thread
    decide → finish → report                     a batch of runs, on the pipeline's own thread

Runners differ in `perform` only: awaited on an event loop, called in a thread, or left to a child
process. While one batch is written the next one gathers, so batches grow with the load.
"""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Protocol
from uuid import UUID

from evenbeat.domain.decision import EndKind, RunEnd, decide
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord
from evenbeat.domain.retry import FailuresAlike
from evenbeat.domain.states import ExecutionStatus
from evenbeat.engine.alarm import Alarm
from evenbeat.engine.clock import Clock
from evenbeat.engine.loop import Loop
from evenbeat.engine.outcome import completed, failed
from evenbeat.engine.reporter import Reporter
from evenbeat.engine.run import ActiveRuns, Run, StopReason
from evenbeat.engine.run_logs import RunLogWriter
from evenbeat.errors import InvalidInput, StatementTimeout, StoreError
from evenbeat.observe.telemetry import NO_TELEMETRY, Telemetry
from evenbeat.store.rows import REFUSED, Release
from evenbeat.store.store import Store
from evenbeat.tasks.context import Context, Leases, State
from evenbeat.tasks.registry import Registry

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 1000
IDLE_SECONDS = 0.5
LOCKED_SECONDS = 1.0

_STOPPED_AS = {
    StopReason.SHUTDOWN: EndKind.RELEASED,
    StopReason.CANCELLED: EndKind.CANCELLED,
    StopReason.LOST: EndKind.LOST,
    StopReason.TIMEOUT: EndKind.LOST,
    None: EndKind.LOST,
}
_LAST = (EndKind.COMPLETED, EndKind.FAILED, EndKind.CANCELLED)
_spread = partial(random.uniform, -1, 1)


class Timer(Protocol):
    """Something that will stop a run unless it is cancelled."""

    def cancel(self) -> object:
        """The run has ended in time."""


EndedRun = tuple[Run, Outcome | None]
CallLater = Callable[[float, Callable[[StopReason], None], StopReason], Timer]


class Attempt:
    """The steps around a runner's `perform`, which puts into `run.value` what the handler returned.
    Whatever it raises ends here."""

    __slots__ = ("_pipeline", "_run", "_timer")

    def __init__(self, pipeline: "Pipeline", run: Run, call_later: CallLater) -> None:
        self._pipeline, self._run = pipeline, run
        limit = run.job.timeout_seconds
        self._timer = None if limit is None else call_later(limit, run.stop, StopReason.TIMEOUT)

    def __enter__(self) -> None:
        self._run.started_at = time.monotonic()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        run = self._run
        try:
            outcome = completed(run, run.value) if error is None else failed(run, error)
        except BaseException as problem:
            outcome = failed(run, problem)
        if self._timer is not None:
            self._timer.cancel()
        self._pipeline.end(run, outcome)
        return True


class Pipeline(Loop):
    """The way of all runs of a worker. Its own thread writes how they ended."""

    name = "pipeline"
    during = "finish"
    longest_pause = 2.0

    def __init__(
        self,
        store: Store,
        registry: Registry,
        runs: ActiveRuns,
        *,
        leases: Leases,
        clock: Clock,
        alarm: Alarm,
        reporter: Reporter,
        logs: RunLogWriter,
        state: State,
        retry_spread: timedelta = timedelta(0),
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        """`state` is what the runs' contexts have of the worker's lifespans; `retry_spread` is how
        much longer retries may wait where many runs fail alike."""
        super().__init__(telemetry)
        self._failures = FailuresAlike(retry_spread)
        self._state = state
        self._store = store
        self._registry = registry
        self._runs = runs
        self._leases = leases
        self._clock = clock
        self._alarm = alarm
        self._reporter = reporter
        self._logs = logs
        self._ending = threading.Lock()
        self._ended: deque[EndedRun] = deque()
        self._batch: list[EndedRun] = []
        self._locked: list[EndedRun] = []
        """Ended runs whose jobs somebody else has locked, and when to look at them again."""
        self._look_at = 0.0
        self._written_at = self._monotonic()
        self._most = MOST_AT_ONCE
        self._unsure = False
        self._idle = False

    # -- started ---------------------------------------------------------------------------------

    def start_runs(self, jobs: Sequence[JobRecord], leased_at: float | None = None) -> list[Run]:
        """Claimed jobs become runs. From here on their leases are renewed."""
        task_of, leases, state = self._registry.get, self._leases, self._state
        runs = [Run(job, task_of(job.task), Context(job, leases, state), leased_at) for job in jobs]
        self._runs.add(runs)
        self._reporter.started(runs)
        return runs

    def end_unstarted(self, job: JobRecord, outcome: Outcome, leased_at: float) -> None:
        """A claimed job has an outcome without having run."""
        run = Run(job, self._registry.get(job.task), Context(job, self._leases), leased_at)
        self._runs.add([run])
        self.end(run, outcome)

    # -- arguments → timeout → perform → outcome: see `Attempt` -----------------------------------

    def end(self, run: Run, outcome: Outcome | None) -> None:
        """A run is over: by itself, or because it was stopped (then without an outcome, unless it
        timed out). Whichever comes first counts."""
        with self._ending:
            if run.ended:
                return
            run.ended = True
        run.interrupt = None
        if outcome is not None and outcome.status is ExecutionStatus.FAILED and not outcome.final:
            outcome.final = run.task.gives_up(run.job, outcome.error_code, outcome.raised)
        self._ended.append((run, outcome))
        if self._idle:
            self.wake()

    @property
    def age(self) -> float:
        """Seconds since an outcome was last written, while some wait for it."""
        return self._monotonic() - self._written_at if self._batch else 0.0

    @property
    def backlog(self) -> int:
        """Ended runs that are not written yet; claiming pauses when it grows."""
        return len(self._ended) + len(self._batch) + len(self._locked)

    # -- decide → finish → report ----------------------------------------------------------------

    def has_work(self) -> bool:
        return not self._stopping or self.backlog > 0

    def trouble(self) -> str:
        return f"cannot write {self.backlog} outcomes yet"

    def run_once(self) -> float:
        """Write one batch of ended runs. If that fails the batch stays for the next time."""
        self._idle = False
        while self._ended and len(self._batch) < max(1, self._most):
            self._batch.append(self._ended.popleft())
        if self._locked and self._monotonic() >= self._look_at:
            self._set_locked_aside(self._locked)
        if not self._batch:
            self._written_at = self._monotonic()
            self._reporter.lines.flush()
            self._idle = True  # what ended just before this line is seen by the next one
            return 0.0 if self._ended else IDLE_SECONDS
        begun = time.perf_counter()
        self._logs.flush(run.token for run, _ in self._batch)
        try:
            ends = self._decide_and_finish(self._batch)
        except StatementTimeout:
            self._unsure = True  # of several statements, the first may have been done
            size = len(self._batch)
            self._set_locked_aside(self._batch)
            if len(self._batch) == size:  # the lock is elsewhere: close in on it
                self._most = size // 2
                self._ended.extend(self._batch[self._most :])
                del self._batch[self._most :]
            raise
        except StoreError:
            self._unsure = True
            raise
        except Exception:
            logger.exception("writing %d outcomes failed, trying each", len(self._batch))
            self._unsure = True
            ends = self._finish_each(self._batch)
        self._telemetry.finished(len(ends), time.perf_counter() - begun)
        runs = [run for run, _ in self._batch]
        self._runs.lost.extend(end.job.lock_token for end in ends if end.kind is EndKind.LOST)
        self._unsure, self._batch, self._written_at = False, [], self._monotonic()
        self._most = MOST_AT_ONCE
        self._runs.remove(runs)
        self._logs.forget(run.token for run in runs)
        if self._runs.awaited:
            with suppress(StoreError):  # who waits also looks
                self._store.notify_ended(
                    self._runs.no_longer_awaited(e.job.id for e in ends if e.kind in _LAST)
                )
        self._report(ends)
        return 0.0

    def _decide_and_finish(self, batch: list[EndedRun]) -> list[RunEnd]:
        """Write what became of these runs; an end that was not this worker's to write is lost."""
        now = self._clock.now()
        is_real = self._clock.override() is None  # who moves the clock knows when a retry is due
        unfit = [run.job for run, o in batch if o is not None and o.unfit]
        refusals = self._store.refusals(unfit, now=self._clock.override()) if unfit else {}
        ends = [
            decide(
                run.job,
                o,
                now,
                _spread(),
                refusals.get(run.token) if o.unfit else None,
                failures=self._failures if is_real else None,
            )
            for run, o in batch
            if o is not None
        ]
        put_off = [end for end in ends if end.kind is EndKind.RELEASED]
        if put_off:
            ends = [end for end in ends if end.kind is not EndKind.RELEASED]
        if ends:
            try:
                held = self._store.finish(ends, now=self._clock.override())
            except InvalidInput:  # one outcome that cannot be stored must not cost the others
                held = self._finish_storable(ends)
            if self._unsure and len(held) < len(ends):
                held |= self._written_before(ends)
            ends = [e if e.job.lock_token in held else RunEnd(e.job, EndKind.LOST) for e in ends]
        releases: dict[str, list[Release]] = {}
        for job, _, outcome, decision in put_off:
            if outcome is not None and decision is not None:
                code = REFUSED if outcome.unfit else outcome.error_code or ""
                release = Release(job, None, decision.next_run_at, outcome.error_message)
                releases.setdefault(code, []).append(release)
        for code, some in releases.items():
            self._store.release(some, error_code=code, now=self._clock.override())
        stopped = [run for run, outcome in batch if outcome is None]
        released = [run.job for run in stopped if run.stop_reason is StopReason.SHUTDOWN]
        if released:
            self._store.release([Release(job) for job in released], now=self._clock.override())
        return ends + put_off + [RunEnd(run.job, _STOPPED_AS[run.stop_reason]) for run in stopped]

    def _report(self, ends: list[RunEnd]) -> None:
        """Tell claimer, metrics, logs and listeners what became of these runs."""
        self._alarm.expect(end.decision.next_run_at for end in ends if end.decision)
        lost = [end.job.lock_token for end in ends if end.kind is EndKind.LOST]
        if lost:
            # A lease may have been lost to a person who cancelled the job.
            cancel = Outcome(ExecutionStatus.CANCELLED, error_code="cancelled")
            try:
                cancelled = self._store.read.ended_as(
                    {token: cancel for token in lost if token is not None}
                )
            except StoreError:
                cancelled = set()
            ends = [
                end._replace(kind=EndKind.CANCELLED) if end.job.lock_token in cancelled else end
                for end in ends
            ]
        self._telemetry.ended(ends)
        self._reporter.ended(ends)

    # -- when a batch cannot be written as it is -------------------------------------------------

    def _set_locked_aside(self, batch: list[EndedRun]) -> None:
        """One row that somebody has locked must not keep the other ends from being written."""
        free = self._store.unlocked(run.job for run, _ in batch)
        others = [] if batch is self._locked else self._locked
        self._batch = ([] if batch is self._batch else self._batch) + [
            ended for ended in batch if ended[0].job.id in free
        ]
        self._locked = others + [ended for ended in batch if ended[0].job.id not in free]
        self._look_at = self._monotonic() + LOCKED_SECONDS

    def _finish_each(self, batch: list[EndedRun]) -> list[RunEnd]:
        """One end that cannot be written is left to the reaper, the others of its batch are not."""
        ends: list[RunEnd] = []
        for run, outcome in batch:
            try:
                ends += self._decide_and_finish([(run, outcome)])
            except StoreError:
                raise
            except Exception:
                logger.exception("the outcome of job %s cannot be written", run.job.id)
                ends.append(RunEnd(run.job, EndKind.LOST))
        return ends

    def _finish_storable(self, ends: list[RunEnd]) -> set[UUID]:
        """Write each end by itself, without what the database cannot hold."""
        held: set[UUID] = set()
        for end in ends:
            try:
                held |= self._store.finish([end], now=self._clock.override())
            except InvalidInput as error:
                outcome = end.outcome or Outcome()
                bare = Outcome(
                    outcome.status,
                    duration_ms=outcome.duration_ms,
                    queued_ms=outcome.queued_ms,
                    error_code=outcome.error_code,
                    error_message=f"What the run left cannot be stored: {error}",
                )
                bare_end = end._replace(outcome=bare)
                held |= self._store.finish([bare_end], now=self._clock.override())
        return held

    def _written_before(self, ends: list[RunEnd]) -> set[UUID]:
        """The last try broke off, but it may have been written: then leases are gone by our own
        hand. These are the tokens of such runs."""
        return self._store.read.ended_as({
            end.job.lock_token: end.outcome
            for end in ends
            if end.job.lock_token is not None and end.outcome is not None
        })  # fmt: skip
