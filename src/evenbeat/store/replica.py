"""Reads from a standby, for those who can do with what was true a moment ago."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from evenbeat.errors import DatabaseUnavailable
from evenbeat.store.pool import Pool
from evenbeat.store.timed import TimedConnection

logger = logging.getLogger(__name__)

MOST_LAG_SECONDS = 10.0
"""A replica that is further behind is not asked."""
LOOK_SECONDS = 1.0
PAUSE_SECONDS = 5.0
"""How long one that has failed is left alone."""
CONNECT_SECONDS = 1.0

# A primary that is idle sends nothing, so the age of what was replayed last says little while all
# that has come is replayed and more could come. One that was promoted is never behind.
_LAG = """
SELECT CASE
    WHEN NOT pg_is_in_recovery() THEN 0
    WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()
         AND EXISTS (SELECT pid FROM pg_stat_wal_receiver) THEN 0
    ELSE extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())
END::float8"""

_accepts_old: ContextVar[bool] = ContextVar("accepts_old", default=False)


def accept_old_reads(accept: bool = True) -> None:
    """Let reports and lists come from a replica from here on in this context (request, thread)."""
    _accepts_old.set(accept)


def old_reads_are_accepted() -> bool:
    """Whether they are in this context."""
    return _accepts_old.get()


@contextmanager
def old_reads_accepted() -> Iterator[None]:
    """Let reports and lists come from a replica within the block."""
    token = _accepts_old.set(True)
    try:
        yield
    finally:
        _accepts_old.reset(token)


class Replica:
    """A standby that is asked while it answers and is not far behind."""

    def __init__(
        self, url: str, size: int, options: Mapping[str, Any], configure: Callable[[Any], None]
    ) -> None:
        if "target_session_attrs" not in conninfo_to_dict(url):
            options = {**options, "target_session_attrs": "any"}
        self.pool: Pool[TimedConnection] = Pool(
            url, TimedConnection, size, options=dict(options), configure=configure
        )
        self._lag: float | None = None
        self._look_at = self._ask_again_at = 0.0
        self._is_away = False

    @property
    def lag(self) -> float | None:
        """How many seconds behind the primary it was at the last look; None while it is not
        asked."""
        return None if self._is_away else self._lag

    def rows(
        self, run: Callable[[psycopg.Connection[Any]], list[tuple[Any, ...]]]
    ) -> list[tuple[Any, ...]] | None:
        """What `run` reads from it; None if the primary has to be asked."""
        if not _accepts_old.get() or time.monotonic() < self._ask_again_at:
            return None
        try:
            connection = self.pool.take(CONNECT_SECONDS)
            try:
                self._check_lag(connection)
                rows = run(connection)
            finally:
                self.pool.give(connection)
        except (psycopg.DataError, psycopg.errors.QueryCanceled):
            return None  # the caller's fault, not the replica's: the primary says what is wrong
        except (psycopg.Error, DatabaseUnavailable) as error:
            self._ask_again_at = time.monotonic() + PAUSE_SECONDS
            if not self._is_away:
                self._is_away = True
                logger.warning("the replica is not asked, the primary is instead: %s", error)
            return None
        if self._is_away:
            self._is_away = False
            logger.info("the replica is asked again")
        return rows

    def _check_lag(self, connection: psycopg.Connection[Any]) -> None:
        if time.monotonic() >= self._look_at:
            ((lag,),) = connection.execute(_LAG).fetchall()
            self._lag = float("inf") if lag is None else max(0.0, lag)
            self._look_at = time.monotonic() + LOOK_SECONDS
        if self._lag is None or self._lag > MOST_LAG_SECONDS:
            self._look_at = 0.0
            raise DatabaseUnavailable(f"The replica is {self._lag:.0f} s behind.")
