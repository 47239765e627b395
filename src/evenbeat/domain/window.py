"""Execution windows: the hours in which a job may start, such as "Mon-Fri 22:00-06:00 UTC".

`off_peak` is a window by name. Which hours it means is found by the load and written behind the
name, "off_peak 01:00-05:00 UTC", when a job is stored; before that, it is open all day.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import NoReturn
from zoneinfo import ZoneInfo

from evenbeat.domain.moments import as_utc, offset_change, zone_named
from evenbeat.domain.schedule.interval import Interval
from evenbeat.errors import InvalidWindow

EVERY_DAY = frozenset(range(7))
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MIDNIGHT = time(0)
OFF_PEAK = "off_peak"
LATEST_START = timedelta(minutes=15)
"""How long before a window closes (a tenth of it, if that is less) the last run is placed: one that
then waits for a free worker must not miss the window."""
_EXAMPLE = 'Write for example "Mon-Fri 22:00-06:00 Europe/Berlin", "09:00-17:30" or "off_peak".'
_TEXT = re.compile(
    r"(?:(?P<days>[^\W\d_][^\s:]*)\s+)?(?P<start>[0-9]+:[0-9]+)-(?P<end>[0-9]+:[0-9]+)"
    r"(?:\s+(?P<timezone>\S+))?"
)
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True)
class ExecutionWindow:
    """On each of `days` (0 is Monday), open from `start` until before `end`, by the zone's clock.

    An end at or before the start lies on the next day; 00:00 to 00:00 is the whole day. Where the
    clocks jump over a boundary it falls on the end of the gap; where they show it twice, the first
    time counts.
    """

    days: frozenset[int]
    start: time
    end: time
    timezone: str = "UTC"
    off_peak: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "days", frozenset(self.days))
        whole_minutes = all(
            clock.tzinfo is None and clock == clock.replace(second=0, microsecond=0)
            for clock in (self.start, self.end)
        )
        if not self.days or not self.days <= EVERY_DAY or not whole_minutes:
            raise InvalidWindow(
                f"{sorted(self.days)!r} from {self.start} to {self.end} is not an execution window:"
                " give days from 0 (Monday) to 6 (Sunday), at least one, and whole minutes without "
                "a time zone, for example frozenset({0, 1, 2, 3, 4}), time(22, 0) and time(6, 0)."
            )
        if self.start == self.end != _MIDNIGHT:
            _refuse(f"{self.start:%H:%M}-{self.end:%H:%M}", _ALL_DAY)
        zone_named(self.timezone, error=InvalidWindow)

    def __str__(self) -> str:
        if self == ALL_DAY_OFF_PEAK:
            return OFF_PEAK
        name = f"{OFF_PEAK} " if self.off_peak else ""
        days = "" if self.days == EVERY_DAY else _days_text(self.days) + " "
        end = "24:00" if self.end == _MIDNIGHT else f"{self.end:%H:%M}"
        return f"{name}{days}{self.start:%H:%M}-{end} {self.timezone}"

    def contains(self, moment: datetime) -> bool:
        """Say whether the window is open at `moment`."""
        moment = as_utc(moment)
        return self.next_open(moment) == moment

    def next_open(self, moment: datetime) -> datetime:
        """Give `moment` itself while the window is open, else the next opening."""
        return max(self.open_span(moment)[0], as_utc(moment))

    def open_span(self, moment: datetime) -> tuple[datetime, datetime]:
        """When the window opens and closes around `moment`, or the next time."""
        moment = as_utc(moment)
        try:
            return next(
                (opening, closing)
                for opening, closing in self._spans_around(moment)
                if opening < closing and moment < closing
            )
        except (OverflowError, StopIteration):
            raise InvalidWindow(
                f"The window {str(self)!r} does not open between {moment.isoformat()} and the end "
                "of the year 9999."
            ) from None

    def _spans_around(self, moment: datetime) -> Iterator[tuple[datetime, datetime]]:
        zone = ZoneInfo(self.timezone)
        today = moment.astimezone(zone).date()
        # Two days back, as a window reaches into the next day and clocks have gone back by a day;
        # two weeks ahead, as the only opening of a week may vanish in a gap.
        for distance in range(-2, 15):
            day = today + timedelta(days=distance)
            if day.weekday() in self.days:
                last = day if self.start < self.end else day + timedelta(days=1)
                yield _instant(zone, day, self.start), _instant(zone, last, self.end)


def parse_window(text: str) -> ExecutionWindow:
    """Read "[days] HH:MM-HH:MM [timezone]"; without days every day, without a timezone UTC."""
    text = str(text)
    name, _, hours = text.strip().partition(" ")
    if name.lower().replace("-", "_") == OFF_PEAK:
        return replace(parse_window(hours), off_peak=True) if hours else ALL_DAY_OFF_PEAK
    if len(text) > _LONGEST_TEXT:
        _refuse(text[:_LONGEST_TEXT], f"it goes on beyond {_LONGEST_TEXT} characters")
    # People and word processors write en dashes, and spaces around dashes and commas.
    tidy = re.sub(r"\s*([-,])\s*", r"\1", re.sub("[–—]", "-", text.strip()))  # noqa: RUF001
    match = _TEXT.fullmatch(tidy)
    if match is None:
        _refuse(text, "it must be days, hours and a time zone, of which only the hours are needed")
    days, start, end, timezone = match.group("days", "start", "end", "timezone")
    opening, closing = _clock(text, start), _clock(text, "00:00" if end == "24:00" else end)
    if opening == closing and end != "24:00":
        _refuse(text, _ALL_DAY)
    return ExecutionWindow(
        EVERY_DAY if days is None else _days(text, days), opening, closing, timezone or "UTC"
    )


ALL_DAY_OFF_PEAK = ExecutionWindow(EVERY_DAY, _MIDNIGHT, _MIDNIGHT, off_peak=True)
"""The hours of `off_peak` before they are found."""


def due_at(
    plan_time: datetime,
    delay: timedelta,
    window: ExecutionWindow | None,
    dues: Interval | None = None,
) -> datetime:
    """Give the instant from which a plan may start: after `delay`, and inside the window.

    A plan that the window holds back starts at its opening; with `dues` (when the plans of a
    balanced interval are due) a while later, so that not all such jobs start together.
    """
    due = as_utc(plan_time) + delay
    if window is None:
        return due
    opening, closing = window.open_span(due)
    if opening <= due or dues is None:
        return max(opening, due)
    ahead = dues.next_after(opening - timedelta(microseconds=1)) - opening
    open_for = closing - opening
    # Half-way to the job's own first plan inside, so that both run; if there is none, as far into
    # the window as its plans lie apart. Either way as far apart as the balancer has placed them.
    return opening + (ahead // 2 if ahead < open_for else ahead % usable(open_for))


def usable(open_for: timedelta) -> timedelta:
    """For how much of a window runs are placed in it."""
    return open_for - min(open_for / 10, LATEST_START)


_ALL_DAY = 'it opens and closes at the same time; all day is written "00:00-24:00"'


def _instant(zone: ZoneInfo, day: date, clock: time) -> datetime:
    """Give the first instant at which the zone's clock shows this time, or the end of the gap."""
    wall = datetime.combine(day, clock, tzinfo=zone)
    instant = wall.astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall.replace(tzinfo=None):
        return instant
    # In a gap, fold=1 reads the wall clock with the later offset: an instant before the change.
    return offset_change(zone, wall.replace(fold=1).astimezone(UTC), instant)


def _clock(text: str, clock: str) -> time:
    match = _CLOCK.fullmatch(clock)
    if match is None:
        _refuse(text, f"{clock!r} is not a time from 00:00 to 23:59 (or 24:00 as the end)")
    return time(int(match[1]), int(match[2]))


def _days(text: str, names: str) -> frozenset[int]:
    """The days of "Mon-Wed,Fri". "Tue", "Tues" and "Tuesday" are all meant; two letters would be
    too easy to get wrong."""
    days: set[int] = set()
    for part in names.split(","):
        ends: list[int] = []
        for name in part.split("-"):
            meant = [n for n, day in enumerate(_DAYS) if day.startswith(name.lower())]
            if len(name) < 3 or not meant:
                _refuse(text, f"{name!r} is not a day of the week (Mon Tue Wed Thu Fri Sat Sun)")
            ends += meant
        if len(ends) > 2:
            _refuse(text, f"{part!r} is not a range of days")
        days.update((ends[0] + step) % 7 for step in range((ends[-1] - ends[0]) % 7 + 1))
    return frozenset(days)


def _days_text(days: frozenset[int]) -> str:
    runs: list[list[str]] = []
    for day in sorted(days):
        if day - 1 not in days:
            runs.append([])
        runs[-1].append(_DAYS[day][:3].title())
    return ",".join(
        f"{names[0]}-{names[-1]}" if len(names) > 2 else ",".join(names) for names in runs
    )


def _refuse(text: object, reason: str) -> NoReturn:
    raise InvalidWindow(f"{text!r} is not an execution window: {reason}. {_EXAMPLE}")
