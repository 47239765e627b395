"""What every kind of schedule can be asked. A new kind is a subclass in a file of its own."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from evenbeat.errors import InvalidInput, InvalidSchedule

CRON_EXAMPLE = '"0 9 * * mon-fri" (minute, hour, day of month, month, day of week)'


class ScheduleRow(Protocol):
    """The columns of a job that describe its schedule."""

    @property
    def schedule_kind(self) -> str: ...
    @property
    def interval_seconds(self) -> int | None: ...
    @property
    def cron_expression(self) -> str | None: ...
    @property
    def timezone(self) -> str: ...
    @property
    def anchor_at(self) -> datetime | None: ...


class FirstPlan(NamedTuple):
    """The first plan of a new job, None while it waits for other jobs, and the anchor that fixes
    its rhythm, where it has one."""

    plan_time: datetime | None
    anchor_at: datetime | None = None


class Schedule:
    """When a job runs. Every datetime in and out is aware UTC."""

    __slots__ = ()

    kind: ClassVar[str]
    """The word for it in the database, the API and the filters of lists."""
    label: ClassVar[str]
    """What a form calls it."""
    example: ClassVar[str] = ""
    """What a form shows in the empty field."""
    repeats: ClassVar[bool] = True
    """Whether its job may run again after a run has ended."""
    document_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that describe it in a job's document: what GET answers and a file contains."""
    is_placed: ClassVar[bool] = False
    """Whether the balancer may choose where its plans lie."""

    @classmethod
    def from_text(cls, text: str, timezone: str) -> "Schedule | None":  # noqa: ARG003
        """The schedule that the text describes; None if this kind is not written like that."""
        return None

    @property
    def text(self) -> str | None:
        """The schedule as `from_text` reads it; None for a kind that is not written as one text."""
        return None

    @classmethod
    def from_row(cls, row: ScheduleRow) -> Self:
        """The schedule that a row of `jobs` describes."""
        raise NotImplementedError

    def columns(self) -> dict[str, Any]:
        """Its own columns of `jobs`, but for the anchor, which the first plan decides."""
        return {}

    def edited(self, fields: Mapping[str, Any]) -> "Schedule":
        """The schedule with what else a document's fields say about one of this kind."""
        if fields.get("anchor_at") is not None:
            raise InvalidInput(
                "anchor_at fixes the rhythm of an interval, and this job has none. "
                "Use run_at for the first run.",
                field="anchor_at",
            )
        return self

    def describe(self) -> str:
        """Say in plain English when it runs."""
        raise NotImplementedError

    def first_plan(self, start: datetime | None, now: datetime, *, on_grid: bool) -> FirstPlan:
        """Where a new job enters. `start` is the first run that the caller asks for."""
        raise NotImplementedError


class Recurring(Schedule):
    """A schedule with plans of its own. Plans exist from the year 2 to the start of 9999; beyond
    that `next_after` raises InvalidSchedule and the other methods see no plans."""

    __slots__ = ()

    def next_after(self, moment: datetime) -> datetime:
        """The first plan strictly after `moment`."""
        raise NotImplementedError

    def latest_until(self, moment: datetime) -> datetime | None:
        """The newest plan at or before `moment`."""
        raise NotImplementedError

    def count(self, after: datetime, until: datetime) -> int:
        """How many plans lie in (after, until]."""
        raise NotImplementedError

    def preview(self, after: datetime, n: int) -> list[datetime]:
        """The first `n` plans after `after`."""
        plans: list[datetime] = []
        for _ in range(n):
            after = self.next_after(after)
            plans.append(after)
        return plans

    def first_plan(self, start: datetime | None, now: datetime, *, on_grid: bool) -> FirstPlan:  # noqa: ARG002
        return FirstPlan(start or self.next_after(now))

    def _no_more_plans(self) -> InvalidSchedule:
        return InvalidSchedule(
            f"The schedule {self.describe()!r} has no plan left before the year 9999."
        )


def split_words(text: object) -> list[str]:
    """The words of a schedule's text, of which there must be one at least."""
    words = text.split() if isinstance(text, str) else []
    if not words:
        raise InvalidSchedule(
            f'{text!r} is not a schedule. Write for example "@every 30m" or {CRON_EXAMPLE}.'
        )
    return words
