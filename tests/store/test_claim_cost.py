"""Claiming costs the same whether a thousand jobs wait or a million: guards on plan and buffers."""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.store.database import _COLD_SESSION, _HOT_SESSION
from evenbeat.store.statements import load_statements
from evenbeat.store.store import Store

pytestmark = pytest.mark.scale

# 2 queues x 3 tasks x 21 priorities; a tenth of the due jobs is for a task this worker lacks.
FILL = """
INSERT INTO evenbeat.jobs (id, created_at, updated_at, plan_time, next_run_at, status, priority,
                           queue, task, schedule_kind, interval_seconds, anchor_at, placement)
SELECT evenbeat.uuid7(now()), now(), now(), due, due, 'scheduled', (n %% 21) * 5,
       CASE WHEN n %% 2 = 0 THEN 'default' ELSE 'mail' END,
       CASE WHEN n %% 10 = 0 THEN 'foreign' WHEN n %% 3 = 0 THEN 'report' ELSE 'sync' END,
       'interval', 3600, now(), 'balanced'
FROM (SELECT n, now() + n * interval '1 millisecond' * %(sign)s
                + %(sign)s * interval '1 hour' AS due
      FROM generate_series(1, %(count)s) n) rows
"""


class Backlog:
    """A database with a backlog, and the cost of one claim on it."""

    def __init__(self, url: str, session: str = _HOT_SESSION) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(session, prepare=False)

    def close(self) -> None:
        self.connection.close()

    def fill(self, *, future: int, due: int) -> None:
        self.connection.execute("TRUNCATE evenbeat.jobs, evenbeat.executions")
        self.connection.execute(FILL, {"sign": 1, "count": future})
        self.connection.execute(FILL, {"sign": -1, "count": due})
        self.connection.execute("VACUUM ANALYZE evenbeat.jobs")

    def explain(self, name: str, **params: Any) -> dict[str, Any]:
        """The generic plan of a statement as the engine runs it, with what it really touched."""
        statement = load_statements("evenbeat")[name]
        text, values = statement.numbered.decode(), [params.get(each) for each in statement.names]
        # A claim's own writes would blur the next measurement, so they are taken back.
        with self.connection.transaction(force_rollback=True):
            self.connection.execute(f"PREPARE measured AS {text}", prepare=False)
            explain = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE measured"
            cursor = psycopg.ClientCursor(self.connection)
            cursor.execute(f"{explain} ({', '.join(['%s'] * len(values))})", values)
            plan = cursor.fetchone()[0][0]["Plan"]
        self.connection.execute("DEALLOCATE measured")
        return plan

    def claim(self, limit: int = 100, since: datetime | None = None) -> dict[str, Any]:
        return self.explain(
            "claim",
            since=since,
            queues=["default", "mail"],
            tasks=["report", "sync"],
            limit=limit,
            worker_id=uuid4(),
            lease_seconds=30.0,
        )


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def touched(plan: dict[str, Any]) -> int:
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def rows_claimed(plan: dict[str, Any]) -> int:
    return next(n for n in nodes(plan) if n.get("Operation") == "Update")["Actual Rows"]


def assert_never_reads_the_backlog(plan: dict[str, Any], most: int) -> None:
    for node in nodes(plan):
        small = node.get("Relation Name") in ("queues", "fleet_pause")
        assert node["Node Type"] != "Seq Scan" or small, node
        if node["Node Type"] in ("Sort", "Incremental Sort"):
            assert node["Actual Rows"] <= most, node


@pytest.fixture(scope="module")
def backlog(module_database_url: str) -> Iterator[Backlog]:
    with closing(Backlog(module_database_url)) as made:
        yield made


def test_a_claim_passes_over_what_a_held_snapshot_keeps(backlog: Backlog, module_database_url: str):
    """Rows that were claimed while somebody's transaction can still see them stay in the index."""
    backlog.fill(future=0, due=0)
    store = Store(module_database_url)
    for _ in range(20):
        store.add_many([NewJob(JobSpec("sync"))] * 1000)
    with psycopg.connect(module_database_url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM evenbeat.jobs")
        for _ in range(19):
            store.claim(uuid4(), 1000)
        oldest, _ = store.next_due()
        from_the_front, from_there = backlog.claim(10), backlog.claim(10, oldest)
    store.close()
    assert rows_claimed(from_the_front) == rows_claimed(from_there) == 10
    assert touched(from_there) < touched(from_the_front) / 3
    backlog.connection.execute("VACUUM evenbeat.jobs")


@pytest.mark.timeout(300)
def test_claim_cost_does_not_grow_with_the_backlog(backlog: Backlog):
    backlog.fill(future=10_000, due=5_000)
    small = backlog.claim()
    small_idle = backlog.explain("next_due", queues=None, tasks=None, now=None)

    backlog.fill(future=1_000_000, due=100_000)
    large = backlog.claim()
    assert rows_claimed(small) == rows_claimed(large) == 100
    # Sorts may see one row a lane or the rows that were claimed, never the jobs that wait.
    assert_never_reads_the_backlog(large, most=126)
    assert touched(large) < 1.6 * touched(small)
    large_idle = backlog.explain("next_due", queues=None, tasks=None, now=None)
    assert_never_reads_the_backlog(large_idle, most=126)
    assert touched(large_idle) < 1.6 * touched(small_idle)

    backlog.connection.execute("DELETE FROM evenbeat.jobs WHERE next_run_at < now()")
    backlog.connection.execute("VACUUM evenbeat.jobs")
    nothing_due = backlog.claim()
    assert rows_claimed(nothing_due) == 0
    assert_never_reads_the_backlog(nothing_due, most=126)
    assert touched(nothing_due) < touched(large)


def test_claim_plan_holds_on_a_table_that_was_empty_when_planned(backlog: Backlog):
    backlog.fill(future=0, due=0)
    backlog.connection.execute(FILL, {"sign": -1, "count": 20_000})  # no ANALYZE since
    plan = backlog.claim()
    assert rows_claimed(plan) == 100
    assert_never_reads_the_backlog(plan, most=126)
    assert touched(plan) < 10_000


HISTORY = """
INSERT INTO evenbeat.executions (id, job_id, plan_time, started_at, completed_at, worker_id,
                                 execution_number, status)
SELECT evenbeat.uuid7(now()), id, now(), now(), now(), gen_random_uuid(), 1, 'completed'
FROM evenbeat.jobs
"""
# Those of the journey, and those that take others beside it a batch at a time.
BY_KEY = ["finish", "renew", "release", "progress", "revise", "expired"]
BY_KEY_BESIDE = [
    "cancel", "run_again", "tie", "startable_dependents", "start_dependents", "notice_missed_ends",
    "feed_since", "feed_among", "feed_of_jobs", "move_jobs", "restore_jobs",
    "prune_jobs", "prune_executions", "lock_old_jobs", "count_outcomes", "judge_jobs",
]  # fmt: skip


def assert_reaches_each_row_by_its_key(backlog: Backlog, statement: str) -> None:
    bound = load_statements("evenbeat")[statement]
    given = {"expired_only": False, "lease_seconds": 30.0, "channel": "evenbeat", "limit": 100}
    numbered, values = bound.numbered.decode(), [given.get(name) for name in bound.names]
    with backlog.connection.transaction(force_rollback=True):
        backlog.connection.execute(f"PREPARE measured AS {numbered}", prepare=False)
        cursor = psycopg.ClientCursor(backlog.connection)
        cursor.execute(
            f"EXPLAIN (FORMAT JSON) EXECUTE measured ({', '.join(['%s'] * len(values))})", values
        )
        plan = cursor.fetchone()[0][0]["Plan"]
    backlog.connection.execute("DEALLOCATE measured")
    scans = [n for n in nodes(plan) if n.get("Relation Name") in ("jobs", "executions")]
    # The running jobs have an index of their own, which is read whole to find the expired ones.
    reads = [
        n for n in scans if n["Node Type"] != "ModifyTable" and n.get("Index Name") != "jobs_leases"
    ]
    assert reads
    assert not [n for n in reads if not {"Index Cond", "Recheck Cond"} & n.keys()]
    if statement == "prune_jobs":  # a batch must not mean a look at every dependency there is
        tied = [n for n in nodes(plan) if n.get("Relation Name") == "dependencies"]
        reads = [n for n in tied if n["Node Type"] != "ModifyTable"]
        assert reads
        assert not [n for n in reads if not {"Index Cond", "Recheck Cond"} & n.keys()]


@pytest.mark.parametrize("statement", BY_KEY)
def test_batched_writes_reach_each_row_by_its_key(backlog: Backlog, statement: str):
    backlog.fill(future=20_000, due=20_000)
    assert_reaches_each_row_by_its_key(backlog, statement)


def fill_and_analyse_in_the_midst(backlog: Backlog, url: str) -> None:
    """Rows that are not committed yet do not count, their pages do: the tables pass for empty."""
    backlog.fill(future=0, due=0)
    with psycopg.connect(url) as filling:
        filling.execute(FILL, {"sign": -1, "count": 5_000})
        filling.execute(HISTORY)
        backlog.connection.execute("ANALYZE evenbeat.jobs, evenbeat.executions")


@pytest.mark.parametrize("statement", BY_KEY)
def test_and_so_when_the_tables_were_analysed_in_the_midst_of_a_bulk_enqueue(
    backlog: Backlog, statement: str, module_database_url: str
):
    fill_and_analyse_in_the_midst(backlog, module_database_url)
    assert_reaches_each_row_by_its_key(backlog, statement)


@pytest.mark.parametrize("statement", BY_KEY_BESIDE)
def test_and_so_in_a_session_that_may_plan_as_it_likes(statement: str, module_database_url: str):
    # For all values at once: with those that a test has, parts of the plan would be left out.
    session = _COLD_SESSION.replace("force_custom_plan", "force_generic_plan")
    with closing(Backlog(module_database_url, session)) as backlog:
        fill_and_analyse_in_the_midst(backlog, module_database_url)
        assert_reaches_each_row_by_its_key(backlog, statement)
