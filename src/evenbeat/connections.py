"""The psycopg connection inside what callers use: psycopg itself, SQLAlchemy, or Django."""

from typing import Any

import psycopg

from evenbeat.errors import InvalidInput
from evenbeat.store.database import Connection


def psycopg_connection(source: Any) -> Connection | None:
    """The psycopg 3 connection on which the caller's transaction is open."""
    if source is None or isinstance(source, psycopg.Connection):
        return source
    connection = _from_sqlalchemy(source)
    if connection is None and hasattr(source, "ensure_connection"):  # Django's
        source.ensure_connection()
        connection = source.connection
    if isinstance(connection, psycopg.Connection):
        return connection
    kind = f"{type(source).__module__}.{type(source).__qualname__}"
    driver = f" (its driver is {type(connection).__module__})" if connection is not None else ""
    raise InvalidInput(
        f"A job cannot be enqueued through {kind}{driver}. Pass a psycopg 3 connection, a "
        "SQLAlchemy connection or session on postgresql+psycopg, or Django's connection on its "
        "PostgreSQL backend with psycopg 3 installed.",
        field="connection",
    )


def _from_sqlalchemy(source: Any) -> Any:
    """A Session has `connection()`; a Connection has `connection`, which knows the driver's own."""
    if callable(getattr(source, "connection", None)) and hasattr(source, "get_bind"):
        source = source.connection()
    elif (
        hasattr(source, "in_transaction")
        and hasattr(source, "begin")
        and not source.in_transaction()
    ):
        source.begin()  # otherwise SQLAlchemy would not know that there is anything to commit
    return getattr(getattr(source, "connection", None), "driver_connection", None)
