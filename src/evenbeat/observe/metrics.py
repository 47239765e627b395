"""The metrics of one application, for Prometheus to scrape: the table of all of them, and where
their values come from. Only what is in the table is exposed, and all of it is in
`docs/monitoring.md`; tests check both.

Every application has a registry of its own, so that two in one process do not collide. Each
process exposes what it did itself; what concerns the whole database is the same from all of them.
"""

import logging
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from evenbeat.domain.alerts import RULES
from evenbeat.domain.states import JobStatus
from evenbeat.observe.alerts import task_alerts
from evenbeat.observe.single_flight import SingleFlight
from evenbeat.observe.telemetry import PRIORITIES, Histogram, Telemetry
from evenbeat.store.database import Database
from evenbeat.store.health import TableQueries
from evenbeat.store.placement import PlacementTotals
from evenbeat.store.reads import QueueDepth
from evenbeat.store.replica import old_reads_accepted
from evenbeat.store.store import Store

if TYPE_CHECKING:
    from evenbeat.placement.distribution import Distribution

logger = logging.getLogger(__name__)

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"

STALE_SECONDS = 300.0
"""Figures of the database that are older than this are not shown any more. A distribution that this
process had to compute by reading every recurring job is shown as long; workers do the same every
five minutes and store the result for all."""

MOST_QUEUES = 100
"""Queues with a time series each; a name made up for every customer must not flood the server
that scrapes."""

OTHER_QUEUES = "(others)"

Values = Any
"""A number, or numbers (of histograms: `Histogram`s) by their label values."""


class MetricDefinition(NamedTuple):
    """A metric. A counter only grows, a gauge is something at this moment, a histogram something
    observed often."""

    kind: str
    name: str
    labels: tuple[str, ...]
    help: str


counter = partial(MetricDefinition, "counter")
gauge = partial(MetricDefinition, "gauge")
histogram = partial(MetricDefinition, "histogram")


_ENGINE = (
    counter("evenbeat_executions_total", ("task", "outcome"),
          "Runs that ended: completed, failed (also those to be retried) or cancelled."),
    histogram("evenbeat_execution_duration_seconds", ("task", "outcome"), "How long handlers ran."),
    histogram("evenbeat_pickup_delay_seconds", ("task",),
          "From due to start, as the execution's wait_ms; recorded when the run has ended."),
    counter("evenbeat_retries_total", ("task",), "Failed runs that will be tried again."),
    counter("evenbeat_retry_ends_total", ("task", "outcome"),
          "Those of the ended runs that were not the first attempt."),
    counter("evenbeat_timeouts_total", ("task",), "Runs that took longer than their timeout."),
    counter("evenbeat_leases_lost_total", ("task",),
          "Runs whose lease was lost; their result was thrown away."),
    counter("evenbeat_executions_released_total", ("task",),
          "Runs handed back: unstarted, refused for their payload, or by a stopping worker."),
    counter("evenbeat_plans_skipped_total", ("task",),
          "Missed plans that a catch-up policy gave up."),
    counter("evenbeat_leases_renewed_total", (), "Leases renewed."),
    counter("evenbeat_leases_reaped_total", (), "Expired leases that this process cleared."),
    counter("evenbeat_database_errors_total", ("during",),
          "Steps that the database did not answer: claim, finish, renew, maintenance."),
    histogram("evenbeat_claim_batch_size", (), "Jobs a claim came back with."),
    histogram("evenbeat_claim_duration_seconds", (), "How long claims took."),
    histogram("evenbeat_finish_batch_size", (), "Ends of runs written in one go."),
    histogram("evenbeat_finish_duration_seconds", (), "How long writing them took."),
    histogram("evenbeat_renew_duration_seconds", (), "How long renewing all leases took."),
    histogram("evenbeat_chore_duration_seconds", ("chore",),
          "How long maintenance chores took that were this process's to do."),
    histogram("scheduler_placement_duration_seconds", (), "How long placing one took."),
)  # fmt: skip

_PROCESS = (
    gauge("evenbeat_info", ("version", "python"), "Always 1; the labels say what runs."),
    gauge("evenbeat_process_workers", (), "Workers in this process."),
    gauge("evenbeat_running", ("runner",), "Handlers at work: loop, thread or process."),
    gauge("evenbeat_waiting", ("runner",), "Runs claimed that wait for a slot."),
    gauge("evenbeat_slots", ("runner",), "How many handlers may run at once."),
    gauge("evenbeat_slots_free", ("runner",), "Slots without a run."),
    gauge("evenbeat_held", ("runner",),
          "Slots of runs that are over (cancelled, timed out, lost), whose functions go on."),
    gauge("evenbeat_leases", (), "Leases that this process holds."),
    gauge("evenbeat_finish_backlog", (), "Ended runs whose end is not written yet."),
    gauge("evenbeat_claim_age_seconds", (), "Since the last look for work that went well."),
    gauge("evenbeat_beat_age_seconds", (),
          "Since the last sign of life that reached the database."),
    gauge("evenbeat_event_loop_lag_seconds", (),
          "How late the event loop of async handlers is; a handler that blocks it shows here."),
    gauge("evenbeat_pool_connections", ("pool",), "Database connections open."),
    gauge("evenbeat_pool_connections_max", ("pool",), "How many there may be."),
    gauge("evenbeat_pool_connections_idle", ("pool",), "How many of them nobody uses."),
    gauge("evenbeat_pool_waiting", ("pool",), "Callers that wait for a connection."),
    counter("evenbeat_pool_wait_seconds_total", ("pool",),
          "Time that callers have waited for a connection."),
    counter("evenbeat_pool_errors_total", ("pool",), "Callers that got no connection."),
    gauge("evenbeat_database_outage_seconds", (),
          "How long the database has not served this process: away, silent, or refusing writes."),
    gauge("evenbeat_replica_lag_seconds", (),
          "How far the replica at EVENBEAT_READ_URL is behind; absent while it is not read."),
)  # fmt: skip

_DATABASE = (
    gauge("evenbeat_database_up", (), "1 if the database answered this process lately, else 0."),
    gauge("evenbeat_scrape_age_seconds", (),
          "Age of the figures about the whole database in this answer."),
    gauge("evenbeat_figures_age_seconds", ("figure",),
          "Since a worker last counted jobs, executions, or the distribution."),
    gauge("evenbeat_jobs", ("state",), "Jobs in each state."),
    counter("evenbeat_all_executions_total", ("outcome",),
          "Runs that ended in any process, as of the last count: completed, failed, cancelled."),
    gauge("evenbeat_success_ratio", (), "Completed out of all completed and failed runs so far."),
    gauge("evenbeat_average_duration_seconds", (), "Mean duration of all completed runs so far."),
    gauge("evenbeat_queue_due", ("queue",), "Jobs that are due and wait."),
    histogram("evenbeat_due_priority", (), "Jobs that are due and wait now, by priority."),
    gauge("evenbeat_queue_running", ("queue",), "Jobs that run."),
    gauge("evenbeat_queue_oldest_due_age_seconds", ("queue",),
          "How long the oldest of them has been due; 0 if none waits."),
    gauge("evenbeat_queue_paused", ("queue",), "1 if the queue is paused."),
    gauge("evenbeat_long_runs", ("task",),
          f"Runs under way for over {RULES['running_long'].limit}, and twice as long as usual."),
    gauge("evenbeat_missed_starts", ("task",),
          "Runs of the last 24 hours that were too late for their execution window or their plan."),
    gauge("evenbeat_unreliable_jobs", ("task",),
          f"Recurring jobs: under {RULES['success_rate'].limit} of the latest runs succeeded."),
    gauge("evenbeat_slower_jobs", ("task",),
          f"Recurring jobs: the latest runs took {RULES['slower'].limit} times as long as before."),
    gauge("evenbeat_overdue_jobs", ("task",),
          "Jobs that have missed their must_finish_by or must_succeed_every."),
    gauge("evenbeat_late_jobs", ("task",), "Jobs that have missed their must_start_within."),
    gauge("evenbeat_workers", ("status",),
          "Workers in the registry: active, draining, or silent without a recent sign of life."),
    counter("evenbeat_stale_locks_cleared_total", (),
          "Expired leases that any process has cleared."),
    gauge("evenbeat_table_dead_tuples", ("table",), "Row versions that wait for vacuum."),
    gauge("evenbeat_table_live_tuples", ("table",), "Rows, as estimated by the server."),
    gauge("evenbeat_table_bytes", ("table",), "Size on disk, indexes included."),
    gauge("evenbeat_oldest_transaction_age_seconds", (),
          "The oldest transaction open in the database; a long one keeps vacuum from its work."),
)  # fmt: skip

_PLACEMENT = (
    gauge("scheduler_distribution_score", (),
          "The part of the needed workers that would suffice; 1 is as even as the jobs can be."),
    gauge("scheduler_workers_needed", (), "Runs expected at once at most in the coming week."),
    gauge("scheduler_workers_sufficient", (),
          "How many no schedule of these jobs could do without."),
    gauge("scheduler_slot_job_count", ("hour",), "Planned runs in each hour of the day, UTC."),
    gauge("scheduler_peak_hour_job_count", (), "Planned runs in the fullest hour."),
    counter("scheduler_placements_total", ("type",),
          "Jobs placed: by this process new or reschedule, by any of them rebalance."),
    counter("scheduler_rebalance_total", (), "Rebalances applied by any process."),
    gauge("scheduler_rebalance_jobs_moved", (), "Jobs that the last rebalance moved."),
    gauge("scheduler_rebalance_jobs_skipped", (),
          "Jobs that the last rebalance left where they were, for a reason."),
)  # fmt: skip

METRICS = {metric.name: metric for metric in (*_ENGINE, *_PROCESS, *_DATABASE, *_PLACEMENT)}

_FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_POOL_FIGURES = {
    "connections": "open",
    "connections_max": "most",
    "connections_idle": "idle",
    "waiting": "waiting",
    "wait_seconds_total": "waited_seconds",
    "errors_total": "failed",
}
_TASK_ALERTS = {
    "running_long": "evenbeat_long_runs",
    "missed_window": "evenbeat_missed_starts",
    "success_rate": "evenbeat_unreliable_jobs",
    "slower": "evenbeat_slower_jobs",
    "overdue": "evenbeat_overdue_jobs",
    "late_start": "evenbeat_late_jobs",
}
# Known before the first of them occurs.
_LABEL_VALUES = {
    "outcome": ("completed", "failed", "cancelled"),
    "during": ("claim", "finish", "renew", "maintenance"),
}


class BalancerFigures(Protocol):
    """What a balancer reports; both figures come from the database."""

    def distribution(self) -> "Distribution": ...
    def counters(self) -> PlacementTotals: ...


class Metrics(Collector):
    """Collects for each scrape. `store` and `now` are called each time, since an application may
    switch to another database."""

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        store: Callable[[], Store],
        tasks: Callable[[], Iterable[str]],
        balancer: Callable[[], BalancerFigures],
        now: Callable[[], datetime | None] = lambda: None,
        database: Callable[[], Database | None] = lambda: None,
        silent_seconds: float = 60.0,
        version: str = "",
    ) -> None:
        self._telemetry, self._tasks, self._database = telemetry, tasks, database
        self._version = version
        self.ping: SingleFlight[Any] = SingleFlight(lambda: store().clock(now()), fresh_seconds=1.0)
        self._snapshot = SingleFlight(lambda: database_figures(store(), now(), silent_seconds))
        # Read for each scrape, so that no gauge is older than a rebalance.
        self._placements = SingleFlight(
            lambda: (balancer().counters(), noted_distribution(store(), now())), fresh_seconds=0.0
        )
        self._distribution = SingleFlight(
            lambda: balancer().distribution(), fresh_seconds=STALE_SECONDS
        )
        self.registry = CollectorRegistry()
        ProcessCollector(namespace="evenbeat", registry=self.registry)
        self.registry.register(self)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The text that a scraper with this Accept header understands, and its content type."""
        # The library's own choice fails on invalid version numbers, or repeats them in its answer.
        understood = OPEN_METRICS if OPEN_METRICS.partition(";")[0] in accept else ""
        encode, content_type = choose_encoder(understood)
        return encode(self.registry), content_type

    def collect(self) -> Iterator[Metric]:
        """Every family that can be read; one source that fails costs its own only."""
        for figures in (self.engine, self.process, self.database, self.placement):
            try:
                for name, values in figures():
                    yield family(name, values)
            except Exception:
                logger.exception("Some metrics could not be collected")

    def engine(self) -> Iterator[tuple[str, Values]]:
        """What the workers of this process have done since it started. Counters start at 0 for
        every known task, so that the first failure is an increase."""
        counters, histograms = self._telemetry.counters(), self._telemetry.histograms()
        known = _LABEL_VALUES | {"task": tuple(self._tasks())}
        for kind, name, labels, _ in _ENGINE:
            if kind == "histogram":
                yield name, histograms.get(name, {})
            else:
                zeros = dict.fromkeys(product(*(known[label] for label in labels)), 0.0)
                yield name, zeros | counters.get(name, {})

    def process(self) -> Iterator[tuple[str, Values]]:
        """This process right now: its workers, its connections."""
        yield "evenbeat_info", {(self._version, platform.python_version()): 1}
        workers, database = self._telemetry.status(), self._database()
        yield "evenbeat_process_workers", len(workers)
        if workers:
            runners = [runner for worker in workers for runner in worker.runners]
            for figure in ("running", "waiting", "slots", "slots_free", "held"):
                by_place: Counter[tuple[str]] = Counter()
                for runner in runners:
                    free = max(0, runner.slots - runner.running)
                    by_place[(runner.place,)] += getattr(runner, figure, free)
                yield f"evenbeat_{figure}", by_place
            yield "evenbeat_leases", sum(worker.leases for worker in workers)
            yield "evenbeat_finish_backlog", sum(worker.backlog for worker in workers)
            yield "evenbeat_claim_age_seconds", max(worker.claim_age for worker in workers)
            yield "evenbeat_beat_age_seconds", max(worker.beat_age for worker in workers)
            if lags := [runner.lag for runner in runners if runner.lag is not None]:
                yield "evenbeat_event_loop_lag_seconds", max(lags)
        pools = {} if database is None else database.pool_figures()
        for name, figure in _POOL_FIGURES.items():
            yield f"evenbeat_pool_{name}", {(pool,): one[figure] for pool, one in pools.items()}
        if database is not None:
            yield "evenbeat_database_outage_seconds", database.availability.seconds_away
            if database.replica is not None and database.replica.lag is not None:
                yield "evenbeat_replica_lag_seconds", database.replica.lag

    def database(self) -> Iterator[tuple[str, Values]]:
        """The whole database. While it cannot be reached, `evenbeat_database_up 0` is all there is:
        old figures would look like news."""
        up = self.ping.get().error is None
        yield "evenbeat_database_up", int(up)
        figures, age, _ = self._snapshot.get() if up else (None, 0.0, None)
        if figures is not None and age < STALE_SECONDS:
            yield "evenbeat_scrape_age_seconds", age
            yield from ((name, values) for name, values in figures.items() if name in METRICS)

    def placement(self) -> Iterator[tuple[str, Values]]:
        """How even the load is, how many jobs were placed, and what the last rebalance did, under
        the names of the seed."""
        found = self._placements.get() if self.ping.get().error is None else None
        if found is None or found.value is None or found.error is not None:
            return
        totals, stored = found.value
        by_kind = {(kind,): count for kind, count in totals.placements.items()}
        yield "scheduler_placements_total", by_kind
        yield "scheduler_rebalance_total", totals.rebalances
        yield "scheduler_rebalance_jobs_moved", totals.last_moved or 0
        yield "scheduler_rebalance_jobs_skipped", totals.last_skipped or 0
        if stored is None:
            computed, _, error = self._distribution.get()
            if computed is None or error is not None:
                return
            stored = computed._asdict()
        yield "scheduler_distribution_score", stored["score"]
        for name in ("workers_needed", "workers_sufficient"):
            if name in stored:  # figures of an older release may lack it
                yield f"scheduler_{name}", stored[name]
        hours = {(str(hour),): count for hour, count in enumerate(stored["jobs_per_hour"])}
        yield "scheduler_slot_job_count", hours
        yield "scheduler_peak_hour_job_count", stored["peak_count"]


def family(name: str, values: Values) -> Any:
    definition = METRICS[name]
    by_labels = values if isinstance(values, Mapping) else {(): values}
    metric: Any = _FAMILIES[definition.kind](name, definition.help, labels=definition.labels)
    for labels, value in by_labels.items():
        texts = [str(label) for label in labels]
        if definition.kind == "histogram":
            buckets = [("+Inf" if b == inf else str(b), n) for b, n in value.cumulative()]
            metric.add_metric(texts, buckets, value.total)
        else:
            metric.add_metric(texts, float(value))
    return metric


def noted_distribution(store: Store, now: datetime | None) -> dict[str, Any] | None:
    """The distribution that a worker noted last, unless none has for two of its rhythms."""
    figure = store.upkeep.figures().get("distribution")
    oldest = store.clock(now) - timedelta(seconds=2 * STALE_SECONDS)
    return None if figure is None or figure.updated_at < oldest else figure.value


def database_figures(
    store: Store, now: datetime | None, silent_seconds: float
) -> dict[str, Values]:
    """The values of the metrics about the whole database, the same from every process. What would
    take long (executions, many jobs) is counted by a worker's chore for everybody and read here
    with its age, by the database's clock."""
    moment, figures, tables = store.clock(now), store.upkeep.figures(), TableQueries(store.database)
    stored = {name: figure.value for name, figure in figures.items()}
    with old_reads_accepted():
        counts, (depths, due) = store.read.counts_by_status(), store.read.due(now=now)
        broken = task_alerts(store.database.rows, now)
    workers = dict.fromkeys(("active", "draining", "silent"), 0)
    for worker in store.upkeep.workers():
        is_silent = (moment - worker.heartbeat_at).total_seconds() > silent_seconds
        status = "silent" if is_silent else worker.status
        workers[status] = workers.get(status, 0) + 1
    queues, sizes = queue_figures(depths, moment), tables.figures()
    priorities = Histogram(PRIORITIES)
    for priority, number in due.items():
        priorities.add([priority], number)
    values: dict[str, Values] = {
        "evenbeat_figures_age_seconds": {
            (name,): max(0.0, (moment - figures[name].updated_at).total_seconds())
            for name in ("jobs", "executions", "distribution")
            if name in figures
        },
        "evenbeat_jobs": {(state,): counts.get(state, 0) for state in JobStatus},
        "evenbeat_due_priority": {(): priorities},
        "evenbeat_workers": {(status,): number for status, number in workers.items()},
        "evenbeat_stale_locks_cleared_total": stored.get("stale_locks_cleared", 0),
        "evenbeat_table_dead_tuples": {(t.name,): t.dead_rows for t in sizes},
        "evenbeat_table_live_tuples": {(t.name,): t.live_rows for t in sizes},
        "evenbeat_table_bytes": {(t.name,): t.bytes for t in sizes},
        "evenbeat_oldest_transaction_age_seconds": tables.oldest_transaction_seconds(),
    }
    for figure in QueueFigures._fields:
        by_queue = {(name,): getattr(queue, figure) for name, queue in queues.items()}
        values[f"evenbeat_queue_{figure}"] = by_queue
    for rule, name in _TASK_ALERTS.items():
        values[name] = {(one.task,): one.number for one in broken if one.rule == rule}
    if (totals := stored.get("executions")) is not None:
        total, done, failed = (int(totals.get(n) or 0) for n in ("total", "completed", "failed"))
        numbers = done, failed, max(0, total - done - failed)
        by_outcome = dict(zip(product(_LABEL_VALUES["outcome"]), numbers, strict=True))
        values["evenbeat_all_executions_total"] = by_outcome
        if (rate := totals.get("success_rate")) is not None:
            values["evenbeat_success_ratio"] = rate
        if (average := totals.get("average_duration_ms")) is not None:
            values["evenbeat_average_duration_seconds"] = average / 1000
    return values


class QueueFigures(NamedTuple):
    """A queue, or the sum of several."""

    due: int
    running: int
    oldest_due_age_seconds: float
    paused: bool


def queue_figures(depths: list[QueueDepth], now: datetime) -> dict[str, QueueFigures]:
    """Each queue, the fullest first; those beyond the limit as one sum."""
    queues = {}
    for depth in sorted(depths, key=lambda depth: (-depth.due - depth.running, depth.name)):
        age = max(0.0, (now - (depth.oldest_due or now)).total_seconds())
        paused = depth.paused_at is not None
        queues[depth.name] = QueueFigures(depth.due, depth.running, age, paused)
    rest = [queues.pop(name) for name in list(queues)[MOST_QUEUES:]]
    if rest:
        dues, runnings, ages, pauses = zip(*rest, strict=True)
        queues[OTHER_QUEUES] = QueueFigures(sum(dues), sum(runnings), max(ages), any(pauses))
    return queues
