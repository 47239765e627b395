"""One attempt at one occurrence: its row, and what its run came to."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.states import ExecutionStatus


class Execution(NamedTuple):
    """A row of `executions`. Its id is the lease token of the claim that started it."""

    id: UUID
    job_id: UUID
    plan_time: datetime
    started_at: datetime
    completed_at: datetime | None
    worker_id: UUID
    duration_ms: float | None
    wait_ms: float | None
    cpu_time_ms: float | None
    memory_peak_mb: float | None
    rows_affected: int | None
    execution_number: int
    retry_attempt: int
    items_crawled: int | None
    items_indexed: int | None
    release_count: int
    status: str
    error_code: str | None
    error_message: str | None
    stack_trace: str | None
    progress: dict[str, Any] | None
    result: Any
    figures: dict[str, Any] | None
    metadata: dict[str, Any] | None


@dataclass(slots=True)
class Outcome:
    """What one run came to, as its worker saw it.

    `result` is JSON text; `retry_after` is the handler's own wish, and with `keeps_turn` the job is
    due again as it was; `final` says that trying again is pointless; `needs_person` keeps even a
    recurring job from going on by itself; `unfit` says that the payload does not fit the handler of
    this worker, which has not run; `resume_at` says of one that sleeps, waits or was snoozed when
    it goes on. `raised` is what the exception that ended it is called, and `error` the exception
    itself, for the log only, if nobody has named the failure. `figures` is JSON text.
    """

    status: ExecutionStatus = ExecutionStatus.COMPLETED
    duration_ms: float = 0.0
    queued_ms: float = 0.0
    cpu_time_ms: float | None = None
    memory_peak_mb: float | None = None
    items_crawled: int | None = None
    items_indexed: int | None = None
    rows_affected: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    stack_trace: str | None = None
    result: str | None = None
    figures: str | None = None
    retry_after: timedelta | None = None
    keeps_turn: bool = False
    final: bool = False
    needs_person: bool = False
    unfit: bool = False
    resume_at: datetime | None = None
    raised: tuple[str, ...] = ()
    error: BaseException | None = None


def not_kept(reason: str, type_name: str) -> dict[str, str]:
    """The note that stands in place of a result that cannot be stored."""
    return {"omitted": reason, "type": type_name}


def why_not_kept(result: Any) -> str | None:
    """What such a note says; None for a result."""
    is_note = isinstance(result, dict) and result.keys() == not_kept("", "").keys()
    return str(result["omitted"]) if is_note else None
