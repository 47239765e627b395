"""A claim passes over rows that another transaction locks, and takes them once they are free."""

from uuid import uuid4

import pytest

from evenbeat.domain.job import JobSpec, NewJob

LOCK_OLDEST = "SELECT id FROM evenbeat.jobs ORDER BY next_run_at, ctid LIMIT 5 FOR UPDATE"


@pytest.fixture
def hundred_jobs(store):
    store.add_many([NewJob(JobSpec("noop")) for _ in range(100)])


@pytest.mark.usefixtures("hundred_jobs")
@pytest.mark.parametrize("lock", ["UPDATE", "KEY SHARE"])
def test_locked_rows_are_left_alone_and_keep_their_turn(store, connect, lock):
    holders = [connect()] if lock == "UPDATE" else [connect(), connect()]
    for holder in holders:
        rows = holder.execute(LOCK_OLDEST.replace("UPDATE", lock))
        locked = {job_id for (job_id,) in rows}
    assert not {job.id for job in store.claim(uuid4(), 5)} & locked
    for holder in holders:
        holder.rollback()
    assert {job.id for job in store.claim(uuid4(), 5)} == locked
