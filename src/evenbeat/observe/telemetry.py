"""What the engine measures: counters and histograms that are filled batch by batch, never job by
job, and the status of each worker.

Prometheus' own instruments take a lock and a walk for every observation, 1.8 µs for each job, and
importing them takes longer than importing Evenbeat. A worker fills plain numbers instead; they
become Prometheus' families only when somebody looks (`observe/metrics.py`).
"""

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.decision import EndKind, RunEnd

SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 1800.0, 7200.0,
)  # fmt: skip
"""From a no-op to a night's work."""

STATEMENT_SECONDS = (0.0005, *SECONDS[:10], 5.0, 30.0)
PRIORITIES = tuple(float(bound) for bound in range(0, 101, 10))
PLACING_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0)
SIZES = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)

_BOUNDS = {
    "evenbeat_execution_duration_seconds": SECONDS,
    "evenbeat_pickup_delay_seconds": SECONDS,
    "evenbeat_claim_batch_size": SIZES,
    "evenbeat_finish_batch_size": SIZES,
    "scheduler_placement_duration_seconds": PLACING_SECONDS,
}
_GIVEN_UP = {
    EndKind.LOST: "evenbeat_leases_lost_total",
    EndKind.RELEASED: "evenbeat_executions_released_total",
}

Labels = tuple[str, ...]


class RunnerStatus(NamedTuple):
    """A runner at this moment. `lag` is how late its event loop is, None without a loop; `held` are
    the slots of runs that are over, whose functions have not returned."""

    place: str
    slots: int
    running: int
    waiting: int
    lag: float | None = None
    held: int = 0


class WorkerStatus(NamedTuple):
    """A worker at this moment. The ages are seconds since the last successful claim and heartbeat;
    `trouble` says why it does not count as ready, if it does not."""

    runners: list[RunnerStatus]
    leases: int
    backlog: int
    claim_age: float
    beat_age: float
    trouble: str | None = None


class Histogram:
    """Observations by the smallest bound that holds them; the last count is for those beyond."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, values: Iterable[float], times: int = 1) -> None:
        bounds, counts, total = self.bounds, self.counts, 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += times
            total += value
        self.total += total * times

    def copy(self) -> "Histogram":
        """The same, for a reader to keep."""
        other = Histogram(self.bounds)
        other.counts, other.total = self.counts[:], self.total
        return other

    def cumulative(self) -> list[tuple[float, int]]:
        """For each bound, and for infinity, how many were at most that."""
        return list(zip((*self.bounds, inf), accumulate(self.counts), strict=True))


class Telemetry:
    """The figures of an application, one for all workers of the process. Any thread may call
    anything at any time, at little cost; a reader gets a consistent copy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: defaultdict[str, defaultdict[Labels, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self._histograms: defaultdict[str, dict[Labels, Histogram]] = defaultdict(dict)
        self._workers: dict[UUID, Callable[[], WorkerStatus]] = {}

    # -- called by the engine ----------------------------------------------------------------------

    def watch(self, worker_id: UUID, status: Callable[[], WorkerStatus]) -> None:
        """A worker of this process has started; its status may be asked for at any time."""
        with self._lock:
            self._workers[worker_id] = status

    def unwatch(self, worker_id: UUID) -> None:
        with self._lock:
            self._workers.pop(worker_id, None)

    def claimed(self, jobs: int, seconds: float) -> None:
        """A claim came back with so many jobs."""
        self.observe("evenbeat_claim_batch_size", (jobs,))
        self.observe("evenbeat_claim_duration_seconds", (seconds,))

    def finished(self, runs: int, seconds: float) -> None:
        """The ends of so many runs were written in one statement."""
        self.observe("evenbeat_finish_batch_size", (runs,))
        self.observe("evenbeat_finish_duration_seconds", (seconds,))

    def ended(self, ends: Sequence[RunEnd]) -> None:
        """These runs are over: grouped first, so that the lock and the names cost little each."""
        counts: defaultdict[tuple[str, Labels], int] = defaultdict(int)
        durations: defaultdict[Labels, list[float]] = defaultdict(list)
        waits: defaultdict[Labels, list[float]] = defaultdict(list)
        for end in ends:
            task, outcome, kind = end.job.task, end.outcome, end.kind
            if outcome is None or kind is EndKind.RELEASED:
                given_up = _GIVEN_UP.get(kind)
                cancelled = "evenbeat_executions_total", (task, kind)
                counts[(given_up, (task,)) if given_up else cancelled] += 1
                continue
            durations[task, outcome.status].append(outcome.duration_ms / 1000)
            if end.job.current_retry_count:
                counts["evenbeat_retry_ends_total", (task, outcome.status)] += 1
            if (wait := end.wait_seconds) is not None:
                waits[(task,)].append(wait)
            if end.decision is not None and end.decision.skipped:
                counts["evenbeat_plans_skipped_total", (task,)] += end.decision.skipped
            if outcome.error_code is not None:
                if kind is EndKind.RETRYING:
                    counts["evenbeat_retries_total", (task,)] += 1
                if outcome.error_code == "timeout":
                    counts["evenbeat_timeouts_total", (task,)] += 1
        for (name, labels), number in counts.items():
            self.count(name, number, *labels)
        for labels, seconds in durations.items():
            self.count("evenbeat_executions_total", len(seconds), *labels)
            self.observe("evenbeat_execution_duration_seconds", seconds, *labels)
        for labels, seconds in waits.items():
            self.observe("evenbeat_pickup_delay_seconds", seconds, *labels)

    def renewed(self, leases: int, seconds: float) -> None:
        """So many leases were renewed in one statement."""
        self.count("evenbeat_leases_renewed_total", leases)
        self.observe("evenbeat_renew_duration_seconds", (seconds,))

    def reaped(self, leases: int) -> None:
        self.count("evenbeat_leases_reaped_total", leases)

    def skipped(self, task: str, plans: int) -> None:
        """A catch-up policy gave up plans before they started."""
        self.count("evenbeat_plans_skipped_total", plans, task)

    def chore_done(self, name: str, seconds: float) -> None:
        self.observe("evenbeat_chore_duration_seconds", (seconds,), name)

    def database_failed(self, during: str) -> None:
        """The database did not answer during this step of the engine."""
        self.count("evenbeat_database_errors_total", 1, during)

    def placed(self, _kind: str, seconds: float) -> None:
        self.observe("scheduler_placement_duration_seconds", (seconds,))

    def count(self, name: str, amount: float, *labels: str) -> None:
        with self._lock:
            self._counters[name][labels] += amount

    def observe(self, name: str, values: Iterable[float], *labels: str) -> None:
        with self._lock:
            histogram = self._histograms[name].get(labels)
            if histogram is None:
                histogram = Histogram(_BOUNDS.get(name, STATEMENT_SECONDS))
                self._histograms[name][labels] = histogram
            histogram.add(values)

    # -- read by metrics and readiness -------------------------------------------------------------

    def counters(self) -> dict[str, dict[Labels, float]]:
        with self._lock:
            return {name: dict(values) for name, values in self._counters.items()}

    def histograms(self) -> dict[str, dict[Labels, Histogram]]:
        with self._lock:
            return {
                name: {labels: histogram.copy() for labels, histogram in by_labels.items()}
                for name, by_labels in self._histograms.items()
            }

    def status(self) -> list[WorkerStatus]:
        """The workers of this process as they are now."""
        with self._lock:
            workers = list(self._workers.values())
        return [status() for status in workers]


NO_TELEMETRY = Telemetry()
"""For an engine whose figures nobody reads."""
