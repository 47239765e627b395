"""`kill -9`: what a worker leaves behind is taken up by others, once, and nothing is lost."""

import random
import time
from datetime import timedelta

import pytest
from fleet import FULL, PATIENT, SHORT_LEASE, Fleet, Story, WorkerProcess, job

from evenbeat.domain.retry import RetryPolicy
from evenbeat.store.store import Store
from waiting import wait_for

LONG_JOBS = 50


def kill_when_all_run(fleet: Fleet, worker: WorkerProcess, count: int) -> float:
    wait_for(lambda: len(fleet.ledger.entries("start")) == count, "all jobs run")
    worker.kill()
    return time.monotonic()


def resumed_within(fleet: Fleet, killed_at: float, count: int, seconds: float) -> float:
    """Wait until every job has started a second time; how long after the kill the last one did."""

    def again() -> list[float]:
        starts = [entry["at"] for entry in fleet.ledger.entries("start") if entry["at"] > killed_at]
        return starts if len(starts) >= count else []

    return max(wait_for(again, "every job has started again", within=seconds + 5)) - killed_at


def assert_each_finished_once(fleet: Fleet, story: Story, count: int) -> None:
    assert story.all_completed(count)
    assert list(story.completions().values()) == [1] * count
    assert story.overlapping_executions() == 0
    assert fleet.overlaps() == []


def test_restarted_worker_resumes_at_once_what_its_predecessor_ran(
    fleet: Fleet, store: Store, story: Story
) -> None:
    store.add_many([job("nap", {"seconds": 5})] * LONG_JOBS)
    killed_at = kill_when_all_run(fleet, fleet.start(), LONG_JOBS)

    fleet.start()

    took = resumed_within(fleet, killed_at, LONG_JOBS, 5)
    print(f"restart on the same host: all {LONG_JOBS} run again after {took:.2f} s")  # noqa: T201
    assert took < 5
    wait_for(lambda: story.all_completed(LONG_JOBS), "all finish")
    assert_each_finished_once(fleet, story, LONG_JOBS)
    assert story.error_codes() == {None: LONG_JOBS, "lease_expired": LONG_JOBS}


@pytest.mark.parametrize("same_host", [True, False] if FULL else [False])
def test_living_worker_takes_over_from_a_killed_one(
    fleet: Fleet, store: Store, story: Story, same_host: bool
) -> None:
    settings = {} if FULL else SHORT_LEASE
    count, bound = (LONG_JOBS, 40) if FULL else (20, 8)
    store.add_many([job("nap", {"seconds": 8})] * count)
    doomed = fleet.start(**settings)
    wait_for(lambda: len(fleet.ledger.entries("start")) == count, "all jobs run")
    fleet.start(**settings)
    wait_for(lambda: len(store.upkeep.workers()) == 2, "both are known")
    if not same_host:  # what another machine sees: a worker whose process it cannot look at
        with store.database.transaction() as connection:
            connection.execute(
                "UPDATE evenbeat.workers SET host = 'elsewhere' WHERE pid = %s", (doomed.pid,)
            )
    killed_at = time.monotonic()
    doomed.kill()

    took = resumed_within(fleet, killed_at, count, bound)

    print(f"taken over, same host {same_host}: after {took:.2f} s")  # noqa: T201
    assert took < bound
    wait_for(lambda: story.all_completed(count), "all finish")
    assert_each_finished_once(fleet, story, count)


@pytest.mark.timeout(600)
def test_random_kills_lose_nothing_and_double_nothing(
    fleet: Fleet, store: Store, story: Story
) -> None:
    count, kills = (5000, 20) if FULL else (1500, 5)
    chance = random.Random(17)  # noqa: S311
    jobs = [
        job("nap", {"seconds": chance.uniform(0, 0.6)})
        if n % 4
        else job("doze", {"seconds": chance.uniform(0, 0.15)})
        for n in range(count)
    ]
    options = {**({} if FULL else SHORT_LEASE), "concurrency": 30, "threads": 6}
    store.add_many(jobs)
    begun = time.monotonic()
    living = fleet.start_many(3, **options)

    for _ in range(kills):
        before = len(fleet.ledger.entries("start"))
        wait_for(lambda b=before: len(fleet.ledger.entries("start")) > b + 40, "work goes on")
        victim = living.pop(chance.randrange(3))
        victim.kill()
        living.append(fleet.start(**options))
        assert not story.all_completed(count), "too late: the kills must hit while jobs flow"

    wait_for(lambda: story.all_completed(count), "every job has ended", 300)
    took = time.monotonic() - begun
    cut_off = story.error_codes().get("lease_expired", 0)
    print(f"{count} jobs, {kills} kills, {cut_off} runs cut off, {took:.1f} s")  # noqa: T201
    assert cut_off > 0, "no kill hit a running job: this proved nothing"
    assert_each_finished_once(fleet, story, count)
    finished = [stretch for stretch in fleet.ledger.stretches() if stretch.end is not None]
    assert {stretch.job for stretch in finished} == {str(id_) for id_ in story.completions()}


@pytest.mark.parametrize("task", ["five_steps", "five_steps_alone", "five_steps_on_loop"])
def test_a_job_of_five_steps_whose_worker_is_killed_after_each(
    fleet: Fleet, store: Store, story: Story, task: str
) -> None:
    id_ = store.add(job(task)).id
    for number in range(1, 6):
        worker = fleet.start(**SHORT_LEASE)
        wait_for(lambda n=number: len(fleet.ledger.of(id_, "done")) == n, f"step {number} is done")
        worker.kill()

    fleet.start(**SHORT_LEASE)
    wait_for(lambda: story.all_completed(1), "it ends")

    assert [entry["number"] for entry in fleet.ledger.of(id_, "effect")] == [1, 2, 3, 4, 5]
    runs = store.read.executions_of(id_).executions
    assert [run.error_code for run in runs] == [None, *["lease_expired"] * 5]
    assert runs[0].result == 15
    steps = store.steps.of(id_)
    assert [(one.name, one.execution_number) for one in steps] == [
        (f"step {n}", n) for n in range(1, 6)
    ]
    assert [one.execution_id for one in steps] == [run.id for run in reversed(runs[1:])]


def test_finish_without_the_lease_changes_nothing(fleet: Fleet, store: Store, story: Story) -> None:
    """The old owner comes to an end while the new one still runs: only the new one counts."""
    added = store.add(job("doze", {"seconds": 2.0}))
    first = fleet.start(**SHORT_LEASE)
    wait_for(lambda: fleet.ledger.entries("start"), "the job runs")
    taken = store.expire_leases_of([worker.id for worker in store.upkeep.workers()])
    assert taken == 1
    # Renewal must not bring the lease back before the reaper comes, so it comes here and now.
    wait_for(
        lambda: story.executions(added.id)[0][0] != "running" or _reap(store), "reaped or renewed"
    )

    wait_for(lambda: store.read.job(added.id).status == "completed", "it completes")

    assert first.alive
    assert story.executions(added.id) == [("failed", "lease_expired"), ("completed", None)]
    assert list(story.completions().values()) == [1]


def _reap(store: Store) -> bool:
    from evenbeat.engine.clock import DatabaseClock
    from evenbeat.engine.reaper import Reaper
    from evenbeat.engine.registration import Identity

    store.expire_leases_of([worker.id for worker in store.upkeep.workers()])
    return bool(Reaper(store, DatabaseClock(), Identity()).run_once())


def test_poison_fails_after_its_retries_and_neighbours_complete(
    fleet: Fleet, store: Store, story: Story
) -> None:
    retry = RetryPolicy(max_retries=2, delays=(timedelta(seconds=1),))
    poison = store.add(job("poison", retry=retry))
    neighbours = store.add_many([job("nap", {"seconds": 0.3}, retry=PATIENT)] * 40)
    workers = [fleet.start(**SHORT_LEASE)]

    def supervised() -> bool:
        if not workers[-1].alive:
            workers[-1].wait()
            workers.append(fleet.start(**SHORT_LEASE))
        return store.read.job(poison.id).status == "failed"

    wait_for(supervised, "the poison is given up")

    assert story.executions(poison.id) == [("failed", "lease_expired")] * 3
    assert len(fleet.ledger.of(poison.id, "start")) == 3
    assert len([worker for worker in workers if not worker.alive]) == 3
    if not workers[-1].alive:
        fleet.start(**SHORT_LEASE)
    wait_for(lambda: story.counts() == {"failed": 1, "completed": 40}, "neighbours complete")
    assert all(store.read.job(added.id).status == "completed" for added in neighbours)
