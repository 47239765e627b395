"""Placing many jobs at once: within an interval each, and as flat as one by one."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat.domain.moments import epoch_second
from evenbeat.domain.schedule import Cron
from evenbeat.placement.load import Beat, CronLoad, LoadModel, duration_ms
from evenbeat.placement.planner import MANY, Rhythm, place, place_many

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
