"""The psycopg connection inside what callers use: psycopg itself, SQLAlchemy, or Django."""

from typing import Any

import psycopg

from evenbeat.errors import InvalidInput
from evenbeat.store.database import Connection


def psycopg_connection(given: Any) -> Connection | None:
    """The psycopg 3 connection on which the caller's transaction is open."""
    if given is None or isinstance(given, psycopg.Connection):
        return given
    found = _from_sqlalchemy(given) or _from_django(given)
    if isinstance(found, psycopg.Connection):
        return found
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    driver = f" (its driver is {type(found).__module__})" if found is not None else ""
    raise InvalidInput(
        f"A job cannot be enqueued through {kind}{driver}. Pass a psycopg 3 connection, a "
        "SQLAlchemy connection or session on postgresql+psycopg, or Django's connection on its "
        "PostgreSQL backend with psycopg 3 installed.",
        field="connection",
    )


def _from_sqlalchemy(given: Any) -> Any:
    """A Session has `connection()`; a Connection has `connection`, which knows the driver's own."""
    if callable(getattr(given, "connection", None)) and hasattr(given, "get_bind"):
        given = given.connection()
    elif (
        hasattr(given, "in_transaction") and hasattr(given, "begin") and not given.in_transaction()
    ):
        given.begin()  # else SQLAlchemy would not know that there is anything to commit
    return getattr(getattr(given, "connection", None), "driver_connection", None)


def _from_django(given: Any) -> Any:
    if not hasattr(given, "ensure_connection"):
        return None
    given.ensure_connection()
    return given.connection
