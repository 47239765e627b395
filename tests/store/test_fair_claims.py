"""Claiming jobs that have a fair key: keys take turns, nothing starves, the others do not pay."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import uuid4

import pytest

from evenbeat.domain.decision import Decision, EndKind, RunEnd
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord, JobSpec, NewJob
from evenbeat.domain.schedule import Interval
from evenbeat.domain.states import JobStatus
from evenbeat.errors import InvalidInput
from evenbeat.observe.explain import explain
from evenbeat.store.fair import FEW
from evenbeat.store.rows import Release
from evenbeat.store.store import Store
from evenbeat.store.upkeep import NewWorker

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
WORKER = uuid4()


def fair(key: str | None = "a", weight: int = 1, task: str = "t", **spec: Any) -> JobSpec:
    return JobSpec(task, fair_key=key, fair_weight=weight, **spec)


def add(store: Store, spec: JobSpec, count: int = 1, **job: Any) -> list[Any]:
    return [a.id for a in store.add_many([NewJob(spec, **job) for _ in range(count)], now=T0)]


def claim(store: Store, limit: int = 10, now: datetime = T0, **chosen: Any) -> list[JobRecord]:
    return store.claim(WORKER, limit, now=now, **chosen)


def keys(jobs: list[JobRecord]) -> str:
    return "".join(job.fair_key or "-" for job in jobs)


def one_by_one(store: Store, count: int, **chosen: Any) -> str:
    return "".join(keys(claim(store, 1, **chosen)) for _ in range(count))


# -- turns -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 20])
def test_a_few_jobs_do_not_wait_for_the_many_of_another_key(store: Store, limit: int):
    add(store, fair("a"), 100)
    add(store, fair("b"), 5)
    first = ""
    while len(first) < 20:
        first += keys(claim(store, limit))
    assert first.count("b") == 5
    assert first[:10].count("b") >= 4


def test_a_claim_hands_out_jobs_in_turns(store: Store):
    add(store, fair("a"), 20)
    add(store, fair("b"), 3)
    assert keys(claim(store, 10)) == "abababaaaa"


def test_a_key_starts_as_many_in_its_turn_as_its_weight_says(store: Store):
    add(store, fair("a", 3), 50)
    add(store, fair("b"), 50)
    assert one_by_one(store, 12) == "aaabaaabaaab"
    assert Counter(keys(claim(store, 20))) == {"a": 15, "b": 5}


def test_priority_counts_within_a_key_and_not_between_keys(store: Store):
    add(store, fair("a", priority=90), 3)
    low = add(store, fair("b", priority=0), 2)
    high = add(store, fair("b", priority=50, task="u"), 2)
    jobs = claim(store, 4)
    assert keys(jobs) == "abab"
    assert [job.id for job in jobs if job.fair_key == "b"] == high
    assert {job.id for job in claim(store, 3) if job.fair_key == "b"} == set(low)


def test_within_a_key_and_a_priority_the_oldest_goes_first(store: Store):
    ids = [add(store, fair(), start=T0 - n * SECOND)[0] for n in (3, 1, 2)]
    assert [claim(store, 1)[0].id for _ in range(3)] == [ids[0], ids[2], ids[1]]


def test_more_keys_than_a_claim_looks_at_all_get_their_turns(store: Store):
    names = [f"k{number:03}" for number in range(12 * FEW + 7)]
    store.add_many([NewJob(fair(name)) for name in names for _ in range(3)], now=T0)
    seen: list[str | None] = []
    while len(seen) < 2 * len(names):
        seen += [job.fair_key for job in claim(store, 11)]
    first = seen[: len(names)]
    assert len(set(first)) == len(names)
    assert max(Counter(seen).values()) <= 3


@pytest.mark.parametrize("limit", [60, 300])
def test_so_do_they_in_large_claims(store: Store, limit: int):
    names = [f"k{number:03}" for number in range(12 * FEW)]
    store.add_many([NewJob(fair(name)) for name in names for _ in range(20)], now=T0)
    seen: Counter[str | None] = Counter()
    while seen.total() < 20 * len(names):
        seen.update(job.fair_key for job in claim(store, limit))
        # A round may hand out several jobs to each key, and is complete before the next begins.
        assert max(seen.values()) - min(seen.get(name, 0) for name in names) <= 2 * FEW
    assert set(seen.values()) == {20}


def test_what_is_left_of_the_room_goes_to_the_keys_that_have_more(store: Store):
    add(store, fair("a"), 100)
    add(store, fair("b"), 1)
    assert Counter(keys(claim(store, 40))) == {"a": 39, "b": 1}


def test_keys_of_several_queues_take_turns(store: Store):
    add(store, fair("a", queue="x"), 20)
    add(store, fair("a", queue="y"), 20)
    add(store, fair("b", queue="y"), 20)
    jobs = [claim(store, 1)[0] for _ in range(6)]
    assert [(job.queue, job.fair_key) for job in jobs] == [("x", "a"), ("y", "a"), ("y", "b")] * 2
    assert {job.queue for job in claim(store, 4, queues=["y"])} == {"y"}


def test_paused_queues_and_unknown_tasks_are_passed_over(store: Store):
    add(store, fair("a", queue="x"), 2)
    add(store, fair("b", queue="y", task="foreign"), 2)
    add(store, fair("c", queue="y"), 2)
    store.control.pause_queue("x", now=T0)
    assert keys(claim(store, 4, tasks=["t"])) == "cc"
    assert claim(store, 4, tasks=["t"]) == []
    store.control.resume_queue("x", now=T0)
    assert keys(claim(store, 4, tasks=["t"])) == "aa"


def test_a_key_behind_many_that_this_worker_cannot_run_is_found(store: Store):
    strange = [NewJob(fair(f"k{n:04}", task="foreign")) for n in range(45 * FEW)]
    store.add_many(strange, now=T0)
    add(store, fair("z"), 1)
    found = [keys(claim(store, 2, tasks=["t"])) for _ in range(4)]
    assert "z" in found


def test_a_key_with_more_lanes_than_a_claim_looks_at(store: Store):
    ids = {p: add(store, fair("a", priority=p, task=t)) for p in range(40) for t in "tu"}
    add(store, fair("b"), 5)
    seen = keys([job for _ in range(85) for job in claim(store, 1)])
    assert seen[:10].count("b") == 5
    assert len(seen) == 85
    assert ids


# -- how they come due -----------------------------------------------------------------------------


def test_what_is_for_later_comes_due_and_takes_its_turn(store: Store):
    add(store, fair("a"), 10, start=T0 + MINUTE)
    add(store, fair("b"), 1, start=T0 + MINUTE)
    assert claim(store) == []
    assert store.next_due(now=T0)[0] == T0 + MINUTE
    assert keys(claim(store, 4, now=T0 + MINUTE)) == "abaa"


def test_recurring_jobs_retries_and_returned_runs_take_turns(store: Store):
    (hourly,) = add(store, fair("a", schedule=Interval(MINUTE)), start=T0)
    (other,) = add(store, fair("b"))
    jobs = {job.id: job for job in claim(store, 2)}
    again = RunEnd(
        jobs[hourly], EndKind.COMPLETED, Outcome(duration_ms=5),
        Decision(JobStatus.SCHEDULED, plan_time=T0 + MINUTE, next_run_at=T0 + MINUTE),
    )  # fmt: skip
    store.finish([again], now=T0)
    store.release([Release(jobs[other])], now=T0)
    assert [job.id for job in claim(store)] == [other]
    add(store, fair("c"), 5)
    assert keys(claim(store, 4, now=T0 + MINUTE)) == "cacc"


def test_what_is_run_now_takes_its_turn(store: Store):
    (later,) = add(store, fair("b"), start=T0 + 60 * MINUTE)
    add(store, fair("a"), 10)
    store.control.run_now([later], now=T0)
    assert keys(claim(store, 4)) == "abaa"


def test_aging_raises_a_job_within_its_key(store: Store):
    (old,) = add(store, fair("a", priority=0), start=T0 - 120 * MINUTE)
    add(store, fair("a", priority=5), 3)
    assert store.upkeep.age(now=T0) == 1
    (first,) = claim(store, 1)
    assert (first.id, first.priority, first.aging_bonus) == (old, 0, 0)


def test_a_huge_number_of_jobs_that_come_due_at_once_keeps_nobody_waiting(store: Store):
    add(store, fair("a"), 3000, start=T0 + MINUTE)
    add(store, fair("b"), 3, start=T0 + MINUTE + SECOND)
    later = T0 + MINUTE + SECOND
    seen = "".join(keys(claim(store, 10, now=later)) for _ in range(6))
    assert seen.count("b") == 3


# -- beside the others -----------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_neither_kind_keeps_the_other_waiting(store: Store, limit: int):
    add(store, fair("a"), 50)
    add(store, JobSpec("t"), 50)
    seen = "".join(keys(claim(store, limit)) for _ in range(40))[:40]
    assert 15 <= seen.count("a") <= 25


def test_each_kind_gets_all_the_room_when_it_is_alone(store: Store):
    add(store, fair("a"), 30)
    assert len(claim(store, 30)) == 30
    add(store, JobSpec("t"), 30)
    assert len(claim(store, 30)) == 30


def test_all_three_kinds_go_on(store: Store):
    add(store, fair("a"), 30)
    add(store, JobSpec("t"), 30)
    add(store, JobSpec("t", concurrency_key="k", concurrency_limit=100), 30)
    seen = Counter(
        job.fair_key or job.concurrency_key or "-" for _ in range(24) for job in claim(store, 2)
    )
    assert set(seen) == {"a", "k", "-"}
    assert min(seen.values()) >= 10


def test_two_claims_at_once_take_different_jobs(store: Store):
    for key in "abc":
        add(store, fair(key), 100)
    with ThreadPoolExecutor(4) as pool:
        claims = list(pool.map(lambda _: store.claim(uuid4(), 20), range(20)))
    ids = [job.id for jobs in claims for job in jobs]
    assert len(ids) == len(set(ids))
    while rest := claim(store, 100, now=datetime.now(UTC)):
        ids += [job.id for job in rest]
    assert len(set(ids)) == 300


def test_another_store_begins_anew_and_is_fair_by_itself(store: Store):
    add(store, fair("a"), 100)
    add(store, fair("b"), 100)
    one_by_one(store, 1)
    other = Store(store.database.url)
    assert one_by_one(other, 4) == "abab"
    assert one_by_one(store, 2) == "ba"
    other.close()


def test_a_fair_key_goes_with_no_limits(store: Store):
    for limits in ({"concurrency_key": "k"}, {"concurrency_limit": 2}):
        with pytest.raises(InvalidInput, match="not both") as refused:
            fair("a", **limits)
        assert refused.value.field == "fair_key"


def test_lists_and_figures_know_them(store: Store):
    add(store, fair("a"), 3)
    add(store, JobSpec("t"), 2)
    store.upkeep.count_jobs(now=T0)
    assert len(store.read.jobs().jobs) == len(store.read.upcoming()) == 5
    (depth,) = store.read.queues(now=T0)
    assert (depth.name, depth.due) == ("default", 5)
    late = T0 + 10 * MINUTE
    (lane,) = store.read.waiting_lanes(MINUTE, now=late)
    assert (lane.jobs, lane.workers) == (5, 0)


# -- why it waits ----------------------------------------------------------------------------------


def test_the_explanation_tells_of_turns(store: Store):
    store.upkeep.register_worker(NewWorker(WORKER, "host/x", 42, 0.0, "1", 10), now=T0)
    waiting = add(store, fair("acme"), 3)[-1]
    add(store, fair("b"), 50)
    late = add(store, fair("acme"), start=T0 + SECOND)[0]
    for key in "cd":
        add(store, fair(key, queue="other"))
    known = store.read.circumstances(late, now=T0 + 2 * SECOND)
    assert (known.ahead, known.fair_keys) == (3, 1)
    told = explain(known).summary
    assert "3 due jobs of its fair key 'acme' go first. 1 other key takes turns with it." in told
    other = explain(store.read.circumstances(waiting, now=T0 + 2 * SECOND)).summary
    assert "1 other key takes turns with it." in other


def test_turns_of_one_key_are_contiguous(store: Store):
    add(store, fair("a", 2), 6)
    add(store, fair("b", 2), 6)
    groups = [len(list(own)) for _, own in groupby(keys(claim(store, 12)))]
    assert groups == [2] * 6
