"""The table of limits: what jobs ask for, what operators set, what is forgotten."""

from typing import Any

import pytest
from test_keyed_claims import SECOND, T0, WORKER, add, claim, finish, limited

from evenbeat.domain.job import NewJob
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.store.store import Store


def test_what_the_newest_job_asks_for_counts(store: Store):
    add(store, limited(concurrency_limit=1), 4)
    assert len(claim(store)) == 1
    add(store, limited(concurrency_limit=3))
    assert len(claim(store)) == 2
    add(store, limited(rate_limit="1/h"))
    assert (store.limits.get("k").max_running, store.limits.get("k").rate_limit) == (None, "1/h")


def test_what_an_operator_sets_stays_until_it_is_reset(store: Store):
    add(store, limited(concurrency_limit=1), 9)
    claim(store)
    assert store.limits.put("k", max_running=3, now=T0).is_set
    assert len(claim(store)) == 2
    add(store, limited(concurrency_limit=5))
    assert store.limits.get("k").max_running == 3
    assert claim(store) == []
    after = store.limits.reset("k", now=T0)
    assert (after.is_set, after.max_running) == (False, 1)
    add(store, limited(concurrency_limit=5))
    assert len(claim(store)) == 2


def test_a_lower_limit_ends_nothing_and_lets_nothing_more_start(store: Store):
    add(store, limited(concurrency_limit=3), 5)
    running = claim(store)
    store.limits.put("k", max_running=1, now=T0)
    finish(store, running[:2])
    assert claim(store) == []
    finish(store, running[2:])
    assert len(claim(store)) == 1


def test_a_faster_rate_counts_at_once(store: Store):
    add(store, limited(rate_limit="1/h"), 3)
    claim(store)
    store.limits.put("k", rate="10/s", now=T0)
    assert claim(store, now=T0 + 0.05 * SECOND) == []
    assert len(claim(store, now=T0 + 0.1 * SECOND)) == 1


def test_workers_hear_of_changed_limits(store: Store):
    add(store, limited(rate_limit="1/h", queue="q"), 2)
    claim(store)
    with store.listen() as listener:
        store.limits.put("k", rate="10/s", now=T0)
        assert [tuple(signal) for signal in listener.wait(60)] == [("due", "q")]


@pytest.mark.parametrize(
    "wrong",
    [{}, {"max_running": 0}, {"rate": "often"}, {"max_running": "3"}],
)
def test_what_cannot_be_set_is_refused(store: Store, wrong: dict[str, Any]):
    with pytest.raises(InvalidInput):
        store.limits.put("k", **wrong)
    with pytest.raises(InvalidInput):
        store.limits.put("", max_running=1)
    with pytest.raises(NotFound):
        store.limits.get("k")
    with pytest.raises(NotFound):
        store.limits.reset("k")


def test_a_key_without_a_row_is_made_known_by_its_jobs(store: Store):
    add(store, limited(concurrency_limit=2, rate_limit="1000/h"), 5)
    store.database.query("gone", "DELETE FROM evenbeat.limits RETURNING key", {})
    assert len(claim(store)) == 1
    assert (store.limits.get("k").max_running, store.limits.get("k").rate_limit) == (2, "1000/h")


def test_old_keys_without_jobs_are_forgotten(store: Store):
    for key in ("idle", "running", "waiting", "set"):
        add(store, limited(key))
    jobs = {job.concurrency_key: job for job in claim(store)}
    finish(store, [jobs["idle"], jobs["waiting"], jobs["set"]])
    add(store, limited("waiting"))
    store.limits.put("set", max_running=1, now=T0)
    assert store.limits.prune(older_than=T0) == 0
    assert store.limits.prune(older_than=T0 + SECOND) == 1
    assert {one.key for one in store.limits.page().limits} == {"running", "waiting", "set"}


def test_a_callers_transaction_holds_no_key(store: Store, connect: Any):
    """Two requests that each add a job with the same new key do not wait for each other."""
    with connect() as one, connect() as two:
        store.add(NewJob(limited()), connection=one)
        two.execute("SET statement_timeout = '5s'")
        store.add(NewJob(limited()), connection=two)
        assert store.claim(WORKER, 1) == []
        two.commit()
        assert len(store.claim(WORKER, 1)) == 1 or store.next_due()[0] is not None
        one.rollback()
