"""Whether this process can do its work right now, check by check."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from psycopg.errors import InvalidSchemaName, UndefinedTable

from evenbeat.errors import SchemaTooNew, StoreError
from evenbeat.observe.single_flight import SingleFlight
from evenbeat.observe.telemetry import Telemetry
from evenbeat.store.health import TableQueries
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)

OK = "ok"


class ReadinessReport(NamedTuple):
    """Each check with `ok` or what is wrong."""

    checks: dict[str, str]

    @property
    def ready(self) -> bool:
        return all(result == OK for result in self.checks.values())


class Readiness:
    """The database responds, its schema fits, and the worker of this process claims and renews.

    A worker is checked when one runs here; a caller whose worker is yet to start says so with
    `expects_worker`.
    """

    def __init__(self, store: Callable[[], Store], telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._schema = SingleFlight(
            lambda: TableQueries(store().database).schema_complaint() or OK, fresh_seconds=1.0
        )

    def report(self, *, expects_worker: bool = False) -> ReadinessReport:
        """Run the checks. Takes two seconds at most, whatever the database does."""
        complaint, _, error = self._schema.get()
        checks = {"database": OK, "schema": complaint or OK}
        if error is not None:
            # Without the details: anyone may ask, and those name hosts and users.
            logger.warning("Not ready", extra={"error": str(error)})
            match error:
                case UndefinedTable() | InvalidSchemaName():
                    checks["schema"] = "Evenbeat's tables are not there: migrate."
                case SchemaTooNew():
                    checks["schema"] = "The schema is newer than this Evenbeat: upgrade it."
                case StoreError() | TimeoutError():
                    checks = {"database": "The database does not answer; the log says why."}
                case _:
                    checks = {"database": "The check failed; the log says why."}
        workers = self._telemetry.status()
        if workers or expects_worker:
            checks["worker"] = next(
                (status.trouble for status in workers if status.trouble),
                OK if workers else "The worker has not started, or has stopped.",
            )
        return ReadinessReport(checks)
