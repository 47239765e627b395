"""When late jobs start: in the order of urgency, within the time that is allowed, as evenly as that
lets them."""

from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat.placement.late import LateJob, spread_late
from evenbeat.placement.load import RUN, WEEK, Beat, LoadModel

NOW = datetime(2026, 2, 4, 9, 0, tzinfo=UTC)
SECOND = int(NOW.timestamp())

late_jobs = st.builds(
    LateJob,
    priority=st.sampled_from([0, 50, 100]),
    spacing=st.sampled_from([60, 3600, 86_400]),
    next_plan=st.none() | st.integers(1, 86_400),
    lasting=st.integers(1, 200_000),
    latest=st.none() | st.integers(0, 10_000),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(late_jobs, min_size=1, max_size=60), st.integers(1, 10_000), st.integers(0, WEEK))
def test_every_job_starts_in_time_and_none_before_one_that_is_more_urgent(jobs, seconds, phase):
    model = LoadModel(NOW)
    model.add(Beat(3600, phase, 600_000), 3)
    starts = spread_late(model, SECOND, jobs, seconds)
    assert all(0 <= start <= seconds for start in starts)
    for job, start in zip(jobs, starts, strict=True):
        assert job.latest is None or start <= job.latest or start == job.next_plan
    free = [
        (job.urgency, start)
        for job, start in zip(jobs, starts, strict=True)
        if job.latest is None and start != job.next_plan
    ]
    in_order = [start for _, start in sorted(free)]
    assert all(a <= b for a, b in pairwise(in_order))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 120), min_size=1, max_size=80), st.integers(1, 9))
def test_no_more_run_at_once_than_half_more_than_usual_if_there_is_time(durations, usual):
    model = LoadModel(NOW)
    model.add(Beat(3600, SECOND, 3_600_000), usual)
    jobs = [LateJob(50, 86_400, None, lasting) for lasting in durations]
    starts = spread_late(model, SECOND, jobs, 2 * sum(durations))
    load = np.full(5 * sum(durations), usual)
    for start, lasting in zip(starts, durations, strict=True):
        load[start : start + lasting] += 1
    assert load.max() <= max(usual + 1, usual * 3 // 2)
    assert model.seconds.max() == usual * RUN, "the model stays as it is"


def test_a_plan_that_comes_before_its_turn_runs_in_its_place() -> None:
    jobs = [LateJob(90, 3600, None, 600), LateJob(50, 1800, 300, 600)]
    assert spread_late(LoadModel(NOW), SECOND, jobs, 1200) == [0, 300]


def test_more_run_at_once_where_time_is_short() -> None:
    jobs = [LateJob(50, 86_400, None, 600)] * 100
    starts = spread_late(LoadModel(NOW), SECOND, jobs, 1200)
    assert max(starts) <= 1200
    assert 25 <= max(starts.count(second) for second in set(starts)) <= 40
