"""A thousand fair keys, or one with a huge backlog: a claim looks at a bounded number of rows."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from test_claim_cost import Backlog, nodes, rows_claimed, touched

from evenbeat.store.fair import FEW, MOST_LANES

pytestmark = pytest.mark.scale

TASKS = ["report", "sync"]
LIMIT = 100
FILL = """
INSERT INTO evenbeat.jobs (id, created_at, updated_at, plan_time, next_run_at, status, task,
                           fair_key)
SELECT evenbeat.uuid7(now()), now(), now(), due, due, %(status)s, 'sync',
       CASE WHEN n <= %(backlog)s THEN 'huge' ELSE 'key-' || n %% nullif(%(keys)s, 0) END
FROM (SELECT n, now() + n * interval '1 millisecond' * %(sign)s
                + %(sign)s * interval '1 hour' AS due
      FROM generate_series(1, %(count)s) n) rows
"""


class FairKeys(Backlog):
    """A backlog of jobs with fair keys, and what a claim among them touches."""

    def fill_keys(self, *, keys: int, count: int, backlog: int = 0) -> None:
        """Due jobs: those of one key before those of the others. With no keys, those have none."""
        due = {"keys": keys, "count": count, "backlog": backlog, "sign": -1}
        self.connection.execute(FILL, {**due, "status": "pending"})
        self.connection.execute("VACUUM ANALYZE evenbeat.jobs")

    def fill_later(self, *, keys: int, count: int) -> None:
        """Jobs for later."""
        later = {"keys": keys, "count": count, "backlog": 0, "sign": 1}
        self.connection.execute(FILL, {**later, "status": "scheduled"})
        self.connection.execute("VACUUM ANALYZE evenbeat.jobs")

    def empty(self) -> None:
        self.connection.execute("TRUNCATE evenbeat.jobs, evenbeat.executions")

    def look(self, reach: int = FEW, from_key: str = "") -> dict[str, Any]:
        return self.explain(
            "fair_turns",
            queues=["default"],
            tasks=TASKS,
            from_queue="default" if from_key else "",
            from_key=from_key,
            is_over=True,
            keys=reach,
            lanes=MOST_LANES,
        )

    def take(self, keys: list[str], share: int) -> dict[str, Any]:
        since = self.connection.execute("SELECT now() - interval '1 day'").fetchone()[0]
        return self.explain(
            "claim_fair",
            worker_id=uuid4(),
            lease_seconds=30.0,
            queues=["default"] * len(keys),
            keys=keys,
            shares=[share] * len(keys),
            tasks=["sync"] * len(keys),
            priorities=[0] * len(keys),
            since=[since] * len(keys),
        )

    def come_due(self) -> dict[str, Any]:
        return self.explain("fair_come_due", limit=1000)


@pytest.fixture(scope="module")
def keys(module_database_url: str) -> Iterator[FairKeys]:
    with closing(FairKeys(module_database_url)) as made:
        yield made


def assert_bounded(plan: dict[str, Any], most: int) -> None:
    for node in nodes(plan):
        small = node.get("Relation Name") in ("queues", "fleet_pause")
        assert node["Node Type"] != "Seq Scan" or small, node
        assert node["Actual Rows"] * node["Actual Loops"] <= most, node


@pytest.mark.timeout(200)
def test_a_claim_among_a_thousand_keys_costs_what_one_without_keys_costs(keys: FairKeys):
    keys.empty()
    keys.fill_keys(keys=0, count=100_000)
    plain = [keys.claim(LIMIT)]
    keys.fill_later(keys=0, count=50_000)
    keys.fill_keys(keys=0, count=50_000)
    plain.append(keys.claim(LIMIT))

    keys.empty()
    keys.fill_keys(keys=1000, count=100_000)
    names = sorted(f"key-{n}" for n in range(1000))[:FEW]
    for without in plain:
        plans = keys.come_due(), keys.look(), keys.take(names, LIMIT // FEW)
        assert rows_claimed(without) == rows_claimed(plans[-1]) == LIMIT
        assert sum(map(touched, plans)) < 1.1 * touched(without)
        for plan in plans:
            assert_bounded(plan, 2 * LIMIT)
        # Neither keys whose jobs are for later nor a huge backlog of one key change that.
        keys.fill_later(keys=50_000, count=50_000)
        keys.fill_keys(keys=1, count=50_000, backlog=50_000)
    assert_bounded(keys.explain("next_due", queues=None, tasks=TASKS), 10)
    assert touched(keys.look(from_key="key-999")) < 100


@pytest.mark.timeout(200)
def test_a_hundred_thousand_keys_are_not_looked_at(keys: FairKeys):
    keys.empty()
    keys.fill_keys(keys=100_000, count=200_000)
    assert touched(keys.look()) < 100
    assert touched(keys.look(reach=1)) < 50
    assert touched(keys.take(["key-5"], 1)) < 50


@pytest.mark.timeout(200)
def test_jobs_without_a_fair_key_do_not_pay_for_those_with_one(keys: FairKeys):
    keys.empty()
    keys.fill_keys(keys=0, count=20_000)
    keys.fill_later(keys=0, count=100_000)  # a table of the same size
    alone = keys.claim(LIMIT)
    idle = keys.explain("next_due", queues=None, tasks=TASKS)
    keys.empty()
    keys.fill_keys(keys=0, count=20_000)
    keys.fill_keys(keys=1000, count=100_000)
    beside = keys.claim(LIMIT)
    assert [node["Node Type"] for node in nodes(beside)] == [n["Node Type"] for n in nodes(alone)]
    used = {node.get("Index Name") for node in nodes(beside)} - {None}
    assert used == {"jobs_lanes", "jobs_pkey", "queues_pkey"}
    assert abs(touched(beside) - touched(alone)) < 0.1 * touched(alone)
    busy = keys.explain("next_due", queues=None, tasks=TASKS)
    assert touched(busy) < touched(idle) + 20


def test_plans_hold_on_a_table_that_was_empty_when_planned(keys: FairKeys):
    keys.empty()
    keys.connection.execute("VACUUM ANALYZE evenbeat.jobs")
    due = {"keys": 1, "count": 20_000, "backlog": 20_000, "sign": -1}
    keys.connection.execute(FILL, {**due, "status": "pending"})  # no ANALYZE since
    keys.connection.execute(FILL, {**due, "sign": 1, "status": "scheduled"})
    plans = keys.come_due(), keys.look(from_key="a"), keys.take(["huge"], 50)
    for plan in plans:
        assert_bounded(plan, 2 * LIMIT)
        assert touched(plan) < 2000
    assert rows_claimed(plans[-1]) == 50
