"""Moments and time zones: aware UTC in and out, and the stretches between clock changes."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from evenbeat.errors import InvalidInput, InvalidSchedule

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Plans lie in (BEGIN, END]: a year of room at both ends keeps all arithmetic from overflowing.
BEGIN = datetime(2, 1, 1, tzinfo=UTC)
END = datetime(9999, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)


def as_utc(moment: datetime, *, field: str | None = None) -> datetime:
    """Express an aware datetime in UTC; a naive one raises InvalidInput."""
    if moment.tzinfo is None:
        raise InvalidInput(
            f"{moment.isoformat()!r} has no time zone. Give an aware datetime, for example "
            "datetime(2030, 1, 31, 9, 0, tzinfo=UTC).",
            field=field,
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(
            f"{moment.isoformat()!r} lies outside the years 1 to 9999.", field=field
        ) from None


def epoch_second(moment: datetime) -> int:
    """The whole second since 1970 that contains `moment`."""
    return (moment - EPOCH) // _SECOND


def at_second(second: int) -> datetime:
    """The moment of a whole second since 1970."""
    return EPOCH + timedelta(seconds=second)


def zone_named(key: str, *, error: type[InvalidInput] = InvalidSchedule) -> ZoneInfo:
    """Look up an IANA time zone; an unknown key raises `error`."""
    try:
        # These exist only on some machines, or differ between them.
        if key != "localtime" and not key.startswith("right/"):
            return ZoneInfo(key)
    except (ValueError, LookupError, OSError, TypeError, AttributeError):
        pass
    raise error(
        f'{key!r} is not a time zone. Give an IANA name, for example "Europe/Berlin" or "UTC".',
        field="timezone",
    )


def offset_change(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """Give the first instant in (before, after] with the UTC offset that holds at `after`."""
    new = after.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).utcoffset() == new:
            after = middle
        else:
            before = middle
    return after


@dataclass(frozen=True, slots=True)
class Stretch:
    """A span [start, end) throughout which a zone keeps one UTC offset."""

    start: datetime
    end: datetime
    offset: timedelta
    offset_before: timedelta


def stretches_between(
    timezone: str, after: datetime, until: datetime, newest_first: bool
) -> Iterator[Stretch]:
    """The stretches that overlap (after, until]."""
    years = range(after.year, until.year + 1)
    for year in reversed(years) if newest_first else years:
        stretches = _stretches(timezone, year)
        for stretch in reversed(stretches) if newest_first else stretches:
            if stretch.end > after and stretch.start <= until:
                yield stretch


@lru_cache(maxsize=4096)
def _stretches(timezone: str, year: int) -> tuple[Stretch, ...]:
    zone = ZoneInfo(timezone)
    start, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    starts = sorted({start, *_offset_changes(zone, start - _SECOND, end - _SECOND)})
    return tuple(
        Stretch(begin, finish, _offset(zone, begin), _offset(zone, begin - _SECOND))
        for begin, finish in pairwise([*starts, end])
    )


def _offset_changes(zone: ZoneInfo, after: datetime, until: datetime) -> Iterator[datetime]:
    # One sample every other day is enough: in all of tzdata no two changes lie within three days.
    # Nor does any fold cross a new year (UTC), so cutting at years splits none.
    days = range(0, (until - after) // timedelta(days=1) + 1, 2)
    moments = [*(after + timedelta(days=day) for day in days), until]
    samples = [(moment, moment.astimezone(zone).utcoffset()) for moment in moments]
    for (earlier, before), (later, then) in pairwise(samples):
        if before != then:
            yield offset_change(zone, earlier, later)


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)
