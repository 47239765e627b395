"""The doctor: checks a database and its workers, and says what is wrong and what to do."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta

import psycopg

from evenbeat.errors import DatabaseUnavailable, InvalidInput
from evenbeat.observe import checks
from evenbeat.observe.checks import CheckContext, CheckLimits, Finding, Severity
from evenbeat.store.health import HealthQueries, health_queries

__all__ = ["CheckLimits", "Finding", "Severity", "check", "worst"]

_DEFAULT_LIMITS = CheckLimits()
_SERVER_CHECKS = (
    checks.clock_skew,
    checks.connections,
    checks.long_transactions,
    checks.prepared_transactions,
    checks.replication_slots,
    checks.dead_rows,
    checks.sizes,
)
_SCHEMA_CHECKS = (checks.workers, checks.lanes, checks.leases, checks.chores)


def check(
    url: str,
    *,
    schema: str = "evenbeat",
    limits: CheckLimits = _DEFAULT_LIMITS,
    now: datetime | None = None,
    local_clock: Callable[[], float] = time.time,
) -> list[Finding]:
    """Run every check and give the findings in order. It changes nothing, needs no migrated
    schema, and reports trouble instead of raising it."""
    try:
        with health_queries(url, schema, now) as queries:
            return _examine(queries, limits, now, local_clock)
    except InvalidInput as error:
        return [
            Finding(
                "database_url",
                "error",
                "The database URL cannot be read",
                str(error),
                "Write it as postgresql://user:password@host:5432/name, with special characters in "
                "the password percent-encoded ('@' as '%40').",
            )
        ]
    except DatabaseUnavailable as error:
        return [
            Finding(
                "database_unreachable",
                "error",
                "The database cannot be reached",
                str(error),
                "Check that the server runs, that the URL is right, and that a firewall or "
                "pg_hba.conf lets this machine in.",
            )
        ]
    except psycopg.Error as error:
        return [
            Finding(
                "database_refused",
                "error",
                "The database did not answer a question",
                str(error).strip().splitlines()[0],
                "Check that it is still up, and that this user may read its statistics and the "
                "schema.",
            )
        ]


def worst(findings: list[Finding]) -> Severity:
    """The gravest severity among the findings."""
    order: tuple[Severity, ...] = ("error", "warning")
    return next((s for s in order if any(f.severity == s for f in findings)), "ok")


def _examine(
    queries: HealthQueries,
    limits: CheckLimits,
    now: datetime | None,
    local_clock: Callable[[], float],
) -> list[Finding]:
    started = local_clock()
    server = queries.server()
    local_time = (started + local_clock()) / 2
    skew = timedelta(seconds=server.clock.timestamp() - local_time)
    context = CheckContext(queries, server, limits, now or server.clock, skew)
    schema = checks.schema(context)
    findings = [checks.reachable(context), checks.version(context), schema]
    for run_check in _SERVER_CHECKS + (_SCHEMA_CHECKS if schema.severity == "ok" else ()):
        try:  # one check that fails must not keep the others from being made
            findings += run_check(context)
        except psycopg.Error as error:
            name = run_check.__name__.replace("_", " ")
            reason = str(error).strip().splitlines()[0]
            remedy = "Run the doctor as the user that Evenbeat itself connects with."
            findings.append(
                Finding("check_failed", "warning", f"Could not check: {name}", reason, remedy)
            )
    return findings
