"""Limits of a key hold over all workers, whoever dies; and what they allow is used.

The workers hardly ever poll here: a freed place, or a moment that a rate allows, is found because a
run that ends says so, and because a worker knows when to look again.
"""

from collections.abc import Iterable
from typing import Any

from fleet import FULL, SHORT_LEASE, Fleet, Story, job

from evenbeat.domain.limits import RateLimit, parse_rate
from evenbeat.store.store import Store
from waiting import wait_for

SELDOM: dict[str, Any] = {**SHORT_LEASE, "poll_seconds": 60, "concurrency": 8}


def most_at_once(stretches: Iterable[tuple[float, float]]) -> int:
    """How many of these ran together at most; one that begins as another ends does not meet it."""
    steps = sorted(step for start, end in stretches for step in ((start, 1), (end, -1)))
    running = most = 0
    for _, change in steps:
        running += change
        most = max(most, running)
    return most


def starts(store: Store) -> list[float]:
    rows = store.database.query(
        "chaos",
        "SELECT extract(epoch FROM started_at)::float8 FROM evenbeat.executions ORDER BY 1",
        {},
    )
    return [row[0] for row in rows]


def four_workers(fleet: Fleet, store: Store) -> None:
    fleet.start_many(4, **SELDOM)
    wait_for(lambda: len(store.upkeep.workers()) == 4, "four workers")


def test_a_limit_of_two_holds_over_four_workers_one_of_which_is_killed(
    fleet: Fleet, store: Store, story: Story
):
    four_workers(fleet, store)
    count = 200 if FULL else 30
    limited = {"concurrency_key": "customer:42", "concurrency_limit": 2}
    jobs = [job("nap", {"seconds": 0.2}, **limited) for _ in range(count)]
    limited_ids = {str(added.id) for added in store.add_many(jobs)}
    store.add_many([job("doze", {"seconds": 0.05}) for _ in range(20)])

    wait_for(lambda: len(fleet.ledger.entries("end")) > 20, "some runs")
    victim = wait_for(lambda: _at_work(fleet, limited_ids), "a run to cut off")
    victim.kill()

    wait_for(lambda: story.all_completed(count + 20), "all jobs", 120)
    of_the_key = [
        (run.start, run.end or _died(fleet, run.pid))
        for run in fleet.ledger.stretches()
        if run.job in limited_ids
    ]
    assert most_at_once(of_the_key) == 2
    rows = store.database.query(
        "chaos",
        "SELECT extract(epoch FROM e.started_at)::float8, "
        "extract(epoch FROM e.completed_at)::float8 "
        "FROM evenbeat.executions e JOIN evenbeat.jobs j ON j.id = e.job_id "
        "WHERE j.concurrency_key IS NOT NULL",
        {},
    )
    assert len(rows) >= count
    assert most_at_once(rows) == 2


def _at_work(fleet: Fleet, jobs: set[str]) -> Any:
    for run in fleet.ledger.stretches():
        if run.end is None and run.job in jobs:
            return next(worker for worker in fleet.workers if worker.pid == run.pid)
    return None


def _died(fleet: Fleet, pid: int) -> float:
    died = next(worker.died_at for worker in fleet.workers if worker.pid == pid)
    assert died is not None, "a run of a living worker has no end"
    return died


def test_a_rate_of_ten_a_second_holds_over_four_workers(fleet: Fleet, store: Store, story: Story):
    four_workers(fleet, store)
    rate = parse_rate("10/s")
    count = 200 if FULL else 35
    store.add_many([job("nap", rate_limit=rate) for _ in range(count)])

    wait_for(lambda: story.all_completed(count), "all jobs", 120)
    began = starts(store)
    assert len(began) == count
    assert most_in_a_period(began, rate) <= rate.count
    # One start a poll would take half an hour; the machine may be busy, but not that busy.
    assert began[-1] - began[0] < (2 if FULL else 6) * count / rate.count


def most_in_a_period(began: list[float], rate: RateLimit) -> int:
    """The most starts in any half-open window of one period, by whole microseconds."""
    moments = [round(moment * 1_000_000) for moment in began]
    period = round(rate.period.total_seconds() * 1_000_000)
    return max(sum(first <= m < first + period for m in moments) for first in moments)


def test_the_helpers_can_fail():
    assert most_at_once([(0, 2), (1, 3), (2, 4)]) == 2
    assert most_at_once([(0, 3), (1, 3), (2, 4)]) == 3
    assert most_in_a_period([0, 0.5, 0.999999, 1.0], RateLimit(2, parse_rate("1/s").period)) == 3
