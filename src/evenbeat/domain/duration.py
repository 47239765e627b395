"""Durations as people write them: "30s", "1h30m", "7d"."""

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import NoReturn

from evenbeat.errors import InvalidDuration
from evenbeat.humanize import shorten

# Far beyond any sensible wait, yet near enough that adding it to a date never overflows.
MAX_DURATION = timedelta(days=36_500)

_MICROSECONDS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),  # the micro sign
    "μs": Fraction(1),
    "ms": Fraction(1_000),
    "s": Fraction(1_000_000),
    "m": Fraction(60_000_000),
    "h": Fraction(3_600_000_000),
    "d": Fraction(86_400_000_000),
}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([^0-9.\s]+)")
_NUMBER = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
_LONGEST_TEXT = 100
_EXAMPLES = 'Write numbers with units (ns us ms s m h d), for example "30s", "1h30m" or "7d".'


def parse_duration(value: str | int | float | timedelta, *, field: str | None = None) -> timedelta:
    """Read a duration, to the nearest microsecond; a bare number counts seconds.

    Never negative, never above MAX_DURATION. Zero is allowed: callers that need more check it.
    """
    if isinstance(value, timedelta):
        return _checked(value, value, field)
    if isinstance(value, str):
        return _from_text(value, field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(value, f"a {type(value).__name__} cannot be one", field)
    if isinstance(value, float) and not math.isfinite(value):
        _refuse(value, "it is not a finite number", field)
    # Compared before the conversion, which would overflow on a huge number.
    if abs(value) > MAX_DURATION.total_seconds():
        _refuse_size(value, value < 0, field)
    return _checked(timedelta(seconds=value), value, field)


def format_duration(duration: timedelta) -> str:
    """Write a duration without empty parts ("1h30m", "500ms", "0s"), as parse_duration reads it."""
    rest = abs(duration) // timedelta(microseconds=1)
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, int(_MICROSECONDS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    sign = "-" if duration < timedelta(0) else ""
    return sign + "".join(parts) if parts else "0s"


def _from_text(value: str, field: str | None) -> timedelta:
    text = value.strip()
    if not text:
        _refuse(value, "it is empty", field)
    if len(text) > _LONGEST_TEXT:
        _refuse(value, f"it is longer than {_LONGEST_TEXT} characters", field)
    if text.startswith("-"):
        _refuse_size(value, True, field)
    if _NUMBER.fullmatch(text):
        _refuse(value, f'it has no unit (seconds would be "{text}s")', field)
    total, position = Fraction(0), 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            _refuse(value, f"{text[position:]!r} is not a number with a unit", field)
        number, unit = part.groups()
        if unit not in _MICROSECONDS:
            _refuse(value, f"{unit!r} is not a unit", field)
        total += Fraction(number) * _MICROSECONDS[unit]
        position = part.end()
    if round(total) > MAX_DURATION // timedelta(microseconds=1):
        _refuse_size(value, False, field)
    return timedelta(microseconds=round(total))


def _checked(duration: timedelta, value: object, field: str | None) -> timedelta:
    if not timedelta(0) <= duration <= MAX_DURATION:
        _refuse_size(value, duration < timedelta(0), field)
    return duration


def _refuse_size(value: object, negative: bool, field: str | None) -> NoReturn:
    limit = f"the most is {format_duration(MAX_DURATION)}"
    _refuse(value, "it must not be negative" if negative else f"it is too long: {limit}", field)


def _refuse(value: object, reason: str, field: str | None) -> NoReturn:
    shown = value
    if isinstance(value, timedelta):
        shown = format_duration(value)
    elif isinstance(value, str):
        shown = shorten(value, _LONGEST_TEXT)
    elif isinstance(value, int) and value.bit_length() >= 200:  # too long to be printed in full
        shown = float("inf") if value > 0 else float("-inf")
    raise InvalidDuration(f"{shown!r} is not a duration: {reason}. {_EXAMPLES}", field=field)
