"""Connections lent by psycopg's pool, which tries on through an outage and says what was wrong."""

import logging
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from evenbeat.errors import DatabaseUnavailable

LIFETIME_SECONDS = 3600.0
"""A connection is replaced after that: servers move, and their sessions grow."""
IDLE_SECONDS = 600.0
"""A connection that has not been needed for so long is closed."""
RETRY_SECONDS = 1.0
"""How long the pool goes on trying to connect before it has to be asked again. Left alone, it
doubles its pauses, and would notice the end of a long outage minutes late."""
CONNECT_SECONDS = 10
"""The longest attempt to connect."""

# The pool's own warnings of an outage are for applications that have configured logging; without
# that they would appear between our own lines.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

Lent = TypeVar("Lent", bound=psycopg.Connection[Any])


class NoConnection(DatabaseUnavailable):
    """No connection was free or could be opened in time, so nothing was sent to the database."""


def unreachable(error: Exception) -> str:
    """What to say about a database that does not answer."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"The database cannot be reached ({reason}). Is it running, and is its URL right?"


class Pool(Generic[Lent]):
    """Lends at most `size` connections at a time, opened when they are first needed."""

    def __init__(
        self,
        url: str,
        kind: type[Lent],
        size: int,
        *,
        options: dict[str, Any],
        configure: Callable[[Lent], None],
    ) -> None:
        self._url = url
        self._size = size
        self._failed = 0
        self.closed = False
        self._pool = ConnectionPool(
            url,
            connection_class=kind,
            kwargs={"connect_timeout": CONNECT_SECONDS, **options},
            configure=configure,
            min_size=0,
            max_size=size,
            max_idle=IDLE_SECONDS,
            max_lifetime=LIFETIME_SECONDS,
            reconnect_timeout=RETRY_SECONDS,
            open=False,  # its threads start with the first connection
        )

    def take(self, timeout: float) -> Lent:
        """A connection, or `NoConnection` after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                if self._pool.closed and not self.closed:
                    self._pool.open()
                return self._pool.getconn(min(left, RETRY_SECONDS))
            except PoolTimeout:
                if left <= RETRY_SECONDS:
                    self._failed += 1
                    raise NoConnection(self._reason()) from None
            except psycopg.OperationalError as error:
                raise NoConnection("This application has closed its database.") from error

    def give(self, connection: Lent) -> None:
        """Take one back, in whatever state it is."""
        broken = connection.pgconn.transaction_status == TransactionStatus.UNKNOWN
        self._pool.putconn(connection)
        if broken:  # the others have probably broken with it
            self._pool.drain()

    def close(self) -> None:
        """Lend no more. What is lent is closed when it is given back."""
        self.closed = True
        self._pool.close()

    def figures(self) -> dict[str, float]:
        """How the pool does."""
        stats = self._pool.get_stats()
        return {
            "open": stats["pool_size"],
            "most": self._size,
            "idle": stats["pool_available"],
            "waiting": stats["requests_waiting"],
            "waited_seconds": stats.get("requests_wait_ms", 0) / 1000,
            "failed": self._failed,
        }

    def _reason(self) -> str:
        """Why there was no connection: the pool does not say, a new attempt does."""
        try:
            psycopg.connect(self._url, connect_timeout=2).close()
        except psycopg.OperationalError as error:
            return unreachable(error)
        return f"None of {self._size} connections to the database was free in time."
