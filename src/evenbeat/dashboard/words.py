"""Figures, durations and moments in the words that every screen shares. Pure."""

from datetime import datetime, timedelta, tzinfo
from itertools import pairwise

NOTHING = "\N{EN DASH}"
"""Stands where there is no value."""

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def duration(milliseconds: float | None) -> str:
    """How long something took, in two parts at most: `340 ms`, `2.4 s`, `3 min 20 s`."""
    if milliseconds is None:
        return NOTHING
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"
    seconds = milliseconds / 1_000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    return _two_parts(round(seconds))


def seconds(amount: float | None) -> str:
    """A span of whole seconds: `90 s` is `1 min 30 s`."""
    if amount is None:
        return NOTHING
    return duration(amount * 1_000) if amount < 1 else _two_parts(round(amount))


def relative(moment: datetime, now: datetime) -> str:
    """How far away a moment is: `in 5 min`, `2 h 10 min ago`, `now`. The script says the same."""
    distance = round((moment - now).total_seconds())
    if distance == 0:
        return "now"
    rounded = abs(distance) if abs(distance) < 60 else abs(distance) // 60 * 60
    text = _two_parts(rounded)
    return f"in {text}" if distance > 0 else f"{text} ago"


def moment(when: datetime, now: datetime, zone: tzinfo) -> str:
    """The time of day, with as much of the date as is needed to tell it from today's."""
    there, today = when.astimezone(zone), now.astimezone(zone)
    if there.date() == today.date():
        return f"{there:%H:%M:%S}"
    if abs(when - now) < timedelta(days=300):
        return f"{there.day} {there:%b %H:%M}"
    return f"{there.day} {there:%b %Y %H:%M}"


def day_and_time(when: datetime, zone: tzinfo) -> str:
    """The moment with its day, to the second: `Mon 16 Nov 01:30:00`."""
    there = when.astimezone(zone)
    return f"{there:%a} {there.day} {there:%b %H:%M:%S}"


def exact(when: datetime, zone: tzinfo) -> str:
    """The moment in full."""
    there = when.astimezone(zone)
    return f"{there:%a %Y-%m-%d %H:%M:%S} {there.tzname()}"


def count(number: float, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 job`, `2,000 jobs`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def share(part: float | None) -> str:
    """A share as a percentage that says 100 % only of all, and 0 % only of none."""
    if part is None:
        return NOTHING
    percent = part * 100
    if 0 < percent < 0.1 or 99.9 < percent < 100:
        return "< 0.1 %" if percent < 50 else "> 99.9 %"
    return f"{percent:.0f} %" if percent in (0, 100) or 10 <= percent < 99 else f"{percent:.1f} %"


def _two_parts(whole: int) -> str:
    """The largest unit, and the next one if there is any of it."""
    for (size, unit), (below, next_unit) in pairwise((*_STEPS, (0, ""))):
        if whole >= size:
            rest = whole % size // below if below else 0
            return f"{whole // size:,} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return "0 s"
