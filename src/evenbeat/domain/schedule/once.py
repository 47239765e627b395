"""One run, at a given time or as soon as possible."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Self

from evenbeat.domain.moments import as_utc
from evenbeat.domain.schedule.base import FirstPlan, Schedule, ScheduleRow
from evenbeat.humanize import timestamp


@dataclass(frozen=True, slots=True)
class Once(Schedule):
    """One run at `run_at`, or as soon as possible."""

    kind: ClassVar[str] = "once"
    label: ClassVar[str] = "Once"
    repeats: ClassVar[bool] = False

    run_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.run_at is not None:
            object.__setattr__(self, "run_at", as_utc(self.run_at, field="run_at"))

    @classmethod
    def from_row(cls, row: ScheduleRow) -> Self:  # noqa: ARG003 - its time is the job's plan
        return cls()

    def describe(self) -> str:
        if self.run_at is None:
            return "once, as soon as possible"
        return f"once at {timestamp(self.run_at)}"

    def first_plan(self, start: datetime | None, now: datetime, *, on_grid: bool) -> FirstPlan:  # noqa: ARG002
        return FirstPlan(start or self.run_at or now)
