"""From figures to Prometheus' families: one collector for each place that they come from."""

import logging
import platform
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from evenbeat.observe.counters import EngineCounters, Labels
from evenbeat.observe.database_snapshot import DatabaseSnapshot
from evenbeat.observe.metric_definitions import ENGINE_METRICS, METRICS, MetricDefinition
from evenbeat.observe.single_flight import SingleFlight
from evenbeat.observe.telemetry import WorkerStatus

logger = logging.getLogger(__name__)

STALE_SECONDS = 300.0
"""Figures of the database that are older than this are not shown any more."""

_OUTCOMES = ("completed", "failed", "cancelled")
_STEPS = ("claim", "finish", "renew", "maintenance")

PoolFigures = Callable[[], Mapping[str, Mapping[str, float]]]


def family(name: str, values: Mapping[Any, Any] | float) -> Metric:
    """A family of the table with these values: by label values, or one without labels."""
    definition = METRICS[name]
    by_labels: Mapping[Labels, Any] = values if isinstance(values, Mapping) else {(): values}
    if definition.kind == "histogram":
        histograms = HistogramMetricFamily(name, definition.help, labels=definition.labels)
        for labels, histogram in by_labels.items():
            buckets = [
                ("+Inf" if bound == float("inf") else str(bound), count)
                for bound, count in histogram.cumulative()
            ]
            histograms.add_metric([str(label) for label in labels], buckets, histogram.total)
        return histograms
    kind = CounterMetricFamily if definition.kind == "counter" else GaugeMetricFamily
    metrics = kind(name, definition.help, labels=definition.labels)
    for labels, value in by_labels.items():
        metrics.add_metric([str(label) for label in labels], float(value))
    return metrics


class Guarded(Collector):
    """A collector whose failure costs its own families only."""

    def collect(self) -> Iterable[Metric]:
        """The families, as far as they can be read."""
        try:
            yield from self.families()
        except Exception:
            logger.exception("Some metrics could not be collected")

    @abstractmethod
    def families(self) -> Iterator[Metric]:
        """What a collector makes."""


class EngineCollector(Guarded):
    """What the workers of this process have done since it started. Counters start at 0 for every
    known task, so that the first failure is an increase."""

    def __init__(self, counters: EngineCounters, tasks: Callable[[], Iterable[str]]) -> None:
        self._counters = counters
        self._tasks = tasks

    def families(self) -> Iterator[Metric]:
        """One for each entry of the table."""
        counters, histograms = self._counters.counters(), self._counters.histograms()
        tasks = list(self._tasks())
        for name in ENGINE_METRICS:
            if METRICS[name].kind == "histogram":
                yield family(name, histograms.get(name, {}))
            else:
                yield family(name, _zeros(METRICS[name], tasks) | counters.get(name, {}))


def _zeros(definition: MetricDefinition, tasks: list[str]) -> dict[Labels, float]:
    match definition.labels:
        case ():
            return {(): 0.0}
        case ("task",):
            return {(task,): 0.0 for task in tasks}
        case ("during",):
            return {(step,): 0.0 for step in _STEPS}
        case _:
            return {(task, outcome): 0.0 for task in tasks for outcome in _OUTCOMES}


class ProcessCollector(Guarded):
    """This process right now: its workers, its connections."""

    def __init__(self, counters: EngineCounters, pools: PoolFigures, version: str) -> None:
        self._counters = counters
        self._pools = pools
        self._version = version

    def families(self) -> Iterator[Metric]:
        """Read everything once."""
        yield family("evenbeat_info", {(self._version, platform.python_version()): 1})
        workers = self._counters.status()
        yield family("evenbeat_process_workers", len(workers))
        if workers:
            yield from _of_workers(workers)
        yield from _of_pools(self._pools())


def _of_workers(workers: list[WorkerStatus]) -> Iterator[Metric]:
    runners: dict[str, list[int]] = {}
    for status in workers:
        for place, slots, running, waiting, _ in status.runners:
            figures = (running, waiting, slots, max(0, slots - running))
            sums = runners.setdefault(place, [0] * len(figures))
            runners[place] = [a + b for a, b in zip(sums, figures, strict=True)]
    names = ("evenbeat_running", "evenbeat_waiting", "evenbeat_slots", "evenbeat_slots_free")
    for index, name in enumerate(names):
        yield family(name, {(place,): sums[index] for place, sums in runners.items()})
    yield family("evenbeat_leases", sum(status.leases for status in workers))
    yield family("evenbeat_finish_backlog", sum(status.backlog for status in workers))
    yield family("evenbeat_claim_age_seconds", max(status.claim_age for status in workers))
    yield family("evenbeat_beat_age_seconds", max(status.beat_age for status in workers))
    lags = [runner.lag for status in workers for runner in status.runners if runner.lag is not None]
    if lags:
        yield family("evenbeat_event_loop_lag_seconds", max(lags))


def _of_pools(pools: Mapping[str, Mapping[str, float]]) -> Iterator[Metric]:
    def each(name: str, figure: str) -> Metric:
        return family(name, {(pool,): figures[figure] for pool, figures in pools.items()})

    yield each("evenbeat_pool_connections", "open")
    yield each("evenbeat_pool_connections_max", "most")
    yield each("evenbeat_pool_connections_idle", "idle")
    yield each("evenbeat_pool_waiting", "waiting")
    yield each("evenbeat_pool_wait_seconds_total", "waited_seconds")
    yield each("evenbeat_pool_errors_total", "failed")


class DatabaseCollector(Guarded):
    """The whole database. While it cannot be reached, `evenbeat_database_up 0` is all there is:
    old figures would look like news."""

    def __init__(self, ping: SingleFlight[Any], snapshot: SingleFlight[DatabaseSnapshot]) -> None:
        self._ping = ping
        self._snapshot = snapshot

    def families(self) -> Iterator[Metric]:
        """Whether it is there, and if so what is in it."""
        up = self._ping.get().error is None
        yield family("evenbeat_database_up", int(up))
        if up:
            snapshot, age, _ = self._snapshot.get()
            if snapshot is not None and age < STALE_SECONDS:
                yield family("evenbeat_scrape_age_seconds", age)
                yield from _of_snapshot(snapshot)


def _of_snapshot(snapshot: DatabaseSnapshot) -> Iterator[Metric]:
    yield family(
        "evenbeat_figures_age_seconds", {(n,): age for n, age in snapshot.figures_age.items()}
    )
    yield family("evenbeat_jobs", {(state,): count for state, count in snapshot.jobs.items()})
    if snapshot.executions is not None:
        totals = snapshot.executions
        total, done, failed = (int(totals.get(n) or 0) for n in ("total", "completed", "failed"))
        cancelled = max(0, total - done - failed)
        counts = {("completed",): done, ("failed",): failed, ("cancelled",): cancelled}
        yield family("evenbeat_all_executions_total", counts)
        if (rate := totals.get("success_rate")) is not None:
            yield family("evenbeat_success_ratio", rate)
        if (average := totals.get("average_duration_ms")) is not None:
            yield family("evenbeat_average_duration_seconds", average / 1000)
    queues = snapshot.queues.items()
    yield family("evenbeat_queue_due", {(name,): q.due for name, q in queues})
    yield family("evenbeat_queue_running", {(name,): q.running for name, q in queues})
    ages = {(name,): q.oldest_due_age for name, q in queues}
    yield family("evenbeat_queue_oldest_due_age_seconds", ages)
    yield family("evenbeat_queue_paused", {(name,): q.paused for name, q in queues})
    yield family("evenbeat_workers", {(status,): n for status, n in snapshot.workers.items()})
    yield family("evenbeat_stale_locks_cleared_total", snapshot.stale_locks_cleared)
    tables = snapshot.tables
    yield family("evenbeat_table_dead_tuples", {(t.name,): t.dead_tuples for t in tables})
    yield family("evenbeat_table_live_tuples", {(t.name,): t.live_tuples for t in tables})
    yield family("evenbeat_table_bytes", {(t.name,): t.total_bytes for t in tables})
    yield family("evenbeat_oldest_transaction_age_seconds", snapshot.oldest_transaction)
