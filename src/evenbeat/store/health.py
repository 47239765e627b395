"""The doctor's queries, on a plain connection of their own: they work where the schema is missing,
old or too new, and where every pooled connection is taken."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from evenbeat.errors import DatabaseUnavailable, InvalidInput
from evenbeat.store.database import Database
from evenbeat.store.migrate import migrations, schema_version
from evenbeat.store.statements import load_statements
from evenbeat.store.summaries import SILENT_AFTER, WaitingLane

# A doctor who waits for a lock is no help, and one who hangs is another patient.
_SESSION = "SET timezone = 'UTC'; SET statement_timeout = '10s'; SET lock_timeout = '2s'"


class ServerInfo(NamedTuple):
    version_number: int
    version: str
    clock: datetime
    connections: int
    max_connections: int
    is_standby: bool


class OpenTransaction(NamedTuple):
    pid: int
    application: str
    user: str
    state: str | None
    seconds: float
    holds_back_vacuum: bool


class TableHealth(NamedTuple):
    name: str
    live_rows: int
    dead_rows: int
    last_vacuum: datetime | None
    bytes: int


class WorkerPulse(NamedTuple):
    """A known worker, and the age of its last heartbeat."""

    host: str
    pid: int
    status: str
    silent_seconds: float


class HealthQueries:
    """Questions about one database and schema. `now` stands in for the database's clock."""

    def __init__(
        self, connection: psycopg.Connection[Any], schema: str, now: datetime | None = None
    ) -> None:
        self.schema = schema
        self._connection = connection
        self._statements = load_statements(schema)
        self._now = now

    def server(self) -> ServerInfo:
        return ServerInfo._make(self._rows("health_server")[0])

    def versions(self) -> tuple[int, int]:
        """The schema's version in the database, and the newest that this Evenbeat knows."""
        return schema_version(self._connection, self.schema), migrations()[-1].version

    def long_transactions(self, longer_than: timedelta) -> list[OpenTransaction]:
        rows = self._rows("health_transactions", longer_than_seconds=longer_than.total_seconds())
        return [OpenTransaction._make(row) for row in rows]

    def prepared_transactions(self, longer_than: timedelta) -> list[tuple[str, float]]:
        """Two-phase transactions that nobody has ended, and their age in seconds."""
        rows = self._rows("health_prepared", longer_than_seconds=longer_than.total_seconds())
        return [(gid, seconds) for gid, seconds in rows]

    def slots(self) -> list[tuple[str, bool, int]]:
        """Replication slots that keep old rows: name, whether in use, age in transactions."""
        return [(name, active, age) for name, active, age in self._rows("health_slots")]

    def tables(self) -> list[TableHealth]:
        """The schema's tables, largest first."""
        rows = self._rows("health_tables", schema=self.schema)
        return [TableHealth._make(row) for row in rows]

    def workers(self) -> list[WorkerPulse]:
        """Known workers, the longest silent first."""
        return [WorkerPulse._make(row) for row in self._rows("health_workers", now=self._now)]

    def chores(self) -> dict[str, float | None]:
        """How many seconds ago each chore was last done; None: never to its end."""
        return dict(self._rows("health_chores", now=self._now))

    def stale_leases(self, longer_than: timedelta) -> tuple[int, float | None]:
        """Leases that ran out longer ago than this: how many, and the seconds of the oldest."""
        count, oldest = self._rows(
            "health_leases", longer_than_seconds=longer_than.total_seconds(), now=self._now
        )[0]
        return count, oldest

    def waiting_lanes(self, late: timedelta) -> list[WaitingLane]:
        """Queues and tasks with jobs that have been due for this long."""
        rows = self._rows(
            "waiting_lanes",
            late_seconds=late.total_seconds(),
            silent_seconds=SILENT_AFTER.total_seconds(),
            now=self._now,
        )
        return [WaitingLane._make(row) for row in rows]

    def _rows(self, name: str, **params: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._statements[name].text, params).fetchall()


@contextmanager
def health_queries(url: str, schema: str, now: datetime | None = None) -> Iterator[HealthQueries]:
    """On a connection of their own, or `DatabaseUnavailable` with the server's words."""
    try:
        connection = psycopg.connect(
            url, autocommit=True, connect_timeout=10, application_name="evenbeat-doctor"
        )
    except psycopg.ProgrammingError:
        # The reason would quote a part of the URL, which may be the password.
        raise InvalidInput("The database URL cannot be read.", field="database_url") from None
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(str(error).strip().splitlines()[0]) from error
    with connection:
        connection.execute(_SESSION)
        yield HealthQueries(connection, schema, now)


class TableStats(NamedTuple):
    """A table in the server's statistics; rows and dead rows are estimates."""

    name: str
    dead_tuples: int
    live_tuples: int
    total_bytes: int


class TableQueries:
    """What the server knows of the tables."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def figures(self) -> list[TableStats]:
        """Every table of the schema."""
        rows = self._database.rows("table_figures", {"schema": self._database.schema})
        return [TableStats._make(row) for row in rows]

    def oldest_transaction_seconds(self) -> float:
        """Age of the oldest transaction that is open beside ours; 0 without one."""
        return max(0.0, float(self._database.rows("oldest_transaction", {})[0][0]))

    def schema_complaint(self) -> str | None:
        """Why the schema does not fit this Evenbeat, if it does not."""
        there = int(self._database.rows("schema_version", {})[0][0])
        known = migrations()[-1].version
        if there < known:
            return f"The schema is at version {there}, this Evenbeat needs {known}: migrate it."
        if there > known:
            return f"The schema is at version {there}, this Evenbeat knows {known}: upgrade it."
        return None
