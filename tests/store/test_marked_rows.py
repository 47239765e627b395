"""In plenty a claim passes over rows that others hold, and over no others for long."""

import time
from uuid import uuid4

import pytest

from evenbeat.domain.job import JobSpec, NewJob

OLDEST = "SELECT id FROM evenbeat.jobs ORDER BY next_run_at, ctid LIMIT 5 FOR UPDATE"
QUIET = """
SELECT pg_snapshot_xmin(pg_current_snapshot()) = pg_snapshot_xmax(pg_current_snapshot())
"""


@pytest.fixture
def plenty(store):
    """A hundred due jobs, and a worker that has just had its fill."""
    store.add_many([NewJob(JobSpec("noop")) for _ in range(101)])
    assert len(store.claim(uuid4(), 1)) == 1


def lock_oldest(connection):
    return {id_ for (id_,) in connection.execute(OLDEST)}


def let_go(*holders):
    """Roll back, and wait until no other transaction runs, of this database or another."""
    for holder in holders:
        holder.rollback()
    holder.autocommit = True
    deadline = time.monotonic() + 10
    while not holder.execute(QUIET).fetchone()[0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def claimed(store, limit: int):
    return {job.id for job in store.claim(uuid4(), limit)}


@pytest.mark.usefixtures("plenty")
def test_rows_that_somebody_holds_are_left_to_him(store, connect):
    holder = connect()
    held = lock_oldest(holder)
    assert not claimed(store, 5) & held
    let_go(holder)
    assert claimed(store, 5) == held


@pytest.mark.usefixtures("plenty")
def test_rows_that_somebody_held_and_let_go_keep_their_turn(store, connect):
    held = lock_oldest(holder := connect())
    let_go(holder)
    assert claimed(store, 5) == held


@pytest.mark.usefixtures("plenty")
def test_rows_that_several_held_at_once_keep_their_turn(store, connect):
    """Then their mark is not a transaction's number but a group's."""
    holders = [connect(), connect()]
    for holder in holders:
        held = {id_ for (id_,) in holder.execute(OLDEST.replace("UPDATE", "KEY SHARE"))}
    let_go(*holders)
    assert claimed(store, 5) == held


@pytest.fixture
def let_go_beside_an_elder(plenty, connect):
    """As long as an older transaction runs, nobody can tell at a glance that a lock was let go."""
    elder = connect()
    elder.execute("SELECT pg_current_xact_id()")
    held = lock_oldest(holder := connect())
    holder.rollback()
    return held


def test_a_claim_that_is_not_filled_looks_at_them_all(store, let_go_beside_an_elder):
    assert not claimed(store, 5) & let_go_beside_an_elder
    assert let_go_beside_an_elder < claimed(store, 100)


def test_a_transaction_that_never_ends_does_not_keep_rows_from_their_turn(
    store, connect, let_go_beside_an_elder
):
    spender = connect()
    spender.autocommit = True
    spender.execute(
        "DO $$ BEGIN FOR n IN 1..10100 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
    )
    assert claimed(store, 5) == let_go_beside_an_elder


def test_plenty_for_some_tasks_is_none_for_others(store, monkeypatch):
    """A runner that idles beside a busy one of the same worker asks once, not twice."""
    store.add_many([NewJob(JobSpec("busy")) for _ in range(9)])
    asked = []
    rows = store.database.rows
    monkeypatch.setattr(
        store.database, "rows", lambda name, *given: asked.append(name) or rows(name, *given)
    )

    def claims(task: str) -> int:
        asked.clear()
        store.claim(uuid4(), 5, tasks=[task])
        return asked.count("claim")

    assert [claims("busy"), claims("idle"), claims("busy"), claims("busy")] == [1, 1, 2, 1]
