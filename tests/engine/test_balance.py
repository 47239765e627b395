"""Placement at work: where jobs begin."""

import logging
import time
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from balance_world import DAY, HOUR, MINUTE, SECOND, START, World, spread

from evenbeat import Evenbeat, Scope
from evenbeat.balance.balancer import Balancer
from evenbeat.domain.job import JobSpec, NewJob, Placement
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.domain.window import parse_window
from evenbeat.errors import DatabaseUnavailable, InvalidInput, InvalidSchedule
from waiting import wait_for


@pytest.fixture
def world(evenbeat_harness) -> World:
    return World(evenbeat_harness)


def test_jobs_with_one_interval_begin_at_different_times_within_it(world):
    jobs = [world.add(HOUR) for _ in range(10)]
    assert all(START < job.next_run_at <= START + HOUR for job in jobs)
    assert spread([job.next_run_at for job in jobs]) >= MINUTE
    for job in jobs:
        assert job.anchor_at == job.plan_time == job.next_run_at
        assert (job.status, job.placed_at) == ("scheduled", START)


def test_each_keeps_its_rhythm_however_often_it_runs(world, caplog):
    job = world.add(HOUR)
    with caplog.at_level(logging.DEBUG, logger="evenbeat.worker"):
        world.harness.advance("10h")
    told = [r for r in caplog.records if r.message == "Rescheduled job (rhythm preserved)"]
    slot = f":{job.next_run_at.minute // 15 * 15:02}"
    assert [(r.old_slot[2:], r.new_slot[2:]) for r in told] == [(slot, slot)] * 10
    runs = world.ran[job.id]
    assert runs == [job.next_run_at + k * HOUR for k in range(10)]
    assert world.get(job.id).anchor_at == job.anchor_at


def test_what_says_when_to_begin_is_not_placed(world):
    grid = world.add(HOUR, placement=Placement.GRID)
    pinned = world.add(HOUR, placement=Placement.PINNED)
    anchored = world.add(HOUR, anchor=START + 7 * MINUTE)
    started = world.get(
        world.app.add(NewJob(JobSpec("noop", schedule=Interval(HOUR)), start=9 * MINUTE)).id
    )
    cron = world.get(world.app.add(NewJob(JobSpec("noop", schedule=Cron("30 * * * *")))).id)
    assert grid.next_run_at == START + HOUR
    assert pinned.next_run_at == START + HOUR
    assert anchored.next_run_at == START + 7 * MINUTE
    assert started.next_run_at == START + 9 * MINUTE
    assert cron.next_run_at == START + 30 * MINUTE
    assert {job.placed_at for job in (grid, pinned, anchored, started, cron)} == {None}


def test_a_delay_and_a_window_apply_to_the_chosen_plan(world):
    window = parse_window("22:00-06:00")
    job = world.add(DAY, schedule_delay=5 * MINUTE, window=window)
    assert START < job.plan_time <= START + DAY
    assert job.next_run_at == window.next_open(job.plan_time + 5 * MINUTE)


def test_new_jobs_avoid_known_cron_jobs_and_costly_ones(world):
    busy = JobSpec("noop", schedule=Cron("0 * * * *"), cost=40 * MINUTE)
    world.app.enqueue_many([NewJob(busy) for _ in range(3)])
    jobs = [world.add(HOUR, cost=5 * MINUTE) for _ in range(4)]
    assert all(job.next_run_at.minute >= 40 for job in jobs)
    assert world.app.balancer.distribution().peak_load == 3


def test_many_jobs_at_once_are_spread_as_well(world):
    specs = [world.job(every, cost=30 * SECOND) for every in (HOUR, 2 * HOUR) for _ in range(240)]
    added = world.app.enqueue_many(specs)
    jobs = [world.get(done.id) for done in added]
    assert all(START < j.next_run_at <= START + timedelta(seconds=j.interval_seconds) for j in jobs)
    told = world.app.balancer.distribution()
    assert told.total_jobs == 480
    assert told.peak_load <= told.mean_load + 1
    assert world.app.balancer.counters().placements["new"] == 480


def test_declared_schedules_are_placed_and_keep_their_place(evenbeat_harness):
    app = Evenbeat(name="declared")

    def noop() -> None: ...

    for n in range(6):
        app.every("1h", name=f"job-{n}")(noop)
    harness = evenbeat_harness(app, START)
    before = {job.name: job for job in app.store.read.jobs().jobs}
    assert spread([job.next_run_at for job in before.values()]) >= MINUTE
    harness.clock.move_to(START + 5 * MINUTE)
    assert app.sync_schedules().changed == 0
    del app.declared["job-0"], app.declared["job-1"]  # as the next release declares them
    app.every("1h", name="job-0", schedule_delay="10m")(noop)
    app.sync_schedules()
    delayed = app.store.read.job_by_name("job-0")
    assert delayed.schedule_delay_seconds == 600
    assert delayed.anchor_at == before["job-0"].anchor_at, "a delay is no reason to move"
    app.every("30m", name="job-1")(noop)
    app.sync_schedules()
    quicker = app.store.read.job_by_name("job-1")
    assert quicker.placed_at == harness.clock.now()
    assert harness.clock.now() < quicker.next_run_at <= harness.clock.now() + 30 * MINUTE


def test_scopes_of_one_schedule_spread_too(evenbeat_harness):
    app = Evenbeat(name="scopes")
    scopes = [Scope("tenant", str(n)) for n in range(8)]
    app.every("1h", name="bill", scopes=lambda: scopes)(lambda: None)
    evenbeat_harness(app, START)
    times = [job.next_run_at for job in app.store.read.jobs().jobs]
    assert spread(times) >= MINUTE


def test_a_transactional_enqueue_places_and_a_rollback_leaves_nothing(world, evenbeat_server):
    balancer = world.app.balancer
    with psycopg.connect(evenbeat_server) as connection:
        added = world.app.add(world.job(HOUR), connection)
        connection.commit()
        assert START < world.get(added.id).next_run_at <= START + HOUR
        world.app.add(world.job(HOUR), connection)
        world.app.enqueue_many([world.job(HOUR)] * 30, connection=connection)
        connection.rollback()
    assert world.app.store.read.jobs().total == 1
    assert balancer.counters().placements["new"] == 32


def test_a_job_that_was_there_already_takes_no_place(world):
    spec = JobSpec("noop", schedule=Interval(HOUR))
    for _ in range(5):
        world.app.add(NewJob(spec, dedup_key="only"))
        world.app.enqueue_many([NewJob(spec, name="one"), NewJob(spec, name="one")])
    assert world.app.balancer.where("1h").beat.period == 3600
    known = world.app.balancer._load.query(lambda model, _: model.jobs)
    assert known == 2
    assert world.app.balancer.counters().placements["new"] == 2


def test_a_changed_interval_is_placed_anew_and_an_unchanged_one_is_not(world):
    job = world.add(HOUR)
    control = world.app.store.control
    world.harness.clock.move_to(START + 10 * MINUTE)

    def edit(schedule: object = None, **changes: object):
        def change(spec: JobSpec) -> JobSpec:
            return replace(spec, schedule=schedule or spec.schedule, **changes)

        return control.update(job.id, change, now=world.now)

    same = edit(Interval(HOUR), priority=5)
    assert (same.anchor_at, same.next_run_at) == (job.anchor_at, job.next_run_at)
    changed = edit(Interval(2 * HOUR))
    assert changed.placed_at == world.now
    assert changed.anchor_at == changed.plan_time == changed.next_run_at
    assert world.now < changed.next_run_at <= world.now + 2 * HOUR

    pinned = edit(placement=Placement.PINNED)
    assert pinned.anchor_at == changed.anchor_at, "pinned where it is"
    grid = edit(placement=Placement.GRID)
    assert grid.next_run_at == START + 2 * HOUR
    balanced = edit(placement=Placement.BALANCED)
    assert balanced.placed_at == world.now
    assert world.now < balanced.next_run_at <= world.now + 2 * HOUR
    assert edit(Interval(3 * HOUR, START)).next_run_at == START + 3 * HOUR


def test_a_resumed_job_keeps_its_place_and_its_rhythm(world):
    balanced = world.add(HOUR)
    pinned = world.add(HOUR, placement=Placement.PINNED)
    control = world.app.store.control
    control.pause([balanced.id, pinned.id], now=world.now)
    assert world.app.balancer.distribution().total_jobs == 0
    world.harness.clock.move_to(START + 10 * HOUR + MINUTE)
    control.resume([balanced.id, pinned.id], now=world.now)
    resumed = world.get(balanced.id)
    assert (resumed.placed_at, resumed.anchor_at) == (balanced.placed_at, balanced.anchor_at)
    assert world.now < resumed.next_run_at <= world.now + HOUR
    assert world.get(pinned.id).next_run_at == START + 11 * HOUR
    assert world.app.balancer.counters().placements["reschedule"] == 0
    world.harness.advance("3h")
    assert len(world.ran[balanced.id]) == 3


def test_an_occurrence_that_waits_for_its_delay_outlives_a_pause(world):
    job = world.add(HOUR, schedule_delay=10 * MINUTE)
    world.harness.clock.move_to(job.plan_time + 5 * MINUTE)
    world.app.store.control.pause([job.id], now=world.now)
    (resumed,) = world.app.store.control.resume([job.id], now=world.now).changed
    assert (resumed.plan_time, resumed.next_run_at) == (job.plan_time, job.next_run_at)
    world.harness.advance("5m")
    assert world.ran[job.id] == [job.plan_time + 10 * MINUTE]


def test_deleted_and_cancelled_jobs_weigh_nothing(world):
    jobs = [world.add(HOUR, cost=30 * MINUTE) for _ in range(3)]
    world.app.store.control.delete([jobs[0].id])
    world.app.store.control.cancel([jobs[1].id], now=world.now)
    told = world.app.balancer.distribution()
    assert (told.total_jobs, told.peak_load) == (1, 1)


def test_what_another_node_places_counts_here_soon(world, evenbeat_harness):
    app = world.app
    here = Balancer(app.store, app.settings, override=app.now, look_seconds=0)
    free = here.where("1h", cost_ms=60_000)
    assert free.load == 0
    world.app.enqueue_many([world.job(HOUR, cost=59 * MINUTE)] * 5)  # by another balancer
    assert here.where("1h", cost_ms=600_000).load >= 4


def test_what_was_seen_is_not_read_again_and_again(world, monkeypatch):
    world.app.enqueue_many([world.job(HOUR) for _ in range(50)])
    balancer = Balancer(world.app.store, world.app.settings, override=world.app.now)
    balancer._load._look_seconds = 0
    balancer.refresh(world.now)
    placement, seen = world.app.store.placement, []
    really = placement.placed_jobs
    monkeypatch.setattr(
        placement, "placed_jobs", lambda since: seen.append(found := really(since=since)) or found
    )
    for _ in range(3):
        world.harness.clock.move_to(world.now + 61 * SECOND)
        other = world.app.add(world.job(HOUR)).id
        balancer.refresh(world.now)
        assert balancer._load._current.model.jobs == world.app.store.read.jobs().total
        assert other in {job.id for job in seen[-1]}
    assert [len(found) for found in seen if len(found) > 2][1:] == []


def test_where_changes_nothing_and_tells_the_truth(world):
    told = world.app.balancer.where("2h", cost_ms=1000)
    assert world.app.balancer.where(timedelta(hours=2), cost_ms=1000) == told
    assert world.add(2 * HOUR, cost=SECOND).next_run_at == told.at
    for wrong in ("soon", "0s", -5):
        with pytest.raises((InvalidInput, InvalidSchedule)):
            world.app.balancer.where(wrong)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InvalidInput):
            world.app.balancer.where("1h", cost_ms=wrong)


def test_a_balancer_that_cannot_read_does_not_cost_the_job(world, monkeypatch, caplog):
    def gone(**_: object) -> None:
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(world.app.store.placement, "interval_counts", gone)
    job = world.add(HOUR)
    assert START < job.next_run_at <= START + HOUR
    assert "could not be read" in caplog.text
    with pytest.raises(DatabaseUnavailable):
        world.app.balancer.distribution()


def test_a_fault_in_placing_does_not_cost_the_job(world, monkeypatch, caplog):
    monkeypatch.setattr("evenbeat.balance.load_cache.place_many", lambda *_: 1 / 0)
    job = world.add(HOUR)
    assert (job.next_run_at, job.placed_at) == (START + HOUR, None)
    assert "Placing failed" in caplog.text


def test_a_fault_in_keeping_count_does_not_make_anyone_add_a_job_twice(world, monkeypatch, caplog):
    balancer = world.app.balancer

    def broken(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("broken")

    balancer.on_placement.append(broken)
    for part in ("confirm", "query"):
        monkeypatch.setattr(balancer._load, part, broken)
    job = world.add(HOUR)
    assert job.placed_at == world.now
    world.app.store.control.pause([job.id], now=world.now)
    assert world.app.store.control.resume([job.id], now=world.now).only().status == "scheduled"
    assert len(world.app.enqueue_many([world.job(HOUR) for _ in range(3)])) == 3
    assert "Counting what was placed failed" in caplog.text
    assert "An observer of placements failed" in caplog.text


def test_the_log_and_the_observers_hear_of_placements(world, caplog):
    heard: list[str] = []
    world.app.balancer.on_placement.append(lambda kind, _seconds: heard.append(kind))
    with caplog.at_level(logging.INFO, logger="evenbeat.balance"):
        job = world.add(HOUR)
        world.app.enqueue_many([world.job(HOUR)] * 30)
    assert heard == ["new"] * 31
    rebuilt = next(r for r in caplog.records if r.message == "Bucket map rebuilt")
    assert (rebuilt.job_count, rebuilt.distribution_score) == (0, 1.0)
    placed = [r for r in caplog.records if r.message == "Placed new job"]
    slot = job.next_run_at.replace(minute=job.next_run_at.minute // 15 * 15, second=0)
    assert (placed[0].job_id, placed[0].load) == (str(job.id), 0)
    assert placed[0].slot == f"{slot:%Y-%m-%dT%H:%M:%SZ}"
    assert len(placed) == 21
    assert [r.count for r in caplog.records if r.message == "Placed more jobs"] == [10]


def test_a_slow_moment_does_not_make_the_distribution_old(world, monkeypatch):
    placement = world.app.store.placement
    read = placement.cron_jobs
    monkeypatch.setattr(placement, "cron_jobs", lambda: time.sleep(0.3) or read())
    assert world.app.balancer.distribution().total_jobs == 0
    world.app.enqueue_many([world.job(HOUR, anchor=START + MINUTE)] * 3)
    assert world.app.balancer.distribution().total_jobs == 3


def test_where_reading_everything_takes_long_it_happens_beside(world):
    gone = world.add(HOUR)
    load = world.app.balancer._load
    load._read_pause = 10.0  # as if the last reading had taken half a second
    world.app.store.control.delete([gone.id])
    world.harness.clock.move_to(START + 6 * MINUTE)
    job = world.add(HOUR)
    assert world.now < job.next_run_at <= world.now + HOUR

    def has_read() -> bool:
        world.app.balancer.refresh(world.now)
        return load.query(lambda model, _: model.jobs) == 1

    wait_for(has_read, "the load to be read")


# -- slack of cron ---------------------------------------------------------------------------------

SLACK = "0 1 * * * within 4h"


def add_slack(world, name: str | None = None, text: str = SLACK, **spec: object):
    schedule = Cron(text, "Europe/Berlin")
    return world.get(
        world.app.add(NewJob(JobSpec("noop", schedule=schedule, **spec), name=name)).id
    )


def test_cron_with_slack_is_placed_in_it_and_stays_there(world):
    jobs = [add_slack(world, f"nightly {n}", cost=10 * MINUTE) for n in range(10)]
    assert spread([job.next_run_at for job in jobs]) >= 10 * MINUTE
    assert world.app.balancer.distribution().workers_needed == 1
    for job in jobs:
        assert job.cron_expression.startswith(f"{SLACK} at 0")
        assert (job.next_run_at - START) % DAY < 4 * HOUR  # in Berlin it is 01:00 to 05:00
    world.harness.advance("3d")
    for job in jobs:
        assert world.ran[job.id][:2] == [job.next_run_at, job.next_run_at + DAY]
        assert world.get(job.id).cron_expression == job.cron_expression


def test_many_at_once_lie_apart(world):
    schedule = Cron(SLACK)
    jobs = [NewJob(JobSpec("noop", schedule=schedule, cost=5 * MINUTE)) for _ in range(40)]
    times = [world.get(added.id).next_run_at for added in world.app.enqueue_many(jobs)]
    assert spread(times) >= 5 * MINUTE


def test_an_edit_keeps_the_place_unless_it_changes_the_slack(world):
    job, control = add_slack(world), world.app.store.control
    add_slack(world)
    for text in (SLACK, job.cron_expression):
        control.update(
            job.id,
            lambda spec, text=text: replace(spec, schedule=Cron(text, "Europe/Berlin"), priority=3),
            now=world.now,
        )
        assert world.get(job.id).cron_expression == job.cron_expression
        assert world.get(job.id).next_run_at == job.next_run_at
    control.update(
        job.id,
        lambda spec: replace(spec, schedule=Cron("0 12 * * * within 2h", "UTC")),
        now=world.now,
    )
    edited = world.get(job.id)
    assert edited.cron_expression.startswith("0 12 * * * within 2h at 1")
    assert START + 12 * HOUR <= edited.next_run_at < START + 14 * HOUR


def test_a_declared_schedule_with_slack_is_synchronized_once(evenbeat_harness):
    app = Evenbeat(name="nightly")

    @app.daily(between="01:00-05:00")
    def clean() -> None: ...

    evenbeat_harness(app, START)
    app.sync_schedules()
    before = [job.cron_expression for job in app.store.read.jobs().jobs]
    assert before == [f"{SLACK} at {before[0][-5:]}"]
    assert app.sync_schedules().changed == 0
    assert [job.cron_expression for job in app.store.read.jobs().jobs] == before


def test_a_new_job_is_expected_to_take_what_its_task_takes(world):
    url, schema = world.app.settings.database_url.get_secret_value(), world.app.settings.db_schema
    with psycopg.connect(url, options=f"-csearch_path={schema}") as own:
        own.execute(
            "INSERT INTO outcomes (hour, task, completed, failed, duration_ms) VALUES"
            " (%(now)s, 'noop', 2, 1, 1440000), (%(now)s, 'other', 5, 0, 5)",
            {"now": world.now},
        )
    balancer = world.app.balancer
    balancer.rebuild()
    world.add(HOUR)
    world.add(HOUR, cost="6m")
    world.app.add(NewJob(JobSpec("noop", schedule=Cron("0 * * * *"))))
    placed = balancer._load.query(lambda model, _: model.mean)  # as it was reserved
    assert placed == pytest.approx(12 / 60 + 6 / 60, rel=0.01)
    assert balancer.distribution().mean_load == pytest.approx(2 * 12 / 60 + 6 / 60, rel=0.02)
    snapshot = {entry.schedule_kind: entry for entry in world.app.store.placement.load_snapshot()}
    assert snapshot["cron"].cost_ms == 720_000
