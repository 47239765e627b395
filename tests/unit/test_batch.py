"""Placing many jobs at once: within an interval each, and as flat as one by one."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from math import ceil
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat.domain.moments import epoch_second
from evenbeat.domain.schedule import Cron
from evenbeat.placement.load import Beat, CronLoad, LoadModel, duration_ms
from evenbeat.placement.planner import MANY, Placed, Rhythm, place, place_many
from evenbeat.placement.simulate import Curve, Runs, replay

NOW = datetime(2026, 2, 4, 9, 3, 27, 250_000, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
DAY, WEEK = timedelta(days=1), timedelta(days=7)


def rhythms() -> st.SearchStrategy[Rhythm]:
    every = st.one_of(st.integers(1, 3_000_000), st.sampled_from([60, 3600, 86_400, 604_800]))
    cost = st.one_of(st.none(), st.floats(0.1, 10**8))
    return st.builds(lambda e, c: Rhythm(e * SECOND, c), every, cost)


@given(st.lists(st.tuples(rhythms(), st.sampled_from([1, 3, MANY, 90])), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_each_begins_within_its_interval_and_is_counted(groups: list[tuple[Rhythm, int]]) -> None:
    model = LoadModel(NOW)
    model.add(Beat(7200, 12, 90_000))
    jobs = [job for job, count in groups for _ in range(count)]
    places = place_many(model, jobs, NOW)
    assert len(places) == len(jobs)
    assert model.jobs == 1 + len(jobs)
    for job, placed in zip(jobs, places, strict=True):
        assert NOW < placed.at <= NOW + job.every
        assert placed.beat[:3] == (
            int(job.every.total_seconds()),
            epoch_second(placed.at),
            duration_ms(job.cost_ms),
        )
    model.add_many([placed.beat for placed in places], [-1] * len(places))
    assert model.peak == 1


@pytest.mark.parametrize("every", [MINUTE, 30 * MINUTE, HOUR, 7 * HOUR, DAY, WEEK])
def test_many_alike_lie_as_flat_as_possible(every: timedelta) -> None:
    model = LoadModel(NOW)
    places = place_many(model, [Rhythm(every)] * 2000, NOW)
    assert model.peak <= model.mean + 1.01
    starts = len({placed.at for placed in places})
    assert starts >= min(2000, every // SECOND) * 0.5, "few begin at one second"


def test_holes_are_filled_before_hills_are_raised() -> None:
    model = LoadModel(NOW)
    model.add_crons({"busy": CronLoad(Cron("0 * * * *"), 1_800_000)})
    places = place_many(model, [Rhythm(HOUR)] * MANY, NOW)
    assert {placed.at.minute >= 30 for placed in places} == {True}
    assert model.peak == 1
    place_many(model, [Rhythm(HOUR)] * 6, NOW)
    place_many(model, [Rhythm(HOUR)] * 60, NOW)
    assert model.peak == 2


def test_few_are_placed_one_by_one() -> None:
    model, other = LoadModel(NOW), LoadModel(NOW)
    (placed,) = place_many(model, [Rhythm(HOUR)], NOW)
    assert placed == place(other, Rhythm(HOUR), NOW)
    assert place_many(model, [], NOW) == []


# ---------------------------------------------------------------- sets that come at once

MIXED = [1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 604_800]


def mixed(count: int, seed: int) -> list[tuple[int, int]]:
    """Periods from half an hour to a week, log-normal durations around a minute, in seconds."""
    random = np.random.default_rng(seed)
    lasting = np.maximum(1, np.rint(60 * np.exp(1.2 * random.standard_normal(count))))
    every = random.choice(MIXED, count)
    return [(int(p), int(min(p, d))) for p, d in zip(every, lasting, strict=True)]


def replayed(model: LoadModel, jobs: list[tuple[int, int]], places: list[Placed]) -> Curve:
    return replay(
        Runs.steady(placed.beat.phase - model.since, period, lasting)
        for (period, lasting), placed in zip(jobs, places, strict=True)
    )


def test_a_set_with_known_durations_needs_as_few_workers_as_possible() -> None:
    at_the_bound = 0
    for seed in range(401, 411):
        jobs, model, in_turn = mixed(200, seed), LoadModel(NOW), LoadModel(NOW)
        rhythms = [Rhythm(period * SECOND, lasting * 1000.0) for period, lasting in jobs]
        curve = replayed(model, jobs, place_many(model, rhythms, NOW))
        assert curve.peak == model.peak
        for rhythm in sorted(rhythms, key=lambda rhythm: rhythm[:2], reverse=True):
            in_turn.add(place(in_turn, rhythm, NOW).beat)
        assert curve.peak <= in_turn.peak, "never worse than one by one, hardest first"
        at_the_bound += curve.peak == ceil(curve.mean)
    assert at_the_bound >= 7


def test_a_packed_set_does_not_start_together() -> None:
    model, jobs = LoadModel(NOW), mixed(200, 420)
    rhythms = [Rhythm(period * SECOND, lasting * 1000.0) for period, lasting in jobs]
    starts = Counter(placed.at for placed in place_many(model, rhythms, NOW))
    assert starts.most_common(1)[0][1] <= 2


def test_guessed_durations_are_hedged() -> None:
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(431, 436):
        random, jobs = np.random.default_rng(seed), mixed(200, seed)
        wrong = [lasting * float(random.choice([500, 2000])) for _, lasting in jobs]
        for is_rough, of in ratios.items():
            model = LoadModel(NOW)
            rhythms = [
                Rhythm(period * SECOND, cost, is_rough=is_rough)
                for (period, _), cost in zip(jobs, wrong, strict=True)
            ]
            of.append(replayed(model, jobs, place_many(model, rhythms, NOW)).ratio)
    assert median(ratios[True]) <= 2.4
    assert median(ratios[True]) < 0.9 * median(ratios[False])


def test_what_is_there_stays_and_the_set_avoids_it() -> None:
    model = LoadModel(NOW)
    model.add_crons({"busy": CronLoad(Cron("0 * * * *"), 1_800_000)})
    places = place_many(model, [Rhythm(HOUR, 300_000 + n) for n in range(5)], NOW)
    assert {placed.at.minute >= 30 for placed in places} == {True}
    assert (model.peak, model.jobs) == (1, 6)
