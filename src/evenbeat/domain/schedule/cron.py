"""Runs by the calendar: five cron fields, or a named form such as @daily.

cronsim parses the expression and matches days. Its own walk is not used: where clocks shift by
half an hour it loses plans and finds others backwards than forwards (Australia/Lord_Howe), and
from within a fold it starts with plans that are over (cronsim 2.8).
Here, each stretch of constant offset is searched on the wall clock instead, where plain integer
minutes (since the start of year 1) suffice, and only the seams between stretches need a rule.
"""

import re
from bisect import bisect_left, bisect_right
from calendar import isleap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, Self

from cronsim import CronSim, CronSimError

from evenbeat.domain.moments import BEGIN, END, EPOCH, as_utc, stretches_between, zone_named
from evenbeat.domain.schedule.base import CRON_EXAMPLE, Recurring, ScheduleRow, split_words
from evenbeat.domain.schedule.slack import Slack, read_slack
from evenbeat.errors import InvalidSchedule
from evenbeat.humanize import interval

NAMED_CRON = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_CRON_FIELDS = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, L or LW, and a day that the chosen months have",
    "month": "1-12 or jan-dec",
    "day-of-week": "0-7 or sun-sat, where a range must ascend",
}

_MINUTE = timedelta(minutes=1)
_MICROSECOND = timedelta(microseconds=1)
_MINUTES_A_DAY = 1440
_MARGIN = timedelta(days=2)
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
    # With slack, the expression goes on: "0 1 * * * within 4h at 02:37".

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

    @property
    def fields(self) -> str:
        """The five fields by which it runs."""
        return fields_of(self.expression)

    @property
    def slack(self) -> Slack | None:
        """How much later than its expression says it may run; None for plain cron."""
        return read_slack(self.expression, NAMED_CRON)

    @property
    def wants_place(self) -> bool:
        """Whether it has slack, and no place in it is chosen yet."""
        return self.slack is not None and self.slack.offset is None

    def placed(self, offset: int | None) -> "Cron":
        """With so many minutes of its slack used, or with none chosen."""
        slack = self.slack
        if slack is None:
            return self
        return Cron(str(slack._replace(offset=offset)), self.timezone)

    def with_slack(self, most: timedelta) -> "Cron":
        """With up to so much slack, as far as its days and hours allow; otherwise unchanged."""
        minute, hour, *days = self.fields.split()
        if self.slack is not None or not minute.isdecimal():
            return self
        minutes, left = most // _MINUTE, 60 - int(minute)
        if hour.isdecimal():
            every_day = days == ["*", "*", "*"]
            left = _MINUTES_A_DAY - (0 if every_day else int(hour) * 60 + int(minute))
        minutes = min(minutes, left)
        if minutes < 1:
            return self
        return Cron(str(Slack(self.expression, "", minutes)), self.timezone)

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
        if slack := self.slack:
            text += f" (placed {slack.describe()})"
        return f"{text}, {self.timezone}"

    def next_after(self, moment: datetime) -> datetime:
        after = max(as_utc(moment), BEGIN)
        near = min(after, END - 2 * _MARGIN) + 2 * _MARGIN
        plan = self._first(after, near)
        if plan is None:
            # Wherever the clocks are, a plan lies near a match: years without one are passed over.
            match = calendar_of(self.expression).first(_minutes(near - _MARGIN), _LAST)
            if match is not None:
                plan = self._first(max(near, _WALL_ZERO + match * _MINUTE - _MARGIN), END)
        if plan is None:
            raise self._no_more_plans()
        return plan

    def _first(self, after: datetime, until: datetime) -> datetime | None:
        found = pieces(self.expression, self.timezone, after, until)
        return next((plan for piece in found if (plan := piece.first()) is not None), None)

    def latest_until(self, moment: datetime) -> datetime | None:
        until = min(as_utc(moment), END)
        newest_first = pieces(self.expression, self.timezone, BEGIN, until, newest_first=True)
        return next((plan for piece in newest_first if (plan := piece.last()) is not None), None)

    def count(self, after: datetime, until: datetime) -> int:
        """By arithmetic on years instead of walking."""
        span = max(as_utc(after), BEGIN), min(as_utc(until), END)
        return sum(piece.count() for piece in pieces(self.expression, self.timezone, *span))


def fields_of(expression: str) -> str:
    """The five fields that a normal expression stands for."""
    slack = read_slack(expression, NAMED_CRON)
    return NAMED_CRON.get(expression, expression) if slack is None else slack.fields()


def _normal_expression(text: str) -> str:
    fields = split_words(text)
    if (slack := read_slack(" ".join(fields), NAMED_CRON)) is not None:
        cron = _normal_expression(slack.cron)
        calendar_of(cron)
        return str(slack._replace(cron=cron))
    if fields[0].startswith("@"):
        name = " ".join(fields).lower()
        if name in NAMED_CRON:
            return name
        raise InvalidSchedule(
            f"{text!r} is not a named schedule. The names are {', '.join(NAMED_CRON)}; "
            'any interval is written like "@every 1h30m".'
        )
    if len(fields) != 5:
        raise InvalidSchedule(
            f"{text!r} has {len(fields)} fields, but cron here has 5: seconds are not supported. "
            f'Write for example {CRON_EXAMPLE}, or "@every 10s" for every ten seconds.'
        )
    return " ".join(fields)


# -- which minutes an expression names -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Calendar:
    """The wall-clock minutes that an expression names, blind to time zones."""

    fields: CronSim
    minutes: tuple[int, ...]
    days: str
    is_fixed_time: bool

    def first(self, low: int, high: int) -> int | None:
        """Give the first match in [low, high)."""
        day, minute = divmod(low, _MINUTES_A_DAY)
        index = bisect_left(self.minutes, minute)
        if index == len(self.minutes) or not self._matches(day):
            day, index = self._day_from(day + 1, high // _MINUTES_A_DAY), 0
        match = day * _MINUTES_A_DAY + self.minutes[index]
        return match if match < high else None

    def last(self, low: int, high: int) -> int | None:
        """Give the last match in [low, high)."""
        day, minute = divmod(high, _MINUTES_A_DAY)
        index = bisect_left(self.minutes, minute) - 1
        if index < 0 or not self._matches(day):
            day, index = self._day_until(day - 1, low // _MINUTES_A_DAY), -1
        match = day * _MINUTES_A_DAY + self.minutes[index]
        return match if match >= low else None

    def count(self, low: int, high: int) -> int:
        """Count the matches in [low, high)."""
        if low >= high:
            return 0
        first_day, last_day = low // _MINUTES_A_DAY, high // _MINUTES_A_DAY
        whole_days = self._days_between(first_day, last_day) * len(self.minutes)
        return whole_days - self._earlier_that_day(low) + self._earlier_that_day(high)

    def _earlier_that_day(self, moment: int) -> int:
        day, minute = divmod(moment, _MINUTES_A_DAY)
        return bisect_left(self.minutes, minute) if self._matches(day) else 0

    def _matches(self, day: int) -> bool:
        return self._day_from(day, day) == day

    def _days_between(self, first: int, last: int) -> int:
        total = 0
        while first < last:
            start, end, days = self._year(first)
            total += bisect_left(days, min(last, end) - start) - bisect_left(days, first - start)
            first = end
        return total

    def _day_from(self, day: int, limit: int) -> int:
        """Give the first matching day from `day` on, or some day past `limit`."""
        while day <= limit:
            start, end, days = self._year(day)
            index = bisect_left(days, day - start)
            if index < len(days):
                return start + days[index]
            day = end
        return limit + 1

    def _day_until(self, day: int, limit: int) -> int:
        """Give the last matching day up to `day`, or some day before `limit`."""
        while day >= limit:
            start, _, days = self._year(day)
            index = bisect_right(days, day - start) - 1
            if index >= 0:
                return start + days[index]
            day = start - 1
        return limit - 1

    def _year(self, day: int) -> tuple[int, int, tuple[int, ...]]:
        """Give the year of a day: its first, the next one's first, and its matches from there."""
        year = date.fromordinal(day + 1).year
        start, leap = date(year, 1, 1).toordinal() - 1, isleap(year)
        return start, start + 365 + leap, _matching_days(self.days, start % 7, leap)


@dataclass(frozen=True, slots=True)
class Piece:
    """The plans of one stretch: matches in [low, high), preceded by `late` if a gap delayed any."""

    calendar: Calendar
    low: int
    high: int
    offset: timedelta
    late: datetime | None

    def first(self) -> datetime | None:
        return self.late or self._instant(self.calendar.first(self.low, self.high))

    def last(self) -> datetime | None:
        return self._instant(self.calendar.last(self.low, self.high)) or self.late

    def count(self) -> int:
        return self.calendar.count(self.low, self.high) + (self.late is not None)

    def _instant(self, minutes: int | None) -> datetime | None:
        return None if minutes is None else _WALL_ZERO + minutes * _MINUTE - self.offset


def pieces(
    expression: str, timezone: str, after: datetime, until: datetime, *, newest_first: bool = False
) -> Iterator[Piece]:
    """Give the plans in (after, until], one stretch of constant offset at a time."""
    calendar = calendar_of(expression)
    for stretch in stretches_between(timezone, after, until, newest_first):
        start = max(after + _MICROSECOND, stretch.start)
        low = _minutes(start + stretch.offset)
        high = _minutes(min(until + _MICROSECOND, stretch.end) + stretch.offset)
        late = None
        if calendar.is_fixed_time and stretch.offset != stretch.offset_before:
            # The wall clock had reached `seen` before the change. Up to there, a fold shows minutes
            # again that have had their turn; from there, a gap hides minutes that still deserve it.
            seen = _minutes(stretch.start + stretch.offset_before)
            opening = _minutes(stretch.start + stretch.offset)
            if start == stretch.start and calendar.first(seen, opening) is not None:
                # A match at the very end of the gap is the same plan: counting starts behind it.
                late, low = stretch.start, _minutes(stretch.start + stretch.offset + _MICROSECOND)
            low = max(low, seen)
        yield Piece(calendar, low, high, stretch.offset, late)


@lru_cache(maxsize=4096)
def calendar_of(expression: str) -> Calendar:
    five = fields_of(expression)
    try:
        fields = CronSim(five, EPOCH)
    except (CronSimError, ValueError) as error:
        name = str(error).removeprefix("Bad ")
        allowed = _CRON_FIELDS.get(name, "small numbers only")
        raise InvalidSchedule(
            f"{expression!r} is not a cron expression: its {name} field is wrong, which allows "
            f"{allowed}. Write for example {CRON_EXAMPLE}."
        ) from None
    minute, hour, *days = five.split()
    minutes = tuple(h * 60 + m for h in sorted(fields.hours) for m in sorted(fields.minutes))
    is_fixed_time = not minute.startswith("*") and not hour.startswith("*")
    calendar = Calendar(fields, minutes, " ".join(days), is_fixed_time)
    # The Gregorian calendar repeats after 400 years: what misses them all never comes.
    if calendar.first(_YEAR_2000, _YEAR_2400) is None:
        raise InvalidSchedule(
            f"{expression!r} never fires: no date matches its days and months. "
            f"Write for example {CRON_EXAMPLE}."
        )
    return calendar


@lru_cache(maxsize=4096)
def _matching_days(days: str, weekday: int, leap: bool) -> tuple[int, ...]:
    """Years that begin on the same day of the week and are as long have the same days."""
    fields = CronSim(f"0 0 {days}", EPOCH)
    first = next(
        first
        for first in (date(year, 1, 1) for year in range(2000, 2028))
        if (first.weekday(), isleap(first.year)) == (weekday, leap)
    )
    dates = (first + timedelta(days=n) for n in range(365 + leap))
    return tuple(
        n for n, day in enumerate(dates) if day.month in fields.months and fields.match_day(day)
    )


_WALL_ZERO = datetime(1, 1, 1, tzinfo=UTC)


def _minutes(wall: datetime) -> int:
    """Express a wall-clock time, carried as if it were UTC, in minutes, rounded up."""
    return -((_WALL_ZERO - wall) // _MINUTE)


_LAST = _minutes(END + _MARGIN)
_YEAR_2000 = _minutes(datetime(2000, 1, 1, tzinfo=UTC))
_YEAR_2400 = _minutes(datetime(2400, 1, 1, tzinfo=UTC))
