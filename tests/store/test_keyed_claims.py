"""Claiming jobs that have a concurrency key: limits hold, room is found, nothing starves."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenbeat.domain.decision import Decision, EndKind, RunEnd
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord, JobSpec, NewJob
from evenbeat.domain.limits import parse_rate
from evenbeat.domain.schedule import Interval
from evenbeat.domain.states import JobStatus
from evenbeat.observe.explain import explain
from evenbeat.store.rows import Release
from evenbeat.store.store import Store
from evenbeat.store.upkeep import NewWorker
from token_bucket import after_starts, startable

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
WORKER = uuid4()


def limited(key: str | None = "k", task: str = "t", **spec: Any) -> JobSpec:
    if isinstance(spec.get("rate_limit"), str):
        spec["rate_limit"] = parse_rate(spec["rate_limit"])
    return JobSpec(task, concurrency_key=key, **spec)


def add(store: Store, spec: JobSpec, count: int = 1, **job: Any) -> list[Any]:
    return [a.id for a in store.add_many([NewJob(spec, **job) for _ in range(count)], now=T0)]


def claim(store: Store, limit: int = 10, now: datetime = T0, **chosen: Any) -> list[JobRecord]:
    return store.claim(WORKER, limit, now=now, **chosen)


def finish(store: Store, jobs: list[JobRecord], now: datetime = T0) -> None:
    done = [
        RunEnd(job, EndKind.COMPLETED, Outcome(duration_ms=5), Decision(JobStatus.COMPLETED))
        for job in jobs
    ]
    assert len(store.finish(done, now=now)) == len(jobs)


# -- how many at once ------------------------------------------------------------------------------


def test_a_key_alone_means_one_at_a_time(store: Store):
    add(store, limited(), 3)
    (first,) = claim(store)
    assert (first.concurrency_key, first.concurrency_limit, first.status) == ("k", 1, "running")
    assert claim(store) == []
    finish(store, [first])
    (second,) = claim(store)
    assert second.id != first.id


def test_as_many_run_as_the_limit_says_and_each_key_for_itself(store: Store):
    add(store, limited("a", concurrency_limit=2), 5)
    add(store, limited("b", concurrency_limit=3), 2)
    assert Counter(job.concurrency_key for job in claim(store)) == {"a": 2, "b": 2}
    assert claim(store) == []
    assert [(one.key, one.running, one.waiting) for one in store.limits.page().limits] == [
        ("a", 2, 3),
        ("b", 2, 0),
    ]


def test_the_key_is_the_task_unless_it_is_given_and_tasks_may_share_one(store: Store):
    add(store, limited(None, "one", concurrency_limit=1), 2)
    add(store, limited("one", "another", concurrency_limit=1), 2)
    (job,) = claim(store)
    assert job.concurrency_key == "one"
    assert store.limits.get("one").waiting == 3


def test_what_a_worker_cannot_run_does_not_stand_in_its_way(store: Store):
    add(store, limited(task="foreign"), 50)
    add(store, limited(task="own"))
    add(store, limited(task="own", queue="elsewhere"))
    (job,) = claim(store, tasks=["own"], queues=["default"])
    assert (job.task, job.queue) == ("own", "default")
    finish(store, [job])
    assert claim(store, tasks=["own"], queues=["default"]) == []
    assert store.next_due(tasks=["own"], queues=["default"], now=T0)[0] is None
    (job,) = claim(store, tasks=["own"])
    assert job.queue == "elsewhere"


def test_a_paused_queue_waits(store: Store):
    add(store, limited())
    store.control.pause_queue("default")
    assert claim(store) == []
    assert store.next_due(now=T0)[0] is None
    store.control.resume_queue("default")
    assert len(claim(store)) == 1


def test_within_a_key_the_most_urgent_goes_first_then_the_oldest(store: Store):
    for minute, priority in [(3, 0), (1, 0), (2, 50), (4, 100), (1, 50)]:
        spec = limited(priority=priority)
        store.add(NewJob(spec, {"m": minute, "p": priority}, start=T0 + minute * MINUTE), now=T0)
    order = []
    for _ in range(5):
        (job,) = claim(store, now=T0 + 10 * MINUTE)
        order.append((job.payload["p"], job.payload["m"]))
        finish(store, [job])
    assert order == [(100, 4), (50, 1), (50, 2), (0, 1), (0, 3)]


def test_of_several_keys_the_most_urgent_goes_first(store: Store):
    for number in range(20):
        add(store, limited(f"k{number}", priority=number))
    urgent = claim(store, 3)
    assert [job.concurrency_key for job in urgent] == ["k19", "k18", "k17"]


def test_a_recurring_job_that_is_still_running_elsewhere_in_its_key_waits(store: Store):
    spec = limited(schedule=Interval(timedelta(hours=1)))
    add(store, replace(spec, task="one"))
    add(store, replace(spec, task="two"))
    (one,) = claim(store, now=T0 + timedelta(hours=2))
    assert claim(store, now=T0 + timedelta(hours=2)) == []
    finish(store, [one], T0 + timedelta(hours=2))
    (two,) = claim(store, now=T0 + timedelta(hours=2))
    assert {one.task, two.task} == {"one", "two"}


@pytest.mark.parametrize("verb", ["cancel", "delete", "release"])
def test_whatever_ends_a_run_makes_room(store: Store, verb: str):
    add(store, limited(), 2)
    (job,) = claim(store)
    if verb == "release":
        store.release([Release(job, job.plan_time, T0 + MINUTE)], now=T0)
    else:
        getattr(store.control, verb)([job.id])
    (other,) = claim(store)
    assert other.id != job.id


def test_a_lost_run_holds_its_place_until_its_lease_is_given_up(store: Store):
    add(store, limited(), 2)
    (job,) = claim(store)
    later = T0 + MINUTE
    assert claim(store, now=later) == []
    lost = RunEnd(job, EndKind.FAILED, Outcome(), Decision(JobStatus.FAILED))
    assert store.finish([lost], expired_only=True, now=later)
    assert len(claim(store, now=later)) == 1


def test_a_run_that_counts_begins_with_its_claim(store: Store):
    add(store, limited())
    (job,) = claim(store)
    waited = Outcome(duration_ms=5, queued_ms=700)
    store.finish(
        [RunEnd(job, EndKind.COMPLETED, waited, Decision(JobStatus.COMPLETED))], now=T0 + SECOND
    )
    assert store.read.execution(job.lock_token).started_at == T0


# -- how often -------------------------------------------------------------------------------------


def test_starts_keep_their_distance(store: Store):
    add(store, limited(rate_limit="10/s"), 5)
    (job,) = claim(store)
    assert (job.concurrency_limit, job.rate_limit) == (None, "10/s")
    assert claim(store, now=T0 + 0.099 * SECOND) == []
    assert store.next_due(now=T0 + 0.099 * SECOND)[0] == T0 + 0.1 * SECOND
    assert len(claim(store, now=T0 + 0.1 * SECOND)) == 1
    assert len(claim(store, now=T0 + MINUTE)) == 1


def test_a_run_that_is_handed_back_has_cost_its_start(store: Store):
    add(store, limited(rate_limit="1/min"))
    (job,) = claim(store)
    store.release([Release(job)], now=T0)
    assert claim(store, now=T0 + 59 * SECOND) == []
    assert [again.id for again in claim(store, now=T0 + MINUTE)] == [job.id]


def test_rate_and_number_hold_together(store: Store):
    add(store, limited(concurrency_limit=2, rate_limit="10/s"), 5)
    first = claim(store) + claim(store, now=T0 + SECOND)
    assert len(first) == 2
    assert claim(store, now=T0 + 2 * SECOND) == []
    finish(store, first, T0 + 2 * SECOND)
    assert len(claim(store, now=T0 + 2 * SECOND)) == 1


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["10/s", "1000/h", "250/1m", "3/7s"]),
    st.lists(st.tuples(st.integers(0, 9_000_000), st.integers(1, 12)), min_size=1, max_size=8),
)
def test_the_database_reckons_as_the_domain_does(
    store: Store, text: str, steps: list[tuple[int, int]]
):
    rate, key = parse_rate(text), f"k-{uuid4()}"
    add(store, limited(key, "bucket", rate_limit=text), 60)
    now, next_start = T0, T0
    for microseconds, wanted in steps:
        now += timedelta(microseconds=microseconds)
        expected = min(wanted, startable(rate, next_start, now))
        taken = [j for j in claim(store, wanted, now) if j.concurrency_key == key]
        assert len(taken) == expected
        if expected:
            next_start = after_starts(rate, next_start, now, expected)
        assert store.limits.get(key).next_start_at == next_start
    store.control.delete([job.id for job in store.read.jobs(limit=1000).jobs])


# -- when to look again ----------------------------------------------------------------------------


def test_jobs_that_are_kept_back_are_not_due(store: Store):
    add(store, limited(), 3)
    assert store.next_due(now=T0)[0] == T0
    (job,) = claim(store)
    claim(store)
    assert store.next_due(now=T0)[0] is None
    store.add(NewJob(limited("other"), start=T0 + MINUTE), now=T0)
    claim(store)
    assert store.next_due(now=T0)[0] == T0 + MINUTE
    finish(store, [job])
    assert len(claim(store)) == 1


def test_the_end_of_a_run_hints_at_what_waits_behind_it(store: Store):
    add(store, limited(queue="one"))
    (job,) = claim(store)
    add(store, limited(queue="two"))
    with store.listen() as listener:
        finish(store, [job])
        assert [tuple(signal) for signal in listener.wait(60)] == [("due", "two")]
        (job,) = claim(store)
        add(store, limited(queue="three"))
        listener.wait(60)
        store.control.cancel([job.id])
        heard: set[tuple[str, ...]] = set()
        for _ in range(5):
            heard |= {tuple(signal) for signal in listener.wait(60)}
            if ("due", "three") in heard:
                return
        pytest.fail(f"nobody hinted at the third queue: {heard}")


def test_a_claim_works_on_the_connection_that_brought_the_hint(store: Store):
    with store.listen() as listener:
        store.add_many([NewJob(limited(concurrency_limit=2)) for _ in range(3)])
        assert listener.wait(60)
        assert len(store.claim(WORKER, 10, connection=listener.connection)) == 2
        assert listener.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_a_worker_that_has_seen_none_finds_the_first_one_at_once(store: Store, database_url: str):
    other = Store(database_url)
    assert store.claim(WORKER, 10) == []
    other.add(NewJob(limited()))
    other.close()
    found = store.claim(WORKER, 10)
    if not found:  # it had looked a moment ago, and is told to look again
        due, present = store.next_due()
        assert due is not None
        assert due <= present
        found = store.claim(WORKER, 10)
    assert len(found) == 1


# -- neither kind keeps the other waiting ----------------------------------------------------------


def test_jobs_with_and_without_a_key_share_the_room(store: Store):
    add(store, limited(concurrency_limit=100), 50)
    add(store, JobSpec("t", priority=100), 50)
    assert Counter(job.concurrency_key for job in claim(store, 10)) == {"k": 5, None: 5}
    assert Counter(job.concurrency_key for job in claim(store, 1) + claim(store, 1)) == {
        "k": 1,
        None: 1,
    }


def test_either_kind_gets_all_the_room_when_it_is_alone(store: Store):
    add(store, limited(concurrency_limit=100), 20)
    assert len(claim(store, 10)) == 10
    add(store, JobSpec("t"), 20)
    assert len(claim(store, 40)) == 30


def test_a_free_key_is_found_behind_many_that_are_not(store: Store):
    """More blocked keys, each with a backlog, than one look reaches, both in time and in name."""
    blocked = [limited(f"m{number:04}") for number in range(700)]
    store.add_many([NewJob(spec) for spec in blocked], now=T0)
    while claim(store, 200):
        pass
    store.add_many([NewJob(spec) for spec in blocked for _ in range(2)], now=T0)
    late = [NewJob(limited(key), start=T0 + SECOND) for key in ("a", "n", "z")]
    store.add_many(late, now=T0)
    now, found, looks = T0 + MINUTE, [], 0
    while len(found) < 3:
        found += claim(store, 10, now)
        due, present = store.next_due(now=now)
        assert len(found) == 3 or (due is not None and due <= present), "it stopped looking"
        looks += 1
        assert looks < 20
    assert {job.concurrency_key for job in found} == {"a", "n", "z"}
    for _ in range(10):
        claim(store, 10, now)
        if store.next_due(now=now)[0] is None:
            break
    else:
        pytest.fail("it never rests")


def test_many_claimers_never_exceed_a_limit(database_url: str):
    stores = [Store(database_url) for _ in range(6)]
    specs = [limited(f"k{n}", concurrency_limit=1 + n % 3) for n in range(12)]
    stores[0].add_many([NewJob(specs[n % 12]) for n in range(240)])

    def work(store: Store) -> int:
        worker, finished = uuid4(), 0
        while store.read.counts_by_status().get("completed", 0) < 240:
            jobs = store.claim(worker, 5)
            done = [
                RunEnd(job, EndKind.COMPLETED, Outcome(), Decision(JobStatus.COMPLETED))
                for job in jobs
            ]
            finished += len(store.finish(done)) if done else 0
            store.next_due()
        return finished

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(work, stores)) == 240
    rows = stores[0].database.query(
        "overlaps",
        "SELECT j.concurrency_key, j.concurrency_limit, max(o.running) "
        "FROM evenbeat.executions e JOIN evenbeat.jobs j ON j.id = e.job_id "
        "CROSS JOIN LATERAL (SELECT count(*) AS running "
        "  FROM evenbeat.executions x JOIN evenbeat.jobs y ON y.id = x.job_id "
        "  WHERE y.concurrency_key = j.concurrency_key "
        "    AND x.started_at <= e.started_at AND x.completed_at > e.started_at) o "
        "GROUP BY 1, 2",
        {},
    )
    assert len(rows) == 12
    assert [row for row in rows if row[2] > row[1]] == []
    for store in stores:
        store.close()


# -- beside the claim ------------------------------------------------------------------------------


def test_an_edit_moves_a_job_to_another_key_or_to_none(store: Store):
    (first, second) = add(store, limited(), 2)
    claim(store, 1)
    waiting = second if store.read.job(second).status != "running" else first
    edited = store.control.update(
        waiting, lambda spec: replace(spec, concurrency_key="free", concurrency_limit=7), now=T0
    )
    assert (edited.concurrency_key, edited.concurrency_limit) == ("free", 7)
    assert store.limits.get("free").max_running == 7
    unlimited = replace(JobSpec("t"), priority=0)
    assert store.control.update(waiting, lambda _: unlimited, now=T0).concurrency_key is None
    assert [job.id for job in claim(store)] == [waiting]


def test_lists_and_figures_know_jobs_with_a_key_too(store: Store):
    add(store, limited("a", queue="q"), 3)
    add(store, JobSpec("t", queue="q"), 2)
    page = store.read.jobs(sort="next_run_at")
    assert page.total == 5
    assert len(store.read.upcoming(limit=10)) == 5
    (depth,) = store.read.queues(now=T0)
    assert (depth.name, depth.due) == ("q", 5)
    assert store.upkeep.age(waited=SECOND, now=T0 + MINUTE) == 5


def test_explain_says_what_keeps_a_job_back(store: Store):
    ids = add(store, limited(concurrency_limit=2), 3)
    store.upkeep.register_worker(NewWorker(WORKER, "host/x", 42, 0.0, "1", 10), now=T0)
    running = {job.id for job in claim(store)}
    (waiting,) = set(ids) - running
    told = explain(store.read.circumstances(waiting, now=T0 + SECOND))
    assert told.facts[0].code == "concurrency_limit"
    assert "2 of 2 of the key 'k' are running" in told.summary
    store.limits.put("k", rate="1/h", now=T0)
    store.control.cancel(list(running), now=T0)
    claim(store)
    told = explain(store.read.circumstances(add(store, limited())[0], now=T0 + SECOND))
    assert told.facts[0].code == "rate_limit"
    assert "1/h" in told.summary


def test_jobs_that_their_limits_keep_back_are_not_reported_as_late(store: Store):
    add(store, limited(), 3)
    late = T0 + timedelta(hours=1)
    (unserved,) = store.read.waiting_lanes(MINUTE, now=late)
    assert (unserved.jobs, unserved.workers) == (3, 0)
    store.upkeep.register_worker(NewWorker(WORKER, "host/x", 42, 0.0, "1", 10), now=late)
    assert store.read.waiting_lanes(MINUTE, now=late) == []
    add(store, JobSpec("t"))
    (lane,) = store.read.waiting_lanes(MINUTE, now=late)
    assert (lane.jobs, lane.workers) == (1, 1)


def test_a_claim_that_freezes_holds_its_keys_only_for_seconds(store: Store):
    """What it has locked is skipped meanwhile, and looked at again soon."""
    store.add_many([NewJob(limited()), NewJob(limited("other"))], now=T0)
    with store.database.transaction(hot=True) as frozen:
        store.database.rows("limited_due", {"queues": None, "tasks": None, "now": T0}, frozen)
        timeout = frozen.execute("SHOW idle_in_transaction_session_timeout").fetchone()
        assert timeout == ("10s",)
        frozen.execute(
            'SELECT FROM "evenbeat".limits WHERE key = %s FOR UPDATE', ("k",), prepare=False
        )
        (job,) = claim(store)
        assert job.concurrency_key == "other"
        due, present = store.next_due(now=T0)
        assert due is not None
        assert present < due < present + SECOND
    (job,) = claim(store)
    assert job.concurrency_key == "k"


def test_what_becomes_free_after_the_look_is_not_slept_through(store: Store):
    store.add_many([NewJob(limited(rate_limit="5/s")) for _ in range(100)])
    while store.claim(WORKER, 10):
        pass  # until the rate keeps the next one back
    time.sleep(0.25)
    due, present = store.next_due()
    assert due is not None
    assert due <= present
    assert len(store.claim(WORKER, 10)) == 1


def test_what_is_claimed_is_kept_when_the_rest_of_the_claim_fails(store: Store, connect):
    """A job with a key is claimed in a transaction of its own, before one that cannot be."""
    (doubled,) = add(store, JobSpec("t"))
    (job,) = claim(store)
    finish(store, [job])
    with connect() as connection:
        connection.execute(
            "UPDATE evenbeat.jobs SET status = 'pending', plan_time = %s, next_run_at = %s "
            "WHERE id = %s",
            (job.plan_time, T0, doubled),
        )
    with_key = add(store, limited())
    assert [job.id for job in claim(store)] == with_key
    assert store.read.job(doubled).status == "failed", "it is set aside all the same"


def test_a_free_key_behind_a_full_one_goes_first_when_it_is_the_oldest(store: Store):
    """However many jobs of other keys fill every claim."""
    add(store, limited("full"), 150)
    assert [job.concurrency_key for job in claim(store, 1)] == ["full"]
    add(store, limited("behind"))
    ran: list[str | None] = []
    for n in range(10):
        now = T0 + (n + 1) * SECOND
        store.add(NewJob(limited("busy", "u", concurrency_limit=9)), now=now)
        jobs = claim(store, 1, now)
        ran += [job.concurrency_key for job in jobs]
        finish(store, jobs, now)
    assert "behind" in ran


def test_a_kind_of_claim_that_is_no_longer_made_keeps_no_worker_awake(store: Store):
    add(store, limited(), 3)
    assert len(store.claim(WORKER, 1, tasks=["t"])) == 1
    for _ in range(3):
        assert store.claim(WORKER, 1, tasks=["t", "u"]) == []
        due, _now = store.next_due(tasks=["t", "u"])
    assert due is None
