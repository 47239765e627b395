"""What a run has done for good, and what it sleeps or waits for."""

from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID


class StepKind(StrEnum):
    """A call whose result is kept, a sleep, or an event."""

    STEP = "step"
    SLEEP = "sleep"
    EVENT = "event"


class Step(NamedTuple):
    """A row of `steps`. Sleeps are numbered, and so are the events of one name, in the order of
    the handler. An event that nobody has waited for yet has no `started_at`."""

    job_id: UUID
    plan_time: datetime
    kind: str
    name: str
    number: int
    execution_id: UUID | None
    execution_number: int | None
    started_at: datetime | None
    until: datetime | None = None
    completed_at: datetime | None = None
    timed_out: bool = False
    result: Any = None
    sent_by: str | None = None

    @property
    def duration_ms(self) -> float | None:
        """How long it took, or was waited for."""
        if self.started_at is None or self.completed_at is None:
            return None
        return max(0.0, (self.completed_at - self.started_at).total_seconds() * 1000)
