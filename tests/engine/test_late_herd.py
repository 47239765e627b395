"""After an outage: many late jobs start one after the other, and none is lost or doubled."""

from collections import Counter
from datetime import timedelta
from itertools import pairwise

import numpy as np
import psycopg
import pytest
from balance_world import DAY, HOUR, MINUTE, World

from evenbeat import Evenbeat
from evenbeat.domain.catch_up import FEW, CatchUp, CatchUpMode
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Cron, Interval, Once
from evenbeat.placement.simulate import Runs, replay
from evenbeat.store.lists import JobFilter
from waiting import wait_for

SPREAD = 3 * HOUR
PERIODS = [HOUR / 2, HOUR, 2 * HOUR, 4 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY]


@pytest.fixture
def world(evenbeat_harness) -> World:
    return World(evenbeat_harness)


def grown(world: World, count: int, random: np.random.Generator) -> dict:
    """Mixed jobs by name, with what their runs take in seconds; they have run for a while."""
    lasting = np.clip(np.rint(60 * np.exp(1.2 * random.standard_normal(count))), 1, 1700)
    every = random.choice(len(PERIODS), count)
    jobs = [
        NewJob(
            JobSpec(
                "noop",
                schedule=Interval(PERIODS[e]),
                cost=timedelta(seconds=float(s)),
                priority=int(random.choice([40, 50, 60], p=[0.1, 0.8, 0.1])),
            ),
            name=f"job-{n}",
        )
        for n, (e, s) in enumerate(zip(every, lasting, strict=True))
    ]
    world.app.enqueue_many(jobs)
    return {job.name: int(s) for job, s in zip(jobs, lasting, strict=True)}


def everything(world: World) -> dict:
    return {job.name: job for job in world.app.store.read.each(JobFilter())}


def test_six_hours_with_2000_late_jobs(world):
    """Replayed: the peak stays within half more than the usual one, all have started within the
    time that is set, the urgent ones first, and no plan runs twice."""
    lasting = grown(world, 2770, np.random.default_rng(21))
    start = world.now
    world.harness.clock.move_to(start + 8 * DAY)  # each has a plan that is about to come
    url, schema = world.app.settings.database_url.get_secret_value(), world.app.settings.db_schema
    with psycopg.connect(url, options=f"-csearch_path={schema}") as own:
        own.execute(  # as if nothing had been missed until now
            "UPDATE jobs SET plan_time = plan_time + ceil(extract(epoch FROM %(now)s"
            " - plan_time) / interval_seconds) * interval_seconds * interval '1s'"
            " WHERE plan_time <= %(now)s",
            {"now": world.now},
        )
        own.execute("UPDATE jobs SET next_run_at = plan_time")
    world.harness.skip("6h")
    ended = world.now
    before = everything(world)
    late = {name: job for name, job in before.items() if job.next_run_at <= ended - MINUTE}
    assert len(late) > 1950

    put_off = world.app.balancer.spread_late()
    after = everything(world)
    assert {name: job.plan_time for name, job in after.items()} == {
        name: job.plan_time for name, job in before.items()
    }, "a plan stays"
    waits = {name: after[name].next_run_at - ended for name in late}
    assert put_off == sum(after[name].next_run_at != late[name].next_run_at for name in late)
    assert put_off > 1000
    assert max(waits.values()) <= SPREAD
    assert world.app.balancer.spread_late() <= FEW, "nothing is put off twice"

    def coming(job):  # its next regular plan
        every = timedelta(seconds=job.interval_seconds)
        return job.plan_time + -(-(ended - job.plan_time) // every) * every

    catching_up = [job for name, job in after.items() if name in late]
    catching_up = [job for job in catching_up if job.next_run_at < coming(job)]
    of_urgency = [
        (-job.priority, job.interval_seconds, coming(job), max(ended, job.next_run_at))
        for job in catching_up
    ]
    due = [due for *_, due in sorted(of_urgency)]
    assert all(a <= b for a, b in pairwise(due)), "in the order of urgency"

    horizon = int(DAY.total_seconds())
    usual, caught_up = [], []
    for name, job in before.items():
        period, first = job.interval_seconds, int((coming(job) - ended).total_seconds())
        regular = np.arange(first, horizon, period)
        usual.append(Runs.steady(first, period, lasting[name]))
        at = int((max(ended, after[name].next_run_at) - ended).total_seconds())
        starts = np.append(at, regular) if name in late and at < first else regular
        caught_up.append(Runs(starts, lasting[name]))
    ratio = replay(caught_up, horizon=horizon).peak / replay(usual).peak
    assert ratio <= 1.5

    world.harness.advance(SPREAD + MINUTE)
    runs = [run for job in everything(world).values() for run in world.harness.executions(job.id)]
    of = {job.id: name for name, job in after.items()}
    caught = {of[run.job_id] for run in runs}
    assert set(late) <= caught, "none is lost"
    assert max(Counter((run.job_id, run.plan_time) for run in runs).values()) == 1, "none twice"
    first_start = {}
    for run in runs:
        name = of[run.job_id]
        first_start[name] = min(run.started_at, first_start.get(name, run.started_at))
    assert all(first_start[name] - ended <= SPREAD for name in late)


def late_jobs(world: World, count: int, schedule, **spec) -> None:
    world.app.enqueue_many(
        [NewJob(JobSpec("noop", schedule=schedule, **spec), name=f"late-{n}") for n in range(count)]
    )


def test_a_few_start_at_once(world):
    late_jobs(world, FEW, Interval(6 * HOUR))
    world.harness.skip("6h")
    assert world.app.balancer.spread_late() == 0
    assert world.harness.drain() == FEW


def test_as_many_as_usual_start_at_once(world):
    late_jobs(world, 120, Interval(6 * HOUR, world.now + HOUR))
    world.harness.skip("3h")
    assert world.app.balancer.spread_late() == 0
    assert world.harness.drain() == 120


def test_no_spreading_where_it_is_turned_off(evenbeat_harness, monkeypatch):
    monkeypatch.setenv("EVENBEAT_CATCH_UP_SPREAD_SECONDS", "0")
    world = World(evenbeat_harness)
    late_jobs(world, 120, Interval(6 * HOUR))
    world.harness.skip("6h")
    assert world.app.balancer.spread_late() == 0
    assert world.harness.drain() == 120


def test_one_off_jobs_are_not_delayed(world):
    late_jobs(world, 3 * FEW, Interval(6 * HOUR))
    world.app.enqueue_many([NewJob(JobSpec("noop")) for _ in range(200)])
    world.harness.skip("6h")
    assert world.app.balancer.spread_late() > FEW
    assert world.harness.drain() >= 200
    left = everything(world)
    assert {job.schedule_kind for job in left.values() if job.status == "scheduled"} == {"interval"}
    assert sum(job.status == "completed" for job in world.app.store.read.each(JobFilter())) == 200


def test_cron_and_every_plan_catch_up_completely(world):
    every = CatchUp(CatchUpMode.EVERY_PLAN)
    jobs = [JobSpec("noop", schedule=Cron(f"{n} * * * *"), catch_up=every) for n in range(60)]
    world.app.enqueue_many([NewJob(spec) for spec in jobs])
    world.harness.skip("6h")
    assert world.app.balancer.spread_late() > 0
    world.harness.advance("3h")
    for job in world.app.store.read.each(JobFilter()):
        plans = [run.plan_time for run in world.harness.executions(job.id)]
        assert len(plans) == len(set(plans)) == 9, "six that were missed, and those since"


def test_a_plan_that_is_about_to_be_given_up_starts_before(world):
    late_jobs(world, 120, Interval(DAY), cost="10m")
    strict = JobSpec(
        "noop",
        schedule=Interval(DAY, world.now + 22 * HOUR),
        catch_up=CatchUp(window=timedelta(hours=2, minutes=30)),
        priority=0,
    )
    world.app.add(NewJob(strict, name="strict"))
    world.harness.skip("1d")
    ended = world.now
    assert world.app.balancer.spread_late() > FEW
    assert everything(world)["strict"].next_run_at <= ended + HOUR / 2
    world.harness.advance("3h")
    assert len(world.harness.executions("strict")) == 1


def test_a_window_that_closes_is_not_missed(world):
    late_jobs(world, 120, Interval(DAY), cost="10m", window="00:00-03:10 UTC")
    world.harness.skip("1d3h")
    world.app.balancer.spread_late()
    world.harness.advance("15m")
    assert all(len(world.harness.executions(job.id)) == 1 for job in everything(world).values())


def test_jobs_of_a_paused_queue_are_spread_when_it_is_resumed(world):
    late_jobs(world, 120, Interval(6 * HOUR))
    world.app.store.control.pause_queue("default", now=world.now)
    world.harness.skip("6h")
    assert world.app.balancer.spread_late() == 0
    world.app.store.control.pause_queue("default", paused=False, now=world.now)
    assert world.app.balancer.spread_late() > FEW


def test_a_worker_that_starts_after_an_outage_spreads_what_is_late(database_url):
    """On the real clock: the worker looks before it claims."""
    app = Evenbeat(database_url=database_url)
    ran: list[str] = []

    @app.task
    async def noop() -> None:
        ran.append("noop")

    @app.task
    async def once() -> None:
        ran.append("once")

    schedule = Interval(timedelta(days=2))
    specs = [JobSpec("noop", schedule=schedule, cost="10m") for _ in range(300)]
    app.enqueue_many([NewJob(spec) for spec in specs])
    app.enqueue_many([NewJob(JobSpec("once", schedule=Once())) for _ in range(5)])
    with psycopg.connect(database_url) as own:
        own.execute(
            "UPDATE evenbeat.jobs SET plan_time = now() - interval '6h',"
            " next_run_at = now() - interval '6h'"
        )
    worker = app.worker()
    worker.start()
    try:
        wait_for(lambda: ran.count("once") == 5, "one-off jobs")
        wait_for(lambda: ran.count("noop") > 0, "the first of the late ones")
        waiting = app.store.read.jobs(JobFilter(tasks=["noop"]), limit=1000).jobs
    finally:
        worker.stop()
        app.close()
    put_off = [job for job in waiting if not job.run_count]
    assert len(put_off) > 200
    assert ran.count("noop") < FEW


def test_retries_of_a_failed_dependency_are_spread(database_url):
    app = Evenbeat(database_url=database_url)

    @app.task(retry_backoff="10m", retry_jitter=0)
    async def fetch() -> None:
        raise ConnectionError("the shop does not answer")

    jobs = [fetch.enqueue() for _ in range(400)]
    worker = app.worker()
    worker.start()
    try:
        wait_for(
            lambda: all(job.record().current_retry_count == 1 for job in jobs), "the first attempts"
        )
    finally:
        worker.stop()
        rows = [job.record() for job in jobs]
        app.close()
    waits = sorted(row.next_run_at - row.completed_at for row in rows)
    assert timedelta(minutes=9) < waits[FEW] < timedelta(minutes=11), "a few as always"
    assert waits[-1] > timedelta(minutes=70), "one in fifty of ten minutes apart"
    due = Counter((row.next_run_at - rows[0].completed_at) // timedelta(minutes=10) for row in rows)
    assert max(due.values()) <= 2 * FEW + 2
