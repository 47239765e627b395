"""Taking back what an operator has just done: jobs become what they were before it, unless
something has changed them since."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from evenbeat.domain.first_run import resumed_run
from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import JobRecord, recurring_of
from evenbeat.domain.states import JobStatus
from evenbeat.errors import Conflict, NotFound
from evenbeat.store.audit import AuditLog
from evenbeat.store.part import StorePart

MOST_UNDONE = 1000
"""How many jobs one undo can hold."""

# Of a stopped run nothing can be brought back; the lease is gone.
_LEASE = dict.fromkeys(("lock_token", "locked_by", "lock_acquired_at", "lock_expires_at"))


class TakenBack(NamedTuple):
    """The jobs that are what they were again, and how many had changed since and stay."""

    jobs: list[JobRecord]
    changed_since: int


class Undo(StorePart):
    """Remembers jobs as they were before a verb, for a day."""

    def around(
        self, ids: Sequence[UUID], act: Callable[[], Sequence[JobRecord]], *, now: datetime | None
    ) -> UUID | None:
        """Change jobs by `act`, which returns them as they are then. Returns what `take_back`
        needs, or None if there is nothing that could be taken back."""
        rows = self._database.rows("jobs", {"ids": list(ids[: MOST_UNDONE + 1])})
        before = {job.id: job for job in map(JobRecord._make, rows)}
        changed, moment = act(), self._database.clock(now)
        if not changed or len(before) > MOST_UNDONE:
            return None
        documents = [
            document
            for job in changed
            if job.id in before and (document := _document(before[job.id], job, moment))
        ]
        if not documents:
            return None
        undo_id, jobs = uuid7(), json.dumps(documents, default=str)
        self._database.rows("keep_undo", {"id": undo_id, "jobs": jobs, "now": now})
        return undo_id

    def take_back(self, undo_id: UUID, *, now: datetime | None = None) -> TakenBack:
        """Put the jobs back, once. One that has run or was changed since stays as it is."""
        try:
            rows = self._database.rows("take_back", {"id": undo_id, "now": now})
        except psycopg.errors.UniqueViolation as error:
            raise Conflict(
                "This cannot be taken back: another job has the name or the dedup key by now. "
                f"{error.diag.message_detail}"
            ) from error
        if not rows:
            raise NotFound("undo", undo_id)
        jobs = [JobRecord._make(job) for _, *job in rows if job[0] is not None]
        self._notify({f"due:{job.queue}" for job in jobs}, None)
        if jobs:
            name = (jobs[0].name or jobs[0].task) if len(jobs) == 1 else None
            ids = [job.id for job in jobs]
            AuditLog(self._database).add("job.undo", ids=ids, name=name, count=len(ids), now=now)
        return TakenBack(jobs, rows[0][0] - len(jobs))


def _document(before: JobRecord, after: JobRecord, now: datetime) -> dict[str, Any] | None:
    """The row to put back, with the moment at which the job was changed; None where that cannot be.
    Of a recurring job that was ended during a run, the rhythm goes on."""
    if before.run_count != after.run_count or after.status == JobStatus.RUNNING:
        return None
    row = before._asdict()
    if before.status == JobStatus.RUNNING:
        if recurring_of(before) is None:
            return None
        row |= {**resumed_run(before, now)._asdict(), **_LEASE, "placed_at": before.placed_at}
        row |= {"current_retry_count": 0, "release_count": 0}
    return row | {"updated_at": after.updated_at}
