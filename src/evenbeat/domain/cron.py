"""Which minutes a cron expression names, on the wall clock and then on the real one.

cronsim parses the expression and matches days. Its own walk is not used: where clocks shift by
half an hour it loses plans and finds others backwards than forwards (Australia/Lord_Howe), and
from within a fold it starts with plans that are over (cronsim 2.8).
Here, each stretch of constant offset is searched on the wall clock instead, where plain integer
minutes (since the start of year 1) suffice, and only the seams between stretches need a rule.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from cronsim import CronSim, CronSimError

from evenbeat.domain.moments import EPOCH, Stretch, stretches_between
from evenbeat.errors import InvalidSchedule

NAMED_CRON = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
CRON_EXAMPLE = '"0 9 * * mon-fri" (minute, hour, day of month, month, day of week)'
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


@dataclass(frozen=True, slots=True)
class Calendar:
    """The wall-clock minutes that an expression names, blind to time zones."""

    fields: CronSim
    minutes: tuple[int, ...]
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
        wall = _date(day)
        return wall.day in _matching_days(self.fields, wall.year, wall.month)

    def _days_between(self, first: int, last: int) -> int:
        low, high = _date(first), _date(last)
        months = range(low.year * 12 + low.month - 1, high.year * 12 + high.month - 1)
        total = sum(len(_matching_days(self.fields, *_year_month(month))) for month in months)
        return total - self._earlier_that_month(low) + self._earlier_that_month(high)

    def _earlier_that_month(self, wall: date) -> int:
        return bisect_left(_matching_days(self.fields, wall.year, wall.month), wall.day)

    def _day_from(self, day: int, limit: int) -> int:
        """Give the first matching day from `day` on, or some day past `limit`."""
        while day <= limit:
            wall = _date(day)
            days = _matching_days(self.fields, wall.year, wall.month)
            index = bisect_left(days, wall.day)
            if index < len(days):
                return day + days[index] - wall.day
            day += 32 - wall.day
            day -= _date(day).day - 1
        return limit + 1

    def _day_until(self, day: int, limit: int) -> int:
        """Give the last matching day up to `day`, or some day before `limit`."""
        while day >= limit:
            wall = _date(day)
            days = _matching_days(self.fields, wall.year, wall.month)
            index = bisect_right(days, wall.day) - 1
            if index >= 0:
                return day + days[index] - wall.day
            day -= wall.day
        return limit - 1


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
    expression: str,
    timezone: str,
    after: datetime,
    until: datetime,
    *,
    newest_first: bool = False,
) -> Iterator[Piece]:
    """Give the plans in (after, until], one stretch of constant offset at a time."""
    calendar = calendar_of(expression)
    for stretch in stretches_between(timezone, after, until, newest_first):
        yield _piece(calendar, stretch, after, until)


def _piece(calendar: Calendar, stretch: Stretch, after: datetime, until: datetime) -> Piece:
    """Cut the plans of `stretch` to those in (after, until]."""
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
            # A match at the very end of the gap is the same plan, so counting starts behind it.
            late, low = stretch.start, _minutes(stretch.start + stretch.offset + _MICROSECOND)
        low = max(low, seen)
    return Piece(calendar, low, high, stretch.offset, late)


@lru_cache(maxsize=4096)
def calendar_of(expression: str) -> Calendar:
    fields = _parsed(expression)
    minute, hour = NAMED_CRON.get(expression, expression).split()[:2]
    minutes = tuple(h * 60 + m for h in sorted(fields.hours) for m in sorted(fields.minutes))
    calendar = Calendar(fields, minutes, not minute.startswith("*") and not hour.startswith("*"))
    # The Gregorian calendar repeats after 400 years: what misses them all never comes.
    if calendar.first(_YEAR_2000, _YEAR_2400) is None:
        raise InvalidSchedule(
            f"{expression!r} never fires: no date matches its days and months. "
            f"Write for example {CRON_EXAMPLE}."
        )
    return calendar


def _parsed(expression: str) -> CronSim:
    try:
        return CronSim(NAMED_CRON.get(expression, expression), EPOCH)
    except (CronSimError, ValueError) as error:
        name = str(error).removeprefix("Bad ")
        allowed = _CRON_FIELDS.get(name, "small numbers only")
        raise InvalidSchedule(
            f"{expression!r} is not a cron expression: its {name} field is wrong, which allows "
            f"{allowed}. Write for example {CRON_EXAMPLE}."
        ) from None


@lru_cache(maxsize=65_536)
def _matching_days(fields: CronSim, year: int, month: int) -> tuple[int, ...]:
    if month not in fields.months:
        return ()
    start = date(year, month, 1)
    following = (start + timedelta(days=31)).replace(day=1)
    days = (start + timedelta(days=n) for n in range((following - start).days))
    return tuple(day.day for day in days if fields.match_day(day))


_WALL_ZERO = datetime(1, 1, 1, tzinfo=UTC)


def _minutes(wall: datetime) -> int:
    """Express a wall-clock time, carried as if it were UTC, in minutes, rounded up."""
    return -((_WALL_ZERO - wall) // _MINUTE)


def _date(day: int) -> date:
    return date.fromordinal(day + 1)


def _year_month(month: int) -> tuple[int, int]:
    year, index = divmod(month, 12)
    return year, index + 1


_YEAR_2000 = _minutes(datetime(2000, 1, 1, tzinfo=UTC))
_YEAR_2400 = _minutes(datetime(2400, 1, 1, tzinfo=UTC))
