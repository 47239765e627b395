"""Jobs as values: what a caller may ask for, where a job enters, and the way to a row and back."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.catch_up import CatchUp, CatchUpMode
from evenbeat.domain.first_run import FirstRun, first_run, resumed_run
from evenbeat.domain.job import (
    JobRecord,
    JobSpec,
    NewJob,
    OnFailure,
    Placement,
    recurring_of,
    scope_of,
    spec_columns,
    spec_of,
)
from evenbeat.domain.moments import EPOCH
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import After, Cron, Interval, Once, after_jobs
from evenbeat.domain.scope import Scope
from evenbeat.domain.setting_kinds import check_name
from evenbeat.domain.states import JobStatus
from evenbeat.domain.window import ExecutionWindow, parse_window
from evenbeat.errors import InvalidInput, InvalidSchedule

T0 = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
NOW = T0 + timedelta(minutes=7, seconds=30)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
TEN = Interval(10 * MINUTE)
PENDING, SCHEDULED = JobStatus.PENDING, JobStatus.SCHEDULED


def job_of(spec: JobSpec, **changes: Any) -> JobRecord:
    """A row of this spec, with nothing having happened to it yet."""
    schedule = spec.schedule
    columns = dict.fromkeys(JobRecord._fields) | {
        "id": uuid4(),
        "aging_bonus": 0,
        "anchor_at": schedule.anchor if isinstance(schedule, Interval) else None,
        "scope_kind": "global",
        "scope_id": "global",
    }
    return JobRecord(**(columns | spec_columns(spec) | changes))


# -- the first run -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "start", "status", "plan"),
    [
        (Once(), None, PENDING, NOW),
        (Once(NOW + HOUR), None, SCHEDULED, NOW + HOUR),
        (Once(NOW - HOUR), None, PENDING, NOW - HOUR),
        (Once(), NOW + HOUR, SCHEDULED, NOW + HOUR),
        (Once(), HOUR, SCHEDULED, NOW + HOUR),
        (Once(), timedelta(0), PENDING, NOW),
        (Once(NOW + HOUR), 2 * HOUR, SCHEDULED, NOW + 2 * HOUR),
    ],
)
def test_a_one_off_enters_at_its_moment(schedule, start, status, plan):
    spec = JobSpec("noop", schedule=schedule)
    assert first_run(spec, start, NOW) == FirstRun(status, plan, plan, None)


GRID_PLAN = T0 + 10 * MINUTE


@pytest.mark.parametrize(
    ("schedule", "placement", "start", "plan", "anchor"),
    [
        (TEN, "balanced", None, NOW + 10 * MINUTE, NOW),
        (TEN, "pinned", None, NOW + 10 * MINUTE, NOW),
        (TEN, "grid", None, GRID_PLAN, EPOCH),
        (TEN, "balanced", NOW + HOUR, NOW + HOUR, NOW + HOUR),
        (TEN, "pinned", MINUTE, NOW + MINUTE, NOW + MINUTE),
        (TEN, "grid", NOW + MINUTE, NOW + MINUTE, EPOCH),
        (Interval(TEN.every, T0), "balanced", None, GRID_PLAN, T0),
        (Interval(TEN.every, T0), "grid", None, GRID_PLAN, T0),
        (Interval(TEN.every, T0), "pinned", MINUTE, NOW + MINUTE, T0),
    ],
)
def test_an_interval_is_anchored_by_placement_anchor_or_start(
    schedule, placement, start, plan, anchor
):
    spec = JobSpec("noop", schedule=schedule, placement=Placement(placement))
    assert first_run(spec, start, NOW) == FirstRun(SCHEDULED, plan, plan, anchor)


def test_cron_enters_at_its_next_plan_unless_a_start_is_given():
    spec = JobSpec("noop", schedule=Cron("0 13 * * *"))
    assert first_run(spec, None, NOW) == FirstRun(SCHEDULED, T0 + HOUR, T0 + HOUR, None)
    assert first_run(spec, MINUTE, NOW).plan_time == NOW + MINUTE


def test_a_job_after_others_enters_without_a_time():
    spec = JobSpec("noop", schedule=after_jobs([uuid4()]))
    assert first_run(spec, None, NOW) == FirstRun(JobStatus.PENDING, None, None, None)
    with pytest.raises(InvalidSchedule, match="starts when they have ended, not at a time"):
        first_run(spec, MINUTE, NOW)
    with pytest.raises(InvalidSchedule, match="names at least one"):
        first_run(JobSpec("noop", schedule=After()), None, NOW)


@pytest.mark.parametrize("schedule", [Once(), Interval(TEN.every, T0), Cron("*/10 * * * *")])
def test_delay_and_window_move_the_due_time_but_not_the_plan(schedule):
    delayed = JobSpec("noop", schedule=schedule, schedule_delay=3 * MINUTE)
    plain, late = (
        first_run(replace(delayed, schedule_delay=0 * MINUTE), None, NOW),
        first_run(delayed, None, NOW),
    )
    assert late.plan_time == plain.plan_time
    assert late.next_run_at == plain.plan_time + 3 * MINUTE
    nightly = replace(delayed, window=parse_window("22:00-06:00"))
    assert first_run(nightly, None, NOW).plan_time == plain.plan_time
    pinned = replace(nightly, placement=Placement.PINNED)
    assert first_run(pinned, None, NOW).next_run_at == T0.replace(hour=22)
    due = first_run(nightly, None, NOW).next_run_at
    assert T0.replace(hour=22) <= due < T0.replace(hour=22, minute=5), "before its own next plan"


@given(st.integers(1, 10**7), st.sampled_from(Placement), st.none() | st.integers(-(10**7), 10**7))
def test_an_interval_first_runs_within_one_interval(seconds, placement, anchor):
    every = timedelta(seconds=seconds)
    origin = None if anchor is None else NOW + timedelta(seconds=anchor)
    spec = JobSpec("noop", schedule=Interval(every, origin), placement=placement)
    first = first_run(spec, None, NOW)
    assert NOW < first.plan_time <= NOW + every
    assert (first.plan_time - first.anchor_at) % every == timedelta(0)


# -- resuming ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("due", "status"), [(NOW - HOUR, PENDING), (NOW, PENDING), (NOW + HOUR, SCHEDULED)]
)
def test_a_resumed_one_off_keeps_its_moment(due, status):
    job = job_of(JobSpec("noop"), plan_time=T0, next_run_at=due)
    assert resumed_run(job, NOW) == FirstRun(status, T0, due, None)


@pytest.mark.parametrize("schedule", [Interval(TEN.every, T0), Cron("*/10 * * * *")])
def test_a_resumed_recurring_job_takes_the_next_plan_of_its_rhythm(schedule):
    spec = JobSpec("noop", schedule=schedule, schedule_delay=MINUTE)
    job = job_of(spec, plan_time=T0 - HOUR, next_run_at=T0 - HOUR)
    run = resumed_run(job, NOW)
    assert run == FirstRun(SCHEDULED, GRID_PLAN, GRID_PLAN + MINUTE, job.anchor_at)


def test_a_resumed_job_does_not_run_before_the_start_it_was_given():
    start = T0 + 100 * HOUR
    job = job_of(
        JobSpec("noop", schedule=Interval(HOUR, start)), plan_time=start, next_run_at=start
    )
    assert resumed_run(job, NOW) == FirstRun(SCHEDULED, start, start, start)


def test_a_resumed_job_keeps_a_plan_that_still_waits_for_its_window():
    night = T0.replace(hour=22)
    spec = JobSpec("noop", schedule=Interval(24 * HOUR, T0), window=parse_window("22:00-06:00"))
    job = job_of(spec, plan_time=T0, next_run_at=night)
    assert resumed_run(job, NOW) == FirstRun(SCHEDULED, T0, night, T0)


# -- spec → row → spec ---------------------------------------------------------------------------


def durations(low: int, high: int) -> st.SearchStrategy[timedelta]:
    return st.integers(low, high).map(lambda ms: timedelta(milliseconds=ms))


names = st.text(min_size=1, max_size=200).filter(lambda s: s.isprintable() and s == s.strip())
clocks = st.builds(time, st.integers(0, 23), st.integers(0, 59))
windows = st.tuples(st.frozensets(st.integers(0, 6), min_size=1), clocks, clocks).map(
    lambda parts: None if parts[1] == parts[2] else ExecutionWindow(*parts, "Europe/Berlin")
)
intervals = st.builds(
    Interval,
    st.integers(1, 3650 * 86400).map(lambda s: timedelta(seconds=s)),
    st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
crons = st.builds(
    Cron,
    st.sampled_from(["*/5 * * * *", "0 9 * * mon-fri", "@daily", "30 2 1 */3 *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
)
retries = st.builds(
    RetryPolicy,
    st.integers(0, 1000),
    durations(0, 3_600_000),
    durations(3_600_000, 86_400_000),
    st.floats(0, 1),
    st.lists(durations(0, 10**9), max_size=4).map(tuple),
)
long = 10**10
recurring = st.builds(
    JobSpec,
    names,
    names,
    st.integers(0, 100),
    intervals | crons,
    window=windows,
    schedule_delay=durations(0, long),
    catch_up=st.builds(
        CatchUp,
        st.sampled_from(CatchUpMode),
        st.none() | durations(1, long),
        st.integers(1, 1000),
    ),
    retry=retries,
    on_failure=st.sampled_from(OnFailure),
    timeout=st.none() | durations(1, long),
    lease=st.none() | durations(1, long),
    allow_stale_reentry=st.booleans(),
    cost=st.none() | durations(1, long),
)


@given(recurring, st.sampled_from(Placement))
def test_a_recurring_spec_comes_back_from_its_row(spec, placement):
    if isinstance(spec.schedule, Interval):
        spec = replace(spec, placement=placement)
    assert spec_of(job_of(spec)) == spec
    assert recurring_of(job_of(spec)) == spec.schedule


@given(recurring)
def test_a_one_off_spec_comes_back_from_its_row(spec):
    once = replace(spec, schedule=Once(), catch_up=CatchUp())
    assert spec_of(job_of(once)) == once
    assert recurring_of(job_of(once)) is None


@given(recurring, st.integers(0, 100))
def test_what_aging_added_is_no_part_of_the_spec(spec, aged):
    job = job_of(spec)
    assert (
        spec_of(job._replace(priority=job.priority + aged, aging_bonus=aged)).priority
        == spec.priority
    )


def test_a_row_knows_its_scope():
    job = job_of(JobSpec("noop"), scope_kind="tenant", scope_id="a/b")
    assert scope_of(job) == Scope("tenant", "a/b")


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["task", "queue"])
@pytest.mark.parametrize("value", ["", " x", "x ", "a\nb", "a\x00b", "\ud800", "x" * 201, None, 7])
def test_a_name_that_is_none_is_refused_with_what_is_allowed(field, value):
    with pytest.raises(InvalidInput, match="1 to 200 printable characters") as caught:
        JobSpec(**({"task": "noop"} | {field: value}))
    assert caught.value.field == field
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("value", ["a", "x" * 200, "nächtlicher Bericht", "報告", "a/b.c:d"])
def test_names_may_be_anything_printable(value):
    check_name("name", value)
    assert NewJob(JobSpec(value), name=value, dedup_key=value).name == value


@pytest.mark.parametrize("value", [-1, 101, 1.0, "5", True, None])
def test_a_priority_is_a_whole_number_from_0_to_100(value):
    with pytest.raises(InvalidInput, match="whole number from 0") as caught:
        JobSpec("any", priority=value)
    assert caught.value.field == "priority"
    with pytest.raises(InvalidInput, match="whole number from 0"):
        JobSpec("noop", priority=value)


@pytest.mark.parametrize("field", ["timeout", "lease", "cost"])
@pytest.mark.parametrize("value", [timedelta(0), -MINUTE])
def test_a_length_of_time_must_be_longer_than_zero(field, value):
    with pytest.raises(InvalidInput, match=f"{field} must be longer than zero") as caught:
        JobSpec("noop", **{field: value})
    assert caught.value.field == field


def test_a_delay_must_not_be_negative():
    with pytest.raises(InvalidInput, match="schedule_delay must not be negative"):
        JobSpec("noop", schedule_delay=-MINUTE)


def test_choices_may_be_written_as_text():
    spec = JobSpec("noop", placement="grid", on_failure="stop")
    assert spec == JobSpec("noop", placement=Placement.GRID, on_failure=OnFailure.STOP)
    assert spec.placement is Placement.GRID


@pytest.mark.parametrize(
    ("field", "options"),
    [("placement", "balanced, grid, pinned"), ("on_failure", "continue, stop")],
)
def test_an_unknown_choice_is_refused_with_the_known_ones(field, options):
    with pytest.raises(InvalidInput, match=f"{field} must be one of {options}, got 'maybe'"):
        JobSpec("noop", **{field: "maybe"})


@pytest.mark.parametrize("field", ["name", "dedup_key"])
def test_a_new_job_checks_its_names(field):
    with pytest.raises(InvalidInput, match=field):
        NewJob(JobSpec("noop"), **{field: " "})


def test_a_start_needs_a_timezone_and_may_have_any():
    with pytest.raises(InvalidInput, match="has no time zone"):
        NewJob(JobSpec("noop"), start=datetime(2026, 1, 1))  # noqa: DTZ001
    abroad = (NOW + HOUR).astimezone(timezone(5 * HOUR))
    assert first_run(JobSpec("noop"), abroad, NOW).plan_time == NOW + HOUR
