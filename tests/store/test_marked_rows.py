"""In plenty a claim leaves rows alone that somebody has locked before, but not for long."""

from uuid import uuid4

import pytest

from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.store.store import MARKED_TOO


@pytest.fixture
def marked(store, connect):
    """The oldest five of a hundred jobs, locked by somebody who gave up."""
    ids = [added.id for added in store.add_many([NewJob(JobSpec("noop")) for _ in range(100)])]
    connection = connect()
    query = "SELECT id FROM evenbeat.jobs ORDER BY next_run_at, ctid LIMIT 5 FOR UPDATE"
    locked = {id_ for (id_,) in connection.execute(query)}
    connection.rollback()
    assert locked < set(ids)
    return locked


def claims(store, limit: int):
    while jobs := store.claim(uuid4(), limit):
        yield {job.id for job in jobs}


def test_they_are_claimed_while_the_backlog_lasts(store, marked):
    store._full_claims = 1
    got = list(claims(store, 5))
    assert not got[0] & marked
    assert any(one & marked for one in got[:MARKED_TOO])
    assert len(set.union(*got)) == 100


def test_and_at_once_when_it_is_short(store, marked):
    store._full_claims = 1
    first, second = list(claims(store, 97))
    assert len(first) == 97
    assert len(first & marked) == 2
    assert second == marked - first


def test_a_claim_finds_the_last_due_job_whatever_it_has_been_through(store, marked):
    for _ in range(95):
        assert len(store.claim(uuid4(), 1)) == 1
    assert sum(len(store.claim(uuid4(), 1)) for _ in range(5)) == 5


def test_a_worker_that_comes_fresh_takes_them_first(store, marked):
    assert {job.id for job in store.claim(uuid4(), 5)} == marked
