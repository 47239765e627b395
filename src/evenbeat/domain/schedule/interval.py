"""Runs at a fixed distance from each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Self

from evenbeat.domain.duration import format_duration, parse_duration
from evenbeat.domain.moments import BEGIN, END, EPOCH, as_utc
from evenbeat.domain.schedule.base import (
    CRON_EXAMPLE,
    FirstPlan,
    Recurring,
    ScheduleRow,
    split_words,
)
from evenbeat.errors import InvalidInput, InvalidSchedule
from evenbeat.humanize import interval

LONGEST_INTERVAL = timedelta(days=3650)

_SECOND = timedelta(seconds=1)
_YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Interval(Recurring):
    """Plans at anchor + k * every, for every integer k; without an anchor, from the Unix epoch."""

    kind: ClassVar[str] = "interval"
    label: ClassVar[str] = "Every"
    example: ClassVar[str] = "30m"
    document_fields: ClassVar[tuple[str, ...]] = ("schedule", "anchor_at")
    is_placed: ClassVar[bool] = True

    every: timedelta
    anchor: datetime | None = None

    def __post_init__(self) -> None:
        if not _SECOND <= self.every <= LONGEST_INTERVAL or self.every % _SECOND:
            raise InvalidSchedule(
                f"{format_duration(self.every)!r} cannot be repeated: an interval is a whole number"
                f" of seconds, from 1s to {format_duration(LONGEST_INTERVAL)}; "
                'for example "@every 10s" or "@every 1h30m".',
                field="every",
            )
        if self.anchor is not None:
            object.__setattr__(self, "anchor", as_utc(self.anchor, field="anchor"))

    @classmethod
    def from_text(cls, text: str, timezone: str) -> "Interval | None":  # noqa: ARG003
        words = split_words(text)
        if words[0].lower() == "@every":
            duration = " ".join(words[1:])
        elif len(words) == 1 and not words[0].startswith("@"):
            duration = words[0]
        else:
            return None
        try:
            return cls(parse_duration(duration))
        except InvalidInput as error:
            reason = f"{text!r} is not a schedule: {error} Or write cron, such as {CRON_EXAMPLE}."
            raise InvalidSchedule(reason) from None

    @property
    def text(self) -> str:
        return f"@every {format_duration(self.every)}"

    @classmethod
    def from_row(cls, row: ScheduleRow) -> Self:
        return cls(timedelta(seconds=row.interval_seconds or 0), row.anchor_at)

    def columns(self) -> dict[str, Any]:
        return {"interval_seconds": self.every // _SECOND}

    def edited(self, fields: Mapping[str, Any]) -> "Interval":
        anchor = fields.get("anchor_at")
        return self if anchor is None else Interval(self.every, anchor)

    def describe(self) -> str:
        return f"every {interval(self.every)}"

    def first_plan(self, start: datetime | None, now: datetime, *, on_grid: bool) -> FirstPlan:
        # The anchor fixes the rhythm: the schedule's own, the grid, or the beginning.
        anchor = self.anchor or (self.on_grid().anchor if on_grid else start or now)
        return FirstPlan(start or Interval(self.every, anchor).next_after(now), anchor)

    def on_grid(self) -> "Interval":
        """The same at multiples of the interval since the year 1, which began on a Monday, as weeks
        do; reckoned from the last one until the epoch, since year 1 is too early for many clocks.
        """
        if self.anchor is not None:
            return self
        return Interval(self.every, EPOCH - (EPOCH - _YEAR_1) % self.every)

    def next_after(self, moment: datetime) -> datetime:
        origin = self.anchor or EPOCH
        distance = (self._beats_until(max(as_utc(moment), BEGIN)) + 1) * self.every
        if distance > END - origin:
            raise self._no_more_plans()
        return origin + distance

    def latest_until(self, moment: datetime) -> datetime | None:
        origin = self.anchor or EPOCH
        distance = self._beats_until(min(as_utc(moment), END)) * self.every
        return origin + distance if distance > BEGIN - origin else None

    def count(self, after: datetime, until: datetime) -> int:
        after, until = max(as_utc(after), BEGIN), min(as_utc(until), END)
        return max(0, self._beats_until(until) - self._beats_until(after))

    def _beats_until(self, moment: datetime) -> int:
        # Dividing timedeltas is integer arithmetic: no drift, whatever the distance.
        return (moment - (self.anchor or EPOCH)) // self.every
