"""Connections lent by psycopg's pool, which tries on through an outage and says what was wrong."""

import asyncio
import logging
import os
import select
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from greenlet import getcurrent
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from evenbeat.errors import DatabaseUnavailable
from evenbeat.store.on_loop import ON_LOOP, aside, wait_here
from evenbeat.store.timed import TimedConnection

logger = logging.getLogger(__name__)

LIFETIME_SECONDS = 3600.0
"""A connection is replaced after that: servers move, and their sessions grow."""
IDLE_SECONDS = 600.0
"""A connection that has not been needed for so long is closed."""
RETRY_SECONDS = 1.0
"""How often to ask the pool to connect. Left alone, it would double its pauses, and notice the end
of a long outage minutes late."""

SHORT_SECONDS = 2.0
"""One connection that broke is no outage that others would have to make up for."""

# How to connect, unless the URL says otherwise: only to a server that takes writes, and such that
# one that has vanished without a word is noticed within seconds, not after the kernel's 15 minutes.
_DEFAULTS = {
    "connect_timeout": 3,
    "target_session_attrs": "read-write",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_VARIABLES = {
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
}

OUTAGES = (
    psycopg.OperationalError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
)
"""What the driver raises of a server that is gone, starting, demoted, full, or silent."""


def _tells_news(record: logging.LogRecord) -> bool:
    """Our pools warn of each attempt to connect, and of each connection that broke; `Availability`
    says it once. Another pool of the application is free to speak."""
    subject = record.args[0] if isinstance(record.args, tuple) and record.args else None
    ours = subject == _NAME or isinstance(subject, TimedConnection)
    return not ours or logger.isEnabledFor(logging.DEBUG)


_NAME = "evenbeat"
_pool_logger = logging.getLogger("psycopg.pool")
_pool_logger.addFilter(_tells_news)
_pool_logger.addHandler(logging.NullHandler())  # else it speaks where no logging is configured

Lent = TypeVar("Lent", bound=TimedConnection)


class NoConnection(DatabaseUnavailable):
    """No connection that takes writes could be had in time, so nothing was done."""


def connect_options(url: str) -> dict[str, Any]:
    """How to connect where neither the URL nor libpq's environment says."""
    said = conninfo_to_dict(url)
    return {
        name: value
        for name, value in _DEFAULTS.items()
        if name not in said and _VARIABLES.get(name, "") not in os.environ
    }


def unreachable(error: Exception) -> str:
    """What to say about a database that does not answer."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return f"The database takes no writes right now ({reason})."
    return f"The database cannot be reached ({reason}). Is it running, and is its URL right?"


class Availability:
    """Whether the database does its work, as far as this process has seen. A spell in which it does
    not is logged once when it begins and once when it is over, however many threads meet it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since: float | None = None
        self._back_at = -1e9
        self._refuses_writes = False
        self.reason: str | None = None
        """Why it is away; None while it is not."""

    @property
    def seconds_away(self) -> float:
        """How long the present spell has lasted; 0 without one."""
        since = self._since
        return 0.0 if since is None else self._monotonic() - since

    @property
    def seconds_back(self) -> float:
        """How long ago the last spell of more than a moment ended; 0 during one."""
        return self._monotonic() - self._back_at if self._since is None else 0.0

    def failed(self, reason: str, *, refuses_writes: bool = False) -> None:
        """A statement could not be run."""
        with self._lock:
            self._refuses_writes = self._refuses_writes or refuses_writes
            if self._since is None:
                self._since, self.reason = self._monotonic(), reason
                logger.warning("%s Trying on; what has finished is kept.", reason)

    def answered(self, *, wrote: bool) -> None:
        """A statement was run. One that only reads does not show that writes are taken again."""
        with self._lock:
            if self._since is not None and (wrote or not self._refuses_writes):
                now, away = self._monotonic(), self.seconds_away
                logger.warning("The database is back after %.1f s", away)
                self._since, self.reason, self._refuses_writes = None, None, False
                if away > SHORT_SECONDS:
                    self._back_at = now


class Pool(Generic[Lent]):
    """Lends at most `size` connections at a time, opened when they are first needed. A process that
    was forked opens its own: two that read from one connection would get each other's answers."""

    def __init__(
        self,
        url: str,
        kind: type[Lent],
        size: int,
        *,
        options: dict[str, Any],
        configure: Callable[[Lent], None],
        availability: Availability | None = None,
    ) -> None:
        self._url = url
        self._kind = kind
        self._size = size
        self._options = connect_options(url) | options
        self._configure = configure
        self._availability = availability or Availability()
        self._failed = 0
        self._cannot_connect = False
        self._forking = threading.Lock()
        self._left_behind: list[ConnectionPool[Lent]] = []
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )
        self.closed = False
        self._make()

    def _make(self) -> None:
        self._pid = os.getpid()
        self._pool = ConnectionPool(
            self._url,
            name=_NAME,
            connection_class=self._kind,
            kwargs=self._options,
            configure=self._connected,
            reconnect_failed=self._not_connected,
            min_size=0,
            max_size=self._size,
            max_idle=IDLE_SECONDS,
            max_lifetime=LIFETIME_SECONDS,
            reconnect_timeout=RETRY_SECONDS / 2,  # tries twice; then `take` asks again
            open=False,  # its threads start with the first connection
        )

    def take(self, timeout: float, get: Callable[[float], Lent] | None = None) -> Lent:
        """A connection, or `NoConnection` after `timeout` seconds. `get` waits for one that is
        free in another way than the pool does."""
        deadline = time.monotonic() + timeout
        if get is None and hasattr(getcurrent(), ON_LOOP):
            return self._take_in_turn(deadline)
        if self._pid != os.getpid():
            self._leave_to_parent()
        while True:
            left = deadline - time.monotonic()
            try:
                if self._pool.closed and not self.closed:
                    self._pool.open()
                connection = (get or self._pool.getconn)(min(left, RETRY_SECONDS))
                # A server that closed it while it lay idle has left something to read: so the
                # first statement after a restart does not fail on what can be known to be dead.
                idle = select.poll()
                idle.register(connection.pgconn.socket, select.POLLIN)
                if idle.poll(0):
                    self._try_out(connection)
                if not connection.closed:
                    return connection
                self._pool.putconn(connection)
                self.drain()
            except PoolTimeout:
                if left <= RETRY_SECONDS:
                    self._failed += 1
                    raise NoConnection(aside(self._reason)) from None
                if self._cannot_connect and self._availability.reason is None:
                    aside(self._reason)  # the outage is known from now on, while this caller waits
            except psycopg.OperationalError as error:
                raise NoConnection("This application has closed its database.") from error

    def give(self, connection: Lent) -> None:
        """Take one back, in whatever state it is."""
        status = connection.pgconn.transaction_status
        broken = status == TransactionStatus.UNKNOWN and not connection.given_up
        turn, connection.turn = connection.turn, None
        self._pool.putconn(connection)
        if broken:  # the others have probably broken with it
            self.drain()
        if turn is not None:
            turn.release()

    def _take_in_turn(self, deadline: float) -> Lent:
        """Callers on one loop queue up here, so that few of them ask the pool again and again."""
        turn = self._turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._size))
        try:
            wait_here(_in_time(turn.acquire(), deadline - time.monotonic()))
        except TimeoutError:
            self._failed += 1
            raise NoConnection(aside(self._reason)) from None
        try:
            connection = self.take(deadline - time.monotonic(), self._get_on_loop)
        except BaseException:
            turn.release()
            raise
        connection.turn = turn
        return connection

    def _get_on_loop(self, seconds: float) -> Lent:
        """The pool's own wait would hold up the loop. A short one tells it to connect."""
        until, pause = time.monotonic() + seconds, 0.001
        while True:
            try:
                return self._pool.getconn(0.0005)
            except PoolTimeout:
                if time.monotonic() > until:
                    raise
            wait_here(asyncio.sleep(pause))
            pause = min(2 * pause, 0.02)

    def drain(self) -> None:
        """Close what is free, and the others when they are given back: new ones are opened."""
        if not self._pool.closed and self._pid == os.getpid():
            self._pool.drain()

    def close(self) -> None:
        """Lend no more. What is lent is closed when it is given back."""
        self.closed = True
        if self._pid == os.getpid():
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

    def _connected(self, connection: Lent) -> None:
        self._configure(connection)
        self._cannot_connect = False

    def _not_connected(self, _pool: ConnectionPool[Lent]) -> None:
        self._cannot_connect = True

    def _try_out(self, connection: Lent) -> None:
        try:
            connection.execute("SELECT", prepare=False)
        except psycopg.Error:
            connection.close()

    def _leave_to_parent(self) -> None:
        with self._forking:
            if self._pid != os.getpid():
                # Not closed, which would end the parent's sessions; nor forgotten, for the same.
                self._left_behind.append(self._pool)
                self._make()

    def _reason(self) -> str:
        """Why there was no connection: the pool does not say, a new attempt does."""
        try:
            with self._kind.connect(self._url, **self._options | {"connect_timeout": 2}) as one:
                self._configure(one)
        except OUTAGES as error:
            reason = unreachable(error)
            self._availability.failed(reason)
            return reason
        return f"None of {self._size} connections to the database was free in time."


async def _in_time(awaitable: Awaitable[object], seconds: float) -> None:
    """`asyncio.wait_for`, which would make a task for each call before Python 3.12."""
    async with asyncio.timeout(seconds):
        await awaitable
