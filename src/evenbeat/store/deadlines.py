"""Deadlines in the database: the jobs that have one, and what they have missed."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.deadlines import Deadline, LatestRuns, MissedDeadline
from evenbeat.domain.job import JobRecord
from evenbeat.store.part import StorePart

_CHUNK = 500


class JobWithDeadlines(NamedTuple):
    """A job with what its deadlines are about."""

    job: JobRecord
    runs: LatestRuns


class Deadlines(StorePart):
    """What jobs have missed is noted once, and struck when it has been made up for."""

    def jobs(self) -> Iterator[Sequence[JobWithDeadlines]]:
        """Every job with a deadline, some at a time."""
        after: UUID | None = None
        while True:
            rows = self._database.rows("jobs_with_deadlines", {"after": after, "limit": _CHUNK})
            if rows:
                found = [
                    JobWithDeadlines(JobRecord._make(row[4:]), LatestRuns._make(row[:4]))
                    for row in rows
                ]
                yield found
                after = found[-1].job.id
            if len(rows) < _CHUNK:
                return

    def missed(self, ids: Sequence[UUID] | None = None) -> dict[tuple[UUID, Deadline], str]:
        """What is noted of these jobs, or of all, and how it is said."""
        params = {"ids": None if ids is None else list(ids)}
        rows = self._database.rows("missed_deadlines", params)
        return {(job_id, Deadline(name)): message for job_id, name, _, message in rows}

    def note(
        self, missed: Sequence[tuple[UUID, MissedDeadline]], *, now: datetime | None = None
    ) -> set[tuple[UUID, Deadline]]:
        """Note what was missed; returns what was not known yet."""
        params = {
            "ids": [job_id for job_id, _ in missed],
            "deadlines": [str(one.deadline) for _, one in missed],
            "since": [one.since for _, one in missed],
            "messages": [one.text for _, one in missed],
            "now": now,
        }
        rows = self._database.rows("note_missed_deadlines", params)
        return {(row[0], Deadline(row[1])) for row in rows}

    def forget(
        self, made_up_for: Sequence[tuple[UUID, Deadline]], *, now: datetime | None = None
    ) -> None:
        """Strike what has been made up for."""
        params = {
            "ids": [job_id for job_id, _ in made_up_for],
            "deadlines": [str(deadline) for _, deadline in made_up_for],
            "now": now,
        }
        self._database.rows("forget_missed_deadlines", params)

    def forget_others(self) -> int:
        """Strike what is noted of jobs that are gone or have no deadline any more."""
        return len(self._ids("forget_deadlines_of_others", {}))
