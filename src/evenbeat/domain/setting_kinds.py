"""The kinds of value that a job's settings have: how each is read, checked, written and stored.

A kind serves every face of a setting. `parse` reads what Python code and JSON documents give, and
accepts its own results; `from_text` reads what a person types in a form or a terminal; `to_json`
writes what the API answers and files contain, and `parse` reads that back.
"""

import re
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar

from evenbeat.domain.clock_time import ClockTime, parse_clock_time
from evenbeat.domain.duration import MAX_DURATION, PATTERN, format_duration, parse_duration
from evenbeat.domain.limits import parse_rate
from evenbeat.domain.window import ExecutionWindow, parse_window
from evenbeat.errors import InvalidInput
from evenbeat.humanize import shorten

MAX_NAME = 200


class SettingKind:
    """One sort of value. A subclass says what differs from plain text that is stored as it is."""

    metavar: ClassVar[str] = "TEXT"
    option_type: ClassVar[Any] = str
    column_suffix: ClassVar[str] = ""
    format: ClassVar[str] = ""

    def __init__(self, **json_schema: Any) -> None:
        """The schema is what a document may contain, for OpenAPI. Its `format` names a grammar."""
        text = {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "format": self.format}
        self.json_schema = json_schema if "type" in json_schema else text | json_schema

    def parse(self, name: str, value: Any) -> Any:
        """The value that the domain works with, or InvalidInput that names the setting."""
        raise NotImplementedError

    def from_text(self, text: str) -> Any:
        """What `text` means in a document; itself if nothing, which `parse` refuses."""
        return text

    def to_json(self, value: Any) -> Any:
        """The value as documents write it."""
        return value

    def to_text(self, value: Any) -> str:
        """The value as a person would type it."""
        return str(self.to_json(value))

    def to_column(self, value: Any) -> Any:
        """The value as the database stores it."""
        return self.to_json(value)

    def from_column(self, stored: Any) -> Any:
        """The value that a column holds. What is stored was checked when it was written."""
        return stored

    def column_to_json(self, stored: Any) -> Any:
        """A stored value as documents write it, without the detour over the domain's own."""
        return stored


class Name(SettingKind):
    """A short printable name, such as a queue or a key."""

    metavar = "NAME"
    format = "name"

    def parse(self, name: str, value: Any) -> str:
        check_name(name, value)
        return str(value)


class Count(SettingKind):
    """A whole number between two bounds."""

    metavar = "N"
    option_type = int

    def __init__(self, low: int, high: int) -> None:
        super().__init__(type="integer", minimum=low, maximum=high)
        self.low, self.high = low, high

    def parse(self, name: str, value: Any) -> int:
        if type(value) is not int or not self.low <= value <= self.high:
            raise InvalidInput(
                f"{name} must be a whole number from {self.low} to {self.high:,}, got {value!r}.",
                field=name,
            )
        return value

    def from_text(self, text: str) -> int | str:
        return int(text) if text.isdecimal() and len(text) <= 20 else text


class Share(SettingKind):
    """A number from 0 to 1."""

    metavar = "0..1"
    option_type = float

    def __init__(self) -> None:
        super().__init__(type="number", minimum=0, maximum=1)

    def parse(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise InvalidInput(
                f"{name} must be a number from 0 to 1, got {value!r}; 0.2 means ±20 %.", field=name
            )
        return float(value)

    def from_text(self, text: str) -> float | str:
        try:
            return float(text)
        except ValueError:
            return text


class Flag(SettingKind):
    """Yes or no."""

    metavar = ""
    option_type = bool

    def __init__(self) -> None:
        super().__init__(type="boolean")

    def parse(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise InvalidInput(f"{name} must be true or false, got {value!r}.", field=name)
        return value

    def from_text(self, text: str) -> bool | str:
        return text == "true" if text in ("true", "false") else text

    def to_text(self, value: Any) -> str:
        return "true" if value else "false"


class Choice(SettingKind):
    """One of a few words."""

    metavar = "CHOICE"

    def __init__(self, words: type[StrEnum]) -> None:
        super().__init__(type="string", enum=list(words))
        self.words = words

    def parse(self, name: str, value: Any) -> StrEnum:
        try:
            return self.words(value)
        except ValueError:
            raise InvalidInput(
                f"{name} must be one of {', '.join(self.words)}, got {value!r}.", field=name
            ) from None

    def to_json(self, value: Any) -> str:
        return str(value)

    def from_column(self, stored: Any) -> StrEnum:
        return self.words(stored)


class Duration(SettingKind):
    """A time span: text such as "1h30m", or a number of seconds; documents answer seconds."""

    metavar = "DURATION"
    column_suffix = "_seconds"

    def __init__(
        self,
        *,
        least: timedelta = timedelta(microseconds=1),
        most: timedelta = MAX_DURATION,
        column_unit: int = 1,
    ) -> None:
        low, high = least.total_seconds(), most.total_seconds()
        pattern = f"^(?=.*[1-9]){PATTERN}" if least else f"^{PATTERN}"
        text = {"type": "string", "maxLength": 100, "pattern": pattern, "format": "time-span"}
        seconds = {"type": "number", "minimum": low, "maximum": high}
        self.json_schema = {"anyOf": [text, seconds], "examples": ["1h30m", 90]}
        self.least, self.most, self.column_unit = least, most, column_unit

    def parse(self, name: str, value: Any) -> timedelta:
        duration = value if isinstance(value, timedelta) else parse_duration(value, field=name)
        if duration < self.least:
            rule = "be longer than zero" if self.least else "not be negative"
            raise InvalidInput(f"{name} must {rule}, got {value}.", field=name)
        if duration > self.most:
            most = format_duration(self.most)
            raise InvalidInput(f"{name} may be at most {most}, got {value}.", field=name)
        return duration

    def to_json(self, value: Any) -> Any:
        return plain_number(value.total_seconds())

    def to_text(self, value: Any) -> str:
        return format_duration(value)

    def to_column(self, value: Any) -> float:
        return float(value.total_seconds() * self.column_unit)

    def from_column(self, stored: Any) -> timedelta:
        return timedelta(seconds=stored / self.column_unit)

    def column_to_json(self, stored: Any) -> Any:
        return None if stored is None else plain_number(stored / self.column_unit)


class Durations(SettingKind):
    """A list of time spans."""

    metavar = "DURATION"
    option_type = list[str]
    column_suffix = "_seconds"

    def __init__(self) -> None:
        one = Duration(least=timedelta(0)).json_schema
        super().__init__(type="array", items=one, maxItems=100, examples=[["10s", "1m", "10m"]])

    def parse(self, name: str, value: Any) -> tuple[timedelta, ...]:
        if not isinstance(value, list | tuple) or len(value) > 100:
            raise InvalidInput(
                f'{name} must be a list of at most 100 durations, such as ["10s", "1m"].',
                field=name,
            )
        return tuple(
            parse_duration(one, field=f"{name}.{place}") for place, one in enumerate(value)
        )

    def from_text(self, text: str) -> list[str]:
        return [part.strip() for part in text.split(",") if part.strip()]

    def to_json(self, value: Any) -> list[Any]:
        return [plain_number(one.total_seconds()) for one in value]

    def to_text(self, value: Any) -> str:
        return ", ".join(format_duration(one) for one in value)

    def to_column(self, value: Any) -> list[float] | None:
        return [one.total_seconds() for one in value] or None

    def from_column(self, stored: Any) -> tuple[timedelta, ...]:
        return tuple(timedelta(seconds=one) for one in stored or ())

    def column_to_json(self, stored: Any) -> list[Any]:
        return [plain_number(one) for one in stored or ()]


class ErrorNames(SettingKind):
    """A list of errors: exception classes, which become their names, or such names: that of a class
    with or without its module, or the error code of a run."""

    metavar = "NAMES"
    option_type = list[str]
    # No spaces, marks of direction or control characters. They are listed, since what \s stands
    # for differs between Python and those who read the OpenAPI document.
    _SPACES = r"\x00-\x20\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff"
    _PATTERN = rf"[^{_SPACES},{{}}\"\\]{{1,200}}"

    def __init__(self) -> None:
        one = {"type": "string", "pattern": f"^{self._PATTERN}$"}
        examples = [["ConnectionError", "httpx.TimeoutException"]]
        super().__init__(type="array", items=one, maxItems=50, examples=examples)

    def parse(self, name: str, value: Any) -> tuple[str, ...]:
        names: list[str] = []
        for one in value if isinstance(value, list | tuple | set | frozenset) else [value]:
            if isinstance(one, type) and issubclass(one, BaseException) and one is not value:
                names.append(error_names(one)[0])
            elif isinstance(one, str) and one is not value and re.fullmatch(self._PATTERN, one):
                names.append(one)
            else:
                raise InvalidInput(
                    f"{name} must be a list of exception classes or their names, such as "
                    f'[ConnectionError, "httpx.TimeoutException"], got {shorten(repr(value), 60)}.',
                    field=name,
                )
        if len(names) > 50:
            raise InvalidInput(f"{name} may name at most 50 errors.", field=name)
        return tuple(names)

    def from_text(self, text: str) -> list[str]:
        return [part.strip() for part in text.split(",") if part.strip()]

    def to_json(self, value: Any) -> list[str]:
        return list(value)

    def to_text(self, value: Any) -> str:
        return ", ".join(value)

    def from_column(self, stored: Any) -> tuple[str, ...]:
        return tuple(stored)


class ArgumentNames(ErrorNames):
    """A list of a handler's arguments."""

    _ONE = r"[A-Za-z_][A-Za-z0-9_]{0,199}"

    def __init__(self) -> None:
        one = {"type": "string", "pattern": f"^{self._ONE}$"}
        SettingKind.__init__(
            self, type="array", items=one, minItems=1, maxItems=50, examples=[["user", "day"]]
        )

    def parse(self, name: str, value: Any) -> tuple[str, ...]:
        names = tuple(value) if isinstance(value, list | tuple) else ()
        fit = all(isinstance(one, str) and re.fullmatch(self._ONE, one) for one in names)
        if not fit or not 1 <= len(names) <= 50:
            raise InvalidInput(
                f"{name} must be a list of one to 50 names of arguments, such as "
                f'["user"], got {shorten(repr(value), 60)}.',
                field=name,
            )
        return tuple(sorted(set(names)))


class Size(SettingKind):
    """An amount of memory: text such as "512MB", or a number of bytes; documents answer bytes. As
    in PostgreSQL, a kB is 1024 bytes; kiB, MiB and so on mean the same."""

    metavar = "SIZE"
    least, most = 2**20, 2**50
    _UNITS: ClassVar = {"PB": 2**50, "TB": 2**40, "GB": 2**30, "MB": 2**20, "KB": 2**10, "B": 1}

    def __init__(self) -> None:
        text = {"type": "string", "minLength": 1, "maxLength": 100, "format": "size"}
        count = {"type": "integer", "minimum": self.least, "maximum": self.most}
        self.json_schema = {"anyOf": [text, count], "examples": ["512MB", 536_870_912]}

    def parse(self, name: str, value: Any) -> int:
        size = value if type(value) is int else 0
        if isinstance(value, str) and len(value) <= 100:
            pattern = r"([0-9]+(?:\.[0-9]+)?) ?([KMGTP]?)(?:i?B)?"
            if match := re.fullmatch(pattern, value.strip(), re.IGNORECASE | re.ASCII):
                size = round(float(match[1]) * self._UNITS[f"{match[2].upper()}B"])
        if not self.least <= size <= self.most:
            raise InvalidInput(
                f'{name} must be from 1MB to 1PB, such as "512MB" or "1.5GB"; a bare number '
                f"counts bytes. Got {shorten(repr(value), 60)}.",
                field=name,
            )
        return size

    def to_text(self, value: Any) -> str:
        return next(f"{value // n}{unit}" for unit, n in self._UNITS.items() if value % n == 0)


class ParsedText(SettingKind):
    """A text that stands for a value, whose own text is its normal form."""

    def to_json(self, value: Any) -> str:
        return str(value)

    def from_column(self, stored: Any) -> Any:
        return self.parse("", stored)


class Window(ParsedText):
    """The hours in which runs may start."""

    metavar = "HOURS"
    format = "window"

    def __init__(self) -> None:
        super().__init__(examples=["Mon-Fri 22:00-06:00 Europe/Berlin"])

    def parse(self, name: str, value: Any) -> Any:  # noqa: ARG002 - its own errors name the window
        return value if isinstance(value, ExecutionWindow) else parse_window(value)


class TimeOfDay(ParsedText):
    """A time of day in a time zone."""

    metavar = "HH:MM"
    format = "clock-time"

    def __init__(self) -> None:
        super().__init__(maxLength=100, examples=["08:00 Europe/Berlin"])

    def parse(self, name: str, value: Any) -> ClockTime:
        return value if isinstance(value, ClockTime) else parse_clock_time(value, name)


class Rate(ParsedText):
    """So many starts in a period."""

    metavar = "RATE"
    format = "rate"

    def __init__(self) -> None:
        super().__init__(maxLength=100, examples=["10/s", "100/min", "5 per 30s"])

    def parse(self, name: str, value: Any) -> Any:  # noqa: ARG002 - its own errors name the rate
        return parse_rate(value)


def error_names(kind: type[BaseException]) -> list[str]:
    """What an exception class is called, in full and by its bare name; then so its bases."""
    names = []
    for one in kind.__mro__[:-1]:
        module = "" if one.__module__ == "builtins" else f"{one.__module__}."
        names += [module + one.__qualname__, one.__name__]
    return list(dict.fromkeys(names))


def plain_number(value: float) -> int | float:
    """Whole numbers without a fraction, others to the millionth."""
    return int(value) if float(value).is_integer() else round(value, 6)


def check_name(field_name: str, value: object) -> None:
    """Refuse an empty, overlong or unprintable name with a message that shows what is allowed."""
    text = value if isinstance(value, str) and value.isprintable() else ""
    if not 1 <= len(text) <= MAX_NAME or text != text.strip():
        raise InvalidInput(
            f"{field_name} must be 1 to {MAX_NAME} printable characters without spaces around, "
            f"got {shorten(repr(value), 60)}. For example: {field_name}='nightly-report'.",
            field=field_name,
        )
