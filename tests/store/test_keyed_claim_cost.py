"""Ten thousand keys, or one with a huge backlog: a claim looks at a bounded number of rows."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from test_claim_cost import Backlog, nodes, touched

from evenbeat.store.limits import REACH, STRETCH
from evenbeat.store.store import Store

pytestmark = pytest.mark.scale

KEYS = 10_000
TASKS = ["report", "sync"]
FILL = """
INSERT INTO evenbeat.jobs (id, created_at, updated_at, plan_time, next_run_at, status, task,
                           concurrency_key, concurrency_limit)
SELECT evenbeat.uuid7(now()), now(), now(), due, due, 'pending',
       CASE WHEN n %% 10 = 0 THEN 'foreign' ELSE 'sync' END,
       CASE WHEN n <= %(backlog)s THEN 'huge' ELSE 'key-' || n %% %(keys)s END, 1
FROM (SELECT n, now() - interval '1 hour' + n * interval '1 millisecond' AS due
      FROM generate_series(1, %(count)s) n) rows
"""
KNOWN = """
INSERT INTO evenbeat.limits (key, max_running, updated_at)
SELECT DISTINCT concurrency_key, 1, now() FROM evenbeat.jobs WHERE concurrency_key IS NOT NULL
"""
# One job of each key runs, so that no key is free.
SATURATE = """
UPDATE evenbeat.jobs j
SET status = 'running', lock_token = j.id, locked_by = j.id, lock_expires_at = now()
FROM (SELECT DISTINCT ON (concurrency_key) id FROM evenbeat.jobs
      ORDER BY concurrency_key, next_run_at) first
WHERE j.id = first.id
"""


class Keys(Backlog):
    """A backlog of jobs with keys, the oldest of them behind one key."""

    def fill_keys(self, *, keys: int, backlog: int, saturated: bool) -> None:
        self.connection.execute("TRUNCATE evenbeat.jobs, evenbeat.executions, evenbeat.limits")
        self.connection.execute(
            FILL, {"count": backlog + 3 * keys, "backlog": backlog, "keys": keys}
        )
        # Without figures a plan may visit every row for every key, and takes minutes.
        self.connection.execute("ANALYZE evenbeat.jobs")
        self.connection.execute(KNOWN)
        if saturated:
            self.connection.execute(SATURATE)
        self.connection.execute("VACUUM ANALYZE evenbeat.jobs")
        self.connection.execute("VACUUM ANALYZE evenbeat.limits")

    def look(self, walk_from: str | None = None) -> dict[str, Any]:
        return self.explain(
            "limited_keys",
            now=None,
            queues=None,
            tasks=TASKS,
            limit=50,
            reach=REACH,
            stretch=STRETCH,
            walk_from=walk_from,
            freed=[],
        )

    def take(self, keys: list[str]) -> dict[str, Any]:
        return self.explain(
            "claim_limited",
            now=None,
            queues=None,
            tasks=TASKS,
            limit=50,
            keys=keys,
            worker_id=uuid4(),
            lease_seconds=30.0,
        )


@pytest.fixture(scope="module")
def keys(module_database_url: str) -> Iterator[Keys]:
    made = Keys(module_database_url)
    yield made
    made.connection.close()


def assert_bounded(plan: dict[str, Any], pages: int) -> None:
    for node in nodes(plan):
        small = node.get("Relation Name") in ("queues", "fleet_pause")
        assert node["Node Type"] != "Seq Scan" or small, node
        seen = node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0)
        assert seen <= 4 * (REACH + STRETCH), node
    assert touched(plan) < pages


@pytest.mark.timeout(120)
@pytest.mark.parametrize("saturated", [False, True])
def test_a_claim_among_ten_thousand_keys_looks_at_few_of_them(keys: Keys, saturated: bool):
    keys.fill_keys(keys=KEYS, backlog=50_000, saturated=saturated)
    assert_bounded(keys.look(), 4_000)
    assert_bounded(keys.look(""), 10_000)
    assert_bounded(keys.look("key-5"), 10_000)
    assert_bounded(keys.take([f"key-{number}" for number in range(50)]), 5_000)
    assert_bounded(keys.take(["huge"]), 500)
    for statement in ("limited_due", "next_due"):
        plan = keys.explain(statement, now=None, queues=None, tasks=TASKS)
        assert_bounded(plan, 200)
    since = keys.connection.execute("SELECT now()").fetchone()[0]
    assert_bounded(keys.explain("limited_next", since=since, queues=None, tasks=TASKS), 200)
    hint = keys.explain("hint_freed", keys=["huge"], changed=True, channel="evenbeat", now=None)
    assert_bounded(hint, 200)


def test_jobs_with_keys_do_not_weigh_on_the_ordinary_claim(keys: Keys):
    keys.fill_keys(keys=100, backlog=20_000, saturated=True)
    idle = keys.claim()
    assert touched(idle) < 50


@pytest.mark.timeout(120)
def test_one_free_key_among_thousands_is_found_and_the_search_ends(
    keys: Keys, module_database_url: str
):
    keys.fill_keys(keys=2_000, backlog=5_000, saturated=True)
    keys.connection.execute(
        "DELETE FROM evenbeat.jobs WHERE status = 'running' AND concurrency_key = 'key-1503'"
    )
    store = Store(module_database_url)
    found, looks = [], 0
    while True:
        found += store.claim(uuid4(), 10, tasks=TASKS)
        looks += 1
        due, present = store.next_due(tasks=TASKS)
        if due is None or due > present:
            break
        assert looks < 50
    assert [job.concurrency_key for job in found] == ["key-1503"]
    store.close()
