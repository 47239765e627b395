"""A run whenever other jobs have ended."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Self
from uuid import UUID

from evenbeat.domain.ids import parse_id
from evenbeat.domain.schedule.base import FirstPlan, Schedule, ScheduleRow
from evenbeat.errors import InvalidSchedule

MOST_AWAITED = 100_000


class AfterCondition(StrEnum):
    """How the awaited jobs must have ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Awaited:
    """A job to wait for, by its id or by its name, and how it must have ended."""

    job: UUID | str
    on: AfterCondition = AfterCondition.SUCCESS

    def __post_init__(self) -> None:
        id_ = parse_id(self.job)
        name = self.job if isinstance(self.job, str) and self.job.isprintable() else ""
        if id_ is None and not name.strip():
            raise InvalidSchedule(
                f"{self.job!r} cannot be waited for: give the id or the name of a job.",
                field="after",
            )
        object.__setattr__(self, "job", id_ or name)
        object.__setattr__(self, "on", _condition(self.on))


@dataclass(frozen=True, slots=True)
class After(Schedule):
    """One run whenever all of `jobs` have ended in the way asked of each; see `after_jobs`.

    Without jobs it stands for those in the database: a row knows that it waits, not for what.
    """

    kind: ClassVar[str] = "after"
    label: ClassVar[str] = "After"
    example: ClassVar[str] = "load-data"
    document_fields: ClassVar[tuple[str, ...]] = ("after",)

    jobs: tuple[Awaited, ...] = ()

    @classmethod
    def from_row(cls, row: ScheduleRow) -> Self:  # noqa: ARG003 - `dependencies` has the jobs
        return cls()

    def describe(self) -> str:
        if not self.jobs:
            return "after other jobs"
        conditions = {awaited.on for awaited in self.jobs}
        verb = _ENDED[conditions.pop()] if len(conditions) == 1 else "ended as wanted"
        jobs = "1 job has" if len(self.jobs) == 1 else f"{len(self.jobs)} jobs have"
        return f"after {jobs} {verb}"

    def first_plan(self, start: datetime | None, now: datetime, *, on_grid: bool) -> FirstPlan:  # noqa: ARG002
        if start is not None or not self.jobs:
            raise InvalidSchedule(
                "A job that runs after others names at least one and starts when they have ended, "
                "not at a time. Leave out run_at and delay; schedule_delay makes it wait a while.",
                field="after",
            )
        return FirstPlan(None)


_ENDED = {
    AfterCondition.SUCCESS: "completed",
    AfterCondition.FAILURE: "failed",
    AfterCondition.ANY: "ended",
}


def after_jobs(
    jobs: Iterable[UUID | str | Awaited], on: AfterCondition | str = AfterCondition.SUCCESS
) -> After:
    """The schedule of a job that waits for these; `on` is for those that do not say themselves.

    A job that is named twice is waited for once, and must not be asked for in two ways.
    """
    default = _condition(on)
    awaited_jobs: dict[UUID | str, Awaited] = {}
    for job in jobs:
        awaited = job if isinstance(job, Awaited) else Awaited(job, default)
        known = awaited_jobs.setdefault(awaited.job, awaited)
        if known != awaited:
            raise InvalidSchedule(
                f"{awaited.job} is waited for in two ways: {known.on} and {awaited.on}. "
                "Name it once; any stands for every end.",
                field="after",
            )
    if not 1 <= len(awaited_jobs) <= MOST_AWAITED:
        raise InvalidSchedule(
            f"A job can wait for 1 to {MOST_AWAITED:,} others, got {len(awaited_jobs):,}. Name at "
            'least one, for example after=["load-data"]; of more, make a batch and wait for that.',
            field="after",
        )
    return After(tuple(awaited_jobs.values()))


def _condition(on: str) -> AfterCondition:
    try:
        return AfterCondition(on)
    except ValueError:
        raise InvalidSchedule(
            f"{on!r} is not a condition; choose one of {', '.join(AfterCondition)}, "
            "for example 'success'.",
            field="after_on",
        ) from None
