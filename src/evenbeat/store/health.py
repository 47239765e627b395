"""The doctor's queries, on a plain connection of their own: they work where the schema is missing,
old or too new, and where every pooled connection is taken."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import psycopg

from evenbeat.errors import DatabaseUnavailable, InvalidInput
from evenbeat.store.migrate import applied_migrations, migrations, usable
from evenbeat.store.part import StorePart
from evenbeat.store.statements import load_statements

_Result = TypeVar("_Result")

# A doctor who waits for a lock is no help, and one who hangs is another patient.
# Behind a pooler these settings would end up in the sessions of others.
_SESSION = "SET statement_timeout = '10s'; SET lock_timeout = '2s'"


class ServerInfo(NamedTuple):
    version_number: int
    version: str
    clock: datetime
    connections: int
    max_connections: int
    is_standby: bool
    session: int
    standbys: int
    waits_for_standbys: bool


class OpenTransaction(NamedTuple):
    pid: int
    application: str
    user: str
    state: str | None
    seconds: float
    holds_back_vacuum: bool


class TableHealth(NamedTuple):
    """A table in the server's statistics; rows and dead rows are estimates."""

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
        (server,) = self._all(ServerInfo._make, "health_server")
        return server

    def is_pooled(self) -> bool:
        """Whether a pooler lies between us and the server: it makes up the session's number."""
        return self.server().session != self._connection.info.backend_pid

    def versions(self) -> tuple[int, int, bool]:
        """The schema's version in the database, the newest that this Evenbeat knows, and whether
        it can use the schema if that is newer."""
        applied, known = applied_migrations(self._connection, self.schema), migrations()[-1].version
        return applied[-1].version if applied else 0, known, usable(applied, known)

    def long_transactions(self, longer_than: timedelta) -> list[OpenTransaction]:
        seconds = longer_than.total_seconds()
        return self._all(OpenTransaction._make, "health_transactions", longer_than_seconds=seconds)

    def prepared_transactions(self, longer_than: timedelta) -> list[tuple[str, float]]:
        """Two-phase transactions that nobody has ended, and their age in seconds."""
        return self._all(tuple, "health_prepared", longer_than_seconds=longer_than.total_seconds())

    def slots(self) -> list[tuple[str, bool, int]]:
        """Replication slots that keep old rows: name, whether in use, age in transactions."""
        return self._all(tuple, "health_slots")

    def tables(self) -> list[TableHealth]:
        """The schema's tables, largest first."""
        return self._all(TableHealth._make, "health_tables", schema=self.schema)

    def workers(self) -> list[WorkerPulse]:
        """Known workers, the longest silent first."""
        return self._all(WorkerPulse._make, "health_workers")

    def chores(self) -> dict[str, float | None]:
        """How many seconds ago each chore was last done; None: never to its end."""
        return dict(self._all(tuple, "health_chores"))

    def stale_leases(self, longer_than: timedelta) -> tuple[int, float | None]:
        """Leases that ran out longer ago than this: how many, and the seconds of the oldest."""
        seconds = longer_than.total_seconds()
        ((count, oldest),) = self._all(tuple, "health_leases", longer_than_seconds=seconds)
        return count, oldest

    def rows(self, name: str, params: Mapping[str, Any]) -> list[Any]:
        """What a statement gives."""
        text = self._statements[name].text
        return self._connection.execute(text, {"now": self._now, **params}).fetchall()

    def _all(
        self, make: Callable[[Iterable[Any]], _Result], name: str, **params: Any
    ) -> list[_Result]:
        return [make(row) for row in self.rows(name, params)]


@contextmanager
def health_queries(url: str, schema: str, now: datetime | None = None) -> Iterator[HealthQueries]:
    """On a connection of their own, or `DatabaseUnavailable` with the server's words."""
    try:
        connection = psycopg.connect(
            url,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=10,
            application_name="evenbeat-doctor",
        )
    except psycopg.ProgrammingError:
        # The reason would quote a part of the URL, which may be the password.
        raise InvalidInput("The database URL cannot be read.", field="database_url") from None
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(str(error).strip().splitlines()[0]) from error
    with connection:
        connection.execute("SET timezone = 'UTC'")
        queries = HealthQueries(connection, schema, now)
        if not queries.is_pooled():
            connection.execute(_SESSION)
        yield queries


class TableQueries(StorePart):
    """What the server knows of the tables."""

    def figures(self) -> list[TableHealth]:
        """Every table of the schema."""
        return self._all(TableHealth._make, "health_tables", {"schema": self._database.schema})

    def oldest_transaction_seconds(self) -> float:
        """Age of the oldest transaction that is open beside ours; 0 without one."""
        return max(0.0, float(self._database.rows("oldest_transaction", {})[0][0]))

    def schema_complaint(self) -> str | None:
        """Why the schema does not fit this Evenbeat, if it does not."""
        known = migrations()[-1].version
        there, usable, read_only = self._database.rows("schema_version", {"known": known})[0]
        if read_only:
            self._database.connect_anew()
            refusal = psycopg.errors.ReadOnlySqlTransaction("the server is read-only")
            raise self._database.unavailable(refusal)
        self._database.availability.answered(wrote=True)  # a process that only reads sees it here
        if there >= known and usable:
            return None
        remedy = "migrate the schema" if there < known else "upgrade Evenbeat"
        return f"The schema is at version {there}, this Evenbeat needs {known}: {remedy}."
