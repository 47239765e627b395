"""Every metric: its name, kind, labels and meaning. Only what is in this table is exposed, and
all of it is in `docs/monitoring.md`; tests check both."""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class MetricDefinition(NamedTuple):
    """A metric."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


def counter(name: str, labels: tuple[str, ...], text: str) -> MetricDefinition:
    """Something that only grows."""
    return MetricDefinition(name, "counter", labels, text)


def gauge(name: str, labels: tuple[str, ...], text: str) -> MetricDefinition:
    """Something at this moment."""
    return MetricDefinition(name, "gauge", labels, text)


def histogram(name: str, labels: tuple[str, ...], text: str) -> MetricDefinition:
    """Something observed often."""
    return MetricDefinition(name, "histogram", labels, text)


_ENGINE = (
    counter("evenbeat_executions_total", ("task", "outcome"),
          "Runs that ended: completed, failed (also those to be retried) or cancelled."),
    histogram("evenbeat_execution_duration_seconds", ("task", "outcome"),
          "How long handlers ran."),
    histogram("evenbeat_pickup_delay_seconds", ("task",),
          "From due to start, as the execution's wait_ms; recorded when the run has ended."),
    counter("evenbeat_retries_total", ("task",),
          "Failed runs that will be tried again."),
    counter("evenbeat_timeouts_total", ("task",),
          "Runs that took longer than their timeout."),
    counter("evenbeat_leases_lost_total", ("task",),
          "Runs whose lease was lost; their result was thrown away."),
    counter("evenbeat_executions_released_total", ("task",),
          "Runs handed back unstarted or by a stopping worker."),
    counter("evenbeat_plans_skipped_total", ("task",),
          "Missed plans that a catch-up policy gave up."),
    counter("evenbeat_leases_renewed_total", (),
          "Leases renewed."),
    counter("evenbeat_leases_reaped_total", (),
          "Expired leases that this process cleared."),
    counter("evenbeat_database_errors_total", ("during",),
          "Steps that the database did not answer: claim, finish, renew, maintenance."),
    histogram("evenbeat_claim_batch_size", (), "Jobs a claim came back with."),
    histogram("evenbeat_claim_duration_seconds", (), "How long claims took."),
    histogram("evenbeat_finish_batch_size", (), "Ends of runs written in one go."),
    histogram("evenbeat_finish_duration_seconds", (), "How long writing them took."),
    histogram("evenbeat_renew_duration_seconds", (),
          "How long renewing all leases took."),
    histogram("evenbeat_chore_duration_seconds", ("chore",),
          "How long maintenance chores took that were this process's to do."),
)  # fmt: skip

_PROCESS = (
    gauge("evenbeat_info", ("version", "python"), "Always 1; the labels say what runs."),
    gauge("evenbeat_process_workers", (), "Workers in this process."),
    gauge("evenbeat_running", ("runner",), "Handlers at work: loop, thread or process."),
    gauge("evenbeat_waiting", ("runner",), "Runs claimed that wait for a slot."),
    gauge("evenbeat_slots", ("runner",), "How many handlers may run at once."),
    gauge("evenbeat_slots_free", ("runner",), "Slots without a run."),
    gauge("evenbeat_leases", (), "Leases that this process holds."),
    gauge("evenbeat_finish_backlog", (), "Ended runs whose end is not written yet."),
    gauge("evenbeat_claim_age_seconds", (),
          "Since the last look for work that went well."),
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
    counter("evenbeat_pool_errors_total", ("pool",),
          "Callers that got no connection."),
)  # fmt: skip

_DATABASE = (
    gauge("evenbeat_database_up", (),
          "1 if the database answered this process lately, else 0."),
    gauge("evenbeat_scrape_age_seconds", (),
          "Age of the figures about the whole database in this answer."),
    gauge("evenbeat_figures_age_seconds", ("figure",),
          "Since a worker last counted jobs, executions, or the distribution."),
    gauge("evenbeat_jobs", ("state",), "Jobs in each state."),
    counter("evenbeat_all_executions_total", ("outcome",),
          "Runs that ended in any process, as of the last count: completed, failed, cancelled."),
    gauge("evenbeat_success_ratio", (),
          "Completed out of all completed and failed runs so far."),
    gauge("evenbeat_average_duration_seconds", (),
          "Mean duration of all completed runs so far."),
    gauge("evenbeat_queue_due", ("queue",), "Jobs that are due and wait."),
    gauge("evenbeat_queue_running", ("queue",), "Jobs that run."),
    gauge("evenbeat_queue_oldest_due_age_seconds", ("queue",),
          "How long the oldest of them has been due; 0 if none waits."),
    gauge("evenbeat_queue_paused", ("queue",), "1 if the queue is paused."),
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
          "Evenness of the expected load: mean over peak, 1 is perfectly even."),
    gauge("scheduler_slot_job_count", ("hour",),
          "Planned runs in each hour of the day, UTC."),
    gauge("scheduler_peak_hour_job_count", (), "Planned runs in the fullest hour."),
    counter("scheduler_placements_total", ("type",),
          "Jobs placed: by this process new or reschedule, by any of them rebalance."),
    histogram("scheduler_placement_duration_seconds", (), "How long placing one took."),
    counter("scheduler_rebalance_total", (), "Rebalances applied by any process."),
    gauge("scheduler_rebalance_jobs_moved", (), "Jobs that the last rebalance moved."),
    gauge("scheduler_rebalance_jobs_skipped", (),
          "Jobs that the last rebalance left where they were, for a reason."),
)  # fmt: skip

METRICS = {family.name: family for family in (*_ENGINE, *_PROCESS, *_DATABASE, *_PLACEMENT)}
ENGINE_METRICS = tuple(family.name for family in _ENGINE)
