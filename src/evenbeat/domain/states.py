"""The states of a job and of an execution, what may follow what, and what an operator can do.

These tables are the only ones: the store, the API, the dashboard and the messages read them.
"""

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class Verb:
    """What an operator can do to a job: the states it is for, the state it leads to, its words."""

    name: str
    label: str
    participle: str
    """As in "cannot be paused"."""
    notice: str
    """What was done, at the beginning of a sentence."""
    sources: frozenset[JobStatus]
    leads_to: JobStatus | None
    effect: str = ""
    always_ask: bool = False
    can_be_undone: bool = False

    def suits(self, status: str, is_paused: bool) -> bool:
        """Whether it can be done to such a job. One that will be paused after its run counts as
        paused."""
        return (_S.PAUSED if is_paused else _S(status)) in self.sources


RUN = Verb(
    "run", "Run now", "run now", "Started",
    frozenset({_S.PENDING, _S.SCHEDULED}) | FINISHED, _S.PENDING,
)  # fmt: skip
PAUSE = Verb(
    "pause", "Pause", "paused", "Paused",
    frozenset({_S.PENDING, _S.SCHEDULED, _S.RUNNING}), _S.PAUSED, can_be_undone=True,
)  # fmt: skip
RESUME = Verb(
    "resume", "Resume", "resumed", "Resumed", frozenset({_S.PAUSED}), _S.SCHEDULED,
    can_be_undone=True,
)  # fmt: skip
RETRY = Verb(
    "retry", "Retry", "retried", "Retried", frozenset({_S.FAILED, _S.CANCELLED}), _S.PENDING
)
CANCEL = Verb(
    "cancel", "Cancel", "cancelled", "Cancelled", LIVE, _S.CANCELLED,
    "It will not run again, also where it has a schedule: that ends. A run in progress is stopped "
    "and its result is discarded. A cancelled job stays listed and can be retried.",
    always_ask=True, can_be_undone=True,
)  # fmt: skip
DELETE = Verb(
    "delete", "Delete", "deleted", "Deleted", frozenset(_S), None,
    "This also deletes its history and cannot be undone.",
    always_ask=True,
)  # fmt: skip

VERBS = {verb.name: verb for verb in (RUN, PAUSE, RESUME, RETRY, CANCEL, DELETE)}
