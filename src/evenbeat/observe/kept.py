"""Answers that may take long or never come, for askers who cannot wait.

A scraper asks again and again and gives up after seconds; a database that is down may keep a
question for half a minute. So questions are asked from a thread, one at a time, answers are kept
for a while, and nobody waits longer than promised.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

FRESH_SECONDS = 5.0
WAIT_SECONDS = 2.0
RETRY_SECONDS = 1.0


class Answer(NamedTuple, Generic[T]):
    """The newest value, how old it is, and why there is no newer one, if there should be."""

    value: T | None
    age: float
    error: Exception | None


class Kept(Generic[T]):
    """The newest answer to one question. Any thread may ask."""

    def __init__(
        self,
        ask: Callable[[], T],
        *,
        fresh_seconds: float = FRESH_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._ask = ask
        self._fresh_seconds = fresh_seconds
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._asking: threading.Event | None = None
        self._value: T | None = None
        self._asked_at = 0.0
        self._valued_at = self._tried_at = float("-inf")
        self._error: Exception | None = None

    def get(self) -> Answer[T]:
        """The answer, at most `fresh_seconds` old if it can be had within `wait_seconds` from when
        the question was asked: of those who come later, none waits as long again."""
        asking, since = self._flight()
        left = since + self._wait_seconds - time.monotonic()
        in_time = asking is None or asking.wait(max(0.0, left))
        with self._lock:
            late = TimeoutError(f"No answer within {self._wait_seconds:g} s.")
            error = self._error if in_time else late
            return Answer(self._value, time.monotonic() - self._valued_at, error)

    def _flight(self) -> tuple[threading.Event | None, float]:
        """What to wait for (the question under way, one asked now, or nothing) and since when."""
        with self._lock:
            if self._asking is not None:
                return self._asking, self._asked_at
            keep = self._fresh_seconds if self._error is None else RETRY_SECONDS
            if time.monotonic() - self._tried_at < min(keep, self._fresh_seconds):
                return None, 0.0
            self._asking = asking = threading.Event()
            self._asked_at = since = time.monotonic()
        threading.Thread(target=self._fly, args=(asking,), name="evenbeat-ask", daemon=True).start()
        return asking, since

    def _fly(self, asking: threading.Event) -> None:
        value, error = None, None
        try:
            value = self._ask()
        except Exception as problem:  # noqa: BLE001, RUF100 - whatever it is, it is the answer
            error = problem
        with self._lock:
            self._tried_at, self._error, self._asking = time.monotonic(), error, None
            if value is not None:
                self._value, self._valued_at = value, self._tried_at
        asking.set()
