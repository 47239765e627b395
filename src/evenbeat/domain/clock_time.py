"""A time of day in a time zone, such as "08:00 Europe/Berlin"."""

import re
from dataclasses import dataclass
from datetime import datetime

from evenbeat.domain.moments import zone_named
from evenbeat.domain.schedule.cron import Cron
from evenbeat.errors import InvalidInput
from evenbeat.humanize import shorten

_TEXT = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?:\s+(\S+))?")


@dataclass(frozen=True, slots=True)
class ClockTime:
    """Once a day; where the clocks change, as a cron schedule has it."""

    hour: int
    minute: int
    timezone: str = "UTC"

    def __str__(self) -> str:
        return f"{self.hour:02}:{self.minute:02} {self.timezone}"

    def next_after(self, moment: datetime) -> datetime:
        """The first one after `moment`."""
        return self._daily().next_after(moment)

    def latest_until(self, moment: datetime) -> datetime:
        """The newest one at or before `moment`."""
        latest = self._daily().latest_until(moment)
        assert latest is not None  # noqa: S101 - there is one every day
        return latest

    def _daily(self) -> Cron:
        return Cron(f"{self.minute} {self.hour} * * *", self.timezone)


def parse_clock_time(text: object, field: str = "must_finish_by") -> ClockTime:
    """Read "HH:MM [timezone]"; without a time zone, UTC."""
    match = _TEXT.fullmatch(text.strip()) if isinstance(text, str) and len(text) <= 100 else None
    if match is None:
        raise InvalidInput(
            f"{field} must be a time of day, such as '08:00 Europe/Berlin' or '23:30', got "
            f"{shorten(repr(text), 60)}.",
            field=field,
        )
    zone = zone_named(match[3] or "UTC", error=InvalidInput).key
    return ClockTime(int(match[1]), int(match[2]), zone)
