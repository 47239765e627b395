"""Numbered migrations, forward only, applied once however many processes start together.

A migration says which is the oldest code that can use the schema after it, by the newest migration
that such code knows (`-- oldest code: 3`); without that line, only code that knows it can.
"""

import hashlib
import logging
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, NamedTuple

import psycopg

from evenbeat.errors import DatabaseUnavailable, SchemaBehind, SchemaTooNew, StoreError
from evenbeat.store.explained import errors_explained
from evenbeat.store.pool import OUTAGES, connect_options
from evenbeat.store.statements import in_schema

logger = logging.getLogger(__name__)

LOCK_SECONDS = 5.0
PAUSE_SECONDS = 5.0
ATTEMPTS = 12
_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")
_OLDEST_CODE = re.compile(r"^-- oldest code: (\d+)$", re.MULTILINE)

_VERSIONS_TABLE = """
CREATE TABLE IF NOT EXISTS evenbeat.migrations (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE evenbeat.migrations ADD COLUMN IF NOT EXISTS oldest_code integer,
                                ADD COLUMN IF NOT EXISTS fingerprint text"""

# Asked of the catalogue itself: `to_regclass` may answer from what the session remembered before it
# waited for another process's migration.
_MIGRATED = "SELECT FROM pg_tables WHERE schemaname = %s AND tablename = 'migrations'"
_SCHEMA_THERE = "SELECT FROM pg_namespace WHERE nspname = %s"

# As JSON, because a schema that was made earlier has neither column.
_APPLIED = """
SELECT version, coalesce(to_jsonb(m) ->> 'oldest_code', version::text)::int,
       to_jsonb(m) ->> 'fingerprint'
FROM evenbeat.migrations m ORDER BY version"""
_NOTE = """
INSERT INTO evenbeat.migrations (version, name, oldest_code, fingerprint)
VALUES (%s, %s, %s, %s)"""


class Migration(NamedTuple):
    """One step of the schema."""

    version: int
    name: str
    text: str

    @property
    def oldest_code(self) -> int:
        """The newest migration that code must know in order to use the schema after this one."""
        declared = _OLDEST_CODE.search(self.text)
        return int(declared[1]) if declared else self.version

    @property
    def fingerprint(self) -> str:
        """Of what it does: comments and spaces do not count."""
        words = re.sub(r"--.*", "", self.text).split()
        return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]


class AppliedMigration(NamedTuple):
    """A migration as the database has it."""

    version: int
    oldest_code: int
    fingerprint: str | None


def usable(applied: Iterable[AppliedMigration], newest: int) -> bool:
    """Whether code that knows migrations up to `newest` can use a schema with these."""
    return all(one.oldest_code <= newest for one in applied if one.version > newest)


def migrations() -> list[Migration]:
    """Every migration this Evenbeat knows, in order."""
    steps = []
    for file in files(__package__).joinpath("migrations").iterdir():
        if match := _FILE.match(file.name):
            text = file.read_text(encoding="utf-8")
            steps.append(Migration(int(match[1]), match[2], text))
    return sorted(steps)


def migrate(url: str, schema: str, *, only_check: bool = False) -> list[int]:
    """Apply what is missing and return its numbers, or raise SchemaBehind if it may only check. A
    schema that this code is too old for is refused."""
    with _outages_told():
        connection = psycopg.connect(
            url, autocommit=True, prepare_threshold=None, **connect_options(url)
        )
    with _outages_told(), connection:
        known = migrations()
        with errors_explained(url, schema, connection):
            missing = _missing(connection, schema, known)
        if missing and only_check:
            raise SchemaBehind(
                f"The schema {schema!r} is at version {missing[0].version - 1}, but this Evenbeat "
                f"needs {known[-1].version}, and EVENBEAT_MIGRATE is off. Run `evenbeat migrate`."
            )
        try:
            return [step.version for step in missing if _apply(connection, schema, step)]
        except psycopg.errors.InsufficientPrivilege as error:
            user, database = connection.info.user, connection.info.dbname
            raise StoreError(
                f"The user {user!r} may not create or change the schema {schema!r} "
                f"({error.diag.message_primary}). Run `evenbeat migrate` as its owner, or let the "
                f'user create it: GRANT CREATE ON DATABASE "{database}" TO "{user}";'
            ) from error


def _missing(
    connection: psycopg.Connection[Any], schema: str, known: list[Migration]
) -> list[Migration]:
    applied = applied_migrations(connection, schema)
    current = applied[-1].version if applied else 0
    newest = known[-1].version
    if not usable(applied, newest):
        raise SchemaTooNew(
            f"The schema {schema!r} is at version {current}, but this Evenbeat knows only up to "
            f"{newest}. Upgrade Evenbeat on this machine, or use another schema."
        )
    missing = [step for step in known if step.version > current]
    expected = {step.version: step.fingerprint for step in known}
    for one in applied:
        if missing and one.fingerprint not in (None, expected.get(one.version, one.fingerprint)):
            raise StoreError(
                f"The schema {schema!r} cannot be migrated: its migration {one.version} is not the "
                "one of this Evenbeat. It was probably made by a development version. Move its "
                "jobs to a new schema (`evenbeat export`, `evenbeat import`)."
            )
    return missing


@contextmanager
def _outages_told() -> Iterator[None]:
    try:
        yield
    except OUTAGES as error:
        raise DatabaseUnavailable(f"Cannot migrate, no connection: {error}") from error


def applied_migrations(connection: psycopg.Connection[Any], schema: str) -> list[AppliedMigration]:
    """What was applied to the database, in order."""
    if connection.execute(_MIGRATED, (schema,)).fetchone() is None:
        return []
    rows = connection.execute(in_schema(_APPLIED, schema).encode())
    return [AppliedMigration._make(row) for row in rows]


def schema_version(connection: psycopg.Connection[Any], schema: str) -> int:
    """The newest migration in the database; 0 before the first."""
    applied = applied_migrations(connection, schema)
    return applied[-1].version if applied else 0


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
                if connection.execute(_SCHEMA_THERE, (schema,)).fetchone() is None:
                    connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
                connection.execute(f"SET LOCAL lock_timeout = {int(LOCK_SECONDS * 1000)}".encode())
                connection.execute(in_schema(_VERSIONS_TABLE, schema).encode())
                connection.execute(in_schema(step.text, schema).encode())
                connection.execute(
                    in_schema(_NOTE, schema).encode(),
                    (step.version, step.name, step.oldest_code, step.fingerprint),
                )
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
