"""Scopes that come and go: the providers are asked again, and the rows follow."""

from collections.abc import Callable
from datetime import timedelta


class ScheduleSync:
    """Brings code-declared schedules with dynamic scopes up to date, once a minute."""

    name = "schedule_sync"
    every = timedelta(minutes=1)

    def __init__(self, sync: Callable[[], int]) -> None:
        self._sync = sync

    def run_once(self) -> int:
        """Ask every provider; returns how many rows changed."""
        return self._sync()
