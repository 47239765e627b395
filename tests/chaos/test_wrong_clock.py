"""Machines whose clock is wrong, or is set under way: the database's clock is the only one."""

import time
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import psycopg
from fleet import SHORT_LEASE, Fleet, Story, job

from evenbeat.domain.job import JobSpec, NewJob, Placement
from evenbeat.domain.schedule import Interval
from evenbeat.store.store import Store
from waiting import wait_for

WRONG = 600


def wrong_clock(seconds: int) -> dict[str, str]:
    """The environment of a process whose wall clock is off: by libfaketime where there is one."""
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not libraries:
        return {"CHAOS_CLOCK_SHIFT": str(seconds)}
    return {
        "LD_PRELOAD": str(libraries[0]),
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def test_mixed_fleet_fires_at_the_right_times(
    fleet: Fleet, store: Store, database_url: str
) -> None:
    for shift in (WRONG, -WRONG, 0):
        environment = wrong_clock(shift) if shift else {}
        fleet.start(concurrency=2, environment=environment, **SHORT_LEASE)
    wait_for(lambda: len(store.upkeep.workers()) == 3, "all are at work")
    offset = time.time() - time.monotonic()
    every = JobSpec("tick", schedule=Interval(timedelta(seconds=2)), placement=Placement.GRID)
    for number in range(8):
        store.add(NewJob(every, name=f"tick-{number}"))
    once = [store.add(NewJob(JobSpec("tick"), start=timedelta(seconds=n / 4))) for n in range(12)]

    def enough() -> bool:
        ticks = fleet.ledger.entries("tick")
        shifts = {round((tick["wall"] - tick["at"] - offset) / 60) for tick in ticks}
        return len(ticks) >= 8 * 3 + 12 and shifts == {-10, 0, 10}

    wait_for(enough, "every clock has run some of them")
    ticks = fleet.ledger.entries("tick")
    late = [tick["at"] + offset - tick["plan"] for tick in ticks]
    print(f"{len(ticks)} ticks, {min(late):.3f} to {max(late):.3f} s after their plans")  # noqa: T201
    assert min(late) > -0.02, "fired early"
    assert max(late) < 1.5, "fired late"

    plans = defaultdict(list)
    for tick in ticks:
        plans[tick["job"]].append(round(tick["plan"] * 1000))
    singles = {str(added.id) for added in once}
    for job_id, times in plans.items():
        assert len(times) == len(set(times)), "a plan fired twice"
        if job_id not in singles:
            ordered = sorted(times)
            assert ordered == list(range(ordered[0], ordered[-1] + 1, 2000)), "a plan was left out"
    assert all(len(plans[id_]) == 1 for id_ in singles)
    with psycopg.connect(database_url) as connection:
        early = connection.execute(
            "SELECT count(*) FROM evenbeat.executions WHERE started_at < plan_time"
        ).fetchone()
    assert early == (0,)


def test_clock_that_is_set_under_way_kills_nobody(
    fleet: Fleet, store: Store, story: Story, tmp_path: Path
) -> None:
    """A process's start, told as a time of day, moves with the clock; the process is the same."""
    steps = tmp_path / "steps"
    steps.write_text("0")
    environment = {"CHAOS_CLOCK_STEPS": str(steps)}
    workers = [fleet.start(environment=environment, **SHORT_LEASE) for _ in range(2)]
    wait_for(lambda: len(store.upkeep.workers()) == 2, "both are at work")
    added = store.add(job("nap", {"seconds": 3.5}))
    wait_for(lambda: fleet.ledger.entries("start"), "it runs")

    steps.write_text(str(WRONG))

    wait_for(lambda: story.all_completed(1), "it completes")
    assert story.executions(added.id) == [("completed", None)]
    assert len(store.upkeep.workers()) == 2
    assert all(worker.alive for worker in workers)
