"""The doctor: checks a database and its workers, and says what is wrong and what to do."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import psycopg

from evenbeat.errors import DatabaseUnavailable, InvalidInput
from evenbeat.humanize import count, duration
from evenbeat.store.health import HealthQueries, ServerInfo, health_queries
from evenbeat.store.summaries import SILENT_AFTER, WaitingLane

Severity = Literal["ok", "warning", "error"]

OLDEST_SERVER = 140_000

# How often each chore is due; one that nobody has done for five rounds is neglected.
_CHORES = {
    "figures": timedelta(seconds=30),
    "aging": timedelta(minutes=5),
    "retention": timedelta(hours=1),
}
_WATCHED_TABLES = ("jobs", "executions")
_MOST_NAMED = 5


class Finding(NamedTuple):
    """The result of one check. `detail` says what was seen, `remedy` what to do about it."""

    code: str
    severity: Severity
    title: str
    detail: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """From where on something is worth a finding."""

    transaction: timedelta = timedelta(minutes=1)
    skew: timedelta = timedelta(seconds=2)
    late: timedelta = timedelta(minutes=5)
    unserved: timedelta = timedelta(seconds=30)
    lease: timedelta = timedelta(seconds=60)
    dead_share: float = 0.3
    dead_rows: int = 10_000
    connections: float = 0.85
    slot_age: int = 1_000_000


class CheckContext(NamedTuple):
    """What a check goes by. `now` is the database's time, or what stands in for it."""

    queries: HealthQueries
    server: ServerInfo
    limits: CheckLimits
    now: datetime
    skew: timedelta


def reachable(context: CheckContext) -> Finding:
    if context.server.is_standby:
        return Finding(
            "database_read_only",
            "error",
            "The database is a standby and cannot be written to",
            "pg_is_in_recovery() is true.",
            "Point database_url at the primary server.",
        )
    return Finding("database_reachable", "ok", "The database answers")


def version(context: CheckContext) -> Finding:
    server = context.server
    if server.version_number < OLDEST_SERVER:
        return Finding(
            "server_too_old",
            "error",
            f"PostgreSQL {server.version} is too old",
            "Evenbeat needs PostgreSQL 14 or newer.",
            "Upgrade the server, or use the embedded one by leaving database_url empty.",
        )
    return Finding("server_version", "ok", f"PostgreSQL {server.version}")


def schema_version(context: CheckContext) -> Finding:
    version, known = context.queries.versions()
    name = context.queries.schema
    if version == known:
        return Finding("schema_version", "ok", f"The schema {name!r} is at version {version}")
    if version == 0:
        return Finding(
            "schema_missing",
            "error",
            f"There is no Evenbeat in the schema {name!r}",
            "Its table of versions is missing or empty.",
            "Run `evenbeat migrate`, or set the schema that Evenbeat is in.",
        )
    if version < known:
        return Finding(
            "schema_behind",
            "error",
            f"The schema {name!r} is behind: version {version} of {known}",
            f"{count(known - version, 'migration')} have not been applied.",
            "Run `evenbeat migrate`.",
        )
    return Finding(
        "schema_newer",
        "error",
        f"The schema {name!r} is newer than this Evenbeat: version {version}, known up to {known}",
        "A newer Evenbeat has migrated it.",
        "Upgrade the package on this machine: pip install --upgrade evenbeat.",
    )


def clock_skew(context: CheckContext) -> Iterator[Finding]:
    if abs(context.skew) <= context.limits.skew:
        yield Finding("clock_skew", "ok", "This machine's clock agrees with the database's")
        return
    way = "behind" if context.skew > timedelta(0) else "ahead of"
    yield Finding(
        "clock_skew",
        "warning",
        f"This machine's clock is {duration(context.skew)} {way} the database's",
        "Jobs are due by the database's clock, so none is lost; times in logs and tokens' expiry "
        "are off.",
        "Synchronise both clocks (NTP).",
    )


def connections(context: CheckContext) -> Iterator[Finding]:
    used, most = context.server.connections, context.server.max_connections
    text = f"{used} of {most} connections are in use"
    if used < context.limits.connections * most:
        yield Finding("connections", "ok", text)
        return
    yield Finding(
        "connections",
        "warning",
        text,
        "When none is left, workers and the API wait or fail.",
        "Lower pool_size or the number of processes, raise max_connections, or use a pooler in "
        "session mode.",
    )


def long_transactions(context: CheckContext) -> Iterator[Finding]:
    """Transactions that somebody left open."""
    transactions = context.queries.long_transactions(context.limits.transaction)
    if not transactions:
        limit = duration(context.limits.transaction)
        yield Finding("long_transaction", "ok", f"No transaction has been open for over {limit}")
    for transaction in transactions[:_MOST_NAMED]:
        pid, age = transaction.pid, duration(transaction.seconds)
        yield Finding(
            "long_transaction",
            "error" if transaction.holds_back_vacuum else "warning",
            f"A transaction has been open for {age} (pid {pid}, {transaction.application})",
            f"User {transaction.user}, {transaction.state or 'state unknown'}. "
            + (
                "It keeps vacuum from removing dead rows, so claiming gets slower and slower."
                if transaction.holds_back_vacuum
                else "It holds nothing back yet, but will with its next statement."
            ),
            f"Let it commit. If its owner is gone: SELECT pg_terminate_backend({pid}); and "
            "set idle_in_transaction_session_timeout.",
        )


def prepared_transactions(context: CheckContext) -> Iterator[Finding]:
    """Two-phase transactions that nobody ended."""
    for gid, seconds in context.queries.prepared_transactions(context.limits.transaction)[
        :_MOST_NAMED
    ]:
        age = duration(seconds)
        yield Finding(
            "prepared_transaction",
            "error",
            f"The prepared transaction {gid!r} has been waiting for {age}",
            "It keeps vacuum from removing dead rows, and its locks are held.",
            f"COMMIT PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'.",
        )


def replication_slots(context: CheckContext) -> Iterator[Finding]:
    """Replication slots that hold back vacuum."""
    for name, active, age in context.queries.slots():
        if age > context.limits.slot_age:
            yield Finding(
                "replication_slot",
                "warning",
                f"The replication slot {name!r} keeps rows of {age:,} transactions",
                "In use." if active else "Nobody is reading from it.",
                "Let its reader catch up"
                + ("." if active else f", or drop it: SELECT pg_drop_replication_slot('{name}');"),
            )


def dead_rows(context: CheckContext) -> Iterator[Finding]:
    """Whether vacuum keeps up."""
    limits = context.limits
    for table in context.queries.tables():
        if table.name not in _WATCHED_TABLES:
            continue
        share = table.dead_rows / max(1, table.live_rows + table.dead_rows)
        last = "never" if table.last_vacuum is None else f"{table.last_vacuum:%Y-%m-%d %H:%M} UTC"
        text = f"{table.name}: {share:.0%} dead rows ({table.dead_rows:,}), last vacuum: {last}"
        if share <= limits.dead_share or table.dead_rows < limits.dead_rows:
            yield Finding("dead_rows", "ok", text)
            continue
        yield Finding(
            "dead_rows",
            "warning",
            text,
            "Every claim and list steps over them.",
            "Look for long transactions above, check that autovacuum is on, or run "
            f'VACUUM "{context.queries.schema}".{table.name};',
        )


def sizes(context: CheckContext) -> Iterator[Finding]:
    tables = context.queries.tables()
    if tables:
        largest = ", ".join(f"{t.name} {_megabytes(t.bytes)}" for t in tables[:4])
        total = _megabytes(sum(table.bytes for table in tables))
        yield Finding("size", "ok", f"The schema takes {total}", f"Largest: {largest}.")


def _megabytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def workers(context: CheckContext) -> Iterator[Finding]:
    known = context.queries.workers()
    limit = SILENT_AFTER.total_seconds()
    live = [worker for worker in known if worker.silent_seconds <= limit]
    for worker in [w for w in known if w.silent_seconds > limit][:_MOST_NAMED]:
        silent = duration(worker.silent_seconds)
        yield Finding(
            "silent_worker",
            "warning",
            f"No heartbeat from {worker.host.split('/')[0]} (pid {worker.pid}) for {silent}",
            "It is dead, frozen or cut off; its runs are given up when their leases run out.",
            "Look at its log and restart it. It is forgotten after an hour.",
        )
    if live:
        yield Finding("workers", "ok", f"{count(len(live), 'worker')} alive")
        return
    yield Finding(
        "no_workers",
        "error",
        "No worker is alive",
        "Nothing will run until there is one.",
        "Start one: `evenbeat worker --app your_module:app`, or `evenbeat serve`.",
    )


def lanes(context: CheckContext) -> Iterator[Finding]:
    """Jobs that wait: unserved, late, or in a paused queue."""
    limits = context.limits
    lanes = context.queries.waiting_lanes(limits.unserved)
    waiting = [lane for lane in lanes if lane.paused_at is None]
    for lane in [lane for lane in waiting if not lane.workers][:_MOST_NAMED]:
        yield Finding(
            "unserved",
            "error",
            f"No live worker takes {_lane(lane)}",
            _waits(lane, context.now),
            "Start a worker whose application knows the task and whose --queues include the queue.",
        )
    late = [
        lane for lane in waiting if lane.workers and lane.oldest_due <= context.now - limits.late
    ]
    for lane in late[:_MOST_NAMED]:
        yield Finding(
            "late",
            "warning",
            f"Jobs are late: {_lane(lane)}",
            _waits(lane, context.now),
            f"{count(lane.workers, 'worker')} can take them. Add workers or concurrency, or "
            "look for runs that hang.",
        )
    for lane in [lane for lane in lanes if lane.paused_at is not None][:_MOST_NAMED]:
        yield Finding(
            "queue_paused",
            "warning",
            f"The queue {lane.queue!r} is paused and jobs wait in it",
            _waits(lane, context.now),
            "Resume the queue if it was paused by mistake.",
        )
    if not lanes:
        yield Finding("on_time", "ok", "No job is waiting for a worker")


def _lane(lane: WaitingLane) -> str:
    return f"the task {lane.task!r} from the queue {lane.queue!r}"


def _waits(lane: WaitingLane, now: datetime) -> str:
    return f"{count(lane.jobs, 'job')} due, the oldest for {duration(now - lane.oldest_due)}."


def leases(context: CheckContext) -> Iterator[Finding]:
    """Expired leases that nobody has reaped."""
    runs, oldest = context.queries.stale_leases(context.limits.lease)
    if not runs:
        yield Finding("leases", "ok", "No expired lease is left behind")
        return
    age = duration(oldest or 0)
    yield Finding(
        "stale_leases",
        "error",
        f"{count(runs, 'run')} lost the worker and have not been reaped for up to {age}",
        "Any live worker would have done so within seconds.",
        "Start a worker, or look for errors of the reaper in the logs of the running ones.",
    )


def chores(context: CheckContext) -> Iterator[Finding]:
    ages = context.queries.chores()
    late = [
        name
        for name, every in _CHORES.items()
        if (age := ages.get(name)) is None or age > max(5 * every.total_seconds(), 300)
    ]
    if not late:
        yield Finding("chores", "ok", "Maintenance is up to date")
        return
    yield Finding(
        "chores_neglected",
        "warning",
        f"Maintenance is not being done: {', '.join(late)}",
        "History grows, figures get old, and the priority of waiting jobs is not raised.",
        "Any worker does it by itself: start one, or look at its log for errors.",
    )


# What can keep the checks from being made.
_OBSTACLES = {
    InvalidInput: Finding(
        "database_url",
        "error",
        "The database URL cannot be read",
        remedy="Write it as postgresql://user:password@host:5432/name, with special characters in "
        "the password percent-encoded ('@' as '%40').",
    ),
    DatabaseUnavailable: Finding(
        "database_unreachable",
        "error",
        "The database cannot be reached",
        remedy="Check that the server runs, that the URL is right, and that a firewall or "
        "pg_hba.conf lets this machine in.",
    ),
    psycopg.Error: Finding(
        "database_refused",
        "error",
        "The database did not answer a question",
        remedy="Check that it is still up, and that this user may read its statistics and the "
        "schema.",
    ),
}
_DEFAULT_LIMITS = CheckLimits()
_SERVER_CHECKS = (
    clock_skew,
    connections,
    long_transactions,
    prepared_transactions,
    replication_slots,
    dead_rows,
    sizes,
)
_SCHEMA_CHECKS = (workers, lanes, leases, chores)


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
            started = local_clock()
            server = queries.server()
            local_time = (started + local_clock()) / 2
            skew = timedelta(seconds=server.clock.timestamp() - local_time)
            return _findings(CheckContext(queries, server, limits, now or server.clock, skew))
    except (InvalidInput, DatabaseUnavailable, psycopg.Error) as error:
        kind = next(kind for kind in _OBSTACLES if isinstance(error, kind))
        return [_OBSTACLES[kind]._replace(detail=_first_line(error))]


def _findings(context: CheckContext) -> list[Finding]:
    schema = schema_version(context)
    findings = [reachable(context), version(context), schema]
    for run_check in _SERVER_CHECKS + (_SCHEMA_CHECKS if schema.severity == "ok" else ()):
        try:  # one check that fails must not keep the others from being made
            findings += run_check(context)
        except psycopg.Error as error:
            title = f"Could not check: {run_check.__name__.replace('_', ' ')}"
            remedy = "Run the doctor as the user that Evenbeat itself connects with."
            detail = _first_line(error)
            findings.append(Finding("check_failed", "warning", title, detail, remedy))
    return findings


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def worst(findings: list[Finding]) -> Severity:
    order: tuple[Severity, ...] = ("error", "warning")
    return next((s for s in order if any(f.severity == s for f in findings)), "ok")
