"""Connections that callers lend, so that a job takes part in the transaction open on them."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import psycopg
from greenlet import getcurrent
from psycopg.rows import tuple_row

from evenbeat.errors import InvalidInput
from evenbeat.store.on_loop import LoopCall, aside, is_on_loop, wait_here
from evenbeat.store.statements import Statement

Row = tuple[Any, ...]
_Result = TypeVar("_Result")


class BorrowedAsync(ABC):
    """An async connection of the caller's, as the store uses it in calls that run on a loop."""

    @abstractmethod
    def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Row]:
        """Execute one statement and fetch all its rows."""

    @abstractmethod
    def copy(self, schema: str, table: str, columns: Iterable[str], lines: Iterable[str]) -> None:
        """Write lines of COPY's text format."""


def on_borrowed(source: Any, work: Callable[[Any], _Result]) -> _Result:
    """Do `work` with the connection, of psycopg or adapted, on which the transaction of `source` is
    open; on a loop, with a connection that would hold it up, in a thread."""
    if source is None:
        return work(None)
    if callable(source) and hasattr(source, "registry"):  # SQLAlchemy's scoped sessions
        source = source()
    marks = ("sync_session", "sync_connection", "copy_to_table")
    is_async = isinstance(source, psycopg.AsyncConnection) or any(
        hasattr(source, mark) for mark in marks
    )
    if isinstance(getcurrent(), LoopCall) and not is_async:
        return aside(lambda: work(_borrowed(source)))
    return work(_borrowed(source))


def _borrowed(source: Any) -> Any:
    if isinstance(source, psycopg.Connection):
        return source
    # The async session or connection of SQLAlchemy is a shell around one that waits as we do.
    shell = getattr(source, "sync_session", None) or getattr(source, "sync_connection", None)
    driver = source
    if shell is not None and not is_on_loop():
        raise _wants_async(source)
    if (sqlalchemys := _sqlalchemy_connection(shell or source)) is not None:
        driver = sqlalchemys.connection.driver_connection
    elif hasattr(source, "ensure_connection"):  # Django's
        source.ensure_connection()
        driver = source.connection
    if isinstance(driver, psycopg.Connection):
        return driver
    modules = {base.__module__.partition(".")[0] for base in type(driver).mro()}
    is_asyncpg = "asyncpg" in modules and hasattr(driver, "is_in_transaction")  # a pool has not
    if not is_asyncpg and not isinstance(driver, psycopg.AsyncConnection):
        raise _not_known(source, driver)
    if not is_on_loop():
        raise _wants_async(source)
    if not is_asyncpg:
        return _PsycopgAsync(driver)
    if sqlalchemys is not None and not driver.is_in_transaction():
        sqlalchemys.exec_driver_sql("SELECT 1")  # SQLAlchemy leaves BEGIN to the first statement
    return _Asyncpg(driver)


class _PsycopgAsync(BorrowedAsync):
    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Row]:
        async def run() -> list[Row]:
            async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
                await cursor.execute(statement.text, params, binary=True)
                return await cursor.fetchall() if cursor.description else []

        return wait_here(run())

    def copy(self, schema: str, table: str, columns: Iterable[str], lines: Iterable[str]) -> None:
        text = f'COPY "{schema}".{table} ({", ".join(columns)}) FROM STDIN'

        async def copy() -> None:
            cursor = psycopg.AsyncCursor(self._connection)
            async with cursor, cursor.copy(text.encode()) as stream:
                for part in lines:
                    await stream.write(part)

        wait_here(copy())


class _Asyncpg(BorrowedAsync):
    """Its errors become those of psycopg, which the store knows."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Row]:
        values = [params[name] for name in statement.names]
        rows = self._wait(self._connection.fetch(statement.numbered.decode(), *values))
        return [tuple(row) for row in rows]

    def copy(self, schema: str, table: str, columns: Iterable[str], lines: Iterable[str]) -> None:
        async def source() -> AsyncIterator[bytes]:
            for part in lines:
                yield part.encode()

        self._wait(
            self._connection.copy_to_table(
                table, schema_name=schema, columns=list(columns), source=source(), format="text"
            )
        )

    def _wait(self, awaitable: Awaitable[_Result]) -> _Result:
        try:
            return wait_here(awaitable)
        except Exception as error:
            if (code := getattr(error, "sqlstate", None)) is None:
                raise
            raise psycopg.errors.lookup(code)(str(error)) from error


def _sqlalchemy_connection(source: Any) -> Any:
    """A Session has `connection()`; a Connection has `connection`, which knows the driver's own."""
    if callable(getattr(source, "connection", None)) and hasattr(source, "get_bind"):
        return source.connection()
    if hasattr(source, "in_transaction") and hasattr(source, "exec_driver_sql"):
        if not source.in_transaction():
            source.begin()  # otherwise SQLAlchemy would not know that there is anything to commit
        return source
    return None


def _wants_async(source: Any) -> InvalidInput:
    return InvalidInput(
        f"The connection is asynchronous ({_kind(source)}): enqueue through it by "
        "`await task.options(connection=…).enqueue_async(…)` or `await app.enqueue_many_async(…)`.",
        field="connection",
    )


def _not_known(source: Any, driver: Any) -> InvalidInput:
    behind = "" if driver is source or driver is None else f" (its driver is {_kind(driver)})"
    return InvalidInput(
        f"A job cannot be enqueued through {_kind(source)}{behind}. Pass a connection of psycopg 3 "
        "or asyncpg, an SQLAlchemy connection or session on one of these drivers "
        "(postgresql+psycopg, postgresql+asyncpg), or Django's connection on its PostgreSQL "
        "backend with psycopg 3 installed.",
        field="connection",
    )


def _kind(source: Any) -> str:
    return f"{type(source).__module__}.{type(source).__qualname__}"
