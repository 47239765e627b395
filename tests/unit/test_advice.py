"""Advice on intervals: two jobs can avoid each other iff their divisor has room for both runs."""

from datetime import UTC, datetime
from math import lcm

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evenbeat.domain.schedule import Cron
from evenbeat.placement.advice import advice, advice_for, can_avoid
from evenbeat.placement.load import WEEK, Beat, CronLoad, LoadModel

NOW = datetime(2026, 2, 4, 9, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3600, 86_400
intervals = st.integers(1, 40)


def busy(every: int, lasting: int, phase: int, horizon: int) -> np.ndarray:
    """The seconds of a circle in which a job runs."""
    seconds = (np.arange(phase, phase + horizon, every)[:, None] + np.arange(lasting)) % horizon
    return np.isin(np.arange(horizon), seconds)


@given(intervals, intervals, st.data())
def test_two_jobs_can_avoid_each_other_iff_their_runs_fit_into_the_divisor(one, other, data):
    lasting, other_lasting = (data.draw(st.integers(1, every)) for every in (one, other))
    horizon = lcm(one, other)
    fixed = busy(one, lasting, 0, horizon)
    some_phase_is_free = any(
        not (fixed & busy(other, other_lasting, phase, horizon)).any() for phase in range(other)
    )
    assert can_avoid(one, lasting, other, other_lasting) is some_phase_is_free


def model_of(*jobs: tuple[int, int, int]) -> LoadModel:
    model = LoadModel(NOW)
    for every, lasting, count in jobs:
        model.add(Beat(every, 0, lasting * 1000), count)
    return model


@given(
    st.lists(
        st.tuples(st.integers(10, 3000), st.integers(1, 9), st.integers(1, 9)),
        min_size=2,
        max_size=8,
    )
)
def test_advice_is_a_neighbour_that_meets_at_most_half_as_many(jobs):
    for one in advice(model_of(*jobs)):
        assert abs(one.instead - one.every) <= one.every / 10
        assert one.instead != one.every
        assert 0 <= one.remaining <= one.meetings / 2


@given(intervals, st.integers(1, 5), st.integers(1, 5))
def test_the_meetings_are_those_of_a_replay(every, lasting, other_lasting):
    """On average over all phases, as the phase is what nobody knows."""
    other = 60
    assume(lasting <= every and not can_avoid(every, lasting, other, other_lasting))
    model = LoadModel(NOW)
    model.add(Beat(other, 0, other_lasting * 1000), 5)
    found = advice_for(model, every, lasting * 1000.0)
    assume(found is not None)
    horizon, met = lcm(every, other), 0
    for phase in range(other):
        for start in range(0, horizon, every):
            for begun in range(phase - horizon, 2 * horizon, other):
                met += start < begun + other_lasting and begun < start + lasting
    a_day = met / other * DAY / horizon * 5
    # In whole seconds, two runs of a and b seconds meet at a + b - 1 distances.
    together = lasting + other_lasting
    assert found.meetings * (together - 1) / together == pytest.approx(a_day)


def test_37_minutes_and_36():
    usual = [(30 * MINUTE, 60, 20), (HOUR, 60, 20), (2 * HOUR, 60, 20), (DAY, 60, 20)]
    (one,) = advice(model_of(*usual, (37 * MINUTE, 60, 1)))
    assert (one.every, one.instead, one.jobs) == (37 * MINUTE, 36 * MINUTE, 1)
    assert one.remaining == 0
    assert one.text == (
        "Every 37m meets other runs about 92 times a day wherever it starts; every 36m hardly ever"
    )
    assert advice(model_of(*usual)) == ()
    found = advice_for(model_of(*usual), 37 * MINUTE, None)
    assert found is not None
    assert found.instead == 36 * MINUTE
    assert advice_for(model_of(*usual), HOUR, None) is None


def test_few_jobs_and_a_model_without_any():
    assert advice(LoadModel(NOW)) == ()
    assert advice_for(LoadModel(NOW), 37 * MINUTE, None) is None
    assert advice(model_of((HOUR, 60, 2), (37 * MINUTE, 60, 1))) == ()


def test_cron_counts_by_its_starts_and_what_is_removed_is_gone():
    model = LoadModel(NOW)
    model.add_crons({str(n): CronLoad(Cron("*/30 * * * *"), 60_000) for n in range(5)})
    assert model.intervals == {WEEK: (5 * 336, 5 * 336 * 60_000)}
    found = advice_for(model, 37 * MINUTE, 60_000)
    assert found is not None
    beat = Beat(37 * MINUTE, 0, 60_000)
    model.add(beat)
    assert len(advice(model)) == 1
    model.remove(beat)
    assert advice(model) == ()


def test_an_interval_of_seconds_gets_seconds():
    found = advice_for(model_of((60, 2, 10), (120, 2, 10)), 59, 2000)
    assert found is not None
    assert found.instead == 60
