"""The load model against brute force, its figures and its words."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat.domain.load_entry import LoadEntry
from evenbeat.domain.moments import epoch_second
from evenbeat.domain.schedule import Cron
from evenbeat.placement.distribution import distribution
from evenbeat.placement.load import RUN, WEEK, Beat, CronLoad, LoadModel, score
from evenbeat.placement.simulate import Runs, replay

MONDAY = datetime(2026, 2, 2, tzinfo=UTC)
START = epoch_second(MONDAY)
HOUR, DAY = 3600, 86_400


def hourly(**changes: Any) -> LoadEntry:
    """An hourly job as the store describes it."""
    kind = (HOUR, None, "UTC", None, None, MONDAY, "scheduled", "balanced", None, None)
    basic = LoadEntry(UUID(int=1), None, "task", "default", "interval", *kind)
    return basic._replace(**changes)


def model_of(*beats: Beat) -> LoadModel:
    model = LoadModel(MONDAY)
    for beat in beats:
        model.add(beat)
    return model


def per_cell(model: LoadModel) -> np.ndarray:
    """Expected concurrency in each minute of the week."""
    return model.cells / (RUN * 60)


def state_of(model: LoadModel) -> tuple[bytes, bytes, bytes, bytes, int]:
    return (
        model.seconds.tobytes(),
        model.uncertain_load.tobytes(),
        model.cells.tobytes(),
        model.starts.tobytes(),
        model.jobs,
    )


periods = st.one_of(
    st.sampled_from([1, 7, 10, 59, 60, 61, 90, 900, 1800, HOUR, 39_600, DAY, 2 * DAY, WEEK]),
    st.integers(1, WEEK),
)
any_period = st.one_of(periods, st.integers(WEEK + 1, 520 * WEEK))
durations = st.one_of(st.integers(1, 200_000), st.integers(1, 2 * WEEK * 1000))
phases = st.integers(START - WEEK, START + WEEK)
beats = st.builds(Beat, any_period, phases, durations, st.none())


# ---------------------------------------------------------------- one job


def test_a_run_shorter_than_a_cell_adds_its_fraction() -> None:
    model = model_of(Beat(DAY, START + 30, 15_000))
    assert per_cell(model)[0] == 0.25
    assert per_cell(model)[1] == 0
    assert per_cell(model)[1440] == 0.25


def test_a_long_run_covers_its_cells() -> None:
    cells = per_cell(model_of(Beat(WEEK, START + 90, 150_000)))
    assert cells[:6].tolist() == [0, 0.5, 1, 1, 0, 0]


def test_a_run_longer_than_its_interval_fills_it_once() -> None:
    model = model_of(Beat(HOUR, START, 3 * HOUR * 1000))
    assert model.peak == model.mean == 1


def test_a_sub_minute_interval_loads_every_cell_alike() -> None:
    model = model_of(Beat(10, START + 3, 2_500))
    assert set(per_cell(model).tolist()) == {0.25}
    assert set(model.starts.tolist()) == {90 * RUN}


def test_an_interval_over_a_week_counts_by_its_chance_to_fall_in_one() -> None:
    model = model_of(Beat(4 * WEEK, START + HOUR, 60_000))
    assert model.seconds[HOUR] == RUN // 4
    assert model.mean == pytest.approx(60 / (4 * WEEK))


def test_unknown_duration_counts_as_a_minute() -> None:
    model = LoadModel.of([hourly()], MONDAY)
    assert model.mean == pytest.approx(60 / HOUR)


def test_a_given_cost_counts() -> None:
    model = LoadModel.of([hourly(cost_ms=1_800_000)], MONDAY)
    assert model.mean == pytest.approx(0.5)


def test_paused_jobs_weigh_nothing() -> None:
    assert LoadModel.of([hourly(status="paused")], MONDAY).jobs == 0


@given(periods, phases, durations)
@settings(max_examples=80, deadline=None)
def test_the_model_is_what_a_replay_counts(period: int, phase: int, duration: int) -> None:
    whole = max(1, duration // 1000)
    model = model_of(Beat(period, phase, whole * 1000))
    curve = replay([Runs.steady(phase - START, period, whole)])
    assert np.array_equal(model.seconds, curve.per_second * RUN)
    assert np.array_equal(model.cells, model.seconds.reshape(-1, 60).sum(axis=1))


@given(any_period, phases, durations)
@settings(max_examples=80, deadline=None)
def test_starts_are_counted_where_they_happen(period: int, phase: int, duration: int) -> None:
    model = model_of(Beat(period, phase, duration))
    fold = min(period, WEEK)
    slots = np.arange((phase - START) % fold, WEEK, fold) // 900
    weight = max(1, round(RUN * fold / period))
    assert np.array_equal(model.starts, np.bincount(slots, minlength=672) * weight)


@given(st.lists(beats, max_size=4), beats, st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_add_then_remove_restores_the_model_to_the_bit(
    others: list[Beat], beat: Beat, count: int
) -> None:
    model = model_of(*others)
    before = state_of(model)
    model.add(beat, count)
    model.remove(beat, count)
    assert state_of(model) == before


@given(st.lists(beats, min_size=1, max_size=5), st.integers(17, 30))
@settings(max_examples=30, deadline=None)
def test_many_at_once_are_the_same_as_one_by_one(few: list[Beat], copies: int) -> None:
    shifted = [beat._replace(phase=beat.phase + 37 * n) for beat in few for n in range(copies)]
    at_once = LoadModel(MONDAY)
    at_once.add_many(shifted, [2] * len(shifted))
    assert state_of(at_once) == state_of(model_of(*shifted, *shifted))


# ---------------------------------------------------------------- cron


def test_cron_counts_at_its_real_plans() -> None:
    model = LoadModel(MONDAY + timedelta(minutes=7))
    report = CronLoad(Cron("30 9 * * mon-fri", "Europe/Berlin"), 60_000)
    model.add_crons({"report": report})
    busy = np.flatnonzero(per_cell(model))
    assert busy.tolist() == [day * 1440 + 8 * 60 + 30 for day in range(5)]
    assert model.crons == {"report": report}


def test_cron_runs_that_began_before_the_week_reach_into_it() -> None:
    model = LoadModel(MONDAY)
    model.add_crons({"late": CronLoad(Cron("0 23 * * sun"), 2 * HOUR * 1000)})
    assert np.flatnonzero(per_cell(model)).tolist() == [*range(60), *range(10_020, 10_080)]


def test_a_cron_job_does_not_overlap_itself() -> None:
    model = LoadModel(MONDAY)
    model.add_crons({"busy": CronLoad(Cron("* * * * *"), 600_000)})
    assert model.peak == model.mean == 1


# ---------------------------------------------------------------- figures and words


def test_an_empty_schedule_is_even() -> None:
    told = distribution(LoadModel(MONDAY))
    assert (told.score, told.workers_needed, told.total_jobs) == (1.0, 0, 0)
    assert told.suggestion == "Distribution is acceptable"


def test_hours_and_slots_are_those_of_the_day() -> None:
    model = LoadModel(MONDAY + timedelta(hours=22, minutes=20))
    for minute in (0, 20, 40):
        model.add(Beat(DAY, START + 14 * HOUR + minute * 60, 90_000))
    told = distribution(model)
    assert (told.peak_hour, told.peak_count) == (14, 3)
    assert [n for n, count in enumerate(told.starts_per_slot) if count] == [56, 57, 58]
    assert told.load_per_slot[56] == pytest.approx(0.1)
    assert len(told.jobs_per_hour) == 24
    assert len(told.starts_per_slot) == len(told.load_per_slot) == 96
    assert sum(told.jobs_per_hour) == 3


def test_the_week_is_told_by_weekday_whenever_it_begins() -> None:
    model = LoadModel(MONDAY + timedelta(days=2, hours=9, minutes=20))
    for minute in (0, 1, 1):
        model.add(Beat(WEEK, START + 3 * DAY + 6 * HOUR + minute * 60, 90_000))
    told = distribution(model)
    thursday_at_six = 3 * 96 + 6 * 4
    assert len(told.week_load) == len(told.week_peak) == 672
    assert told.week_load[thursday_at_six] == pytest.approx(0.3)
    assert told.week_peak[thursday_at_six] == 3
    assert sum(told.week_load) == pytest.approx(0.3)
    assert sum(told.week_peak) == 3


def test_jobs_that_never_meet_score_one_however_few_they_are() -> None:
    assert (score(1, 1), score(0, 0), score(1, 4), score(5, 10)) == (1.0, 1.0, 0.25, 0.5)
    model = model_of(*(Beat(DAY, START + 1380 * n, 60_000) for n in range(61)))
    assert model.mean < 0.05
    assert (model.workers_needed, model.workers_sufficient, model.score) == (1, 1, 1.0)


def test_what_cannot_be_moved_is_no_fault_of_the_schedule() -> None:
    beats = [Beat(HOUR, START, 60_000, None, True)] * 3 + [Beat(HOUR, START, 60_000)] * 3
    model = model_of(*beats)
    assert (model.workers_needed, model.workers_sufficient, model.score) == (6, 3, 0.5)
    together = LoadModel(MONDAY)
    together.add_many(beats * 6)
    assert (together.workers_needed, together.workers_sufficient) == (36, 18)
    together.add_many(beats * 6, [-1] * 36)
    assert not together.fixed_load.any()
    model.add_crons({str(n): CronLoad(Cron("@daily"), 60_000) for n in range(3)})
    assert (model.workers_needed, model.workers_sufficient) == (9, 6)
    rows = [hourly(id=UUID(int=n), placement="pinned") for n in range(4)]
    assert LoadModel.of(rows, MONDAY).score == 1.0


def test_enough_workers_are_as_many_as_are_busy_on_average() -> None:
    model = model_of(*[Beat(HOUR, START, 1_500_000)] * 4)
    assert (model.workers_needed, model.workers_sufficient, model.score) == (4, 2, 0.5)


def test_a_flat_schedule_scores_one() -> None:
    model = model_of(*(Beat(HOUR, START + 60 * minute, 60_000) for minute in range(60)))
    assert model.score == 1.0


def test_one_lone_job_is_nothing_to_complain_about() -> None:
    assert distribution(model_of(Beat(DAY, START, 1000))).suggestion == "Distribution is acceptable"


def test_bunched_intervals_call_for_a_rebalance() -> None:
    model = model_of(*[Beat(DAY, START + HOUR, 60_000)] * 9)
    assert distribution(model).suggestion == (
        "9 workers are needed at once, Monday at 01:00 UTC; 1 would suffice. "
        "Preview a rebalance to see what moving jobs gains"
    )


def test_pinned_intervals_are_told_to_be_balanced() -> None:
    model = model_of(*[Beat(DAY, START + HOUR, 60_000, None, True)] * 9)
    assert distribution(model).suggestion == (
        "9 workers are needed at once, Monday at 01:00 UTC, because of jobs that are pinned to "
        "their times; 1 would suffice if they were balanced"
    )


def test_cron_jobs_that_cause_the_peak_are_named_with_what_they_would_gain() -> None:
    model = model_of(Beat(HOUR, START + 1800, 60_000))
    jobs = {f"job-{n}": CronLoad(Cron("@daily"), 60_000) for n in range(8)}
    model.add_crons({**jobs, "other": CronLoad(Cron("0 5 * * *"), 60_000)})
    assert distribution(model, {"job-0": "nightly report"}).suggestion == (
        "8 workers are needed at once, Monday at 00:00 UTC, because of the cron jobs "
        "nightly report, job-1, job-2 and 5 more. "
        "Turning them into balanced intervals would cut the peak to about 2"
    )


# ---------------------------------------------------------------- in doubt


def test_doubt_is_the_mean_of_half_and_twice_as_long() -> None:
    uncertain_load = model_of(Beat(WEEK, START + 100, 60_000)).uncertain_load
    assert set(uncertain_load[100:130].tolist()) == {RUN}
    assert set(uncertain_load[130:220].tolist()) == {RUN // 2}
    assert uncertain_load[99] == uncertain_load[220] == 0


def test_cron_is_doubted_as_well() -> None:
    model = LoadModel(MONDAY)
    model.add_crons({name: CronLoad(Cron("0 5 * * *"), 60_000) for name in "ab"})
    assert model.uncertain_load[5 * HOUR] == 2 * RUN
    assert model.uncertain_load[5 * HOUR + 119] == RUN


@given(st.lists(beats, min_size=1, max_size=30))
@settings(max_examples=15, deadline=None)
def test_many_are_doubted_like_each(some: list[Beat]) -> None:
    many = LoadModel(MONDAY)
    many.add_many(some * 20)
    each = LoadModel(MONDAY)
    for beat in some:
        each.add(beat, 20)
    assert state_of(many) == state_of(each)


# ---------------------------------------------------------------- replay


def test_replay_counts_every_second() -> None:
    curve = replay([Runs(np.array([2, 7]), 3), Runs(np.array([4]), 100)], horizon=10)
    assert curve.per_second.tolist() == [0, 0, 1, 1, 2, 1, 1, 2, 2, 2]
    assert (curve.peak, curve.mean) == (2, 1.2)


def test_plans_without_an_interval_are_replayed() -> None:
    job = Runs(np.array([-4, 1, 3, 8]), 3)
    assert replay([job], horizon=10).per_second.tolist() == [0, 1, 1, 1, 1, 1, 0, 0, 1, 1]
    nothing = Runs(np.array([], np.int64), 3)
    assert replay([nothing], horizon=3).per_second.tolist() == [0, 0, 0]


def test_the_ratio_tells_peaks_from_an_even_load() -> None:
    together = replay([Runs.steady(0, 60, 30)] * 2, horizon=600)
    apart = replay([Runs.steady(0, 60, 30), Runs.steady(30, 60, 30)], horizon=600)
    assert (together.ratio, apart.ratio) == (2.0, 1.0)
    assert apart.peaks(60) == [1] * 10
