"""Execution windows at work: many jobs in few hours, and the hours that Evenbeat finds itself."""

from collections import Counter
from datetime import timedelta
from itertools import accumulate

import pytest
from balance_world import DAY, HOUR, MINUTE, START, World

from evenbeat import Evenbeat
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.domain.window import parse_window
from evenbeat.observe.explain import describe_schedule
from evenbeat.testing import Harness

NIGHT = parse_window("01:00-05:00 Europe/Berlin")
MANY = 500


@pytest.fixture
def world(evenbeat_harness) -> World:
    return World(evenbeat_harness)


def peak(starts: list, lasting: timedelta = MINUTE) -> int:
    """How many runs of this length are under way at once, if they start at these times."""
    changes = sorted([(at + lasting, -1) for at in starts] + [(at, 1) for at in starts])
    return max(accumulate(change for _, change in changes))


def jobs_of(world: World) -> list:
    return world.app.store.read.jobs(limit=1000).jobs


def test_many_daily_jobs_of_one_window_start_spread(world):
    world.app.enqueue_many([world.job(DAY, window=NIGHT) for _ in range(MANY)])
    assert peak([job.next_run_at for job in jobs_of(world)]) <= 4, "as few as the hours allow"
    world.harness.advance("2d")
    for night in range(2):
        began = [runs[night] for runs in world.ran.values()]
        assert len(began) == MANY
        assert peak(began) <= 4
        assert all(NIGHT.contains(at) for at in began)
    assert {len(runs) for runs in world.ran.values()} == {2}, "none lost, none doubled"


def test_many_start_spread_after_a_pause_and_a_rebalance(world):
    at = START + 2 * HOUR
    jobs = [world.job(DAY, f"n{n}", anchor=at, window=NIGHT) for n in range(MANY)]
    ids = [added.id for added in world.app.enqueue_many(jobs)]
    assert Counter(job.next_run_at for job in jobs_of(world)) == {at: MANY}

    done = world.app.balancer.rebalance()
    times = [job.next_run_at for job in jobs_of(world)]
    assert peak(times) <= 6, "what was due within the hour is protected"
    assert all(NIGHT.contains(time) for time in times)
    assert {(job.plan_time, job.anchor_at) for job in jobs_of(world)} == {(t, t) for t in times}
    world.app.balancer.undo(done.id)
    assert Counter(job.next_run_at for job in jobs_of(world)) == {at: MANY}

    control = world.app.store.control
    control.pause(ids, now=world.now)
    world.harness.clock.move_to(START + 12 * HOUR)
    control.resume(ids, now=world.now)
    times = [job.next_run_at for job in jobs_of(world)]
    assert peak(times) <= 4
    assert all(NIGHT.contains(time) for time in times)


def test_another_window_places_a_job_again_and_no_window_leaves_it(world):
    job = world.add(7 * DAY, anchor=START + 5 * DAY + 2 * HOUR, window=NIGHT)
    world.harness.clock.move_to(START + MINUTE)

    def edit(window):
        return world.app.store.control.update(
            job.id, lambda _: world.job(7 * DAY, window=window).spec, now=world.now
        )

    late = edit(parse_window("18:00-20:00"))
    assert late.placed_at == world.now
    assert late.window_opens if False else 18 <= late.next_run_at.hour < 20
    assert (
        abs(late.next_run_at - job.next_run_at) <= 3.5 * DAY or late.next_run_at < START + 4 * DAY
    )
    assert (edit(None).next_run_at - late.next_run_at) % (7 * DAY) == 0 * DAY


# ---------------------------------------------------------------- off_peak


def by_day(world: World, *hours: int) -> None:
    """Jobs that run for all of these hours, each day."""
    for hour in hours:
        spec = JobSpec("noop", schedule=Cron(f"0 {hour} * * *"), cost=59 * MINUTE)
        world.app.add(NewJob(spec, name=f"busy-{hour}"))


def test_off_peak_runs_where_the_least_load_is_and_says_when_that_is(world):
    by_day(world, *range(13), *range(17, 24))
    job = world.add(DAY, "quiet", window="off_peak")
    assert job.execution_window == "off_peak 13:00-17:00 UTC"
    assert START + 13 * HOUR <= job.next_run_at < START + 17 * HOUR
    assert describe_schedule(job) == "every day, only off_peak 13:00-17:00 UTC"
    daily = world.get(
        world.app.add(NewJob(JobSpec("noop", schedule=Cron("@daily"), window="off_peak"))).id
    )
    assert daily.next_run_at == START + DAY + 13 * HOUR
    more = [world.add(DAY, window="off_peak") for _ in range(30)]
    assert {one.execution_window for one in more} == {job.execution_window}, "no flapping"
    assert peak([one.next_run_at for one in (job, *more)]) == 1


def test_off_peak_follows_the_load_once_a_day_at_most(world):
    by_day(world, *range(13), *range(17, 24))
    watch, store = world.app.balancer.watch, world.app.store
    watch()
    job = world.add(7 * DAY, "weekly", window="off_peak")
    held = world.add(DAY, "held", anchor=START + 20 * HOUR, window="off_peak")
    paused = world.add(DAY, "paused", window="off_peak")
    store.control.pause([paused.id], now=world.now)
    # Now the early morning is quiet, and the afternoon is not.
    store.control.delete([store.read.job_by_name(f"busy-{hour}").id for hour in range(2, 6)])
    by_day(world, *range(13, 17))
    world.harness.advance("12h")
    watch()
    assert world.get(job.id) == job, "not twice in a day"

    world.harness.advance("13h")
    before = world.get(job.id)
    held = world.get(held.id)
    assert held.plan_time < world.now < held.next_run_at
    watch()
    moved = world.get(job.id)
    assert moved.execution_window == "off_peak 02:00-06:00 UTC"
    assert 2 <= moved.next_run_at.hour < 6
    assert abs(moved.next_run_at - before.next_run_at) <= 3.5 * DAY
    stopped = world.get(paused.id)
    assert (stopped.execution_window, stopped.status) == (moved.execution_window, "paused")
    assert world.get(held.id) == held, "a plan that has come runs in its hours"
    watch()
    assert world.get(job.id) == moved, "and then it stays"

    world.harness.advance("16h")
    watch()
    assert world.get(held.id).execution_window == moved.execution_window
    world.harness.advance("8d")
    assert [at.hour in range(2, 6) for at in world.ran[job.id][-1:]] == [True]
    assert len(world.ran[held.id]) >= 8, "at most half an interval later, once"


def test_off_peak_jobs_do_not_chase_themselves(world):
    watch = world.app.balancer.watch
    watch()
    jobs = [world.add(DAY, window="off_peak", cost=HOUR) for _ in range(20)]
    before = {job.id: job.next_run_at for job in jobs}
    for day in (1, 2, 3):
        world.harness.advance("1d")
        watch()
        after = {job.id: world.get(job.id).next_run_at for job in jobs}
        assert after == {id_: at + day * DAY for id_, at in before.items()}


def test_a_declared_off_peak_schedule_is_not_changed_by_every_start(evenbeat_harness):
    app = Evenbeat(name="quiet")
    app.every("1d", name="nightly", window="off_peak")(lambda: None)
    harness: Harness = evenbeat_harness(app, START)
    job = app.store.read.job_by_name("nightly")
    assert job.execution_window == "off_peak 00:00-04:00 UTC"
    harness.clock.move_to(START + 5 * MINUTE)
    assert app.sync_schedules().changed == 0


def test_a_store_without_a_balancer_runs_off_peak_jobs_at_any_time(store):
    spec = JobSpec("noop", schedule=Interval(HOUR), window="off_peak")
    job = store.read.job(store.add(NewJob(spec), now=START).id)
    assert (job.execution_window, job.next_run_at) == ("off_peak", START + HOUR)
