"""Past plans, each run once as a job of its own, on a virtual clock."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

import pytest
from balance_world import START, World

from evenbeat import Context, Evenbeat
from evenbeat.domain.catch_up import CatchUp, CatchUpMode
from evenbeat.domain.job import JobSpec, NewJob, spec_of
from evenbeat.domain.schedule import Interval
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.store.lists import JobFilter
from evenbeat.testing import DEFAULT_START as T0

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
UTC_T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def harness(evenbeat_harness):
    app = Evenbeat()
    seen: list[tuple[datetime, str]] = []

    @app.cron("0 * * * *", name="hourly", queue="reports")
    def report(day: str = "x", *, ctx: Context) -> None:
        seen.append((ctx.plan_time, day))

    harness = evenbeat_harness(app)
    app.sync_schedules()
    harness.seen = seen
    return harness


def hourly(harness):
    return harness.app.store.read.job_by_name("hourly")


def test_every_plan_of_the_period_runs_once_with_its_own_plan_time(harness):
    harness.advance("30m")
    job, backfill = hourly(harness), harness.app.store.backfill
    now = harness.clock.now()
    expected = [T0 - n * HOUR for n in range(6, 0, -1)]
    before = backfill.add(job.id, T0 - 6 * HOUR, T0, dry_run=True, now=now)
    assert (before.created, before.existing, before.plans, before.ids) == (6, 0, expected, [])
    done = backfill.add(job.id, T0 - 6 * HOUR, T0, now=now)
    assert (done.created, done.existing, done.plans, len(done.ids)) == (6, 0, expected, 6)
    assert harness.drain() == 6
    assert sorted(harness.seen) == [(plan, "x") for plan in expected]
    children = harness.app.store.read.jobs(JobFilter(parent_id=job.id)).jobs
    assert {(c.status, c.queue, c.schedule_kind) for c in children} == {
        ("completed", "reports", "once")
    }
    assert hourly(harness).plan_time == T0 + HOUR
    assert harness.advance("30m") == 1


def test_asking_again_adds_nothing_and_what_the_job_completed_is_left_out(harness):
    harness.advance("3h")
    job, backfill = hourly(harness), harness.app.store.backfill
    now = harness.clock.now()
    period = (T0 - 2 * HOUR, T0 + 3 * HOUR)
    done = backfill.add(job.id, *period, now=now)
    assert done.plans == [T0 - 2 * HOUR, T0 - HOUR, T0]
    assert done.existing == 2
    again = backfill.add(job.id, *period, now=now)
    assert (again.created, again.existing, again.ids) == (0, 5, [])
    forced = backfill.add(job.id, *period, include_completed=True, now=now)
    assert forced.plans == [T0 + HOUR, T0 + 2 * HOUR]
    assert harness.drain() == 5


def test_a_plan_that_the_job_is_about_to_run_is_left_to_it(harness):
    harness.skip("90m")
    job = hourly(harness)
    done = harness.app.store.backfill.add(job.id, T0, T0 + 90 * HOUR / 60, now=harness.clock.now())
    assert job.plan_time == T0 + HOUR
    assert done.plans == [T0]
    assert harness.drain() == 2
    assert sorted(plan for plan, _ in harness.seen) == [T0, T0 + HOUR]


@pytest.mark.parametrize("catch_up", ["latest_only", "every_plan", "skip"])
def test_a_backfill_during_an_outage_leaves_out_what_the_job_will_catch_up_with(harness, catch_up):
    job, store = hourly(harness), harness.app.store
    edit = replace(spec_of(job), catch_up=CatchUp(CatchUpMode(catch_up)))
    store.control.update(job.id, lambda _spec: edit, now=harness.clock.now())
    harness.skip("210m")
    store.backfill.add(job.id, T0, T0 + 3.5 * HOUR, now=harness.clock.now())
    harness.drain()
    assert sorted(plan for plan, _ in harness.seen) == [T0 + n * HOUR for n in range(4)]


def test_what_runs_now_and_what_it_leads_to_is_left_out(harness):
    job, store = hourly(harness), harness.app.store
    harness.skip("1h")
    (running,) = store.claim(uuid4(), 1, now=harness.clock.now())
    harness.skip("2h")
    now = harness.clock.now()
    for include_completed in (False, True):
        missing = store.backfill.add(
            job.id, T0, now, include_completed=include_completed, dry_run=True, now=now
        )
        assert missing.plans == [T0, T0 + 2 * HOUR]
    store.control.update(job.id, lambda s: replace(s, schedule_delay=HOUR / 6), now=now)
    assert store.read.job(job.id).plan_time > now > running.plan_time
    missing = store.backfill.add(job.id, T0, now, include_completed=True, dry_run=True, now=now)
    assert missing.plans == [T0, T0 + 2 * HOUR]


def test_a_plan_that_a_paused_job_has_missed_is_filled_in(harness):
    job, store = hourly(harness), harness.app.store
    store.control.pause([job.id], now=harness.clock.now())
    harness.skip("90m")
    now = harness.clock.now()
    assert store.backfill.add(job.id, T0, now, now=now).plans == [T0, T0 + HOUR]
    store.control.resume([job.id], now=now)
    harness.advance("1h")
    assert sorted(plan for plan, _ in harness.seen) == [T0 + n * HOUR for n in range(3)]


def test_what_ran_before_the_job_was_moved_is_not_run_again(evenbeat_harness):
    world = World(evenbeat_harness)
    world.bunch(12, every=6 * HOUR, after=3 * HOUR, cost=timedelta(seconds=30))
    world.harness.advance("12h")
    world.harness.skip("13h")  # the plan of 15:00 is given up for that of 21:00
    world.harness.drain()
    moved = world.app.balancer.rebalance().moved[0]
    world.harness.advance("24h")
    shift = moved.new_time - moved.old_time
    slot = START + 15 * HOUR + (shift if shift > timedelta(0) else shift + 6 * HOUR)
    period = (START + 9 * HOUR, world.now)
    missing = partial(
        world.app.store.backfill.add, moved.job_id, *period, dry_run=True, now=world.now
    )
    assert missing().plans == [slot]
    assert len(missing(include_completed=True).plans) > 4


@pytest.fixture
def job_id(store):
    spec = JobSpec("noop", schedule=Interval(HOUR, anchor=UTC_T0))
    return store.add(NewJob(spec, name="tick"), now=UTC_T0).id


@pytest.mark.parametrize(
    ("start", "end", "limit", "field", "message"),
    [
        (UTC_T0, UTC_T0, 10, "from", "from must be before to"),
        (UTC_T0.replace(tzinfo=None), UTC_T0, 10, "from", "has no time zone"),
        (UTC_T0, UTC_T0.replace(tzinfo=None), 10, "to", "has no time zone"),
        (UTC_T0 - DAY, UTC_T0, 23, "from", "24 plans .* at most 23"),
        (datetime(1, 1, 1, tzinfo=UTC), UTC_T0, 1000, "from", "at most 1,000"),
        (UTC_T0 - DAY, UTC_T0 + timedelta(seconds=1), 99, "to", "must not be in the future"),
        (UTC_T0 - DAY, UTC_T0, 0, "limit", "from 1 to 10,000"),
        (UTC_T0 - DAY, UTC_T0, 10_001, "limit", "from 1 to 10,000"),
    ],
)
def test_a_period_that_cannot_be_filled_is_refused(
    *, store, job_id, start, end, limit, field, message
):
    with pytest.raises(InvalidInput, match=message) as caught:
        store.backfill.add(job_id, start, end, limit=limit, now=UTC_T0)
    assert caught.value.field == field
    assert store.read.jobs(JobFilter(parent_id=job_id)).total == 0


def test_only_a_recurring_job_that_exists_can_be_backfilled(store):
    once = store.add(NewJob(JobSpec("noop")), now=UTC_T0).id
    with pytest.raises(InvalidInput, match="Only a recurring job"):
        store.backfill.add(once, UTC_T0 - DAY, UTC_T0, now=UTC_T0)
    with pytest.raises(NotFound):
        store.backfill.add(uuid4(), UTC_T0 - DAY, UTC_T0, now=UTC_T0)


def test_a_period_without_plans_adds_nothing(store, job_id):
    done = store.backfill.add(
        job_id, UTC_T0 - timedelta(minutes=9), UTC_T0 - timedelta(minutes=1), now=UTC_T0
    )
    assert done == (0, 0, [], [])
