"""Runs by the calendar: five cron fields, or a named form such as @daily."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self

from evenbeat.domain.cron import CRON_EXAMPLE, NAMED_CRON, calendar_of, pieces
from evenbeat.domain.moments import BEGIN, END, as_utc, zone_named
from evenbeat.domain.schedule.base import Recurring, ScheduleRow, split_words
from evenbeat.errors import InvalidSchedule
from evenbeat.humanize import interval

_EVERY_FEW_MINUTES = re.compile(r"\*/([1-9]|[1-5][0-9]) \* \* \* \*")


@dataclass(frozen=True, slots=True)
class Cron(Recurring):
    """Plans by a five-field cron expression or a named form, read in an IANA time zone.

    As in Debian's cron, a fixed time fires exactly once a day whatever the clocks do (at the end
    of a gap, at the first of two passes); with a `*` minute or hour, plans follow real time.
    """

    kind: ClassVar[str] = "cron"
    label: ClassVar[str] = "Cron"
    example: ClassVar[str] = "0 9 * * mon-fri"
    document_fields: ClassVar[tuple[str, ...]] = ("schedule", "timezone")

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", _normal_expression(self.expression))
        zone_named(self.timezone)
        calendar_of(self.expression)

    @classmethod
    def from_text(cls, text: str, timezone: str) -> "Cron":
        return cls(text, timezone)

    @property
    def text(self) -> str:
        return self.expression

    @classmethod
    def from_row(cls, row: ScheduleRow) -> Self:
        return cls(row.cron_expression or "", row.timezone)

    def columns(self) -> dict[str, Any]:
        return {"cron_expression": self.expression, "timezone": self.timezone}

    def edited(self, fields: Mapping[str, Any]) -> "Cron":
        super(Cron, self).edited(fields)
        timezone = fields.get("timezone")
        return self if timezone is None else Cron(self.expression, timezone)

    def describe(self) -> str:
        step = _EVERY_FEW_MINUTES.fullmatch(self.expression)
        if step and 60 % int(step[1]) == 0:  # the same in every time zone
            return f"every {interval(timedelta(minutes=int(step[1])))}"
        text = calendar_of(self.expression).fields.explain()
        text = text[0].lower() + text[1:]
        if text.endswith(" every day"):
            text = "daily " + text.removesuffix(" every day")
        return f"{text}, {self.timezone}"

    def next_after(self, moment: datetime) -> datetime:
        for piece in pieces(self.expression, self.timezone, max(as_utc(moment), BEGIN), END):
            plan = piece.first()
            if plan is not None:
                return plan
        raise self._no_more_plans()

    def latest_until(self, moment: datetime) -> datetime | None:
        until = min(as_utc(moment), END)
        newest_first = pieces(self.expression, self.timezone, BEGIN, until, newest_first=True)
        return next((plan for piece in newest_first if (plan := piece.last()) is not None), None)

    def count(self, after: datetime, until: datetime) -> int:
        """By arithmetic on months instead of walking."""
        span = max(as_utc(after), BEGIN), min(as_utc(until), END)
        return sum(piece.count() for piece in pieces(self.expression, self.timezone, *span))


def _normal_expression(text: str) -> str:
    fields = split_words(text)
    if fields[0].startswith("@"):
        name = " ".join(fields).lower()
        if name in NAMED_CRON:
            return name
        raise InvalidSchedule(
            f"{text!r} is not a named schedule. The names are {', '.join(NAMED_CRON)}; "
            'any interval is written like "@every 1h30m".'
        )
    if len(fields) == 6:
        raise InvalidSchedule(
            f"{text!r} has 6 fields, but cron here has 5: seconds are not supported. "
            f'Write for example {CRON_EXAMPLE}, or "@every 10s" for every ten seconds.'
        )
    if len(fields) != 5:
        raise InvalidSchedule(
            f"{text!r} has {len(fields)} fields, but a cron expression has 5. "
            f"Write for example {CRON_EXAMPLE}."
        )
    return " ".join(fields)
