"""Open connections, lent for one statement or one transaction each.

A pool of our own, because the driver's costs more than it does for us: two dozen calls for every
statement, and four threads that open, count and close. Here whoever needs a connection opens it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

LIFETIME_SECONDS = 3600.0
"""A connection is replaced after that: servers move, and their sessions grow."""
IDLE_SECONDS = 600.0
"""One that nobody needed for so long is closed."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Between two attempts to open one."""


class NoConnection(psycopg.OperationalError):
    """There was none to be had in time, so nothing has been asked of the database."""


class Pooled(psycopg.Connection[tuple[Any, ...]]):
    """A connection that a pool can lend."""

    opened_at = 0.0
    given_at = 0.0

    def __del__(self, _warn: Any = None) -> None:
        """To end with its pool, unclosed, is no leak to warn of."""


_Lent = TypeVar("_Lent", bound=Pooled)


class Pool(Generic[_Lent]):
    """Lends at most `size` connections at a time. The one that was given back last is lent first:
    its session has warm caches, and those that are not needed grow old and are closed."""

    def __init__(self, connect: Callable[[float], _Lent], size: int) -> None:
        """`connect` opens one within so many seconds."""
        self.closed = False
        self._connect = connect
        self._size = size
        self._idle: deque[_Lent] = deque()
        # A semaphore that is passed without running any Python.
        self._permits: SimpleQueue[None] = SimpleQueue()
        for _ in range(size):
            self._permits.put(None)
        self._closing = threading.Event()
        self._counting = threading.Lock()
        self._waiting = 0
        self._waited = 0.0
        self._failed = 0

    def take(self, timeout: float) -> _Lent:
        """A connection, or `NoConnection` after `timeout` seconds."""
        try:
            self._permits.get_nowait()
        except Empty:
            self._await_permit(timeout)
        try:
            return self._idle.pop()
        except IndexError:
            return self._open(timeout)

    def give(self, connection: _Lent) -> None:
        """Take one back, in whatever state it is."""
        try:
            state, now = connection.pgconn.transaction_status, time.monotonic()
            if state == TransactionStatus.UNKNOWN:  # the others have probably broken with it
                self._close_idle()
            if state == TransactionStatus.IDLE and now - connection.opened_at < LIFETIME_SECONDS:
                connection.given_at = now
                self._idle.append(connection)
                self._close_surplus(now)
            else:
                connection.close()
        finally:
            self._permits.put(None)

    def close(self) -> None:
        """Lend no more. What is lent is closed when it is given back."""
        self.closed = True
        self._closing.set()
        self._close_idle()
        for _ in range(self._waiting):  # so that they learn of it
            self._permits.put(None)

    def figures(self) -> dict[str, float]:
        """How it does."""
        idle = len(self._idle)
        return {
            "open": max(0, self._size - self._permits.qsize()) + idle,
            "most": self._size,
            "idle": idle,
            "waiting": self._waiting,
            "waited_seconds": self._waited,
            "failed": self._failed,
        }

    def _await_permit(self, timeout: float) -> None:
        begun = time.monotonic()
        with self._counting:
            self._waiting += 1
        try:
            self._permits.get(timeout=timeout)
        except Empty:
            self._count_failure()
            raise NoConnection(f"none of {self._size} connections was free in time") from None
        finally:
            with self._counting:
                self._waiting -= 1
                self._waited += time.monotonic() - begun

    def _open(self, timeout: float) -> _Lent:
        """A new connection, or the permit back."""
        try:
            return self._opened(timeout)
        except BaseException:
            self._permits.put(None)
            raise

    def _opened(self, timeout: float) -> _Lent:
        """While the database is away it is tried again, ever more patiently."""
        deadline, pause = time.monotonic() + timeout, FIRST_PAUSE
        while not self.closed:
            try:
                connection = self._connect(deadline - time.monotonic())
            except psycopg.OperationalError as error:
                if time.monotonic() + pause > deadline:
                    self._count_failure()
                    raise NoConnection(str(error)) from error
                self._closing.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                connection.opened_at = time.monotonic()
                return connection
        raise NoConnection("the pool is closed")

    def _count_failure(self) -> None:
        with self._counting:
            self._failed += 1

    def _close_surplus(self, now: float) -> None:
        """Close what nobody needs. The one that has waited longest is leftmost."""
        if self.closed:
            self._close_idle()
            return
        try:
            if now - self._idle[0].given_at > IDLE_SECONDS:
                self._idle.popleft().close()
        except IndexError:  # taken meanwhile
            return

    def _close_idle(self) -> None:
        try:
            while True:
                self._idle.pop().close()
        except IndexError:
            return
