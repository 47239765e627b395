"""What an hour of runs leaves behind for vacuum, and whether clearing five million rows of history
holds up the jobs beside it."""

import statistics
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from common import empty
from fill import fill
from scale_fleet import Fleet, beside, percentile, waits_sampled
from scale_workers import SETTLE_SECONDS, await_drained

from evenbeat.domain.catch_up import CatchUp, CatchUpMode
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.engine.maintenance import Maintenance
from evenbeat.store.store import Store

MINUTE = timedelta(minutes=1)
KEPT_DAYS = 2
"""The history is thirty days long; so much of it, and the newest runs of each job, stay."""

_TABLES = """
SELECT relname, n_live_tup, n_dead_tup, n_tup_upd, n_tup_hot_upd, n_tup_newpage_upd,
       vacuum_count + autovacuum_count, pg_table_size(relid), pg_indexes_size(relid)
FROM pg_stat_user_tables
WHERE schemaname = 'evenbeat' AND relname IN ('jobs', 'executions')
"""
_ENDED = "SELECT max(completed_at) FROM evenbeat.jobs WHERE task = 'noop'"
_OLD_JOBS = """
WITH added AS (
    INSERT INTO evenbeat.jobs (id, created_at, updated_at, status, task, started_at, completed_at,
                               run_count)
    SELECT evenbeat.uuid7(at), at, at, 'completed', 'task_' || n %% 40, at, at, 1
    FROM (SELECT n, now() - interval '40 days' + n * interval '1 ms' AS at
          FROM generate_series(1, %s) n) ended
    RETURNING id, completed_at
)
INSERT INTO evenbeat.executions (id, job_id, plan_time, started_at, completed_at, worker_id,
                                 execution_number, status)
SELECT evenbeat.uuid7(completed_at), id, completed_at, completed_at, completed_at, id, 1,
       'completed'
FROM added
"""
_CAUGHT_UP = """
SELECT count(*) FROM evenbeat.executions WHERE plan_time < %s AND status = 'completed'
"""


# -- an hour of runs -----------------------------------------------------------------------------


def churn(store: Store, schedules: int, runs: int, idle: int) -> dict[str, Any]:
    """Schedules of a minute that are an hour behind and want every plan, caught up by one worker as
    fast as it can, beside others that wait."""
    url = store.database.url
    empty(store)
    begin = datetime.now(UTC).replace(microsecond=0) + MINUTE / 2 - runs * MINUTE
    every = JobSpec(
        "noop",
        schedule=Interval(MINUTE),
        catch_up=CatchUp(CatchUpMode.EVERY_PLAN, max_plans_per_tick=1000),
    )
    later = JobSpec("sync", schedule=Interval(timedelta(days=1)))
    store.add_many([NewJob(later, name=f"idle-{n}") for n in range(idle)])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE evenbeat.jobs")
        connection.execute("SELECT pg_stat_reset()")
    store.add_many([NewJob(every, start=begin) for _ in range(schedules)])
    before, wanted = tables(url), schedules * runs
    with Fleet(url, 1) as fleet, psycopg.connect(url, autocommit=True) as connection:
        began = time.perf_counter()
        until = begin + runs * MINUTE
        while connection.execute(_CAUGHT_UP, [until]).fetchall()[0][0] < wanted:
            assert time.perf_counter() - began < 900, "the worker does not catch up"
            time.sleep(0.25)
        seconds = time.perf_counter() - began
        told = fleet.told()
    time.sleep(1)  # the server's figures are a moment late
    after = tables(url)
    with psycopg.connect(url, autocommit=True) as connection:
        begun = time.perf_counter()
        connection.execute("VACUUM evenbeat.jobs")
        connection.execute("VACUUM evenbeat.executions")
        vacuum = time.perf_counter() - begun
    time.sleep(1)
    return {
        "schedules": schedules,
        "runs": wanted,
        "idle": idle,
        "seconds": seconds,
        "claims": told.asked,
        "vacuum_seconds": vacuum,
        "before": before,
        "after": after,
        "vacuumed": tables(url),
    }


def tables(url: str) -> dict[str, dict[str, float]]:
    """What the server knows of the two large tables."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(_TABLES).fetchall()
    return {
        name: {
            "live": live,
            "dead": dead,
            "updates": updates,
            "hot": hot,
            "new_page": elsewhere,
            "vacuums": vacuums,
            "table_mib": size / 2**20,
            "index_mib": indexes / 2**20,
        }
        for name, live, dead, updates, hot, elsewhere, vacuums, size, indexes in rows
    }


# -- five million rows of history ----------------------------------------------------------------


def retention(server: Store, executions: int, jobs: int, rounds: int) -> dict[str, Any]:
    """Drain by one worker, in turns alone and beside the clearing of old history."""
    store = beside(server, "scale_history")
    url = store.database.url
    recurring = max(1000, executions // 200)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_wal_size = '8GB'")
        connection.execute("SELECT pg_reload_conf()")
        fill(url, recurring, executions)
        # What is due, or of the runs that are kept however old, would blur the figures.
        connection.execute("DELETE FROM evenbeat.jobs WHERE status IN ('pending', 'running')")
        connection.execute(
            "UPDATE evenbeat.jobs SET run_count = 1000, next_run_at = next_run_at + interval '1 d',"
            " plan_time = plan_time + interval '1 d'"
        )
        connection.execute(  # the worker's own clearing is not due: we do it, when we want it
            "INSERT INTO evenbeat.chores (name, expires_at, last_run_at)"
            " VALUES ('retention', now(), now())"
        )
        connection.execute("VACUUM ANALYZE evenbeat.jobs")
        connection.execute("CHECKPOINT")
    rates: dict[str, list[float]] = {"alone": [], "beside retention": []}
    batches: list[float] = []
    removed, waits = 0, dict[str, float]()
    with Fleet(url, 1):
        time.sleep(SETTLE_SECONDS)
        pruner = Pruner(store)
        for _ in range(rounds):
            rates["alone"].append(_drain_rate(store, jobs))
            with waits_sampled(url) as seen, pruner:
                rates["beside retention"].append(_drain_rate(store, jobs))
            waits = dict(seen)
        pruner.finish()
        batches, removed = pruner.batches, pruner.removed
    with psycopg.connect(url, autocommit=True) as connection:
        begun = time.perf_counter()
        connection.execute("VACUUM evenbeat.executions")
        vacuum = time.perf_counter() - begun
        connection.execute(_OLD_JOBS, (executions // 10,))
        connection.execute("VACUUM ANALYZE evenbeat.jobs, evenbeat.executions")
        connection.execute("CHECKPOINT")
    begun = time.perf_counter()
    ended = store.upkeep.prune_jobs(older_than=store.clock() - timedelta(days=30))
    ended_seconds = time.perf_counter() - begun
    store.close()
    looks = waits.pop("(looks)", 1)
    return {
        "executions": executions,
        "jobs": jobs,
        "rounds": rounds,
        "rates": rates,
        "removed": removed,
        "batches": len(batches),
        "batch_p50_ms": statistics.median(batches) if batches else 0,
        "batch_p99_ms": percentile(batches, 0.99),
        "removed_per_second": removed / max(0.001, sum(batches) / 1000),
        "locks": {name: n / looks for name, n in waits.items() if name.startswith("Lock")},
        "vacuum_seconds": vacuum,
        "ended_jobs": ended,
        "ended_jobs_per_second": ended / ended_seconds,
    }


class Pruner:
    """Removes old history batch by batch, with the chore's pauses, while the block lasts. When all
    is gone it goes over the rest again, which is what the chore's walk costs every hour."""

    def __init__(self, store: Store) -> None:
        self.batches: list[float] = []
        self.removed = 0
        self._store = store
        self._after: Any = None
        self._before = store.clock() - timedelta(days=KEPT_DAYS)

    def __enter__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def finish(self) -> None:
        """What is left."""
        while self._step():
            pass

    def _work(self) -> None:
        while not self._over.is_set():
            if not self._step():
                self._after = None
            self._over.wait(Maintenance.pauses * self.batches[-1] / 1000)

    def _step(self) -> bool:
        params = {"older_than": self._before, "keep": 100, "after": self._after, "limit": 5000}
        begun = time.perf_counter()
        ((seen, gone, after),) = self._store.database.rows("prune_executions", params)
        if seen:
            self.batches.append((time.perf_counter() - begun) * 1000)
            self.removed += gone
            self._after = after
        return bool(seen == 5000)


def _drain_rate(store: Store, jobs: int) -> float:
    url = store.database.url
    store.control.pause_queue("default")
    store.add_many([NewJob(JobSpec("noop")) for _ in range(jobs)])
    begun = store.clock()
    store.control.resume_queue("default")
    await_drained(url, "noop")
    with psycopg.connect(url) as connection:
        ended = connection.execute(_ENDED).fetchall()[0][0]
    return jobs / (ended - begun).total_seconds()


# -- telling -------------------------------------------------------------------------------------


def markdown_of_churn(result: dict[str, Any]) -> str:
    """The tables of an hour's runs."""
    rows = [
        (
            f"### An hour of {result['schedules']:,} schedules of a minute, caught up beside "
            f"{result['idle']:,} that wait"
        ),
        "",
        (
            f"{result['runs']:,} runs in {result['seconds']:.1f} s "
            f"({result['runs'] / result['seconds']:,.0f}/s, {result['claims']:,} claims) by one "
            "worker, autovacuum as it is set. Vacuum by hand afterwards: "
            f"{result['vacuum_seconds']:.1f} s."
        ),
        "",
        (
            "| table | updates | HOT | dead rows left | vacuums meanwhile | MiB before | after "
            "| after vacuum | indexes MiB before | after | after vacuum |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, after in sorted(result["after"].items()):
        before, vacuumed = result["before"][name], result["vacuumed"][name]
        sizes = " | ".join(f"{t['table_mib']:.1f}" for t in (before, after, vacuumed))
        indexes = " | ".join(f"{t['index_mib']:.1f}" for t in (before, after, vacuumed))
        hot = after["hot"] / max(1, after["updates"])
        rows.append(
            f"| {name} | {after['updates']:,} | {hot:.0%} | {after['dead']:,} "
            f"| {after['vacuums']} | {sizes} | {indexes} |"
        )
    return "\n".join(rows)


def markdown_of_retention(result: dict[str, Any]) -> str:
    """What clearing costs, and what it costs others."""
    rates = {name: statistics.median(rounds) for name, rounds in result["rates"].items()}
    ratio = rates["beside retention"] / rates["alone"]
    locks = ", ".join(f"{n} {c:.2f}" for n, c in result["locks"].items()) or "none seen"
    return "\n".join([
        f"### Retention: {result['executions']:,} rows of history",
        "",
        (f"{result['removed']:,} removed in batches of 5,000 ({result['batches']:,} of them): p50 "
        f"{result['batch_p50_ms']:.0f} ms, p99 {result['batch_p99_ms']:.0f} ms, "
        f"{result['removed_per_second']:,.0f} rows a second; vacuum afterwards "
        f"{result['vacuum_seconds']:.1f} s. {result['ended_jobs']:,} finished one-off jobs: "
        f"{result['ended_jobs_per_second']:,.0f} a second."),
        "",
        (f"Drain of {result['jobs']:,} no-op jobs by one worker, median of {result['rounds']} "
        f"interleaved rounds: {rates['alone']:,.0f} jobs/s alone, {rates['beside retention']:,.0f} "
        f"beside it ({ratio:.2f}x). Waits for locks, connections at a time on average: {locks}."),
    ])  # fmt: skip
