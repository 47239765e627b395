"""Time as the database tells it. A machine whose own clock is wrong decides like the others."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Where the engine gets its time from."""

    def now(self) -> datetime:
        """The present, for decisions."""

    def override(self) -> datetime | None:
        """What statements should take for the present; None: the database's own clock."""

    def observe(self, moment: datetime) -> None:
        """Learn that the database's clock has just shown `moment`."""


class DatabaseClock:
    """The database's time, carried forward between answers by this machine's steady clock."""

    def __init__(self, moment: datetime | None = None) -> None:
        self._seen = (moment or datetime.now(UTC), time.monotonic())

    def now(self) -> datetime:
        moment, seen_at = self._seen  # one value: another thread may observe meanwhile
        return moment + timedelta(seconds=time.monotonic() - seen_at)

    def override(self) -> datetime | None:
        return None

    def observe(self, moment: datetime) -> None:
        self._seen = (moment, time.monotonic())
