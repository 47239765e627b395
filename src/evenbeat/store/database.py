"""Connections and the running of statements: all that the rest of the store knows of psycopg."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from itertools import count
from math import inf
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import set_json_loads
from pydantic_core import from_json

from evenbeat.errors import DatabaseUnavailable, StatementTimeout, StoreError
from evenbeat.store.borrowed import BorrowedAsync
from evenbeat.store.explained import check_url, errors_explained
from evenbeat.store.pool import (
    OUTAGES,
    Availability,
    NoConnection,
    Pool,
    connect_options,
    unreachable,
)
from evenbeat.store.prepared import PreparedConnection
from evenbeat.store.replica import Replica
from evenbeat.store.statements import Statement, bind, load_statements, with_columns
from evenbeat.store.timed import TimedConnection, asker

logger = logging.getLogger(__name__)

Connection = psycopg.Connection[Any]
Row = tuple[Any, ...]
_Result = TypeVar("_Result")

# What a session of ours always wants: one timezone (which a pooler keeps for each of its clients),
# and no compilation for millisecond statements.
_POOLED_SESSION = "SET timezone = 'UTC'"
_EVERY_SESSION = _POOLED_SESSION + "; SET jit = off"

# A journey statement has one right plan, down its index, at any table size. The planner may think
# otherwise of a table that was empty when it looked; these settings leave it no other way. And a
# process that freezes in the middle of a claim must not hold the keys that it has locked.
_HOT_SETTINGS = {
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "idle_in_transaction_session_timeout": "10s",
}
_HOT_SESSION = "; ".join(
    [_POOLED_SESSION, *(f"SET {name} = '{value}'" for name, value in _HOT_SETTINGS.items())]
)
_HOT_TRANSACTION = "SELECT " + ", ".join(
    f"set_config('{name}', '{value}', true)" for name, value in _HOT_SETTINGS.items()
)

_CONNECTING: dict[str, Any] = {
    "autocommit": True,
    "prepare_threshold": 0,
    "client_encoding": "utf8",
}

# A report is planned again for each set of values: a rare queue and a common one want
# different ways to their rows.
_COLD_SESSION = _EVERY_SESSION + "; SET plan_cache_mode = force_custom_plan"

_TIMEOUTS = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable)
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
        self,
        url: str,
        *,
        schema: str = "evenbeat",
        pool_size: int = 10,
        timeout: float = 30.0,
        answer_seconds: float = 10.0,
        pooling: str = "auto",
        listen_url: str | None = None,
        read_url: str | None = None,
    ) -> None:
        """`timeout` is how long to wait for a connection, `answer_seconds` how long for the answer
        to a journey's statement, which takes milliseconds where all is well. Behind a pooler that
        lends a session for a transaction only, nothing is set or prepared that outlasts one:
        `pooling` says "transaction" then, or "auto" to find out. Reports may come from the replica
        at `read_url`."""
        check_url(url)
        self.url = url
        self.schema = schema
        self.channel = schema
        self.ends_channel = f"ends:{schema}"[:63]
        self.statements = load_statements(schema)
        self._inserts: dict[tuple[str, ...], Statement] = {}
        self._numbers = count()
        self.availability = Availability()
        self.pooling = pooling
        self.listen_url = listen_url
        self._timeout = timeout
        self._answer_seconds = answer_seconds
        self._pool = Pool(
            url,
            TimedConnection,
            pool_size,
            options=_CONNECTING,
            configure=self._configure_cold,
            availability=self.availability,
        )
        self._hot_pool = Pool(
            url,
            PreparedConnection,
            max(4, pool_size // 2),
            options=_CONNECTING,
            configure=self._configure_hot,
            availability=self.availability,
        )

        self.replica = None
        if read_url is not None:
            check_url(read_url)
            self.replica = Replica(read_url, pool_size, _CONNECTING, self._configure_cold)

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def close(self) -> None:
        """Close every connection that is free, and the others when their statements end."""
        for pool in self._pools().values():
            pool.close()

    def pool_figures(self) -> dict[str, dict[str, float]]:
        """How each pool does."""
        return {name: pool.figures() for name, pool in self._pools().items()}

    def _pools(self) -> dict[str, Pool[Any]]:
        pools: dict[str, Pool[Any]] = {"general": self._pool, "journey": self._hot_pool}
        return pools if self.replica is None else pools | {"replica": self.replica.pool}

    def rows(  # noqa: PLR0912 - each kind of failure has its own answer
        self,
        name: str | Statement,
        params: Mapping[str, Any],
        connection: Connection | None = None,
    ) -> list[Row]:
        """Run one statement; in its own transaction, or in that of the `connection` given. What was
        surely not done is repeated: any deadlock victim, a read cut off by a restart, and what a
        server refused that takes no writes any more."""
        statement = self.statements[name] if isinstance(name, str) else name
        if connection is not None:
            with errors_explained(self.url, self.schema, connection):
                return _execute(connection, statement, params)
        if statement.report and self.replica is not None:
            from_replica = self.replica.rows(lambda replica: _execute(replica, statement, params))
            if from_replica is not None:
                return from_replica
        pool: Pool[Any] = self._hot_pool if statement.hot else self._pool
        for attempt in range(1, _ATTEMPTS + 1):
            connection = pool.take(min(connection_timeout.get(), self._timeout))
            try:
                rows = _execute(connection, statement, params)
            except (psycopg.DataError, psycopg.errors.InsufficientPrivilege):
                with errors_explained(self.url, self.schema, connection):
                    raise
            except psycopg.errors.DeadlockDetected:
                if attempt == _ATTEMPTS:
                    raise
                logger.info("deadlock in %s, trying again", statement.name)
            except OUTAGES as error:
                if refused := isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                    connection.close()
                    self.connect_anew()
                unsure = (statement.writes and not refused) or isinstance(error, _TIMEOUTS)
                if unsure or attempt == _ATTEMPTS:
                    raise self.unavailable(error) from error
            else:
                if self.availability.reason is not None:
                    self.availability.answered(wrote=statement.writes)
                return rows
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

    def copy(
        self,
        connection: Connection,
        schema: str,
        table: str,
        columns: Iterable[str],
        chunks: Iterable[str],
    ) -> None:
        """Write lines of COPY's text format into a table."""
        if isinstance(connection, BorrowedAsync):
            connection.copy(schema, table, columns, chunks)
            return
        text = f'/* evenbeat:copy */ COPY "{schema}".{table} ({", ".join(columns)}) FROM STDIN'
        with psycopg.Cursor(connection) as cursor, cursor.copy(text.encode()) as stream:
            for chunk in chunks:
                stream.write(chunk)

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
        statement = bind(name, text, self.schema, hot=False, report=True)
        return self.rows(statement, params, connection)

    @contextmanager
    def transaction(
        self, connection: Connection | None = None, *, hot: bool = False
    ) -> Iterator[Connection]:
        """A connection with an open transaction; the caller's own when one is given. A `hot` one is
        for the journey's statements."""
        if connection is not None:
            with errors_explained(self.url, self.schema, connection):
                yield connection
            return
        pool: Pool[Any] = self._hot_pool if hot else self._pool
        own = pool.take(min(connection_timeout.get(), self._timeout))
        try:
            with errors_explained(self.url, self.schema), own.transaction():
                yield own
            if self.availability.reason is not None:
                self.availability.answered(wrote=True)
        except psycopg.errors.DeadlockDetected:
            raise
        except OUTAGES as error:
            if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                own.close()
                self.connect_anew()
            raise self.unavailable(error) from error
        finally:
            pool.give(own)

    def atomically(self, work: Callable[[Connection], _Result], *, hot: bool = False) -> _Result:
        """Do `work` in a transaction of its own; from the start again when a deadlock undid it."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self.transaction(hot=hot) as connection:
                    return work(connection)
            except psycopg.errors.DeadlockDetected:
                if attempt == _ATTEMPTS:
                    raise
                logger.info("deadlock in a transaction, trying again")
        raise AssertionError("unreachable")

    def connect(self) -> Connection:
        """A connection outside the pools, for listening and for the journey's statements."""
        url, connection = self.listen_url or self.url, None
        try:
            connection = PreparedConnection.connect(url, **connect_options(url), **_CONNECTING)
            self._configure_hot(connection, "auto" if self.listen_url else self.pooling)
        except OUTAGES as error:  # no outage of ours: it may lead elsewhere
            if connection is not None:
                connection.close()
            raise DatabaseUnavailable(unreachable(error)) from error
        return connection

    def unavailable(self, error: psycopg.Error) -> StoreError:
        """What to raise for this error of the driver, which begins an outage unless one is on."""
        if isinstance(error, _TIMEOUTS):
            if (reader := asker.get()) is not None and reader.waits_no_more:
                return StatementTimeout(
                    "The database took too long to read this, and was stopped. Ask for less: fewer "
                    "words, a shorter time, or a narrower filter."
                )
            return StatementTimeout(
                f"The database gave up a statement ({error.diag.message_primary}): another "
                "transaction probably holds a lock that it needs. Nothing was done."
            )
        refused = isinstance(error, psycopg.errors.ReadOnlySqlTransaction)
        reason = unreachable(error)
        self.availability.failed(reason, refuses_writes=refused)
        return NoConnection(reason) if refused else DatabaseUnavailable(reason)

    def connect_anew(self) -> None:
        """The server takes no writes any more: let go of it, for the one that does now."""
        for pool in (self._pool, self._hot_pool):
            pool.drain()

    def _configure_cold(self, connection: TimedConnection) -> None:
        connection.answer_seconds = self._answer_seconds
        self._configure(connection, _COLD_SESSION, self.pooling)
        connection.patient = True
        if connection.prepare_threshold is None:  # a pooler hides who works for us
            connection.answer_seconds = inf

    def _configure_hot(self, connection: PreparedConnection, pooling: str | None = None) -> None:
        connection.answer_seconds = self._answer_seconds
        # The server gives up a little earlier than we do, and then says that nothing was done.
        milliseconds = int(1000 * self._answer_seconds * 0.9)
        locally = f"{_HOT_TRANSACTION}, set_config('statement_timeout', '{milliseconds}', true)"
        connection.local_settings = locally.encode()
        session = f"{_HOT_SESSION}; SET statement_timeout = {milliseconds}"
        self._configure(connection, session, pooling or self.pooling)

    def _configure(self, connection: Connection, session: str, pooling: str) -> None:
        looked = "SELECT pg_backend_pid(), current_setting('transaction_read_only') = 'on'"
        pid, read_only = connection.execute(looked, prepare=False).fetchall()[0]
        # A pooler makes up the number that it gives its client for cancelling.
        pooled = (
            pid != connection.info.backend_pid if pooling == "auto" else pooling == "transaction"
        )
        # It also answers for the server when libpq asks whether that takes writes.
        wanted = connection.info.get_parameters().get("target_session_attrs")
        if pooled and read_only and wanted == "read-write":
            raise psycopg.errors.ReadOnlySqlTransaction("session is read-only")
        if pooled:
            connection.prepare_threshold = None
        connection.execute((_POOLED_SESSION if pooled else session).encode(), prepare=False)
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
    if isinstance(connection, BorrowedAsync) or (
        statement.hot and isinstance(connection, PreparedConnection)
    ):
        return connection.run(statement, params)
    # Not `connection.cursor()`: a caller's own connection may make another kind.
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(statement.text, params, binary=True)
        return cursor.fetchall() if cursor.description else []
