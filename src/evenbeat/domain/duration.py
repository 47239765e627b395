"""Durations as people write them: "30s", "1h30m", "7d"."""

import re
from datetime import timedelta
from fractions import Fraction

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
_NUMBER = r"([0-9]+\.?[0-9]*|\.[0-9]+)"
_PART = re.compile(_NUMBER + f"({'|'.join(_MICROSECONDS)})")
_TEXT = re.compile(f"(?:{_PART.pattern})+")
PATTERN = rf"\s*(?:{_PART.pattern})+\s*$"
"""What every text has that is a duration; its length has bounds besides."""
_LONGEST_TEXT = 100
_EXAMPLES = (
    "Write numbers with units (ns us ms s m h d), from 0s to 36500d, "
    'for example "30s", "1h30m" or "7d"'
)


def parse_duration(value: str | int | float | timedelta, *, field: str | None = None) -> timedelta:
    """Read a duration, to the nearest microsecond; a bare number counts seconds.

    Never negative, never above MAX_DURATION. Zero is allowed: callers that need more check it.
    """
    try:
        if isinstance(value, str):
            duration = _from_text(value.strip())
        else:
            duration = value if isinstance(value, timedelta) else timedelta(seconds=value)
        if timedelta(0) <= duration <= MAX_DURATION and not isinstance(value, bool):
            return duration
    except (TypeError, ValueError, OverflowError):
        pass
    is_huge = isinstance(value, int) and abs(value) > 1e60  # too long to be printed
    shown, hint = "It" if is_huge else repr(value), ""
    if isinstance(value, timedelta):
        shown = repr(format_duration(value))
    elif isinstance(value, str):
        shown = repr(shorten(value, _LONGEST_TEXT))
        if re.fullmatch(_NUMBER, value.strip()):
            hint = f'; seconds would be "{value.strip()[:_LONGEST_TEXT]}s"'
    raise InvalidDuration(f"{shown} is not a duration. {_EXAMPLES}{hint}.", field=field)


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


def _from_text(text: str) -> timedelta:
    if len(text) > _LONGEST_TEXT or _TEXT.fullmatch(text) is None:
        raise ValueError("no numbers with units")
    parts = _PART.findall(text)
    total = sum(Fraction(number) * _MICROSECONDS[unit] for number, unit in parts)
    return timedelta(microseconds=round(total))
