"""One snapshot of the whole database in figures, the same from every process that takes it."""

from datetime import datetime
from typing import Any, NamedTuple

from evenbeat.domain.states import JobStatus
from evenbeat.store.health import TableQueries, TableStats
from evenbeat.store.reads import QueueDepth
from evenbeat.store.store import Store

MOST_QUEUES = 100
"""Queues with a time series each; a name made up for every customer must not flood the server
that scrapes."""

COUNTED = ("jobs", "executions", "distribution")
"""The figures that chores maintain."""

OTHER_QUEUES = "(others)"


class QueueFigures(NamedTuple):
    """A queue, or the sum of several."""

    due: int
    running: int
    oldest_due_age: float
    paused: bool


class DatabaseSnapshot(NamedTuple):
    """Ages are seconds by the database's own clock."""

    jobs: dict[str, int]
    executions: dict[str, Any] | None
    figures_age: dict[str, float]
    queues: dict[str, QueueFigures]
    workers: dict[str, int]
    stale_locks_cleared: int
    tables: list[TableStats]
    oldest_transaction: float
    distribution: dict[str, Any] | None


def take_snapshot(store: Store, now: datetime | None, silent_seconds: float) -> DatabaseSnapshot:
    """Count. What would take long (executions, many jobs, the distribution) is counted by a
    worker's chore for everybody and read here with its age."""
    moment, figures, tables = store.clock(now), store.upkeep.figures(), TableQueries(store.database)
    values = {name: figure.value for name, figure in figures.items()}
    counts = store.read.counts_by_status()
    workers = dict.fromkeys(("active", "draining", "silent"), 0)
    for worker in store.upkeep.workers():
        is_silent = (moment - worker.heartbeat_at).total_seconds() > silent_seconds
        status = "silent" if is_silent else worker.status
        workers[status] = workers.get(status, 0) + 1
    return DatabaseSnapshot(
        jobs={state.value: int(counts.get(state.value, 0)) for state in JobStatus},
        executions=values.get("executions"),
        figures_age={
            name: max(0.0, (moment - figures[name].updated_at).total_seconds())
            for name in COUNTED
            if name in figures
        },
        queues=queue_figures(store.read.queues(now=now), moment),
        workers=workers,
        stale_locks_cleared=int(values.get("stale_locks_cleared", 0)),
        tables=tables.figures(),
        oldest_transaction=tables.oldest_transaction_seconds(),
        distribution=values.get("distribution"),
    )


def queue_figures(depths: list[QueueDepth], now: datetime) -> dict[str, QueueFigures]:
    """Each queue, the fullest first; those beyond the limit as one sum."""
    fullest = sorted(depths, key=lambda depth: (-depth.due - depth.running, depth.name))
    queues = {
        depth.name: QueueFigures(
            depth.due,
            depth.running,
            max(0.0, (now - (depth.oldest_due or now)).total_seconds()),
            depth.paused_at is not None,
        )
        for depth in fullest
    }
    rest = [queues.pop(depth.name) for depth in fullest[MOST_QUEUES:]]
    if rest:
        queues[OTHER_QUEUES] = QueueFigures(
            due=sum(queue.due for queue in rest),
            running=sum(queue.running for queue in rest),
            oldest_due_age=max(queue.oldest_due_age for queue in rest),
            paused=any(queue.paused for queue in rest),
        )
    return queues
