"""A batch: jobs that belong together. Its states, and its row."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.states import CANCEL, FINISHED, PAUSE, RESUME, RETRY


class BatchStatus(StrEnum):
    """Where a batch stands."""

    OPEN = "open"
    """It waits to be closed: more jobs may come, so it does not end."""
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    """All of its jobs have ended, and some of them have failed or were cancelled."""
    CANCELLED = "cancelled"


BATCH_VERBS = {verb.name: verb for verb in (PAUSE, RESUME, RETRY, CANCEL)}
"""What an operator can do to a whole batch."""


class BatchCounts(NamedTuple):
    """How many jobs of a batch are in each state."""

    pending: int = 0
    scheduled: int = 0
    running: int = 0
    paused: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        """All of its jobs."""
        return sum(self)

    @property
    def ended(self) -> int:
        """Those that have ended, however they did."""
        return sum(getattr(self, status) for status in FINISHED)

    @property
    def share(self) -> float:
        """How far it has come, from 0 to 1."""
        return self.ended / self.total if self.total else 1.0


class BatchRecord(NamedTuple):
    """A row of `batches`. `counts` are those of the moment `counted_at`."""

    id: UUID
    name: str | None
    status: str
    created_at: datetime
    ended_at: datetime | None
    parent_id: UUID | None
    callback_id: UUID | None
    created_by: str | None
    counts: BatchCounts
    counted_at: datetime | None
