"""The doctor: looks at a database and its workers, and says what is wrong and what to do."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import psycopg

from evenbeat.errors import DatabaseUnavailable, InvalidInput
from evenbeat.observe import symptoms
from evenbeat.observe.symptoms import Finding, Limits, Severity, Visit
from evenbeat.store.health import Probe, probe

__all__ = ["Finding", "Limits", "Severity", "check", "worst"]

Look = Callable[[Visit], Iterator[Finding]]

_USUAL = Limits()
_ANYWHERE: tuple[Look, ...] = (
    symptoms.skew,
    symptoms.connections,
    symptoms.transactions,
    symptoms.prepared,
    symptoms.slots,
    symptoms.dead_rows,
    symptoms.sizes,
)
_IN_THE_SCHEMA: tuple[Look, ...] = (
    symptoms.workers,
    symptoms.lanes,
    symptoms.leases,
    symptoms.chores,
)


def check(
    url: str,
    *,
    schema: str = "evenbeat",
    limits: Limits = _USUAL,
    now: datetime | None = None,
    local_clock: Callable[[], float] = time.time,
) -> list[Finding]:
    """Look at everything and give what was found, in the order of looking. It changes nothing,
    needs no migrated schema, and reports trouble instead of raising it."""
    try:
        with probe(url, schema) as opened:
            return _examine(opened, limits, now, local_clock)
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
    opened: Probe, limits: Limits, now: datetime | None, local_clock: Callable[[], float]
) -> list[Finding]:
    begun = local_clock()
    server = opened.server()
    between = (begun + local_clock()) / 2
    skew = timedelta(seconds=server.clock.timestamp() - between)
    visit = Visit(opened, server, limits, now, skew)
    findings = [symptoms.reachable(visit), symptoms.version(visit)]
    looks = list(_ANYWHERE)
    standing = symptoms.schema(visit)
    findings.append(standing)
    if standing.severity == "ok":
        looks += _IN_THE_SCHEMA
    for look in looks:
        findings += _attempt(look, visit)
    return findings


def _attempt(look: Look, visit: Visit) -> list[Finding]:
    """One look that fails must not keep the others from being taken."""
    try:
        return list(look(visit))
    except psycopg.Error as error:
        name = look.__name__.strip("_").replace("_", " ")
        reason = str(error).strip().splitlines()[0]
        remedy = "Run the doctor as the user that Evenbeat itself connects with."
        return [Finding("check_failed", "warning", f"Could not look at: {name}", reason, remedy)]
