"""Time as the database tells it. A machine whose own clock is wrong decides like the others."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Where the engine gets its time from."""

    def now(self) -> datetime:
        """The present, for decisions."""

    def override(self) -> datetime | None:
        """What statements should take for the present; None: the database's own clock."""

    def observe(self, moment: datetime, *, asked_at: float) -> None:
        """Learn that the database's clock has shown `moment` since `asked_at` (`monotonic`)."""


class DatabaseClock:
    """The database's time, carried forward between answers by this machine's steady clock.

    An answer shows the database's time at some moment between question and answer, nobody knows
    which. So it corrects this clock only as far as it contradicts it: an answer that was long under
    way says little, and must not put the clock back by as much, or the claimer would oversleep.
    """

    def __init__(
        self, moment: datetime | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._seen = (moment or datetime.now(UTC), monotonic())

    def now(self) -> datetime:
        moment, seen_at = self._seen  # one value: another thread may observe meanwhile
        return moment + timedelta(seconds=self._monotonic() - seen_at)

    def override(self) -> datetime | None:
        return None

    def observe(self, moment: datetime, *, asked_at: float) -> None:
        present, answered_at = self.now(), self._monotonic()
        latest = moment + timedelta(seconds=answered_at - asked_at)
        self._seen = (min(max(moment, present), latest), answered_at)
