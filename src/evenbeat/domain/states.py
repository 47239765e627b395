"""The states of a job and of an execution, and the one table of what may follow what."""

from enum import StrEnum

from evenbeat.errors import IllegalTransition


class JobStatus(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ExecutionStatus(StrEnum):
    """Where one attempt stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_S = JobStatus

TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    _S.PENDING: frozenset({_S.SCHEDULED, _S.RUNNING, _S.PAUSED, _S.CANCELLED}),
    _S.SCHEDULED: frozenset({_S.RUNNING, _S.PAUSED, _S.CANCELLED, _S.PENDING}),
    _S.RUNNING: frozenset(
        # Pending: handed back by a stopping worker. Paused: asked for during the run.
        {_S.COMPLETED, _S.FAILED, _S.SCHEDULED, _S.CANCELLED, _S.PENDING, _S.PAUSED}
    ),
    _S.PAUSED: frozenset({_S.SCHEDULED, _S.PENDING, _S.CANCELLED}),
    _S.COMPLETED: frozenset({_S.SCHEDULED, _S.PENDING}),
    _S.FAILED: frozenset({_S.PENDING}),
    _S.CANCELLED: frozenset({_S.PENDING}),
}

LIVE = frozenset({_S.PENDING, _S.SCHEDULED, _S.RUNNING, _S.PAUSED})
"""A job that will or may still run; a dedup key is taken while its job is live."""

FINISHED = frozenset(_S) - LIVE


def can_become(state: JobStatus, wanted: JobStatus) -> bool:
    """Whether the table allows this step."""
    return wanted in TRANSITIONS[state]


def check_transition(state: JobStatus, wanted: JobStatus) -> None:
    """Raise `IllegalTransition`, which lists what is allowed, unless the table allows this step."""
    if not can_become(state, wanted):
        raise IllegalTransition(state, wanted, TRANSITIONS[state])


def sources_of(wanted: JobStatus) -> frozenset[JobStatus]:
    """Every state from which a job can become `wanted`."""
    return frozenset(state for state, targets in TRANSITIONS.items() if wanted in targets)
