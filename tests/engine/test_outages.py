"""What a worker keeps, gives back and leaves alone while the database is not itself."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from evenbeat import Evenbeat
from evenbeat.domain.decision import decide, lost_lease
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.errors import DatabaseUnavailable
from evenbeat.store.store import Store
from proxy import Proxy, read_only
from waiting import wait_for

# By the name under which it was prepared; behind a pooler, its text is sent each time.
CLAIM = b"evenbeat:claim */" if "EVENBEAT_TEST_POOLER" in os.environ else b"\x00claim\x00"
SHORT = {"lease_seconds": 3, "renew_seconds": 0.5, "poll_seconds": 0.5, "reap_seconds": 0.2}


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    proxy = Proxy(database_url)
    yield proxy
    proxy.close()


@contextmanager
def working(app: Evenbeat) -> Iterator[None]:
    worker = app.worker()
    worker.start()
    try:
        yield
    finally:
        worker.stop(grace=5)
        app.close()


def states(store: Store) -> dict[str, int]:
    return {state: n for state, n in store.read.counts_by_status().items() if n}


def test_what_finishes_while_the_server_refuses_writes_is_kept(database_url, store, caplog):
    """It is the only attempt, so that a result that is thrown away would show."""
    app = Evenbeat(database_url, **SHORT)
    started, go_on, runs = threading.Semaphore(0), threading.Event(), []

    @app.task(max_retries=0)
    def hold(n: int) -> None:
        runs.append(n)
        started.release()
        go_on.wait(60)
        logging.getLogger("shop").warning("goes on")

    with working(app):
        jobs = [hold.enqueue(n) for n in range(10)]
        for _ in range(10):
            assert started.acquire(timeout=60)
        with read_only(database_url):
            time.sleep(0.5)
            go_on.set()
            time.sleep(5)  # longer than the lease
        wait_for(lambda: states(store) == {"completed": 10}, "all are written")
    assert sorted(runs) == list(range(10))
    for job in jobs:  # what they logged meanwhile, too
        (run,) = store.read.executions_of(job.id).executions
        assert [line.text for line in store.run_logs.page(run.id).lines] == ["goes on"]
    lines = [r for r in caplog.records if r.name.startswith("evenbeat") and r.levelname != "DEBUG"]
    assert len([r for r in lines if "takes no writes" in r.message or "is back" in r.message]) <= 4
    assert not [r for r in lines if r.exc_info]


def test_a_process_that_only_reads_is_not_ready_while_the_server_refuses_writes(database_url):
    app = Evenbeat(database_url)
    assert app.readiness.report().ready
    with read_only(database_url):
        wait_for(lambda: not app.readiness.report().ready, "not ready")
    wait_for(lambda: app.readiness.report().ready, "ready again")
    app.close()


def test_a_claim_whose_answer_is_lost_costs_nothing(proxy, store):
    app = Evenbeat(proxy.url, **SHORT | {"lease_seconds": 30, "poll_seconds": 3600})
    ran = []

    @app.task(max_retries=0)
    def once(n: int) -> None:
        ran.append(n)

    with working(app):
        wait_for(app.store.upkeep.workers, "the worker is there")
        time.sleep(0.5)
        proxy.lose_answer_to(CLAIM)
        jobs = [once.job(n) for n in range(8)]
        app.enqueue_many(jobs)
        wait_for(lambda: states(store) == {"completed": 8}, "all run", 25)
    assert sorted(ran) == list(range(8))
    assert proxy._without_answer, "the answer to a claim was lost"


def test_a_claim_that_breaks_off_after_its_first_part_costs_nothing(proxy, store):
    """Jobs with a concurrency key are claimed first, and start; the others are not forgotten."""
    app = Evenbeat(proxy.url, **SHORT | {"lease_seconds": 30, "poll_seconds": 3600})

    @app.task(max_retries=0)
    def once() -> None: ...

    with working(app):
        wait_for(app.store.upkeep.workers, "the worker is there")
        time.sleep(0.5)
        proxy.lose_answer_to(CLAIM)
        app.enqueue_many([once.options(concurrency_key="k").job(), *(once.job() for _ in range(3))])
        wait_for(lambda: states(store) == {"completed": 4}, "all run", 25)
    assert proxy._without_answer, "the answer to a claim was lost"


def test_a_worker_that_stops_hands_back_what_it_may_hold_without_knowing(evenbeat_harness):
    app = Evenbeat(name="stops")
    app.task(lambda: None, name="noop")
    worker = evenbeat_harness(app).worker
    app.store.add(NewJob(JobSpec("noop")), now=app.now())
    worker.claimer._unsure_until = time.monotonic() + 60
    (unknown,) = app.store.claim(worker.identity.id, 1, now=app.now())
    worker.claimer.stop()
    worker.claimer.run()
    assert app.store.read.job(unknown.id).status == "pending"


def test_only_what_never_started_is_handed_back(evenbeat_harness):
    """A run that was given up for its lease did start: whether it may again is for the reaper."""
    app = Evenbeat(name="lost")
    app.task(lambda: None, name="noop")
    harness = evenbeat_harness(app)
    worker, store = harness.worker, app.store
    store.add_many([NewJob(JobSpec("noop")) for _ in range(2)], now=app.now())
    started, unknown = store.claim(worker.identity.id, 2, now=app.now())
    worker.runs.lost.append(started.lock_token)
    worker.claimer._hand_back_unknown()
    assert store.read.job(started.id).status == "running"
    assert store.read.job(unknown.id).status == "pending"


def test_a_listener_that_cannot_connect_is_no_outage(store):
    store.database.listen_url = "postgresql://nobody@127.0.0.1:1/none"
    with pytest.raises(DatabaseUnavailable):
        store.listen()
    assert store.database.availability.reason is None


def test_a_locked_row_costs_no_other_run_its_lease(database_url, store, connect):
    app = Evenbeat(database_url, threads=20, **SHORT)
    go_on, ran = threading.Event(), []

    @app.task
    def hold(n: int) -> None:
        ran.append(n)
        go_on.wait(60)

    with working(app):
        ids = [hold.enqueue(n).id for n in range(10)]
        wait_for(lambda: len(ran) == 10, "all run")
        holder = connect()
        holder.execute("SELECT FROM evenbeat.jobs WHERE id = %s FOR UPDATE", (ids[3],))
        time.sleep(4)  # longer than the lease
        go_on.set()
        wait_for(lambda: states(store).get("completed") == 9, "the other nine are written")
        holder.rollback()
        wait_for(lambda: states(store) == {"completed": 10}, "so is the tenth")
    assert len(ran) in (10, 11)  # the locked one may have lost its lease


def test_a_claim_that_is_answered_after_its_lease_starts_nothing(evenbeat_harness, monkeypatch):
    app = Evenbeat(name="late")
    ran = []

    @app.task(max_retries=0)
    def once() -> None:
        ran.append(1)

    harness = evenbeat_harness(app)
    once.enqueue()
    claimer, claim = harness.worker.claimer, harness.worker.claimer._store.claim
    clock = [0.0]
    monkeypatch.setattr("evenbeat.engine.claimer.time.monotonic", lambda: clock[0])

    def slow_claim(*args: object, **options: object) -> object:
        jobs = claim(*args, **options)
        clock[0] += 31 if not ran and clock[0] < 31 else 0
        return jobs

    monkeypatch.setattr(claimer._store, "claim", slow_claim)
    assert claimer._claim(harness.worker.runners[0], 1, None) == 0
    assert ran == []


def test_a_run_that_was_cut_off_keeps_its_turn(store):
    store.add(NewJob(JobSpec("noop")))
    (job,) = store.claim(uuid4(), 1)
    now = store.clock()
    end = decide(job, lost_lease(job), now)
    assert end.decision is not None
    assert end.decision.next_run_at == job.next_run_at
    tried = job._replace(current_retry_count=1)
    again = decide(tried, lost_lease(tried), now)
    assert again.decision is not None
    assert again.decision.next_run_at > now


def test_cleared_locks_are_counted_with_their_clearing(store):
    store.add_many([NewJob(JobSpec("noop")) for _ in range(3)])
    jobs = store.claim(uuid4(), 3)
    now = store.clock()
    ends = [decide(job, lost_lease(job), now) for job in jobs]
    late = now.replace(year=now.year + 1)
    store.finish(ends, expired_only=True, now=late)
    assert store.upkeep.figures()["stale_locks_cleared"].value == 3


def test_leaving_the_application_does_not_stop_its_worker(tmp_path, monkeypatch):
    monkeypatch.delenv("EVENBEAT_DATABASE_URL", raising=False)
    app = Evenbeat(data_dir=tmp_path)  # the server is the application's own
    ran = threading.Event()

    @app.task
    def note() -> None:
        ran.set()

    with working(app):
        with app:
            pass
        note.enqueue()
        assert ran.wait(30)
