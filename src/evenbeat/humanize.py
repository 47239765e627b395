"""Durations, moments and counts as people read them: one notation for every interface. Pure.

The script in the dashboard (`static/evenbeat.js`) writes relative times in the same notation.
`domain/duration.py` has the other notation, the one that people type: "1h30m".
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise

_UNITS = ((86_400, "d", "day"), (3_600, "h", "hour"), (60, "min", "minute"), (1, "s", "second"))


def duration(length: float | timedelta) -> str:
    """A length of time in at most two units; a bare number counts seconds.

    `340 ms`, `2.4 s`, `3 min 20 s`, `2 d 4 h`.
    """
    seconds = abs(length.total_seconds() if isinstance(length, timedelta) else length)
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        milliseconds = seconds * 1_000
        return f"{milliseconds:.0f} ms" if milliseconds >= 9.95 else f"{milliseconds:.1f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    return _two_units(round(seconds))


def milliseconds(value: float | None) -> str:
    """The same for a measured number of milliseconds; empty if there is none."""
    return "" if value is None else duration(value / 1_000)


def interval(length: timedelta) -> str:
    """How often something happens, to follow "every": `30 minutes`, `hour`, `1 hour 30 minutes`."""
    rest = int(length.total_seconds())
    parts = []
    for size, _, unit in _UNITS:
        number, rest = divmod(rest, size)
        if number:
            parts.append(count(number, unit))
    return parts[0].removeprefix("1 ") if len(parts) == 1 else " ".join(parts)


def relative(moment: datetime, now: datetime) -> str:
    """How far away a moment is: `in 5 min`, `2 h 10 min ago`, `now`."""
    distance = round((moment - now).total_seconds())
    if distance == 0:
        return "now"
    # From a minute on, seconds would only flicker.
    text = _two_units(abs(distance) if abs(distance) < 60 else abs(distance) // 60 * 60)
    return f"in {text}" if distance > 0 else f"{text} ago"


def timestamp(moment: datetime, zone: tzinfo = UTC) -> str:
    """A moment to the second: `2026-03-01 03:00:00 UTC`."""
    there = moment.astimezone(zone)
    return f"{there:%Y-%m-%d %H:%M:%S} {there.tzname()}"


def time_of_day(moment: datetime, now: datetime, zone: tzinfo) -> str:
    """The time of day, with as much of the date as is needed to tell it from today's."""
    there = moment.astimezone(zone)
    if there.date() == now.astimezone(zone).date():
        return f"{there:%H:%M:%S}"
    year = "" if abs(moment - now) < timedelta(days=300) else f"{there: %Y}"
    return f"{there.day} {there:%b}{year}{there: %H:%M}"


def day_and_time(moment: datetime, zone: tzinfo) -> str:
    """A moment with its day of the week: `Mon 16 Nov 01:30:00`."""
    there = moment.astimezone(zone)
    return f"{there:%a} {there.day} {there:%b %H:%M:%S}"


def count(number: float, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 job`, `2,000 jobs`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listing(names: Sequence[str], most: int = 3) -> str:
    """ "a", "a and b", "a, b, c and 4 more"."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def shorten(text: str, longest: int) -> str:
    """The text, cut with an ellipsis if it is too long."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _two_units(whole: int) -> str:
    """The largest unit, and the next one if there is any of it."""
    for (size, unit, _), (next_size, next_unit, _) in pairwise((*_UNITS, (0, "", ""))):
        if whole >= size:
            rest = whole % size // next_size if next_size else 0
            return f"{whole // size:,} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return "0 s"


def any_of(words: Iterable[str]) -> str:
    """A choice between words: `once, interval or cron`."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
