"""Limits that jobs with one key share: how many run at once, and how often one may start.

A rate is kept by a token bucket whose whole state is one moment, `next_start_at`: tokens come every
`step`, at most `burst` of them are saved up. With `step = period / (count - burst + 1)` no window
of one period, wherever it begins, sees more than `count` starts: `burst` at once, and then the
`count - burst` whose tokens arrive before the period is over.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from string import Formatter
from typing import Any, NamedTuple

from evenbeat.domain.duration import format_duration, parse_duration
from evenbeat.errors import InvalidInput

MAX_RUNNING = 1_000_000
MAX_RATE = 1_000_000
SHORTEST_PERIOD = timedelta(milliseconds=1)
LONGEST_PERIOD = timedelta(days=31)

_MICROSECOND = timedelta(microseconds=1)
_LONGEST_TEXT = 100
_RATE = re.compile(r"([0-9]{1,12})\s*(?:/|per\s)\s*(\S.*)")
_WORDS = {
    **dict.fromkeys(("s", "sec", "second"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "minute"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day"), timedelta(days=1)),
}
_UNITS = {_WORDS[unit]: unit for unit in ("s", "m", "h", "d")}
_RATE_EXAMPLES = 'Write a number and a period, such as "10/s", "100/min", "1000/h" or "5 per 30s".'


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `count` starts in any `period`."""

    count: int
    period: timedelta

    def __post_init__(self) -> None:
        if (problem := _problem(self.count, self.period)) is not None:
            raise _no_rate(f"{self.count} per {self.period}", problem)

    @property
    def burst(self) -> int:
        """How many may start at the same moment after a rest."""
        return max(1, self.count // 100)

    @property
    def step(self) -> timedelta:
        """How far apart tokens come, rounded up."""
        parts = self.count - self.burst + 1
        return -(-(self.period // _MICROSECOND) // parts) * _MICROSECOND

    def __str__(self) -> str:
        return f"{self.count}/{_UNITS.get(self.period) or format_duration(self.period)}"


class Limits(NamedTuple):
    """What a job asks for: its key, how many with it may run at once, how often one may start."""

    key: str
    max_running: int | None
    rate: RateLimit | None


class KeyLimit(NamedTuple):
    """A key as it stands. Waiting jobs are counted up to 1000; `is_set` means that an operator has
    set the limits, whatever the jobs ask for."""

    key: str
    max_running: int | None
    rate_limit: str | None
    next_start_at: datetime | None
    is_set: bool
    running: int
    waiting: int
    updated_at: datetime


# -- what people write -----------------------------------------------------------------------------


def parse_rate(value: str | RateLimit, *, field: str = "rate_limit") -> RateLimit:
    """Read a rate such as "10/s" or "5 per 30s"."""
    if isinstance(value, RateLimit):
        return value
    if not isinstance(value, str):
        raise _no_rate(value, f"a {type(value).__name__} cannot be one", field)
    parts = _RATE.fullmatch(value.strip()) if len(value) <= _LONGEST_TEXT else None
    if parts is None:
        raise _no_rate(value, "it is not a number and a period", field)
    count, period = int(parts[1]), parts[2].strip()
    try:
        length = _WORDS.get(period) or parse_duration(period)
    except InvalidInput:
        raise _no_rate(value, f"{period[:40]!r} is not a period", field) from None
    if (problem := _problem(count, length)) is not None:
        raise _no_rate(value, problem, field)
    return RateLimit(count, length)


def check_running(value: Any, *, field: str = "concurrency_limit") -> int:
    """Refuse a number of runs that is none."""
    if type(value) is not int or not 1 <= value <= MAX_RUNNING:
        raise InvalidInput(
            f"{field} must be a whole number from 1 to {MAX_RUNNING:,}, got {str(value)[:40]}.",
            field=field,
        )
    return value


def _problem(count: Any, period: timedelta) -> str | None:
    if type(count) is not int or not 1 <= count <= MAX_RATE:
        return f"the number must be from 1 to {MAX_RATE:,}"
    if not SHORTEST_PERIOD <= period <= LONGEST_PERIOD:
        shortest, longest = format_duration(SHORTEST_PERIOD), format_duration(LONGEST_PERIOD)
        return f"the period must be from {shortest} to {longest}"
    return None


def _no_rate(value: object, reason: str, field: str = "rate_limit") -> InvalidInput:
    shown = str(value)[:60]
    return InvalidInput(f"{shown!r} is not a rate: {reason}. {_RATE_EXAMPLES}", field=field)


# -- keys from arguments ---------------------------------------------------------------------------


def arguments_in(template: str) -> list[str]:
    """The arguments that a key's template names; "{{" and "}}" stand for braces themselves."""
    return [name for _, name in _parts(template) if name is not None]


def filled_key(template: str, arguments: Mapping[str, Any]) -> str:
    """The key for a job with these arguments: "customer:{customer_id}" becomes "customer:42"."""
    if "{" not in template and "}" not in template:
        return template
    return "".join(
        text if name is None else text + _value(template, name, arguments)
        for text, name in _parts(template)
    )


def _parts(template: str) -> list[tuple[str, str | None]]:
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise _no_template(template, str(error)) from None
    for _, name, form, conversion in parts:
        if name is not None and (not name.isidentifier() or form or conversion):
            raise _no_template(template, f"{{{name}}} does not name an argument")
    return [(text, name) for text, name, _, _ in parts]


def _no_template(template: str, reason: str) -> InvalidInput:
    return InvalidInput(
        f"The concurrency_key {template[:60]!r} cannot be read: {reason}. Put the name of an "
        'argument in braces, such as "customer:{customer_id}"; write {{ and }} for braces.',
        field="concurrency_key",
    )


def _value(template: str, name: str, arguments: Mapping[str, Any]) -> str:
    value = arguments.get(name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float) and value != "":
        return str(value)
    problem = "is missing" if value is None else "must be a text or a number"
    raise InvalidInput(
        f"The concurrency_key {template!r} is made of the argument {name!r}, which {problem}. "
        "Give it, or set another concurrency_key for this job.",
        field="concurrency_key",
    )
