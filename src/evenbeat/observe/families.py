"""Every metric there is: its name, kind, labels and meaning. What is not in this table is not
exposed, and what is in it is in `docs/monitoring.md`; tests hold both to it."""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Family(NamedTuple):
    """A metric."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


_ENGINE = (
    Family("evenbeat_executions_total", "counter", ("task", "outcome"),
           "Runs that ended: completed, failed (also those to be retried) or cancelled."),
    Family("evenbeat_execution_duration_seconds", "histogram", ("task", "outcome"),
           "How long handlers ran."),
    Family("evenbeat_pickup_delay_seconds", "histogram", ("task",),
           "From due to start, as the execution's wait_ms; told when the run has ended."),
    Family("evenbeat_retries_total", "counter", ("task",),
           "Failed runs that will be tried again."),
    Family("evenbeat_timeouts_total", "counter", ("task",),
           "Runs that took longer than their timeout."),
    Family("evenbeat_leases_lost_total", "counter", ("task",),
           "Runs whose lease was lost; their result was thrown away."),
    Family("evenbeat_executions_released_total", "counter", ("task",),
           "Runs handed back unstarted or by a stopping worker."),
    Family("evenbeat_plans_skipped_total", "counter", ("task",),
           "Missed plans that a catch-up policy gave up."),
    Family("evenbeat_leases_renewed_total", "counter", (),
           "Leases renewed."),
    Family("evenbeat_leases_reaped_total", "counter", (),
           "Expired leases that this process cleared."),
    Family("evenbeat_database_errors_total", "counter", ("during",),
           "Steps that the database did not answer: claim, finish, renew, maintenance."),
    Family("evenbeat_claim_batch_size", "histogram", (), "Jobs a claim came back with."),
    Family("evenbeat_claim_duration_seconds", "histogram", (), "How long claims took."),
    Family("evenbeat_finish_batch_size", "histogram", (), "Ends of runs written in one go."),
    Family("evenbeat_finish_duration_seconds", "histogram", (), "How long writing them took."),
    Family("evenbeat_renew_duration_seconds", "histogram", (),
           "How long renewing all leases took."),
    Family("evenbeat_chore_duration_seconds", "histogram", ("chore",),
           "How long maintenance chores took that were this process's to do."),
)  # fmt: skip

_PROCESS = (
    Family("evenbeat_info", "gauge", ("version", "python"), "Always 1; the labels say what runs."),
    Family("evenbeat_process_workers", "gauge", (), "Workers in this process."),
    Family("evenbeat_running", "gauge", ("runner",), "Handlers at work: loop, thread or process."),
    Family("evenbeat_waiting", "gauge", ("runner",), "Runs claimed that wait for a slot."),
    Family("evenbeat_slots", "gauge", ("runner",), "How many handlers may run at once."),
    Family("evenbeat_slots_free", "gauge", ("runner",), "Slots without a run."),
    Family("evenbeat_leases", "gauge", (), "Leases that this process holds."),
    Family("evenbeat_finish_backlog", "gauge", (), "Ended runs whose end is not written yet."),
    Family("evenbeat_claim_age_seconds", "gauge", (),
           "Since the last look for work that went well."),
    Family("evenbeat_beat_age_seconds", "gauge", (),
           "Since the last sign of life that reached the database."),
    Family("evenbeat_event_loop_lag_seconds", "gauge", (),
           "How late the event loop of async handlers is; a handler that blocks it shows here."),
    Family("evenbeat_pool_connections", "gauge", ("pool",), "Database connections open."),
    Family("evenbeat_pool_connections_max", "gauge", ("pool",), "How many there may be."),
    Family("evenbeat_pool_connections_idle", "gauge", ("pool",), "How many of them nobody uses."),
    Family("evenbeat_pool_waiting", "gauge", ("pool",), "Callers that wait for a connection."),
    Family("evenbeat_pool_wait_seconds_total", "counter", ("pool",),
           "Time that callers have waited for a connection."),
    Family("evenbeat_pool_errors_total", "counter", ("pool",),
           "Callers that got no connection."),
)  # fmt: skip

_DATABASE = (
    Family("evenbeat_database_up", "gauge", (),
           "1 if the database answered this process lately, else 0."),
    Family("evenbeat_scrape_age_seconds", "gauge", (),
           "Age of the figures about the whole database in this answer."),
    Family("evenbeat_figures_age_seconds", "gauge", ("figure",),
           "Since a worker last counted jobs, executions, or the distribution."),
    Family("evenbeat_jobs", "gauge", ("state",), "Jobs in each state."),
    Family("evenbeat_all_executions_total", "counter", ("outcome",),
           "Runs that ended in any process, as of the last count: completed, failed, cancelled."),
    Family("evenbeat_success_ratio", "gauge", (),
           "Completed out of all completed and failed runs so far."),
    Family("evenbeat_average_duration_seconds", "gauge", (),
           "Mean duration of all completed runs so far."),
    Family("evenbeat_queue_due", "gauge", ("queue",), "Jobs that are due and wait."),
    Family("evenbeat_queue_running", "gauge", ("queue",), "Jobs that run."),
    Family("evenbeat_queue_oldest_due_age_seconds", "gauge", ("queue",),
           "How long the oldest of them has been due; 0 if none waits."),
    Family("evenbeat_queue_paused", "gauge", ("queue",), "1 if the queue is paused."),
    Family("evenbeat_workers", "gauge", ("status",),
           "Workers in the registry: active, draining, or silent without a recent sign of life."),
    Family("evenbeat_stale_locks_cleared_total", "counter", (),
           "Expired leases that any process has cleared."),
    Family("evenbeat_table_dead_tuples", "gauge", ("table",), "Row versions that wait for vacuum."),
    Family("evenbeat_table_live_tuples", "gauge", ("table",), "Rows, as estimated by the server."),
    Family("evenbeat_table_bytes", "gauge", ("table",), "Size on disk, indexes included."),
    Family("evenbeat_oldest_transaction_age_seconds", "gauge", (),
           "The oldest transaction open in the database; a long one keeps vacuum from its work."),
)  # fmt: skip

_PLACEMENT = (
    Family("scheduler_distribution_score", "gauge", (),
           "Evenness of the expected load: mean over peak, 1 is perfectly even."),
    Family("scheduler_slot_job_count", "gauge", ("hour",),
           "Planned runs in each hour of the day, UTC."),
    Family("scheduler_peak_hour_job_count", "gauge", (), "Planned runs in the fullest hour."),
    Family("scheduler_placements_total", "counter", ("type",),
           "Jobs placed: by this process new or reschedule, by any of them rebalance."),
    Family("scheduler_placement_duration_seconds", "histogram", (), "How long placing one took."),
    Family("scheduler_rebalance_total", "counter", (), "Rebalances applied by any process."),
    Family("scheduler_rebalance_jobs_moved", "gauge", (), "Jobs that the last rebalance moved."),
    Family("scheduler_rebalance_jobs_skipped", "gauge", (),
           "Jobs that the last rebalance left where they were, for a reason."),
)  # fmt: skip

FAMILIES = {family.name: family for family in (*_ENGINE, *_PROCESS, *_DATABASE, *_PLACEMENT)}
ENGINE = tuple(family.name for family in _ENGINE)
