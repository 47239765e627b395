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
_RATE = re.compile(r"([0-9]{1,12})\s*(?:/|per\s)\s*(\S.*)")
_WORDS = {
    **dict.fromkeys(("s", "sec", "second"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "minute"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day"), timedelta(days=1)),
}
_UNITS = {_WORDS[unit]: unit for unit in ("s", "m", "h", "d")}
_RATE_EXAMPLES = (
    f"Write a number from 1 to {MAX_RATE:,} and a period from 1ms to 31d, such as "
    '"10/s", "100/min", "1000/h" or "5 per 30s".'
)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `count` starts in any `period`."""

    count: int
    period: timedelta

    def __post_init__(self) -> None:
        is_count = type(self.count) is int and 1 <= self.count <= MAX_RATE
        if not is_count or not SHORTEST_PERIOD <= self.period <= LONGEST_PERIOD:
            raise _no_rate(f"{self.count} per {self.period}")

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


def parse_rate(value: str | RateLimit) -> RateLimit:
    """Read a rate such as "10/s" or "5 per 30s"."""
    if isinstance(value, RateLimit):
        return value
    parts = _RATE.fullmatch(str(value).strip())
    if parts is None:
        raise _no_rate(value)
    try:
        period = _WORDS.get(parts[2].strip()) or parse_duration(parts[2].strip())
        return RateLimit(int(parts[1]), period)
    except InvalidInput:
        raise _no_rate(value) from None


def _no_rate(value: object) -> InvalidInput:
    return InvalidInput(f"{str(value)[:60]!r} is not a rate. {_RATE_EXAMPLES}", field="rate_limit")


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


def key_after_edit(
    key: str | None, template: str | None, before: Mapping[str, Any], after: Mapping[str, Any]
) -> str | None:
    """The key of a job whose arguments are edited: one that its task made of them is made again,
    and any other stays."""
    try:
        is_made = key is not None and template is not None and key == filled_key(template, before)
    except InvalidInput:  # an argument was missing, so it had to have another one
        return key
    return filled_key(template, after) if is_made and template is not None else key


def _parts(template: str) -> list[tuple[str, str | None]]:
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        parts = [("", "", None, None)]
    for _, name, form, conversion in parts:
        if name is not None and (not name.isidentifier() or form or conversion):
            raise InvalidInput(
                f"The concurrency_key {template[:60]!r} cannot be read. Put the name of an argument"
                ' in braces, such as "customer:{customer_id}"; write {{ and }} for braces.',
                field="concurrency_key",
            )
    return [(text, name) for text, name, _, _ in parts]


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
