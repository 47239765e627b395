"""What this process has done, in figures: counters and histograms that are filled batch by batch.

Prometheus' own instruments take a lock and a walk for every observation, 1.8 µs for each job, and
importing them takes longer than importing Evenbeat. A worker fills plain numbers instead; they
become Prometheus' families only when somebody looks (`observe/collectors.py`).
"""

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from evenbeat.observe.telemetry import Ended, Ending, WorkerStatus

SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 1800.0, 7200.0,
)  # fmt: skip
"""From a no-op to a night's work."""

STATEMENT_SECONDS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    5.0,
    30.0,
)
PLACING_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0)
SIZES = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)

_BOUNDS = {
    "evenbeat_execution_duration_seconds": SECONDS,
    "evenbeat_pickup_delay_seconds": SECONDS,
    "evenbeat_claim_batch_size": SIZES,
    "evenbeat_finish_batch_size": SIZES,
    "scheduler_placement_duration_seconds": PLACING_SECONDS,
}

Labels = tuple[str, ...]


class Histogram:
    """Observations by the smallest bound that holds them; the last count is for those beyond."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, values: Iterable[float]) -> None:
        """Take some observations."""
        bounds, counts, total = self.bounds, self.counts, 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            total += value
        self.total += total

    def copy(self) -> "Histogram":
        """The same, for a reader to keep."""
        other = Histogram(self.bounds)
        other.counts, other.total = self.counts[:], self.total
        return other

    def cumulative(self) -> list[tuple[float, int]]:
        """For each bound, and for infinity, how many were at most that."""
        seen, steps = 0, []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            seen += count
            steps.append((bound, seen))
        return steps


class EngineCounters:
    """The telemetry of an application, one for all workers of the process. Any thread may call
    anything at any time; a reader gets a consistent copy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: defaultdict[str, defaultdict[Labels, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self._histograms: defaultdict[str, dict[Labels, Histogram]] = defaultdict(dict)
        self._workers: dict[UUID, Callable[[], WorkerStatus]] = {}

    # -- told by the engine ----------------------------------------------------------------------

    def watch(self, worker_id: UUID, status: Callable[[], WorkerStatus]) -> None:
        """A worker of this process is at work."""
        with self._lock:
            self._workers[worker_id] = status

    def unwatch(self, worker_id: UUID) -> None:
        """It is gone."""
        with self._lock:
            self._workers.pop(worker_id, None)

    def claimed(self, jobs: int, seconds: float) -> None:
        """A claim came back with so many jobs."""
        with self._lock:
            self._histogram("evenbeat_claim_batch_size").add((jobs,))
            self._histogram("evenbeat_claim_duration_seconds").add((seconds,))

    def finished(self, runs: int, seconds: float) -> None:
        """The ends of so many runs were written in one go."""
        with self._lock:
            self._histogram("evenbeat_finish_batch_size").add((runs,))
            self._histogram("evenbeat_finish_duration_seconds").add((seconds,))

    def ended(self, endings: Sequence[Ending]) -> None:
        """These runs are over: grouped first, so that the lock and the names cost little each."""
        durations: defaultdict[Labels, list[float]] = defaultdict(list)
        waits: defaultdict[Labels, list[float]] = defaultdict(list)
        others: list[Ending] = []
        for ending in endings:
            task, ended, duration, wait, retried, timed_out, skipped = ending
            if duration is not None:
                durations[task, ended].append(duration)
            if wait is not None:
                waits[(task,)].append(wait)
            if duration is None or retried or timed_out or skipped:
                others.append(ending)
        with self._lock:
            for labels, seconds in durations.items():
                self._counters["evenbeat_executions_total"][labels] += len(seconds)
                self._histogram("evenbeat_execution_duration_seconds", *labels).add(seconds)
            for labels, seconds in waits.items():
                self._histogram("evenbeat_pickup_delay_seconds", *labels).add(seconds)
            for ending in others:
                self._count_unusual(ending)

    def renewed(self, leases: int, seconds: float) -> None:
        """So many leases were renewed in one go."""
        with self._lock:
            self._counters["evenbeat_leases_renewed_total"][()] += leases
            self._histogram("evenbeat_renew_duration_seconds").add((seconds,))

    def reaped(self, leases: int) -> None:
        """Expired leases were cleared."""
        self.count("evenbeat_leases_reaped_total", leases)

    def skipped(self, task: str, plans: int) -> None:
        """A catch-up policy gave plans up before they started."""
        self.count("evenbeat_plans_skipped_total", plans, task)

    def chore_done(self, name: str, seconds: float) -> None:
        """A chore was this worker's to do, and is done."""
        with self._lock:
            self._histogram("evenbeat_chore_duration_seconds", name).add((seconds,))

    def database_failed(self, during: str) -> None:
        """The database did not answer a step of the engine."""
        self.count("evenbeat_database_errors_total", 1, during)

    def placed(self, _kind: str, seconds: float) -> None:
        """A place was found for a recurring job."""
        with self._lock:
            self._histogram("scheduler_placement_duration_seconds").add((seconds,))

    def count(self, name: str, amount: float, *labels: str) -> None:
        """Add to any counter."""
        with self._lock:
            self._counters[name][labels] += amount

    # -- asked by whoever shows them -------------------------------------------------------------

    def counters(self) -> dict[str, dict[Labels, float]]:
        """Every counter by name and label values."""
        with self._lock:
            return {name: dict(values) for name, values in self._counters.items()}

    def histograms(self) -> dict[str, dict[Labels, Histogram]]:
        """Every histogram by name and label values."""
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

    # --------------------------------------------------------------------------------------------

    def _count_unusual(self, ending: Ending) -> None:
        task = (ending.task,)
        if ending.ended == Ended.CANCELLED:
            self._counters["evenbeat_executions_total"][ending.task, ending.ended] += 1
        elif ending.ended == Ended.LOST:
            self._counters["evenbeat_leases_lost_total"][task] += 1
        elif ending.ended == Ended.RELEASED:
            self._counters["evenbeat_executions_released_total"][task] += 1
        if ending.retried:
            self._counters["evenbeat_retries_total"][task] += 1
        if ending.timed_out:
            self._counters["evenbeat_timeouts_total"][task] += 1
        if ending.skipped:
            self._counters["evenbeat_plans_skipped_total"][task] += ending.skipped

    def _histogram(self, name: str, *labels: str) -> Histogram:
        by_labels = self._histograms[name]
        found = by_labels.get(labels)
        if found is None:
            found = by_labels[labels] = Histogram(_BOUNDS.get(name, STATEMENT_SECONDS))
        return found
