"""Placing and rebalancing: bounds, rules, determinism, and how even the result is."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat.domain.load_entry import LoadEntry
from evenbeat.domain.moments import EPOCH
from evenbeat.domain.schedule import Cron
from evenbeat.placement.load import Beat, CronLoad, LoadModel, beat_of, table_of
from evenbeat.placement.period_mover import too_many
from evenbeat.placement.planner import Rhythm, place
from evenbeat.placement.rebalancing import (
    RebalancePlan,
    protection_window,
    reason_to_stay,
    rebalance,
)
from evenbeat.placement.simulate import Runs, replay

NOW = datetime(2026, 2, 4, 9, 3, 27, 250_000, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
DAY, WEEK = timedelta(days=1), timedelta(days=7)
MIXED = [1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 604_800]


def entry(
    number: int,
    interval_seconds: int | None,
    next_run_at: datetime | None,
    cost_ms: float | None = None,
    **changes: Any,
) -> LoadEntry:
    """A balanced interval job as the store describes it."""
    kind = (interval_seconds, None, "UTC", None, None, next_run_at, "scheduled", "balanced", None)
    basic = LoadEntry(UUID(int=number), None, "task", "default", "interval", *kind, cost_ms)
    return basic._replace(**changes)


def hourly(number: int = 1, after: timedelta = HOUR) -> LoadEntry:
    return entry(number, 3600, NOW + after, 60_000)


def applied(rows: Sequence[LoadEntry], plan: RebalancePlan) -> list[LoadEntry]:
    """The snapshot after the plan's moves, as the store would write them."""
    to = {move.job_id: move.new_time for move in plan.moves}
    return [
        row._replace(next_run_at=to[row.id], placed_at=NOW) if row.id in to else row for row in rows
    ]


def mixed(count: int, seed: int) -> list[tuple[int, int]]:
    """Periods from half an hour to a week, log-normal durations around a minute."""
    random = np.random.default_rng(seed)
    lasting = np.maximum(1, np.rint(60 * np.exp(1.2 * random.standard_normal(count))))
    every = random.choice(MIXED, count)
    return [(int(p), int(min(p, d))) for p, d in zip(every, lasting, strict=True)]


def run_times(
    first: datetime, every: timedelta, until: datetime, moved: tuple[datetime, datetime] | None
) -> list[datetime]:
    """A job's runs up to `until`; a move (old time, new time) shifts that run and all after it."""
    times, at = [], first
    while at <= until:
        if moved is not None and at == moved[0]:
            at, moved = moved[1], None
            continue
        times.append(at)
        at += every
    return times


# ---------------------------------------------------------------- place


def test_few_jobs_lie_far_apart() -> None:
    model, times = LoadModel(NOW), []
    for _ in range(4):
        placed = place(model, Rhythm(DAY), NOW)
        model.add(placed.beat)
        times.append(placed.at)
    times.sort()
    gaps = [later - earlier for earlier, later in pairwise([*times, times[0] + DAY])]
    assert min(gaps) > 2 * HOUR


def test_two_jobs_keep_out_of_each_others_way() -> None:
    model = LoadModel(NOW)
    for _ in range(2):
        model.add(place(model, Rhythm(HOUR, 1_500_000), NOW).beat)
    assert model.peak == 1


def test_short_runs_leave_room_for_a_long_one() -> None:
    model = LoadModel(NOW)
    for _ in range(12):
        model.add(place(model, Rhythm(30 * MINUTE, 75_000), NOW).beat)
    model.add(place(model, Rhythm(30 * MINUTE, 900_000), NOW).beat)
    assert model.peak == 1


def test_a_job_avoids_what_cron_does() -> None:
    model = LoadModel(NOW)
    model.add_crons({"loud": CronLoad(Cron("0-49 * * * *"), 60_000)})
    placed = place(model, Rhythm(HOUR, 300_000), NOW)
    assert 50 <= placed.at.minute < 55
    assert placed.load == 0


def test_placing_leaves_the_model_alone() -> None:
    model = LoadModel(NOW)
    place(model, Rhythm(HOUR), NOW)
    assert model.jobs == 0
    assert not model.seconds.any()


def test_long_intervals_spread_over_their_weeks() -> None:
    model, weeks = LoadModel(NOW), [0] * 4
    for _ in range(40):
        placed = place(model, Rhythm(4 * WEEK), NOW)
        model.add(placed.beat)
        weeks[(placed.at - NOW) // WEEK] += 1
    assert min(weeks) >= 8


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**9)), max_size=3),
    st.one_of(st.integers(1, 2 * 10**6), st.sampled_from(MIXED)),
    st.one_of(st.none(), st.floats(0, 10**8)),
    st.integers(-900, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_the_first_run_comes_within_one_interval(
    others: list[tuple[int, int]], period: int, cost: float | None, later: int
) -> None:
    model = LoadModel(NOW)
    for every, phase in others:
        model.add(Beat(every, phase, 90_000))
    now = NOW + later * SECOND
    job = Rhythm(timedelta(seconds=period), cost)
    placed = place(model, job, now)
    assert now < placed.at <= now + job.every
    assert place(model, job, now) == placed


@pytest.mark.parametrize("seed", [11, 12, 13])
@pytest.mark.parametrize(("count", "bound"), [(200, 1.5), (1000, 1.2)])
def test_the_peak_stays_near_the_mean(count: int, bound: float, seed: int) -> None:
    model, runs = LoadModel(NOW), []
    for period, lasting in mixed(count, seed):
        placed = place(model, Rhythm(timedelta(seconds=period), lasting * 1000.0), NOW)
        model.add(placed.beat)
        runs.append(Runs.steady(placed.beat.phase - model.since, period, lasting))
    curve = replay(runs)
    # Where few run at once, whole runs are coarse: two above the mean may exceed the ratio.
    assert curve.peak <= max(bound * curve.mean, curve.mean + 2)
    assert curve.peak == model.peak


def test_wrong_durations_hurt_less_than_chance() -> None:
    random = np.random.default_rng(14)
    jobs = mixed(1000, 14)
    told = [lasting * float(random.choice([0.5, 2.0])) for _, lasting in jobs]
    model, ours = LoadModel(NOW), []
    for (period, lasting), wrong in zip(jobs, told, strict=True):
        placed = place(model, Rhythm(timedelta(seconds=period), wrong * 1000), NOW)
        model.add(placed.beat)
        ours.append(Runs.steady(placed.beat.phase - model.since, period, lasting))
    by_chance = [Runs.steady(int(random.integers(0, p)), p, lasting) for p, lasting in jobs]
    assert replay(ours).peak < replay(by_chance).peak


@pytest.mark.parametrize("cost_ms", [50, 7_000, 60_000])
def test_starts_per_slot_are_even(cost_ms: int) -> None:
    model = LoadModel(NOW)
    for _ in range(500):
        model.add(place(model, Rhythm(DAY, cost_ms), NOW).beat)
    assert model.starts.max() / 1024 <= -(-500 // 96) + 1


# ---------------------------------------------------------------- who may move


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (hourly(), None),
        (hourly()._replace(status="running"), "job_running"),
        (hourly()._replace(plan_time=NOW - MINUTE), "job_running"),
        (hourly()._replace(placement="pinned"), "pinned"),
        (hourly()._replace(placement="grid"), "pinned"),
        (hourly()._replace(status="paused"), "paused"),
        (hourly()._replace(schedule_kind="cron", cron_expression="@daily"), "cron"),
        (hourly()._replace(execution_window="09:00-17:00"), "window"),
        (hourly(after=30 * MINUTE), "protection_window"),
        (hourly(after=30 * MINUTE + SECOND), None),
        (hourly(after=15 * MINUTE)._replace(interval_seconds=1800), "protection_window"),
        (hourly(after=16 * MINUTE)._replace(interval_seconds=1800), None),
        (hourly(after=MINUTE)._replace(interval_seconds=90), "protection_window"),
        (hourly(after=61 * SECOND)._replace(interval_seconds=90), None),
        (hourly()._replace(placed_at=NOW - HOUR + SECOND), "placement_cooldown"),
        (hourly()._replace(placed_at=NOW - HOUR), None),
    ],
)
def test_reasons_to_stay(row: LoadEntry, reason: str | None) -> None:
    assert reason_to_stay(row, NOW) == reason


def test_the_rules_hold_jobs_where_they_are() -> None:
    held = [
        hourly(1)._replace(status="running"),
        hourly(2)._replace(placement="pinned"),
        hourly(3)._replace(placed_at=NOW),
        hourly(4)._replace(status="paused"),
    ]
    plan = rebalance([*held, hourly(5), hourly(6)], NOW)
    assert {move.job_id for move in plan.moves} <= {UUID(int=5), UUID(int=6)}
    assert [(skip.job_id.int, skip.reason) for skip in plan.skipped] == [
        (1, "job_running"),
        (2, "pinned"),
        (3, "placement_cooldown"),
        (4, "paused"),
    ]


# ---------------------------------------------------------------- rebalance


def test_bunched_jobs_are_spread_and_one_stays() -> None:
    plan = rebalance([hourly(n) for n in range(20)], NOW)
    assert (plan.before.peak_load, plan.after.peak_load) == (20, 1)
    assert len(plan.moves) == 19


def test_short_intervals_can_move_too() -> None:
    rows = [hourly(n, 20 * MINUTE)._replace(interval_seconds=1800) for n in range(10)]
    plan = rebalance(rows, NOW)
    assert (plan.before.peak_load, plan.after.peak_load) == (10, 1)
    assert all(NOW + 15 * MINUTE < move.new_time <= NOW + 35 * MINUTE for move in plan.moves)


def test_a_move_tells_what_it_leaves() -> None:
    monday = datetime(2026, 2, 9, tzinfo=UTC)
    bunch = [
        entry(n, 604_800, monday, 60_000, name=f"weekly {n}", placement="pinned") for n in range(4)
    ]
    mover = hourly(9, monday - NOW - 4 * DAY)._replace(name="mover", interval_seconds=86_400)
    (move,) = rebalance([*bunch, mover], NOW, 1).moves
    assert move.name == "mover"
    assert move.reason == "leaves Monday 00:00 UTC, where 5 run at once"


def test_cron_jobs_are_named_in_the_suggestion() -> None:
    rows = [
        entry(n, None, NOW + HOUR, schedule_kind="cron", cron_expression="@daily", name=name)
        for n, name in enumerate(["a", "b", "c"])
    ]
    assert "the cron jobs a, b, c." in rebalance(rows, NOW).before.suggestion


def test_an_even_schedule_is_left_alone() -> None:
    plan = rebalance([hourly(n, HOUR + n * MINUTE) for n in range(20)], NOW)
    assert plan.moves == []
    assert plan.before == plan.after


def test_a_peak_of_fixed_jobs_is_no_reason_to_move_others() -> None:
    pinned = [hourly(n)._replace(placement="pinned") for n in range(5)]
    bunch = [hourly(n, HOUR + 10 * MINUTE) for n in range(10, 14)]
    assert rebalance([*pinned, *bunch], NOW).moves == []


def test_few_moves_gain_what_so_few_can() -> None:
    rows = [hourly(n) for n in range(20)]
    plan = rebalance(rows, NOW, max_moves=5)
    assert (len(plan.moves), plan.after.peak_load) == (5, 15)
    assert rebalance(rows, NOW, max_moves=0).moves == []


def test_longest_interval_moves_first() -> None:
    rows = [hourly(n) for n in range(3)]
    daily = [row._replace(id=UUID(int=row.id.int + 10), interval_seconds=86_400) for row in rows]
    plan = rebalance([*rows, *daily], NOW, max_moves=3)
    assert {move.job_id.int for move in plan.moves} == {10, 11, 12}


def test_nothing_to_rebalance() -> None:
    assert rebalance([], NOW).moves == []


def test_a_thousand_bunched_jobs_come_apart() -> None:
    longer = [(period, lasting) for period, lasting in mixed(1300, seed=5) if period > 3600]
    rows = [
        entry(n, period, NOW + HOUR, lasting * 1000.0) for n, (period, lasting) in enumerate(longer)
    ]
    plan = rebalance(rows, NOW)
    assert plan.before.peak_load > 500
    # Half an interval, and not into the past, reaches little more than half of all phases.
    assert plan.after.peak_load <= 2 * plan.after.mean_load
    assert rebalance(applied(rows, plan), NOW).moves == []


@pytest.mark.parametrize(("ahead", "least"), [(HOUR, 4), (5 * DAY, 2)])
def test_weekly_jobs_at_one_second_become_as_flat_as_their_reach_allows(
    ahead: timedelta, least: int
) -> None:
    # Two thousand runs of ten minutes fill the week almost twice, half of it almost four times.
    rows = [entry(n, 604_800, NOW + ahead, 600_000) for n in range(2000)]
    plan = rebalance(rows, NOW)
    assert (plan.before.peak_load, plan.after.peak_load) == (2000, least)
    assert len(plan.moves) == 2000 - least


def test_few_moved_jobs_lie_far_apart() -> None:
    rows = [hourly(n, 3 * HOUR)._replace(interval_seconds=21_600) for n in range(12)]
    times = [NOW + 3 * HOUR, *(move.new_time for move in rebalance(rows, NOW).moves)]
    gaps = [later - earlier for earlier, later in pairwise(sorted(times))]
    assert len(times) == 12
    assert min(gaps) > 15 * MINUTE


@given(
    st.lists(st.tuples(st.integers(0, 49), st.integers(1, 25)), max_size=30),
    st.integers(-3, 6),
)
def test_as_many_are_taken_off_a_summit_as_are_too_many(
    runs: list[tuple[int, int]], limit: int
) -> None:
    starts = np.array([start for start, _ in runs], np.int64)
    touched = np.array([length for _, length in runs], np.int64)
    level = np.zeros(50, np.int32)
    for start, length in runs:
        level[(start + np.arange(length)) % 50] += 1
    chosen = too_many(level - np.int32(limit), starts, touched, 1)
    left = np.setdiff1d(np.arange(len(runs)), chosen)
    assert bool(len(chosen)) == bool(runs and level.max() > limit)
    if len(chosen):
        after = np.zeros(50, np.int32)
        for n in left:
            after[(starts[n] + np.arange(touched[n])) % 50] += 1
        summit = int(level.argmax())
        assert after[summit] <= max(0, limit)


@st.composite
def snapshots(draw: st.DrawFn) -> list[LoadEntry]:
    periods = st.one_of(st.sampled_from(MIXED), st.integers(1, 10**6))
    bunch = draw(st.integers(1, 100_000))
    rows = []
    for number in range(draw(st.integers(0, 25))):
        period = draw(periods)
        offset = draw(st.sampled_from([bunch, draw(st.integers(1, 10**6))])) % period + 1
        row = entry(
            number,
            period,
            NOW + offset * SECOND + timedelta(milliseconds=draw(st.integers(0, 999))),
            draw(st.one_of(st.none(), st.floats(1, 10**7))),
            status=draw(st.sampled_from(["scheduled", "scheduled", "scheduled", "running"])),
            placement=draw(st.sampled_from(["balanced", "balanced", "balanced", "pinned"])),
        )
        rows.append(row)
    if draw(st.booleans()):
        rows.append(entry(99, None, NOW + HOUR, schedule_kind="cron", cron_expression="0 * * * *"))
    return rows


@given(snapshots(), st.one_of(st.none(), st.integers(0, 5)))
@settings(max_examples=40, deadline=None)
def test_every_move_is_small_late_enough_and_allowed(
    rows: list[LoadEntry], most: int | None
) -> None:
    plan = rebalance(rows, NOW, most)
    by_id = {row.id: row for row in rows}
    assert most is None or len(plan.moves) <= most
    for move in plan.moves:
        row = by_id[move.job_id]
        assert reason_to_stay(row, NOW) is None
        assert move.old_time == row.next_run_at
        assert move.new_time != move.old_time
        assert move.new_time > NOW + protection_window(row.interval_seconds or 0)
        assert 2 * abs(move.new_time - move.old_time) <= (row.interval_seconds or 0) * SECOND
    assert {skip.job_id: skip.reason for skip in plan.skipped} == {
        row.id: reason for row in rows if (reason := reason_to_stay(row, NOW))
    }


@given(snapshots(), st.one_of(st.none(), st.integers(1, 5)))
@settings(max_examples=40, deadline=None)
def test_moves_are_made_only_to_lower_the_peak(rows: list[LoadEntry], most: int | None) -> None:
    plan = rebalance(rows, NOW, most)
    after = LoadModel.of(applied(rows, plan), NOW)
    assert plan.after.peak_load == after.peak
    if plan.moves:
        assert plan.after.peak_load <= plan.before.peak_load - 1
    else:
        assert plan.after == plan.before


@given(snapshots())
@settings(max_examples=50, deadline=None)
def test_a_second_rebalance_straight_after_proposes_nothing(rows: list[LoadEntry]) -> None:
    plan = rebalance(rows, NOW)
    assert rebalance(rows, NOW) == plan
    assert rebalance(applied(rows, plan), NOW).moves == []


@given(st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_no_run_is_dropped_or_doubled_by_a_rebalance(seed: int) -> None:
    begin, end = NOW - DAY, NOW + DAY
    random = np.random.default_rng(seed)
    firsts = {}
    rows = []
    for number in range(40):
        every = int(random.choice([1800, 2700, 3600, 5000, 7200, 21_600, 43_200])) * SECOND
        first = begin + float(random.choice([0.1, random.random()])) * every
        next_run = next(at for at in run_times(first, every, end, None) if at > NOW)
        firsts[UUID(int=number)] = (first, every)
        rows.append(entry(number, every // SECOND, next_run, 120_000))
    moves = {move.job_id: move for move in rebalance(rows, NOW).moves}
    for job_id, (first, every) in firsts.items():
        move = moves.get(job_id)
        without = run_times(first, every, end, None)
        runs = run_times(first, every, end, move and (move.old_time, move.new_time))
        assert abs(len(runs) - len(without)) <= 1
        for earlier, later in pairwise(runs):
            assert every / 2 <= later - earlier <= 1.5 * every


def test_a_beat_follows_the_next_run() -> None:
    assert beat_of(hourly()) == Beat(3600, 1_770_199_407, 60_000)


@given(snapshots())
@settings(max_examples=20, deadline=None)
def test_a_table_says_what_the_beats_say(rows: list[LoadEntry]) -> None:
    table, due = table_of(rows)
    assert table.tolist() == [list(beat_of(row)[:3]) for row in rows]
    assert due.tolist() == [(row.next_run_at - EPOCH) // (SECOND / 10**6) for row in rows]
