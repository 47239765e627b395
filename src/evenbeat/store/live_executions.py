"""What is happening right now, for those who look on."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.store.database import Database

MOST_ROWS = 1000
_EACH_JOB = 5


class Happening(NamedTuple):
    """An execution as a spectator sees it; task, name and queue are None when its job is gone."""

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


class Feed:
    """Questions that a poll asks every second; none reads more than a thousand rows or so."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def since(self, moment: datetime) -> list[Happening]:
        """Executions claimed since the moment, oldest first; at most `MOST_ROWS` and one more."""
        return self._happenings("feed_since", {"since": moment, "limit": MOST_ROWS + 1})

    def among(self, ids: Sequence[UUID]) -> list[Happening]:
        """Of these executions, those that have ended or made progress."""
        return self._happenings("feed_among", {"ids": list(ids)}) if ids else []

    def of_jobs(self, job_ids: Sequence[UUID]) -> list[Happening]:
        """The newest executions of these jobs."""
        params = {"job_ids": list(job_ids), "each": _EACH_JOB}
        return self._happenings("feed_of_jobs", params) if job_ids else []

    def running(self) -> list[UUID]:
        """The executions under way."""
        rows = self._database.rows("feed_running", {"limit": MOST_ROWS})
        return [row[0] for row in rows]

    def _happenings(self, statement: str, params: dict[str, Any]) -> list[Happening]:
        return [Happening._make(row) for row in self._database.rows(statement, params)]
