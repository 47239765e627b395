"""Connections and the running of statements: all that the rest of the store knows of psycopg."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from itertools import count
from math import inf
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row
from psycopg.types.json import set_json_loads
from pydantic_core import from_json

from evenbeat.errors import DatabaseUnavailable, InvalidInput
from evenbeat.store.pool import CONNECT_SECONDS, Pool, unreachable
from evenbeat.store.prepared import PreparedConnection
from evenbeat.store.statements import Statement, bind, load_statements, with_columns

logger = logging.getLogger(__name__)

Connection = psycopg.Connection[Any]
Row = tuple[Any, ...]
_Result = TypeVar("_Result")

# What a session of ours always wants: one timezone, and no compilation for millisecond statements.
_EVERY_SESSION = "SET timezone = 'UTC'; SET jit = off"

# A journey statement has one right plan, down its index, at any table size. The planner may think
# otherwise of a table that was empty when it looked; these settings leave it no other way. And a
# process that freezes in the middle of a claim must not hold the keys that it has locked.
_HOT_SESSION = (
    _EVERY_SESSION + "; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off"
    "; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off"
    "; SET idle_in_transaction_session_timeout = '10s'"
)

_CONNECTING: dict[str, Any] = {
    "autocommit": True,
    "prepare_threshold": 0,
    "client_encoding": "utf8",
}

# A report is planned again for each set of values: a rare queue and a common one want
# different ways to their rows.
_COLD_SESSION = _EVERY_SESSION + "; SET plan_cache_mode = force_custom_plan"

_ATTEMPTS = 5
_MOST_INSERTS = 100

connection_timeout: ContextVar[float] = ContextVar("connection_timeout", default=inf)
"""Seconds to wait for a free connection here and now, if less than the database was made with.
Workers wait long, a request that somebody waits for does not."""


class Database:
    """A PostgreSQL database and the schema in it: runs statements by name.

    Two small pools: journey statements (claim, finish, renew …) have connections of their own, so
    that a slow report can never keep a lease from being renewed.
    """

    def __init__(
        self, url: str, *, schema: str = "evenbeat", pool_size: int = 10, timeout: float = 30.0
    ) -> None:
        _check_url(url)
        self.url = url
        self.schema = schema
        self.channel = schema
        self.statements = load_statements(schema)
        self._inserts: dict[tuple[str, ...], Statement] = {}
        self._numbers = count()
        self._timeout = timeout
        self._pool = Pool(
            url, psycopg.Connection[Any], pool_size, options=_CONNECTING, configure=_configure_cold
        )
        self._hot_pool = Pool(
            url,
            PreparedConnection,
            max(4, pool_size // 2),
            options=_CONNECTING,
            configure=_configure_hot,
        )

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def close(self) -> None:
        """Close every connection that is free, and the others when their statements end."""
        for pool in (self._pool, self._hot_pool):
            pool.close()

    def pool_figures(self) -> dict[str, dict[str, float]]:
        """How each pool does."""
        return {"general": self._pool.figures(), "journey": self._hot_pool.figures()}

    def rows(
        self,
        name: str | Statement,
        params: Mapping[str, Any],
        connection: Connection | None = None,
    ) -> list[Row]:
        """Run one statement; in its own transaction, or in that of the `connection` given. What was
        surely not done is repeated: any deadlock victim, and a read cut off by a restart."""
        statement = self.statements[name] if isinstance(name, str) else name
        if connection is not None:
            with _bad_input_explained():
                return _execute(connection, statement, params)
        pool: Pool[Any] = self._hot_pool if statement.hot else self._pool
        for attempt in range(1, _ATTEMPTS + 1):
            connection = pool.take(min(connection_timeout.get(), self._timeout))
            try:
                return _execute(connection, statement, params)
            except psycopg.DataError as error:
                raise _explained(error) from error
            except psycopg.errors.DeadlockDetected:
                if attempt == _ATTEMPTS:
                    raise
                logger.info("deadlock in %s, trying again", statement.name)
            except psycopg.OperationalError as error:
                if statement.writes or attempt == _ATTEMPTS:
                    raise DatabaseUnavailable(unreachable(error)) from error
            finally:
                pool.give(connection)
        raise AssertionError("unreachable")

    def row(
        self, name: str, params: Mapping[str, Any], connection: Connection | None = None
    ) -> Row | None:
        """Like `rows`, for a statement that gives at most one."""
        rows = self.rows(name, params, connection)
        return rows[0] if rows else None

    def insert(
        self,
        name: str,
        columns: Mapping[str, Any],
        params: Mapping[str, Any],
        connection: Connection | None = None,
    ) -> list[Row]:
        """Run an INSERT of these columns; the others have their defaults. Each set of columns is a
        statement of its own, prepared once. Applications use few; should there be many, the driver
        prepares the rest and forgets those used least."""
        key = (name, *columns)
        statement = self._inserts.get(key)
        if statement is None:
            own_name = f"{name}_{next(self._numbers)}"
            statement = with_columns(self.statements[name], own_name, columns)
            if len(self._inserts) < _MOST_INSERTS:
                statement = self._inserts.setdefault(key, statement)
            else:
                statement = statement._replace(hot=False)
        return self.rows(statement, {**columns, **params}, connection)

    def clock(self, now: datetime | None, connection: Connection | None = None) -> datetime:
        """The database's time, unless another `now` is given."""
        moment: datetime = now or self.rows("clock", {"now": now}, connection)[0][0]
        return moment

    def query(
        self,
        name: str,
        text: LiteralString,
        params: Mapping[str, Any],
        connection: Connection | None = None,
    ) -> list[Row]:
        """Run a composed SELECT, written like the named statements."""
        return self.rows(bind(name, text, self.schema, hot=False), params, connection)

    @contextmanager
    def transaction(
        self, connection: Connection | None = None, *, hot: bool = False
    ) -> Iterator[Connection]:
        """A connection with an open transaction; the caller's own when one is given. A `hot` one is
        for the journey's statements."""
        if connection is not None:
            yield connection
            return
        pool: Pool[Any] = self._hot_pool if hot else self._pool
        own = pool.take(min(connection_timeout.get(), self._timeout))
        try:
            with _bad_input_explained(), own.transaction():
                yield own
        except psycopg.errors.DeadlockDetected:
            raise
        except psycopg.OperationalError as error:
            raise DatabaseUnavailable(unreachable(error)) from error
        finally:
            pool.give(own)

    def atomically(self, work: Callable[[Connection], _Result]) -> _Result:
        """Do `work` in a transaction of its own; from the start again when a deadlock undid it."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self.transaction() as connection:
                    return work(connection)
            except psycopg.errors.DeadlockDetected:
                if attempt == _ATTEMPTS:
                    raise
                logger.info("deadlock in a transaction, trying again")
        raise AssertionError("unreachable")

    def connect(self) -> Connection:
        """A connection outside the pools, for listening and for the journey's statements."""
        try:
            connection = PreparedConnection.connect(
                self.url, connect_timeout=CONNECT_SECONDS, **_CONNECTING
            )
            _configure_hot(connection)
        except psycopg.OperationalError as error:
            raise DatabaseUnavailable(unreachable(error)) from error
        return connection


def _configure_cold(connection: Connection) -> None:
    connection.execute(_COLD_SESSION, prepare=False)
    set_json_loads(_loads, connection)


def _configure_hot(connection: Connection) -> None:
    connection.execute(_HOT_SESSION, prepare=False)
    set_json_loads(_loads, connection)


def _loads(text: str | bytes) -> Any:
    """Most metadata is empty and needs no parser. The quick one gives up where a value is nested
    very deep."""
    if text in (b"{}", "{}"):
        return {}
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def _execute(connection: Connection, statement: Statement, params: Mapping[str, Any]) -> list[Row]:
    if statement.hot and isinstance(connection, PreparedConnection):
        return connection.run(statement, params)
    # Not `connection.cursor()`: a caller's own connection may make another kind.
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(statement.text, params, binary=True)
        return cursor.fetchall()


@contextmanager
def _bad_input_explained() -> Iterator[None]:
    """What PostgreSQL cannot hold (a NUL in a text, a number out of range) is the caller's."""
    try:
        yield
    except psycopg.DataError as error:
        raise _explained(error) from error


def _explained(error: psycopg.DataError) -> InvalidInput:
    reason = error.diag.message_primary or str(error)
    return InvalidInput(f"The database cannot hold this value: {reason}.")


def _check_url(url: str) -> None:
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # The reason would quote a part of the URL, which may be the password.
        raise InvalidInput(
            "The database URL cannot be read. Write it as postgresql://user:password@host:5432/name"
            ", with special characters in the password percent-encoded ('@' as '%40').",
            field="database_url",
        ) from None


def place_of(url: str) -> str:
    """Where a database is, without who may enter it and how."""
    parts = conninfo_to_dict(url)
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or ''}"
