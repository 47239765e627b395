"""Waiting for something to happen. It waits long, because success returns early and the machine
may be busy with another build."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 90.0


def wait_for(
    condition: Callable[[], T],
    what: str = "the condition",
    seconds: float = PATIENCE,
    *,
    within: float | None = None,
) -> T:
    """The condition's value as soon as it is true; fails when that takes too long.

    `within` is for a promise about time, and is stretched.
    """
    if within is not None:
        seconds = stretched(within)
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what} (last value: {value!r})")
        time.sleep(0.02)
    return value


def stretched(seconds: float) -> float:
    """What a promise about time allows on a machine as overloaded as this one is now."""
    return seconds * (1 + os.getloadavg()[0] / (os.cpu_count() or 1))
