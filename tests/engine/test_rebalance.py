"""Rebalances of a schedule that is running: what moves, what stays, and what can be taken back."""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID, uuid4

import pytest
from balance_world import DAY, HOUR, MINUTE, START, World

from evenbeat.balance.balancer import Balancer
from evenbeat.domain.job import JobSpec, NewJob, Placement
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.domain.window import parse_window
from evenbeat.errors import Conflict, InvalidInput, NotFound
from evenbeat.events import BalanceEvent
from evenbeat.store.store import Store


@pytest.fixture
def world(evenbeat_harness) -> World:
    return World(evenbeat_harness)


def times(world: World) -> dict[UUID, tuple[datetime | None, ...]]:
    """Where every job stands in its rhythm."""
    return {
        job.id: (job.anchor_at, job.plan_time, job.next_run_at, job.placed_at)
        for job in world.app.store.read.jobs(limit=1000).jobs
    }


def test_a_preview_says_what_a_rebalance_then_does(world):
    world.bunch(12)
    before = times(world)
    balancer = world.app.balancer
    preview = balancer.preview()
    assert times(world) == before, "a preview writes nothing"
    assert balancer.rebalances() == []
    assert len(preview.moves) >= 10
    assert all(move.name.startswith("bunched-") for move in preview.moves)
    assert "12 run at once" in preview.moves[0].reason
    assert preview.before.peak_load == 12
    assert preview.after.peak_load == 1

    done = balancer.rebalance(by="alice")
    assert done.moved == preview.moves
    assert done.skipped == preview.skipped
    assert (done.old_score, done.new_score) == (
        preview.before.score,
        preview.after.score,
    )
    assert balancer.distribution() == done.after
    for move in done.moved:
        anchor, plan, due, placed = times(world)[move.job_id]
        assert anchor == plan == due == move.new_time
        assert placed == world.now
        assert abs(move.new_time - move.old_time) <= 3 * HOUR
        assert move.new_time > world.now
    (record,) = balancer.rebalances()
    assert (record.id, record.created_by, record.moved) == (done.id, "alice", len(done.moved))
    assert (record.old_peak, record.new_peak, record.undone_at) == (12, 1, None)
    assert {m.job_id for m in balancer.moves_of(done.id)} == {m.job_id for m in done.moved}
    assert balancer.rebalance().moved == [], "a second one straight after finds nothing"


def test_undo_puts_back_what_is_still_there_and_only_once(world):
    world.bunch(12)
    before = times(world)
    balancer = world.app.balancer
    done = balancer.rebalance()
    undone = balancer.undo(done.id, by="bob")
    assert times(world) == before
    assert sorted(undone.restored) == sorted(move.job_id for move in done.moved)
    assert undone.left_alone == []
    assert balancer.distribution().peak_load == 12
    with pytest.raises(Conflict, match="was undone already"):
        balancer.undo(done.id)
    with pytest.raises(NotFound, match="no rebalance"):
        balancer.undo(uuid4())
    record = balancer.rebalances(1)[0]
    assert (record.undone_by, record.restored) == ("bob", len(done.moved))
    assert balancer.preview().moves == done.moved, "as if nothing had happened"


def test_undo_leaves_alone_what_has_moved_on(world):
    world.bunch(12)
    done = world.app.balancer.rebalance()
    control, now = world.app.store.control, world.now
    by_time = [move.job_id for move in sorted(done.moved, key=lambda move: move.new_time)]
    has_run, paused, edited, deleted = by_time[0], *by_time[-3:]
    world.harness.advance(world.get(has_run).next_run_at - now)
    assert has_run in world.ran
    control.pause([paused], now=world.now)
    control.update(edited, lambda s: replace(s, schedule=Interval(HOUR)), now=world.now)
    control.delete([deleted])
    undone = world.app.balancer.undo(done.id)
    reasons = {left.job_id: left.reason for left in undone.left_alone}
    assert reasons[has_run] == "has_run"
    assert reasons[paused] == "paused"
    assert reasons[edited] == "changed_meanwhile"
    assert reasons[deleted] == "deleted"
    assert set(undone.restored) == set(by_time) - set(reasons)


def test_undo_never_puts_a_run_into_the_past(world):
    world.bunch(12)
    done = world.app.balancer.rebalance()
    later = [move for move in done.moved if move.new_time > move.old_time]
    world.harness.advance(3 * HOUR + MINUTE)  # past the moment at which all of them were to run
    waiting = [move for move in later if move.new_time > world.now]
    assert waiting
    undone = world.app.balancer.undo(done.id)
    reasons = {left.job_id: left.reason for left in undone.left_alone}
    assert {reasons[move.job_id] for move in waiting} == {"time_passed"}
    assert all(world.get(move.job_id).next_run_at == move.new_time for move in waiting)


def test_who_may_not_move_stays_with_its_reason(world):
    movable = world.bunch(6)
    at = world.now + 3 * HOUR
    held = {
        "pinned": world.add(6 * HOUR, anchor=at, placement=Placement.PINNED).id,
        "window": world.add(6 * HOUR, anchor=at, window=parse_window("04:00-23:00")).id,
        "cron": world.app.add(NewJob(JobSpec("noop", schedule=Cron("0 */3 * * *")))).id,
        "protection_window": world.add(6 * HOUR, anchor=world.now + 20 * MINUTE).id,
        "paused": world.add(6 * HOUR, anchor=at).id,
        "placement_cooldown": world.add(6 * HOUR).id,
        "job_running": world.add(6 * HOUR, anchor=world.now + 1 * MINUTE).id,
    }
    store = world.app.store
    store.control.pause([held["paused"]], now=world.now)
    world.harness.clock.move_to(world.now + 2 * MINUTE)
    (claimed,) = store.claim(uuid4(), 10, now=world.now)
    assert claimed.id == held["job_running"]
    before = times(world)
    done = world.app.balancer.rebalance()
    assert {job.job_id: job.reason for job in done.skipped} == {
        id_: reason for reason, id_ in held.items()
    }
    assert {move.job_id for move in done.moved} <= set(movable)
    assert done.moved
    after = times(world)
    assert all(after[id_] == before[id_] for id_ in held.values())
    (record,) = world.app.balancer.rebalances()
    assert record.skipped == dict.fromkeys(held, 1)


def test_a_job_moves_once_until_it_has_run(world):
    """Half an interval each time, time and again, would push its run out for ever."""
    world.bunch(8, every=2 * DAY, after=DAY, cost=MINUTE)
    balancer = world.app.balancer
    world.harness.clock.move_to(world.now + MINUTE)
    moved = max(balancer.rebalance().moved, key=lambda move: move.new_time).job_id

    def crowd_out() -> str | None:
        """Pin others to its time, wait out the cooldown, rebalance; says why it stayed."""
        at = world.get(moved).next_run_at
        for _ in range(6):
            world.add(2 * DAY, anchor=at, cost=MINUTE, placement=Placement.PINNED)
        world.harness.clock.move_to(world.now + 2 * HOUR)
        done = balancer.rebalance()
        stayed = {skipped.job_id: skipped.reason for skipped in done.skipped}
        assert (moved in stayed) != (moved in {move.job_id for move in done.moved})
        return stayed.get(moved)

    assert crowd_out() == "placement_cooldown"
    world.harness.advance(world.get(moved).next_run_at - world.now)
    assert len(world.ran[moved]) == 1
    assert crowd_out() is None


def test_moves_can_be_bounded_and_the_rest_follows(world):
    world.bunch(12)
    balancer = world.app.balancer
    peaks = [balancer.distribution().peak_load]
    for _ in range(12):
        done = balancer.rebalance(3)
        if not done.moved:
            break
        assert len(done.moved) <= 3
        peaks.append(done.after.peak_load)
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < 12
    for wrong in (0, -1, True, 1.5, "3", 10**9):
        with pytest.raises(InvalidInput, match="max_moves"):
            balancer.preview(wrong)
        with pytest.raises(InvalidInput, match="max_moves"):
            balancer.rebalance(wrong)
    for wrong in (0, 1001, True):
        with pytest.raises(InvalidInput, match="limit"):
            balancer.rebalances(wrong)


def test_a_previewed_plan_is_applied_as_far_as_it_holds(world):
    ids = world.bunch(12)
    balancer, control = world.app.balancer, world.app.store.control
    preview = balancer.preview()
    gone, paused = preview.moves[0].job_id, preview.moves[1].job_id
    control.delete([gone])
    control.pause([paused], now=world.now)
    world.harness.clock.move_to(world.now + MINUTE)
    done = balancer.rebalance(plan_id=preview.plan_id)
    assert done.moved == preview.moves[2:]
    assert {s.job_id: s.reason for s in done.skipped} == {
        gone: "changed_meanwhile",
        paused: "paused",
    }
    assert done.before.peak_load == len(ids) - 2
    assert balancer.distribution() == done.after


def test_rebalances_at_once_do_not_take_each_others_connections(world):
    world.bunch(12)
    database = world.app.store.database
    store = Store(database.url, schema=database.schema, pool_size=2, timeout=5)
    balancer = Balancer(store, world.app.settings, override=world.app.now)
    with ThreadPoolExecutor(6) as pool:
        done = [future.result() for future in [pool.submit(balancer.rebalance) for _ in range(6)]]
    store.close()
    assert sum(bool(one.moved) for one in done) == 1


def test_of_previews_only_so_many_moves_are_remembered(world, monkeypatch):
    world.bunch(12)
    balancer = world.app.balancer
    previews = [balancer.preview(max_moves) for max_moves in (8, 9, 10)]
    monkeypatch.setattr("evenbeat.balance.rebalancer._MOST_PREVIEWED_MOVES", 20)
    last = balancer.preview()
    assert last.plan_id not in {preview.plan_id for preview in previews}
    world.harness.clock.move_to(world.now + MINUTE)
    with pytest.raises(Conflict, match="Preview again"):
        balancer.rebalance(plan_id=previews[0].plan_id)
    assert balancer.rebalance(plan_id=last.plan_id).moved == last.moves


def test_a_plan_of_another_process_is_applied_only_if_it_comes_out_the_same(world):
    world.bunch(12)
    app = world.app
    elsewhere = Balancer(app.store, app.settings, override=app.now)
    preview = elsewhere.preview()
    with pytest.raises(Conflict, match="Preview again"):
        app.balancer.rebalance(plan_id="0123456789abcdef")
    assert app.balancer.rebalances() == []
    assert app.balancer.rebalance(plan_id=preview.plan_id).moved == preview.moves


def test_what_changes_while_a_rebalance_is_applied_is_left_alone(world, monkeypatch):
    """The change comes between the snapshot and the moves, as another node's might."""
    world.bunch(12)
    store = world.app.store
    preview = world.app.balancer.preview()
    paused, ran, edited = (move.job_id for move in preview.moves[:3])
    really = store.placement.rebalance

    def meddled(*args: object, **kwargs: object):
        monkeypatch.undo()
        store.control.pause([paused], now=world.now)
        store.control.run_now([ran], now=world.now)
        store.control.update(
            edited, lambda s: replace(s, schedule=Interval(5 * HOUR, START)), now=world.now
        )
        return really(*args, **kwargs)

    monkeypatch.setattr(store.placement, "rebalance", meddled)
    done = world.app.balancer.rebalance()
    assert done.moved == preview.moves[3:]
    assert {s.job_id: s.reason for s in done.skipped} == dict.fromkeys(
        (paused, ran, edited), "changed_meanwhile"
    )
    assert done.after.score < preview.after.score
    assert world.app.balancer.rebalances()[0].new_score == done.new_score


def two_days(make: object, rebalance: bool) -> World:
    """Two days of bunched and other jobs, with or without a rebalance in the middle."""
    world = World(make)
    for every in (2, 3, 6, 8):
        world.bunch(4, every=every * HOUR, after=2 * HOUR, name=f"-{every}", cost=MINUTE)
    world.add(3 * HOUR, "held", anchor=START + 2 * HOUR, placement=Placement.PINNED)
    world.app.add(NewJob(JobSpec("noop", schedule=Cron("0 */4 * * *")), name="cron"))
    world.harness.advance(DAY + 7 * MINUTE)
    if rebalance:
        done = world.app.balancer.rebalance()
        assert len(done.moved) >= 8
        assert done.after.peak_load < done.before.peak_load
    world.harness.advance(DAY - 7 * MINUTE)
    return world


def test_two_days_with_a_rebalance_in_the_middle_lose_and_double_nothing(evenbeat_harness):
    moved, left = two_days(evenbeat_harness, True), two_days(evenbeat_harness, False)
    counts = {left.get(id_).name: len(runs) for id_, runs in left.ran.items()}
    for id_, runs in moved.ran.items():
        job = moved.get(id_)
        assert abs(len(runs) - counts[job.name]) <= 1
        if job.interval_seconds is not None:
            every = timedelta(seconds=job.interval_seconds)
            gaps = [later - earlier for earlier, later in pairwise(runs)]
            assert all(every / 2 <= gap <= 1.5 * every for gap in gaps)
            assert sum(gap != every for gap in gaps) <= 1, "one shift, and the rhythm goes on"
    held = next(id_ for id_ in moved.ran if moved.get(id_).name == "held")
    assert {later - earlier for earlier, later in pairwise(moved.ran[held])} == {3 * HOUR}
    assert len(moved.ran) == len(left.ran) == 18


# ---------------------------------------------------------------- told


def test_a_rebalance_is_told_in_the_log(world, caplog):
    world.bunch(6)
    for _ in range(30):
        world.add(6 * HOUR, placement=Placement.PINNED)
    with caplog.at_level(logging.INFO, logger="evenbeat.balance"):
        done = world.app.balancer.rebalance()
    line = next(r for r in caplog.records if r.message == "Full rebalance completed")
    assert (line.moved, line.skipped) == (len(done.moved), 30)
    assert (line.old_score, line.new_score) == (round(done.old_score, 2), round(done.new_score, 2))
    skipped = [r for r in caplog.records if r.message == "Job skipped during rebalance"]
    assert {(r.levelname, r.reason) for r in skipped} == {("WARNING", "pinned")}
    assert len(skipped) == 1
    more = next(r for r in caplog.records if r.message == "More jobs skipped during rebalance")
    assert more.pinned == 29


def test_counters_tell_what_metrics_need(world):
    assert world.app.balancer.counters() == (
        {"new": 0, "reschedule": 0, "rebalance": 0}, 0, None, None,
    )  # fmt: skip
    world.bunch(6)
    world.add(6 * HOUR, placement=Placement.PINNED)
    world.add(HOUR)
    done = world.app.balancer.rebalance()
    assert world.app.balancer.counters() == (
        {"new": 1, "reschedule": 0, "rebalance": len(done.moved)}, 1, len(done.moved), 2,
    )  # fmt: skip


def test_the_watch_keeps_a_course_and_raises_the_alarm_once_for_each_fall(world):
    app, told = world.app, []
    app.on("balance:low")(told.append)
    chore = next(c for c in world.harness.worker.maintenance._chores if c.name == "balance")

    def look() -> None:
        world.harness.clock.move_to(world.now + 5 * MINUTE)
        assert world.harness.worker.maintenance.do(chore) is not None
        app.events.deliver_pending()

    look()
    assert told == []
    ids = world.bunch(12)
    look()
    look()
    (event,) = told
    assert isinstance(event, BalanceEvent)
    assert (event.kind, event.peak_load) == ("balance:low", 12)
    assert event.score < 0.5
    assert "rebalance" in event.suggestion
    figure = app.store.upkeep.figures()["distribution"].value
    assert (figure["low"], figure["total_jobs"], figure["peak_load"]) == (True, 12, 12)
    app.balancer.rebalance()
    look()
    assert not app.store.upkeep.figures()["distribution"].value["low"]
    app.store.control.delete(ids)
    world.bunch(12)
    look()
    assert len(told) == 2

    points = app.balancer.history()
    assert [point.total_jobs for point in points] == [0, 12, 12, 12, 12]
    assert [point.peak_load for point in points] == [
        0,
        12,
        1,
        1,
        12,
    ]  # a rebalance is noted at once
    assert app.balancer.history(world.now - 6 * MINUTE) == points[-2:]
    world.harness.clock.move_to(world.now + timedelta(days=29, hours=23, minutes=50))
    look()
    assert [point.at for point in app.balancer.history()] == [
        *(point.at for point in points if point.at >= world.now - timedelta(days=30)),
        world.now,
    ]


def test_few_jobs_are_no_reason_for_an_alarm(world):
    world.bunch(2)
    told = world.app.balancer.distribution()
    assert told.score <= 0.5
    assert not world.app.balancer.is_low(told)
