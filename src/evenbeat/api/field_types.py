"""The kinds of value that requests are made of, each checked once and described once.

Bodies are read strictly: a number in quotes is not a number. What PostgreSQL could not hold or what
could exhaust a reader (NUL characters, lone surrogates, endless nesting) is refused at the door.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema

from evenbeat.domain.duration import MAX_DURATION, parse_duration
from evenbeat.domain.limits import parse_rate
from evenbeat.domain.moments import as_utc, zone_named
from evenbeat.domain.setting_kinds import MAX_NAME, check_name
from evenbeat.domain.window import parse_window
from evenbeat.external.addresses import http_url
from evenbeat.store.reads import MAX_PAGE

MAX_DEPTH = 32
MAX_DESCRIPTION = 10_000
MAX_URL = 2_000
MAX_SOURCE = 500
MAX_TAGS = 100
MAX_INTEGER = 2**31 - 1
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""Room at both ends: no delay, window or interval can lead out of the calendar from here."""


# -- JSON that can be kept -----------------------------------------------------------------------


def check_json(value: Any) -> Any:
    """Refuse what cannot be stored, however deep it hides; the value itself is never changed."""
    waiting = [(value, 1)]
    while waiting:
        part, depth = waiting.pop()
        if isinstance(part, str):
            check_text(part)
        elif isinstance(part, dict | list):
            if depth > MAX_DEPTH:
                raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
            waiting.extend((child, depth + 1) for child in _children(part))
    return value


def _children(part: dict[Any, Any] | list[Any]) -> Iterator[Any]:
    if isinstance(part, dict):
        yield from part.keys()
        yield from part.values()
    else:
        yield from part


def check_text(text: str) -> str:
    """Refuse characters that PostgreSQL cannot hold."""
    if text.isascii() and "\x00" not in text:
        return text
    if "\x00" in text:
        raise ValueError("it contains the character U+0000, which cannot be stored")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("it contains half of a surrogate pair, which is no character") from None
    return text


# -- single values -------------------------------------------------------------------------------


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        return _within_calendar(as_utc(value))
    if not isinstance(value, str) or len(value) > 64:
        raise ValueError('give a time as text, for example "2030-01-31T09:00:00Z"')
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError('it is not a time; for example "2030-01-31T09:00:00Z"') from None
    if moment.tzinfo is None:
        raise ValueError('it has no time zone; end it with "Z" or an offset such as "+01:00"')
    return _within_calendar(as_utc(moment))


def _within_calendar(moment: datetime) -> datetime:
    if not EARLIEST <= moment <= LATEST:
        raise ValueError(f"it must lie between the years {EARLIEST.year} and {LATEST.year}")
    return moment


def _query_moment(value: Any) -> datetime:
    # In a query a plain "+" means a space, so "…T10:00:00+01:00" arrives with one.
    return _moment(value.replace(" ", "+") if isinstance(value, str) else value)


def _duration(value: Any) -> timedelta:
    return parse_duration(value)


def _name(field: str) -> Any:
    def check(value: str) -> str:
        check_name(field, value)
        return value

    limits = StringConstraints(min_length=1, max_length=MAX_NAME)
    return Annotated[str, limits, AfterValidator(check)]


def _url(value: str) -> str:
    if http_url(value) is None:
        raise ValueError('it is not an http or https URL; for example "https://example.com/feed"')
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("it must contain printable characters only")
    return value


def _timezone(value: str) -> str:
    zone_named(value)
    return value


def _rate(value: str) -> str:
    return str(parse_rate(value))


def _window(value: str) -> str:
    return str(parse_window(value))


_TIME_SCHEMA = {
    "type": "string",
    "format": "date-time",
    "examples": ["2030-01-31T09:00:00Z"],
}
_DURATION_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": 100},
        {"type": "number", "minimum": 0, "maximum": MAX_DURATION.total_seconds()},
    ],
    "examples": ["1h30m", 90],
}

Moment = Annotated[datetime, BeforeValidator(_moment), WithJsonSchema(_TIME_SCHEMA)]
QueryMoment = Annotated[datetime, BeforeValidator(_query_moment), WithJsonSchema(_TIME_SCHEMA)]
Duration = Annotated[timedelta, BeforeValidator(_duration), WithJsonSchema(_DURATION_SCHEMA)]
TaskName = _name("task")
QueueName = _name("queue")
JobName = _name("name")
DedupKey = _name("dedup_key")
JobReference = _name("after")
Tag = _name("tag")
Url = Annotated[str, StringConstraints(min_length=1, max_length=MAX_URL), AfterValidator(_url)]
SourceText = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_SOURCE), AfterValidator(_printable)
]
Timezone = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(_timezone)]
Window = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200),
    AfterValidator(_window),
    Field(examples=["Mon-Fri 22:00-06:00 Europe/Berlin"]),
]
RateText = Annotated[
    str,
    StringConstraints(min_length=1, max_length=100),
    AfterValidator(_rate),
    Field(examples=["10/s", "100/min", "5 per 30s"]),
]
ScheduleText = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200),
    Field(examples=["0 9 * * mon-fri", "@daily", "@every 90m"]),
]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE, description="How many at most.")]
Offset = Annotated[int, Field(ge=0, le=MAX_INTEGER, description="How many to leave out first.")]
