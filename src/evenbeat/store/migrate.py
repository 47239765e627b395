"""Numbered migrations, forward only, applied once however many processes start together."""

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, NamedTuple

import psycopg

from evenbeat.errors import DatabaseUnavailable, SchemaTooNew
from evenbeat.store.pool import OUTAGES, connect_options
from evenbeat.store.statements import in_schema

logger = logging.getLogger(__name__)

LOCK_SECONDS = 5.0
PAUSE_SECONDS = 5.0
ATTEMPTS = 12
_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")

# Before the first release there were twelve migrations, of which 0001 is the sum. A database that
# has them all counts as new, and this step takes it to the schema that 0001 would create.
_FROM_TWELVE = "from_0012.sql"
_HAS_TWELVE = """
SELECT FROM evenbeat.migrations WHERE version = 12 AND name = 'shorter_rules'"""

_VERSIONS_TABLE = """
CREATE TABLE IF NOT EXISTS evenbeat.migrations (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""


class Migration(NamedTuple):
    """One step of the schema."""

    version: int
    name: str
    text: str


def migrations() -> list[Migration]:
    """Every migration this Evenbeat knows, in order."""
    steps = []
    for file in files(__package__).joinpath("migrations").iterdir():
        if match := _FILE.match(file.name):
            text = file.read_text(encoding="utf-8")
            steps.append(Migration(int(match[1]), match[2], text))
    return sorted(steps)


def migrate(url: str, schema: str) -> list[int]:
    """Apply what is missing and return its numbers; a database newer than the code is refused."""
    with _outages_told():
        connection = psycopg.connect(
            url, autocommit=True, prepare_threshold=None, **connect_options(url)
        )
    with _outages_told(), connection:
        known = migrations()
        missing = _missing(connection, schema, known)
        if missing:
            with connection.transaction():
                _lock(connection, schema)
                row = connection.execute("SELECT to_regnamespace(%s)", (f'"{schema}"',)).fetchone()
                if row is None or row[0] is None:
                    connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
                connection.execute(in_schema(_VERSIONS_TABLE, schema).encode())
        return [step.version for step in missing if _apply(connection, schema, step)]


def _missing(
    connection: psycopg.Connection[Any], schema: str, known: list[Migration]
) -> list[Migration]:
    current = schema_version(connection, schema)
    newest = known[-1].version
    if current > newest:
        raise SchemaTooNew(
            f"The schema {schema!r} is at version {current}, but this Evenbeat knows only up to "
            f"{newest}. Upgrade Evenbeat on this machine, or use another schema."
        )
    return [step for step in known if step.version > current]


@contextmanager
def _outages_told() -> Iterator[None]:
    try:
        yield
    except OUTAGES as error:
        raise DatabaseUnavailable(f"Cannot migrate, no connection: {error}") from error


def schema_version(connection: psycopg.Connection[Any], schema: str) -> int:
    """The newest migration in the database; 0 before the first."""
    row = connection.execute("SELECT to_regclass(%s)", (f'"{schema}".migrations',)).fetchone()
    if row is None or row[0] is None or _run(connection, _HAS_TWELVE, schema) is not None:
        return 0
    row = _run(connection, "SELECT coalesce(max(version), 0) FROM evenbeat.migrations", schema)
    return int(row[0]) if row else 0


def _lock(connection: psycopg.Connection[Any], schema: str) -> None:
    """One process at a time, until the transaction ends: a pooler would lend a session that keeps a
    lock to others."""
    name = f"evenbeat:{schema}"
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))


def _apply(connection: psycopg.Connection[Any], schema: str, step: Migration) -> bool:
    """Apply one step unless another process was first, beside workers that may be at work. It waits
    for locks only briefly, because later statements wait behind it, and lets the others pass before
    it tries again; so too when a statement has locked the same tables in another order."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with connection.transaction():
                _lock(connection, schema)
                if schema_version(connection, schema) >= step.version:
                    return False
                if _run(connection, _HAS_TWELVE, schema) is not None:
                    upgrade = files(__package__).joinpath("migrations", _FROM_TWELVE)
                    step = step._replace(text=upgrade.read_text(encoding="utf-8"))
                connection.execute(f"SET LOCAL lock_timeout = {int(LOCK_SECONDS * 1000)}".encode())
                connection.execute(in_schema(step.text, schema).encode())
                done = "INSERT INTO evenbeat.migrations (version, name) VALUES (%s, %s)"
                connection.execute(in_schema(done, schema).encode(), (step.version, step.name))
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            if attempt == ATTEMPTS:
                raise DatabaseUnavailable(
                    f"Migration {step.version} gave up after {attempt} attempts: the tables are in "
                    "use. Let long transactions (a dump, a forgotten session) end and try again; "
                    "`evenbeat doctor` names them."
                ) from error
            logger.warning("migration %d waits: the tables are in use", step.version)
            time.sleep(PAUSE_SECONDS)
        else:
            return True
    raise AssertionError("unreachable")


def _run(connection: psycopg.Connection[Any], text: str, schema: str) -> Any:
    return connection.execute(in_schema(text, schema).encode()).fetchone()
