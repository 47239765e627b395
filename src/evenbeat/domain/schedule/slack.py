"""Slack of a cron schedule: the text "0 1 * * * within 4h at 02:37".

The expression names the opening, `within` how much later a run may start, and `at` the place that
was chosen in between. Cron itself knows only what comes out: "37 2 * * *". So a place follows the
wall clock, and what cron promises about clock changes holds for it as well.
"""

import re
from datetime import timedelta
from typing import NamedTuple, NoReturn

from evenbeat.domain.duration import format_duration, parse_duration
from evenbeat.errors import InvalidInput, InvalidSchedule

_MINUTE = timedelta(minutes=1)
_HOUR, _DAY = 60, 1440
_TEXT = re.compile(
    r"(?P<cron>.+?) within (?P<within>[^:]+?)(?: at (?P<hour>[0-9]{1,2})?:(?P<minute>[0-9]{2}))?"
)
_HASHED = re.compile(r"H(?:\(([0-9]{1,2})-([0-9]{1,2})\))?")
_BETWEEN = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9]) *- *([01]?[0-9]|2[0-4]):([0-5][0-9])")
_EXAMPLE = 'Write for example "0 1 * * * within 4h", or "H H(1-4) * * *" for the same.'


class Slack(NamedTuple):
    """Five cron fields, or a name, with one minute; `minutes` after it a run may still start, and
    `offset` is the place in between, None before it is chosen."""

    cron: str
    five: str
    minutes: int
    offset: int | None = None

    def __str__(self) -> str:
        text = f"{self.cron} within {format_duration(self.minutes * _MINUTE)}"
        if self.offset is None:
            return text
        hour, minute = self.clock(self.offset)
        return f"{text} at {'' if hour is None else f'{hour:02d}'}:{minute:02d}"

    def clock(self, offset: int) -> tuple[int | None, int]:
        """The hour and minute of a place; no hour where there are several."""
        minute, hour, *_ = self.five.split()
        if not hour.isdecimal():
            return None, int(minute) + offset
        return divmod((int(hour) * _HOUR + int(minute) + offset) % _DAY, _HOUR)

    def fields(self) -> str:
        """The five fields: at its place; until one is chosen, as the slack begins."""
        hour, minute = self.clock(self.offset or 0)
        _, hours, *days = self.five.split()
        return " ".join([str(minute), hours if hour is None else str(hour), *days])

    def describe(self) -> str:
        """From when to when, by the wall clock."""
        (hour, minute), (until, last) = self.clock(0), self.clock(self.minutes)
        if hour is None:
            return f"between minutes {minute} and {minute + self.minutes}"
        return f"between {hour:02d}:{minute:02d} and {until or 0:02d}:{last:02d}"


def read_slack(text: str, names: dict[str, str]) -> Slack | None:
    """The slack that a text of cron asks for; None for plain cron."""
    if " within " in text and (match := _TEXT.fullmatch(text)):
        cron = match["cron"]
        five = names.get(cron.lower(), cron)
        try:
            within = parse_duration(match["within"])
        except InvalidInput as error:
            _refuse(text, str(error).rstrip("."))
        minutes, rest = divmod(within, _MINUTE)
        if rest or minutes < 1:
            _refuse(text, "slack is one minute or more, in whole minutes")
        slack = Slack(cron.lower() if cron in names else cron, five, minutes)
        return _checked(text, slack, match["hour"], match["minute"])
    fields = text.split()
    if len(fields) == 5 and any(field.startswith("H") for field in fields[:2]):
        return _checked(text, _by_letter(text, *fields), None, None)
    return None


def slack_between(times: str, days: str) -> str:
    """The text for "01:00-05:00" on these days (the last three fields of cron)."""
    match = _BETWEEN.fullmatch(times.strip())
    if match is None:
        raise InvalidSchedule(
            f"{times!r} does not say between which times to run: write for example "
            'between="01:00-05:00".',
            field="between",
        )
    hour, minute, until, last = (int(number) for number in match.groups())
    minutes = (until * _HOUR + last - hour * _HOUR - minute) % _DAY or _DAY
    return f"{minute} {hour} {days} within {format_duration(minutes * _MINUTE)}"


def without_place(text: str) -> str:
    """The text without the place in its slack."""
    return re.sub(r"( within \S+) at [0-9]*:[0-9]+$", r"\1", text)


def _by_letter(text: str, minute: str, hour: str, *days: str) -> Slack:
    """What other schedulers write as H: some minute, and some hour, spread by them by hashes."""
    of_minute, of_hour = _HASHED.fullmatch(minute), _HASHED.fullmatch(hour)
    if of_minute is None or (of_hour is not None and of_minute[1] is not None):
        _refuse(text, "H stands for the minute, or for minute and hour, as H(15-45) or H H(1-4)")
    low, high = (int(n) for n in (of_minute[1] or 0, of_minute[2] or _HOUR - 1))
    minutes = high - low + 1
    if of_hour is not None:
        first, last = (int(n) for n in (of_hour[1] or 0, of_hour[2] or 23))
        hour, minutes = str(first), (last - first + 1) * _HOUR
    five = " ".join([str(low), hour, *days])
    return Slack(five, five, minutes)


def _checked(text: str, slack: Slack, hour: str | None, minute: str | None) -> Slack:
    fields = slack.five.split()
    if len(fields) != 5 or not fields[0].isdecimal():
        _refuse(text, "slack begins at one minute, such as 0 or 30, and its expression says which")
    opening = int(fields[0])
    if fields[1].isdecimal():
        opening += int(fields[1]) * _HOUR
        if not 1 <= slack.minutes <= _DAY:
            _refuse(text, "slack is a day at most")
        if opening + slack.minutes > _DAY and fields[2:] != ["*", "*", "*"]:
            _refuse(text, "slack goes on beyond midnight only for a schedule of every day")
    elif not 1 <= slack.minutes <= _HOUR - opening:
        _refuse(text, "slack of a schedule with several hours ends with the hour")
    if minute is None:
        return slack
    at = int(minute) if hour is None else int(hour) * _HOUR + int(minute)
    offset = (at - opening) % _DAY
    if offset >= slack.minutes or (hour is None) == fields[1].isdecimal() or int(minute) >= _HOUR:
        _refuse(text, f"its place must lie {slack.describe()}")
    return slack._replace(offset=offset)


def _refuse(text: str, reason: str) -> NoReturn:
    raise InvalidSchedule(f"{text!r} is not a schedule: {reason}. {_EXAMPLE}")
