"""The doctor: checks a database and its workers, and says what is wrong and what to do. The words
of its findings are in `findings.toml`."""

import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psycopg

from evenbeat.errors import DatabaseUnavailable, InvalidInput
from evenbeat.humanize import count, duration
from evenbeat.observe.alerts import alerts
from evenbeat.store.health import HealthQueries, ServerInfo, health_queries
from evenbeat.store.summaries import SILENT_AFTER

Severity = Literal["ok", "warning", "error"]

OLDEST_SERVER = 140_000

# From where on something is worth a finding.
LONG_TRANSACTION = timedelta(minutes=1)
CLOCK_SKEW = timedelta(seconds=2)
STALE_LEASE = timedelta(seconds=60)
DEAD_SHARE, DEAD_ROWS = 0.3, 10_000
CONNECTIONS_SHARE = 0.85
SLOT_AGE = 1_000_000
# How often each chore is due, in seconds; one that nobody has done for five rounds is neglected.
_CHORES = {"figures": 30, "aging": 300, "retention": 3600}
_WATCHED_TABLES = ("jobs", "executions")
_MOST_NAMED = 5


class Finding(NamedTuple):
    """The result of one check. `detail` says what was seen, `remedy` what to do about it."""

    code: str
    severity: Severity
    title: str
    detail: str = ""
    remedy: str = ""


class CheckContext(NamedTuple):
    """What a check goes by. `now` is the database's time, or what stands in for it."""

    queries: HealthQueries
    server: ServerInfo
    now: datetime
    skew: timedelta


@cache
def texts() -> dict[str, dict[str, Any]]:
    """The words of each finding, by name."""
    return tomllib.loads(Path(__file__).with_name("findings.toml").read_text("utf-8"))


def _finding(name: str, /, **values: object) -> Finding:
    """The finding of this name in `findings.toml`, with these values in its words."""
    parts = {"code": name, "severity": "ok"} | texts()[name]
    return Finding(**{part: text.format(**values) for part, text in parts.items()})


def server(context: CheckContext) -> Iterator[Finding]:
    """Whether it can be written to, and is not too old."""
    yield _finding("database_read_only" if context.server.is_standby else "database_reachable")
    too_old = context.server.version_number < OLDEST_SERVER
    yield _finding(
        "server_too_old" if too_old else "server_version", version=context.server.version
    )


def replication(context: CheckContext) -> Iterator[Finding]:
    """What lies between us and the server, and behind it."""
    if context.queries.is_pooled():
        yield _finding("pooler")
    if standbys := context.server.standbys:
        waits = context.server.waits_for_standbys
        name = "synchronous_replication" if waits else "asynchronous_replication"
        yield _finding(name, standbys=count(standbys, "standby"))


def schema_version(context: CheckContext) -> Finding:
    version, known, usable = context.queries.versions()
    if version < known:
        name = "schema_behind" if version else "schema_missing"
    else:
        name = "schema_version" if usable else "schema_newer"
    return _finding(name, schema=context.queries.schema, version=version, known=known)


def clock_skew(context: CheckContext) -> Iterator[Finding]:
    name = "clock_agrees" if abs(context.skew) <= CLOCK_SKEW else "clock_skew"
    way = "behind" if context.skew > timedelta(0) else "ahead of"
    yield _finding(name, skew=duration(context.skew), way=way)


def connections(context: CheckContext) -> Iterator[Finding]:
    used, most = context.server.connections, context.server.max_connections
    free = used < CONNECTIONS_SHARE * most
    yield _finding("connections_free" if free else "connections", used=used, most=most)


def long_transactions(context: CheckContext) -> Iterator[Finding]:
    """Transactions that somebody left open."""
    transactions = context.queries.long_transactions(LONG_TRANSACTION)
    if not transactions:
        yield _finding("no_long_transaction", limit=duration(LONG_TRANSACTION))
    for one in transactions[:_MOST_NAMED]:
        holds = one.holds_back_vacuum
        name = "transaction_holds_back_vacuum" if holds else "long_transaction"
        state, age = one.state or "state unknown", duration(one.seconds)
        yield _finding(name, **one._asdict() | {"state": state, "age": age})


def prepared_transactions(context: CheckContext) -> Iterator[Finding]:
    """Two-phase transactions that nobody ended."""
    transactions = context.queries.prepared_transactions(LONG_TRANSACTION)
    for gid, seconds in transactions[:_MOST_NAMED]:
        yield _finding("prepared_transaction", gid=gid, age=duration(seconds))


def replication_slots(context: CheckContext) -> Iterator[Finding]:
    """Replication slots that hold back vacuum."""
    for name, active, age in context.queries.slots():
        if age > SLOT_AGE:
            yield _finding("replication_slot" if active else "abandoned_slot", name=name, age=age)


def dead_rows(context: CheckContext) -> Iterator[Finding]:
    """Whether vacuum keeps up."""
    for table in context.queries.tables():
        if table.name not in _WATCHED_TABLES:
            continue
        dead, schema = table.dead_rows, context.queries.schema
        share = dead / max(1, table.live_rows + dead)
        last = "never" if table.last_vacuum is None else f"{table.last_vacuum:%Y-%m-%d %H:%M} UTC"
        name = "few_dead_rows" if share <= DEAD_SHARE or dead < DEAD_ROWS else "dead_rows"
        yield _finding(name, table=table.name, share=share, dead=dead, last=last, schema=schema)


def sizes(context: CheckContext) -> Iterator[Finding]:
    tables = context.queries.tables()
    if tables:
        largest = ", ".join(f"{t.name} {_megabytes(t.bytes)}" for t in tables[:4])
        yield _finding("size", total=_megabytes(sum(t.bytes for t in tables)), largest=largest)


def _megabytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def workers(context: CheckContext) -> Iterator[Finding]:
    known, limit = context.queries.workers(), SILENT_AFTER.total_seconds()
    silent = [worker for worker in known if worker.silent_seconds > limit]
    for one in silent[:_MOST_NAMED]:
        host, age = one.host.split("/")[0], duration(one.silent_seconds)
        yield _finding("silent_worker", host=host, pid=one.pid, silent=age)
    live = len(known) - len(silent)
    yield _finding("workers", workers=count(live, "worker")) if live else _finding("no_workers")


def jobs(context: CheckContext) -> Iterator[Finding]:
    """Jobs that wait for too long, and tasks that fail, hang, miss their time or get slower."""
    named = Counter[str]()
    for rule, *words, _, _, _ in alerts(context.queries.rows, context.now):
        named[rule.name] += 1
        if named[rule.name] <= _MOST_NAMED:
            yield Finding(rule.name, rule.severity, *words)
    if not named.keys() & {"unserved", "busy", "late", "queue_paused", "queue_depth"}:
        yield _finding("on_time")
    if not named.keys() & {
        "failure_rate",
        "running_long",
        "missed_window",
        "success_rate",
        "slower",
    }:
        yield _finding("tasks_are_well")


def leases(context: CheckContext) -> Iterator[Finding]:
    """Expired leases that nobody has reaped."""
    runs, oldest = context.queries.stale_leases(STALE_LEASE)
    name = "stale_leases" if runs else "leases"
    yield _finding(name, runs=count(runs, "run"), age=duration(oldest or 0))


def chores(context: CheckContext) -> Iterator[Finding]:
    ages = context.queries.chores()
    late = [
        name
        for name, every in _CHORES.items()
        if (age := ages.get(name)) is None or age > max(5 * every, 300)
    ]
    yield _finding("chores_neglected" if late else "chores", chores=", ".join(late))


# What can keep the checks from being made.
_OBSTACLES = {
    InvalidInput: "database_url",
    DatabaseUnavailable: "database_unreachable",
    psycopg.Error: "database_refused",
}
_SERVER_CHECKS = (
    clock_skew,
    connections,
    long_transactions,
    prepared_transactions,
    replication,
    replication_slots,
    dead_rows,
    sizes,
)
_SCHEMA_CHECKS = (workers, jobs, leases, chores)


def check(url: str, *, schema: str = "evenbeat", now: datetime | None = None) -> list[Finding]:
    """Run every check and give the findings in order. It changes nothing, needs no migrated
    schema, and reports trouble instead of raising it."""
    try:
        with health_queries(url, schema, now) as queries:
            started = time.time()
            info = queries.server()
            local_time = (started + time.time()) / 2
            skew = timedelta(seconds=info.clock.timestamp() - local_time)
            context = CheckContext(queries, info, now or info.clock, skew)
            schema_finding = schema_version(context)
            findings = [*server(context), schema_finding]
            more = _SCHEMA_CHECKS if schema_finding.severity == "ok" else ()
            for run_check in _SERVER_CHECKS + more:
                try:  # one check that fails must not keep the others from being made
                    findings += run_check(context)
                except psycopg.Error as error:
                    name = run_check.__name__.replace("_", " ")
                    findings.append(_finding("check_failed", check=name, error=_first_line(error)))
            return findings
    except (InvalidInput, DatabaseUnavailable, psycopg.Error) as error:
        name = next(name for kind, name in _OBSTACLES.items() if isinstance(error, kind))
        return [_finding(name, error=_first_line(error))]


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def worst(findings: list[Finding]) -> Severity:
    order: tuple[Severity, ...] = ("error", "warning")
    return next((s for s in order if any(f.severity == s for f in findings)), "ok")
