"""What a chore is: a name, a rhythm, and one thing to do."""

from datetime import timedelta
from typing import Protocol


class Chore(Protocol):
    """Maintenance that one worker at a time does for all."""

    name: str
    every: timedelta

    def run_once(self) -> int:
        """Do it; returns how many rows it touched."""
