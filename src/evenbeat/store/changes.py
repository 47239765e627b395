"""What became of jobs that an operator's verb was applied to."""

from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.job import Job
from evenbeat.domain.states import TRANSITIONS, JobStatus
from evenbeat.errors import Conflict, IllegalTransition, NotFound
from evenbeat.store.dependencies import refusal_to_delete


class OperatorVerb(NamedTuple):
    """What an operator does: its name in a sentence, where it leads, and from which states."""

    done: str
    wanted: JobStatus
    sources: frozenset[JobStatus]


class Refused(NamedTuple):
    """A job that a verb left alone, with the state that forbade it; no state: no such job.
    `replaced_by` is a live job that has its dedup key by now, `awaited_by` are those that wait
    for it."""

    id: UUID
    status: JobStatus | None
    verb: OperatorVerb
    replaced_by: UUID | None = None
    awaited_by: tuple[str, ...] = ()

    def error(self) -> NotFound | Conflict:
        """The refusal as the exception that a single verb raises."""
        if self.awaited_by:
            return Conflict(f"The job {self.id} stays. {refusal_to_delete(self.awaited_by)}")
        if self.status is None:
            return NotFound("job", self.id)
        if self.replaced_by is not None:
            return Conflict(
                f"The live job {self.replaced_by} has the dedup key of the {self.status} job "
                f"{self.id} by now. Let it end or cancel it first."
            )
        return IllegalTransition(
            self.status,
            self.verb.wanted,
            TRANSITIONS[self.status],
            verb=self.verb.done,
            sources=self.verb.sources,
        )


class Changes(NamedTuple):
    """What a verb did to the jobs it was given."""

    changed: list[Job]
    refused: list[Refused]

    def only(self) -> Job:
        """The one job that was meant, or the error that explains why it was left alone."""
        if self.refused:
            raise self.refused[0].error()
        return self.changed[0]


class Tally(NamedTuple):
    """How many jobs a verb over a filter changed and left alone."""

    changed: int
    refused: int
