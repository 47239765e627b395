"""The whole database in figures, as any process of it would report them."""

from datetime import datetime
from typing import Any, NamedTuple

from evenbeat.domain.states import JobStatus
from evenbeat.store.reads import QueueDepth
from evenbeat.store.store import Store
from evenbeat.store.tables import TableFigures, Tables
from evenbeat.store.upkeep import Figure, Worker

MOST_QUEUES = 100
"""Queues with a time series each; a name made up for every customer must not flood the server
that scrapes."""

COUNTED = ("jobs", "executions", "distribution")
"""The figures that chores keep."""

THE_OTHERS = "(others)"


class Census(NamedTuple):
    """What one look at the database found. Ages are seconds by its own clock."""

    jobs: dict[str, int]
    executions: dict[str, Any] | None
    figures_age: dict[str, float]
    queues: dict[str, "QueueFigures"]
    workers: dict[str, int]
    stale_locks_cleared: int
    tables: list[TableFigures]
    oldest_transaction: float
    distribution: dict[str, Any] | None


class QueueFigures(NamedTuple):
    """A queue, or the sum of several."""

    due: int
    running: int
    oldest_due_age: float
    paused: bool


def take_census(store: Store, now: datetime | None, silent_seconds: float) -> Census:
    """Count. What would take long (executions, many jobs, the distribution) is counted by a
    worker's chore, for all, and read here with its age."""
    moment, figures, tables = store.clock(now), store.upkeep.figures(), Tables(store.database)
    return Census(
        jobs=_by_state(store.read.counts_by_status()),
        executions=_value(figures.get("executions")),
        figures_age={
            name: max(0.0, (moment - figures[name].updated_at).total_seconds())
            for name in COUNTED
            if name in figures
        },
        queues=_queues(store.read.queues(now=now), moment),
        workers=_by_status(store.upkeep.workers(), moment, silent_seconds),
        stale_locks_cleared=_count(figures.get("stale_locks_cleared")),
        tables=tables.figures(),
        oldest_transaction=tables.oldest_transaction_seconds(),
        distribution=_value(figures.get("distribution")),
    )


def _by_state(counts: dict[str, int]) -> dict[str, int]:
    return {state.value: int(counts.get(state.value, 0)) for state in JobStatus}


def _value(figure: Figure | None) -> Any:
    return None if figure is None else figure.value


def _count(figure: Figure | None) -> int:
    return 0 if figure is None else int(figure.value)


def _queues(depths: list[QueueDepth], now: datetime) -> dict[str, QueueFigures]:
    """Each queue, the fullest first; beyond the most that are shown, their sum."""
    fullest = sorted(depths, key=lambda depth: (-depth.due - depth.running, depth.name))
    shown = {depth.name: _queue(depth, now) for depth in fullest[:MOST_QUEUES]}
    rest = [_queue(depth, now) for depth in fullest[MOST_QUEUES:]]
    if rest:
        shown[THE_OTHERS] = QueueFigures(
            due=sum(queue.due for queue in rest),
            running=sum(queue.running for queue in rest),
            oldest_due_age=max(queue.oldest_due_age for queue in rest),
            paused=any(queue.paused for queue in rest),
        )
    return shown


def _queue(depth: QueueDepth, now: datetime) -> QueueFigures:
    oldest = depth.oldest_due
    age = 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds())
    return QueueFigures(depth.due, depth.running, age, depth.paused_at is not None)


def _by_status(workers: list[Worker], now: datetime, silent_seconds: float) -> dict[str, int]:
    counts = dict.fromkeys(("active", "draining", "silent"), 0)
    for worker in workers:
        silent = (now - worker.heartbeat_at).total_seconds() > silent_seconds
        status = "silent" if silent else worker.status
        counts[status] = counts.get(status, 0) + 1
    return counts
