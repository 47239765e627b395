"""Cache for slow queries: one runs at a time, and callers get the last value instead of blocking.

A scraper asks again and again and gives up after seconds; a query may hang for half a minute while
the database is down. So queries run on a thread, and nobody waits longer than promised.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

FRESH_SECONDS = 5.0
WAIT_SECONDS = 2.0
RETRY_SECONDS = 1.0


class CachedResult(NamedTuple, Generic[T]):
    """The newest value, its age, and why there is no newer one, if there should be."""

    value: T | None
    age: float
    error: Exception | None


class SingleFlight(Generic[T]):
    """The newest result of one query. Any thread may call it."""

    def __init__(
        self,
        query: Callable[[], T],
        *,
        fresh_seconds: float = FRESH_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
        wait_for_fresh: bool = True,
    ) -> None:
        """Without `wait_for_fresh`, only the first value is waited for: afterwards `get` returns
        the old one while the next is being fetched."""
        self._query = query
        self._fresh_seconds = fresh_seconds
        self._wait_seconds = wait_seconds
        self._wait_for_fresh = wait_for_fresh
        self._lock = threading.Lock()
        self._done: threading.Event | None = None  # set when the query under way has ended
        self._started_at = 0.0
        self._value: T | None = None
        self._asked_at = self._value_at = self._tried_at = float("-inf")
        self._error: Exception | None = None

    def get(self) -> CachedResult[T]:
        """The value, at most `fresh_seconds` old if it can be had within `wait_seconds` of the
        query's start: callers who come later do not wait as long again."""
        with self._lock:
            keep = self._fresh_seconds if self._error is None else RETRY_SECONDS
            is_old = time.monotonic() - self._tried_at >= min(keep, self._fresh_seconds)
            if self._done is None and is_old:
                self._done, self._started_at = threading.Event(), time.monotonic()
                threading.Thread(target=self._fetch, name="evenbeat-query", daemon=True).start()
            done, started_at = self._done, self._started_at
            if self._value is not None and not self._wait_for_fresh:
                done = None
        remaining = started_at + self._wait_seconds - time.monotonic()
        in_time = done is None or done.wait(max(0.0, remaining))
        with self._lock:
            late = TimeoutError(f"No answer within {self._wait_seconds:g} s.")
            age = time.monotonic() - self._value_at
            return CachedResult(self._value, age, self._error if in_time else late)

    def refresh(self) -> T:
        """Query here and now, and keep the value unless a query that began later has brought one;
        an error is the caller's."""
        asked_at = time.monotonic()
        value = self._query()
        with self._lock:
            if asked_at >= self._asked_at:
                self._value, self._error, self._asked_at = value, None, asked_at
                self._value_at = self._tried_at = time.monotonic()
        return value

    def _fetch(self) -> None:
        error = None
        try:
            self.refresh()
        except Exception as problem:  # noqa: BLE001, RUF100 - whatever it is, callers get it
            error = problem
        with self._lock:
            self._tried_at, self._error = time.monotonic(), error
            done, self._done = self._done, None
        if done is not None:
            done.set()
