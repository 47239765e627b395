"""What the driver says, in words for whoever can mend it; never with a part of a password."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from evenbeat.errors import InvalidInput, StoreError

# SQL states, which every driver of a caller's connection gives.
_NO_PERMISSION = "42501"
_NO_TABLES = ("42P01", "3F000")


def check_url(url: str) -> None:
    """Refuse a URL that libpq would read in another way than was meant."""
    try:
        parts = conninfo_to_dict(url)
        host, database = str(parts.get("host", "")), str(parts.get("dbname", ""))
        ports = str(parts.get("port", "")).split(",")
        understood = all(port.isdigit() or not port for port in ports)
    except psycopg.ProgrammingError:
        host, database, understood = "", "", False
    # What follows an '@' or '/' in a password is taken for a host, a port or a database.
    cut = "@" in host or ("@" in database and database in url)
    if cut or not understood:  # libpq's reason, too, would quote the password
        raise InvalidInput(
            "The database URL cannot be read. Write it as postgresql://user:password@host:5432/name"
            ", with special characters in the password percent-encoded ('@' as '%40', '/' as "
            "'%2F').",
            field="database_url",
        )


def place_of(url: str) -> str:
    """Where a database is, without who may enter it and how."""
    parts = conninfo_to_dict(url)
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or ''}"


def bad_input(error: psycopg.DataError) -> InvalidInput:
    """What PostgreSQL cannot hold (a NUL in a text, a number out of range) is the caller's."""
    reason = error.diag.message_primary or str(error)
    if isinstance(error, psycopg.errors.UntranslatableCharacter):
        reason = "a text has a NUL character (\\x00) in it, which PostgreSQL cannot store"
    return InvalidInput(f"The database cannot hold this value: {reason}.")


def no_permission(error: Exception, user: str, schema: str) -> StoreError:
    """Which rights are missing."""
    reason = str(error).partition("\n")[0]
    return StoreError(
        f"The user {user!r} may not use Evenbeat's tables ({reason}). Let their owner run: "
        f'GRANT USAGE ON SCHEMA "{schema}" TO "{user}"; '
        f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO "{user}";'
    )


@contextmanager
def errors_explained(url: str, schema: str, connection: Any = None) -> Iterator[None]:
    """Around statements on a connection: of ours to the database at `url`, or of the caller's."""
    try:
        yield
    except psycopg.DataError as error:
        raise bad_input(error) from error
    except Exception as error:
        state, info = getattr(error, "sqlstate", None), getattr(connection, "info", None)
        if state == _NO_PERMISSION:
            user = getattr(info, "user", None) or conninfo_to_dict(url).get("user") or "postgres"
            raise no_permission(error, str(user), schema) from error
        if state in _NO_TABLES and connection is not None:
            there = "" if info is None else f", {place_of(info.dsn)},"
            raise InvalidInput(
                f"The connection leads to a database{there} in which the schema {schema!r} has no "
                f"tables of Evenbeat. Pass a connection to {place_of(url)}, where its jobs are.",
                field="connection",
            ) from error
        raise
