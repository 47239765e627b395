"""Executions that have just begun, progressed or ended, for live events."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.store.database import Database

MOST_ROWS = 1000
_EACH_JOB = 5


class LiveExecution(NamedTuple):
    """An execution as live events show it; task, name and queue are None when its job is gone."""

    execution_id: UUID
    job_id: UUID
    task: str | None
    name: str | None
    queue: str | None
    status: str
    execution_number: int
    retry_attempt: int
    plan_time: datetime
    started_at: datetime
    completed_at: datetime | None
    duration_ms: float | None
    error_code: str | None
    error_message: str | None
    progress: dict[str, Any] | None


class LiveExecutions:
    """The queries of a poll, once a second; none reads many more than a thousand rows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def since(self, moment: datetime) -> list[LiveExecution]:
        """Executions claimed since the moment, oldest first; at most `MOST_ROWS` and one more."""
        return self._executions("feed_since", {"since": moment, "limit": MOST_ROWS + 1})

    def among(self, ids: Sequence[UUID]) -> list[LiveExecution]:
        """Of these executions, those that have ended or made progress."""
        return self._executions("feed_among", {"ids": list(ids)}) if ids else []

    def of_jobs(self, job_ids: Sequence[UUID]) -> list[LiveExecution]:
        """The newest executions of these jobs."""
        params = {"job_ids": list(job_ids), "each": _EACH_JOB}
        return self._executions("feed_of_jobs", params) if job_ids else []

    def running(self) -> list[UUID]:
        """The executions under way."""
        rows = self._database.rows("feed_running", {"limit": MOST_ROWS})
        return [row[0] for row in rows]

    def _executions(self, statement: str, params: dict[str, Any]) -> list[LiveExecution]:
        return [LiveExecution._make(row) for row in self._database.rows(statement, params)]
