"""What the doctor can see of a database: on a plain connection of its own, so that it works where
the schema is missing, old or too new, and where every pooled connection is taken."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from evenbeat.errors import DatabaseUnavailable, InvalidInput
from evenbeat.store.glance import SILENT_AFTER, WaitingLane
from evenbeat.store.migrate import migrations, schema_version
from evenbeat.store.statements import load_statements

# A doctor who waits for a lock is no help, and one who hangs is another patient.
_SESSION = "SET timezone = 'UTC'; SET statement_timeout = '10s'; SET lock_timeout = '2s'"


class Server(NamedTuple):
    """The server as it presents itself."""

    version_number: int
    version: str
    clock: datetime
    connections: int
    max_connections: int
    is_standby: bool


class OpenTransaction(NamedTuple):
    """A transaction that has been open for long."""

    pid: int
    application: str
    user: str
    state: str | None
    seconds: float
    holds_back_vacuum: bool


class TableHealth(NamedTuple):
    """A table in figures."""

    name: str
    live_rows: int
    dead_rows: int
    last_vacuum: datetime | None
    bytes: int


class WorkerPulse(NamedTuple):
    """A known worker, and the age of its last sign of life."""

    host: str
    pid: int
    status: str
    silent_seconds: float


class Probe:
    """Questions about one database and schema."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.schema = schema
        self._connection = connection
        self._statements = load_statements(schema)

    def server(self) -> Server:
        """The server itself."""
        return Server._make(self.rows("health_server", {})[0])

    def versions(self) -> tuple[int, int]:
        """The schema's version in the database, and the newest that this Evenbeat knows."""
        return schema_version(self._connection, self.schema), migrations()[-1].version

    def long_transactions(self, longer_than: timedelta) -> list[OpenTransaction]:
        """Transactions that have been open for longer than this."""
        params = {"longer_than_seconds": longer_than.total_seconds()}
        return [OpenTransaction._make(row) for row in self.rows("health_transactions", params)]

    def prepared_transactions(self, longer_than: timedelta) -> list[tuple[str, float]]:
        """Two-phase transactions that nobody has ended, and their age in seconds."""
        params = {"longer_than_seconds": longer_than.total_seconds()}
        return [(gid, seconds) for gid, seconds in self.rows("health_prepared", params)]

    def slots(self) -> list[tuple[str, bool, int]]:
        """Replication slots that keep old rows: name, whether in use, age in transactions."""
        return [(name, active, age) for name, active, age in self.rows("health_slots", {})]

    def tables(self) -> list[TableHealth]:
        """The schema's tables, largest first."""
        rows = self.rows("health_tables", {"schema": self.schema})
        return [TableHealth._make(row) for row in rows]

    def workers(self, now: datetime | None = None) -> list[WorkerPulse]:
        """Known workers, the longest silent first."""
        return [WorkerPulse._make(row) for row in self.rows("health_workers", {"now": now})]

    def chores(self, now: datetime | None = None) -> dict[str, float | None]:
        """How many seconds ago each chore was last done; None: never to its end."""
        return dict(self.rows("health_chores", {"now": now}))

    def stale_leases(
        self, longer_than: timedelta, now: datetime | None = None
    ) -> tuple[int, float | None]:
        """Leases that ran out longer ago than this: how many, and the seconds of the oldest."""
        params = {"longer_than_seconds": longer_than.total_seconds(), "now": now}
        count, oldest = self.rows("health_leases", params)[0]
        return count, oldest

    def waiting_lanes(self, late: timedelta, now: datetime | None = None) -> list[WaitingLane]:
        """Queues and tasks with jobs that have been due for this long."""
        params = {
            "late_seconds": late.total_seconds(),
            "silent_seconds": SILENT_AFTER.total_seconds(),
            "now": now,
        }
        return [WaitingLane._make(row) for row in self.rows("waiting_lanes", params)]

    def rows(self, name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run a named statement."""
        return self._connection.execute(self._statements[name].text, params).fetchall()


@contextmanager
def probe(url: str, schema: str) -> Iterator[Probe]:
    """A probe on a connection of its own, or `DatabaseUnavailable` with the server's words."""
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
        yield Probe(connection, schema)
