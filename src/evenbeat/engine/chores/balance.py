"""How even the schedule is: noted every five minutes, and told when it becomes uneven."""

from collections.abc import Callable
from datetime import timedelta


class BalanceWatch:
    """Keeps the course of the distribution score, and raises the alarm once for each fall."""

    name = "balance"
    every = timedelta(minutes=5)

    def __init__(self, watch: Callable[[], int]) -> None:
        self._watch = watch

    def run_once(self) -> int:
        """Look once."""
        return self._watch()
