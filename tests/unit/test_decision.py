"""What becomes of a job after a run, and what a late claim runs instead."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.catch_up import CatchUp, CatchUpMode
from evenbeat.domain.decision import (
    TICK,
    Decision,
    EndKind,
    RunEnd,
    decide,
    due_time,
    lost_lease,
    revise,
)
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord, JobSpec, OnFailure, Placement, spec_columns
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import After, Cron, Interval
from evenbeat.domain.states import ExecutionStatus, JobStatus
from evenbeat.domain.window import parse_window

T0 = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # a Monday
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DONE = Outcome()
FAILED = Outcome(ExecutionStatus.FAILED, error_message="no")
HOURLY = JobSpec("noop", schedule=Interval(HOUR, anchor=T0))
ONCE = JobSpec("noop")


def job_of(spec: JobSpec, plan: datetime | None = T0, **changes: Any) -> JobRecord:
    """A claimed row of this spec that runs `plan`."""
    schedule = spec.schedule
    columns = dict.fromkeys(JobRecord._fields) | {
        "id": uuid4(),
        "status": "running",
        "plan_time": plan,
        "next_run_at": plan,
        "current_retry_count": 0,
        "release_count": 0,
        "burst_count": 0,
        "aging_bonus": 0,
        "anchor_at": schedule.anchor if isinstance(schedule, Interval) else None,
    }
    return JobRecord(**(columns | spec_columns(spec) | changes))


def every(interval: timedelta = HOUR, **options: Any) -> JobSpec:
    return JobSpec("noop", schedule=Interval(interval, anchor=T0), **options)


def catching_up(mode: str, window: timedelta | None = None, burst: int = 10) -> JobSpec:
    return every(catch_up=CatchUp(CatchUpMode(mode), window, burst))


def next_step(job: JobRecord, outcome: Outcome, now: datetime, spread: float = 0.0) -> Decision:
    """What the job does after such a run."""
    decision = decide(job, outcome, now, spread).decision
    assert decision is not None
    return decision


# -- how the run ended ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "outcome", "kind"),
    [
        (ONCE, DONE, EndKind.COMPLETED),
        (HOURLY, DONE, EndKind.COMPLETED),
        (ONCE, FAILED, EndKind.RETRYING),
        (HOURLY, FAILED, EndKind.RETRYING),
        (JobSpec("noop", retry=RetryPolicy(max_retries=0)), FAILED, EndKind.FAILED),
        (every(retry=RetryPolicy(max_retries=0)), FAILED, EndKind.FAILED),
        (HOURLY, Outcome(ExecutionStatus.FAILED, final=True), EndKind.FAILED),
        (HOURLY, Outcome(ExecutionStatus.FAILED, needs_person=True), EndKind.FAILED),
        (HOURLY, Outcome(ExecutionStatus.CANCELLED), EndKind.CANCELLED),
    ],
)
def test_an_end_is_classified_once(spec, outcome, kind):
    end = decide(job_of(spec), outcome, T0)
    assert (end.kind, end.outcome) == (kind, outcome)


def test_the_wait_of_a_run_goes_from_due_to_start():
    job = job_of(ONCE, next_run_at=T0, started_at=T0 + MINUTE)
    assert decide(job, Outcome(queued_ms=500), T0).wait_seconds == 60.5
    assert decide(job._replace(next_run_at=None), DONE, T0).wait_seconds is None
    assert RunEnd(job, EndKind.LOST).wait_seconds is None


# -- success -------------------------------------------------------------------------------------


def test_a_one_off_that_succeeds_is_completed():
    assert next_step(job_of(ONCE), DONE, T0) == Decision(JobStatus.COMPLETED)


@pytest.mark.parametrize("took", [timedelta(0), 25 * MINUTE, 59 * MINUTE])
def test_a_recurring_job_goes_on_to_its_next_plan_however_long_it_took(took):
    expected = Decision(JobStatus.SCHEDULED, T0 + HOUR, T0 + HOUR)
    assert next_step(job_of(HOURLY), DONE, T0 + took) == expected


def test_a_job_after_others_waits_for_them_again_unless_it_must_stop():
    spec = JobSpec("noop", schedule=After(), retry=RetryPolicy(max_retries=0))
    waits = Decision(JobStatus.PENDING)
    assert next_step(job_of(spec), DONE, T0) == next_step(job_of(spec), FAILED, T0) == waits
    stops = job_of(spec, on_failure=str(OnFailure.STOP))
    assert next_step(stops, DONE, T0) == waits
    assert next_step(stops, FAILED, T0) == Decision(JobStatus.FAILED)
    again = next_step(job_of(JobSpec("noop", schedule=After())), FAILED, T0)
    assert (again.status, again.plan_time, again.retry_count) == (JobStatus.SCHEDULED, T0, 1)


def test_cron_goes_on_to_its_next_plan():
    spec = JobSpec("noop", schedule=Cron("0 9 * * *", "Europe/Berlin"))
    plan = datetime(2026, 3, 28, 8, tzinfo=UTC)
    # The night between has 23 hours.
    after = next_step(job_of(spec, plan), DONE, plan + MINUTE)
    assert after.plan_time == datetime(2026, 3, 29, 7, tzinfo=UTC)


def test_success_forgets_earlier_retries():
    assert next_step(job_of(HOURLY, current_retry_count=2), DONE, T0).retry_count == 0


def test_a_run_over_several_plans_runs_the_newest_and_counts_the_others():
    after = next_step(job_of(HOURLY), DONE, T0 + 3.5 * HOUR)
    assert after == Decision(JobStatus.SCHEDULED, T0 + 3 * HOUR, T0 + 3 * HOUR, skipped=2)


def test_a_cancelled_run_cancels_its_job():
    outcome = Outcome(ExecutionStatus.CANCELLED)
    assert next_step(job_of(HOURLY), outcome, T0) == Decision(JobStatus.CANCELLED)


# -- failure -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [ONCE, HOURLY])
@pytest.mark.parametrize(("count", "wait"), [(0, 60), (1, 120), (2, 240)])
def test_a_failure_is_retried_after_a_growing_wait_under_the_same_plan(spec, count, wait):
    now = T0 + 5 * MINUTE
    after = next_step(job_of(spec, current_retry_count=count, burst_count=4), FAILED, now)
    due = now + timedelta(seconds=wait)
    assert after == Decision(JobStatus.SCHEDULED, T0, due, count + 1, burst_count=4)


@pytest.mark.parametrize(("spread", "seconds"), [(-1.0, 48), (0.0, 60), (0.5, 66), (1.0, 72)])
def test_the_spread_moves_a_retry_by_its_jitter(spread, seconds):
    after = next_step(job_of(ONCE), FAILED, T0, spread)
    assert after.next_run_at == T0 + timedelta(seconds=seconds)


def test_a_handlers_own_wait_replaces_the_policys():
    outcome = Outcome(ExecutionStatus.FAILED, retry_after=7 * MINUTE)
    after = next_step(job_of(ONCE), outcome, T0, spread=1.0)
    assert (after.next_run_at, after.retry_count) == (T0 + 7 * MINUTE, 1)


@pytest.mark.parametrize("wish", [timedelta.max, timedelta.min])
def test_a_senseless_wait_is_brought_to_its_senses(wish):
    outcome = Outcome(ExecutionStatus.FAILED, retry_after=wish)
    after = next_step(job_of(ONCE), outcome, T0)
    assert after.status is JobStatus.SCHEDULED
    assert after.next_run_at >= T0


def test_a_handlers_own_wait_is_no_way_around_the_last_retry():
    outcome = Outcome(ExecutionStatus.FAILED, retry_after=MINUTE)
    after = next_step(job_of(ONCE, current_retry_count=3), outcome, T0)
    assert after == Decision(JobStatus.FAILED, retry_count=3)


NEVER = RetryPolicy(max_retries=0)


@pytest.mark.parametrize(
    ("spec", "outcome", "expected"),
    [
        (JobSpec("noop", retry=NEVER), FAILED, Decision(JobStatus.FAILED)),
        (every(retry=NEVER), FAILED, Decision(JobStatus.SCHEDULED, T0 + HOUR, T0 + HOUR)),
        (every(retry=NEVER, on_failure=OnFailure.STOP), FAILED, Decision(JobStatus.FAILED)),
    ],
)
def test_without_retries_left_the_job_goes_on_or_ends(spec, outcome, expected):
    assert next_step(job_of(spec), outcome, T0) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (ONCE, Decision(JobStatus.FAILED)),
        (HOURLY, Decision(JobStatus.SCHEDULED, T0 + HOUR, T0 + HOUR)),
        (every(on_failure=OnFailure.STOP), Decision(JobStatus.FAILED)),
    ],
)
def test_a_final_failure_is_not_retried(spec, expected):
    assert next_step(job_of(spec), Outcome(ExecutionStatus.FAILED, final=True), T0) == expected


@pytest.mark.parametrize("spec", [ONCE, HOURLY])
def test_a_case_for_a_person_ends_even_a_recurring_job(spec):
    outcome = Outcome(ExecutionStatus.FAILED, needs_person=True)
    assert next_step(job_of(spec), outcome, T0) == Decision(JobStatus.FAILED)


def test_a_lost_lease_is_an_attempt_like_any_other():
    job = job_of(HOURLY)
    outcome = lost_lease(job)
    assert (outcome.status, outcome.error_code) == (ExecutionStatus.FAILED, "lease_expired")
    assert next_step(job, outcome, T0).retry_count == 1


def test_a_lost_lease_that_may_not_be_re_entered_waits_for_a_person():
    job = job_of(every(allow_stale_reentry=False))
    assert lost_lease(job).error_code == "stale_timeout"
    assert next_step(job, lost_lease(job), T0) == Decision(JobStatus.FAILED)


# -- delay and window ----------------------------------------------------------------------------

NIGHT = parse_window("22:00-06:00 UTC")
TONIGHT = T0.replace(hour=22)


def test_a_delay_comes_after_every_plan():
    after = next_step(job_of(every(schedule_delay=10 * MINUTE)), DONE, T0 + 15 * MINUTE)
    assert (after.plan_time, after.next_run_at) == (T0 + HOUR, T0 + HOUR + 10 * MINUTE)


def test_a_plan_whose_delay_has_not_passed_is_not_late():
    after = next_step(job_of(every(schedule_delay=10 * MINUTE)), DONE, T0 + HOUR + 5 * MINUTE)
    assert (after.plan_time, after.skipped) == (T0 + HOUR, 0)


def test_a_plan_waits_for_its_window():
    after = next_step(job_of(every(window=NIGHT)), DONE, T0)
    assert (after.plan_time, after.next_run_at) == (T0 + HOUR, TONIGHT)


def test_a_retry_waits_for_the_window():
    plan = T0.replace(hour=5, minute=59)
    after = next_step(job_of(JobSpec("noop", window=NIGHT), plan), FAILED, plan)
    assert (after.plan_time, after.next_run_at, after.retry_count) == (plan, TONIGHT, 1)


def test_a_retry_inside_the_window_does_not_wait():
    after = next_step(job_of(JobSpec("noop", window=NIGHT), TONIGHT), FAILED, TONIGHT)
    assert after.next_run_at == TONIGHT + MINUTE


def test_a_plan_that_missed_its_window_waits_for_the_next_one():
    spec = every(window=NIGHT, catch_up=CatchUp(CatchUpMode.EVERY_PLAN))
    plan, now = T0.replace(hour=4), T0.replace(hour=6, minute=30)
    after = next_step(job_of(spec, plan), DONE, now)
    assert (after.plan_time, after.next_run_at) == (plan + HOUR, TONIGHT)


@pytest.mark.parametrize("mode", CatchUpMode)
def test_a_plan_that_its_window_holds_back_is_never_dropped(mode):
    daily = Interval(24 * HOUR, anchor=T0)
    spec = JobSpec("noop", schedule=daily, window=NIGHT, catch_up=CatchUp(mode))
    yesterday = T0 - 24 * HOUR
    after = next_step(job_of(spec, yesterday), DONE, T0 + 30 * MINUTE)
    # The window opens 14 hours before its own next plan, and is filled for 7:45 of its 8 hours.
    held = TONIGHT + timedelta(hours=6, minutes=15)
    assert (after.plan_time, after.next_run_at, after.skipped) == (T0, held, 0)
    claimed = job_of(spec, T0, next_run_at=held)
    assert revise(claimed, held + timedelta(seconds=2)) is None
    pinned = job_of(replace(spec, placement=Placement.PINNED), yesterday)
    assert next_step(pinned, DONE, T0 + 30 * MINUTE).next_run_at == TONIGHT


# -- bursts --------------------------------------------------------------------------------------


def test_missed_plans_come_in_bursts_with_a_tick_between():
    job = job_of(catching_up("every_plan", burst=3))
    now = T0 + 5.5 * HOUR
    steps = []
    for _ in range(6):
        after = next_step(job, DONE, now)
        wait = max(after.next_run_at - now, timedelta(0))
        steps.append((after.plan_time.hour - T0.hour, wait))
        now += wait
        job = job._replace(
            plan_time=after.plan_time, next_run_at=after.next_run_at, burst_count=after.burst_count
        )
    at_once = timedelta(0)
    assert steps[:5] == [(1, at_once), (2, at_once), (3, TICK), (4, at_once), (5, at_once)]
    assert (steps[5], job.burst_count) == ((6, T0 + 6 * HOUR - now + steps[5][1]), 0)


def test_a_burst_of_one_pauses_after_each_plan():
    now = T0 + 5 * HOUR
    after = next_step(job_of(catching_up("every_plan", burst=1)), DONE, now)
    assert (after.plan_time, after.next_run_at) == (T0 + HOUR, now + TICK)


@pytest.mark.parametrize("mode", ["skip", "latest_only"])
def test_other_modes_never_count_a_burst(mode):
    after = next_step(job_of(catching_up(mode, burst=1)), DONE, T0 + 5.5 * HOUR)
    assert after.burst_count == 0
    assert after.next_run_at == after.plan_time


# -- revise --------------------------------------------------------------------------------------

OUTAGE = T0 + 5.5 * HOUR


@pytest.mark.parametrize(
    ("spec", "hour", "skipped"),
    [
        (catching_up("latest_only"), 5, 5),
        (catching_up("latest_only", 90 * MINUTE), 5, 1),  # those before the window do not count
        (catching_up("latest_only", 29 * MINUTE), 6, 0),
        (catching_up("skip"), 6, 6),
        (catching_up("skip", 30 * MINUTE), 5, 5),
        (catching_up("every_plan", 2 * HOUR), 4, 4),
        (catching_up("every_plan", MINUTE), 6, 6),
    ],
)
def test_after_an_outage_the_catch_up_mode_chooses_the_plan(spec, hour, skipped):
    revised = revise(job_of(spec), OUTAGE)
    assert (revised.plan_time, revised.skipped) == (T0 + hour * HOUR, skipped)


def test_every_plan_keeps_the_oldest_missed_plan():
    assert revise(job_of(catching_up("every_plan")), OUTAGE) is None


@pytest.mark.parametrize("mode", CatchUpMode)
def test_a_plan_claimed_in_time_is_not_revised(mode):
    assert revise(job_of(catching_up(mode)), T0 + timedelta(seconds=3)) is None


def test_a_run_claimed_outside_its_window_waits_for_the_next_opening():
    job = job_of(JobSpec("noop", window=parse_window("22:00-06:00")), next_run_at=T0)
    noon = T0.replace(hour=12)
    assert revise(job, noon) == (T0, noon.replace(hour=22), 0)
    assert revise(job, noon.replace(hour=23)) is None


def test_the_delay_is_no_lateness():
    spec = every(schedule_delay=2 * HOUR, catch_up=CatchUp(CatchUpMode.SKIP))
    job = job_of(spec, next_run_at=T0 + 2 * HOUR)
    assert revise(job, T0 + 2 * HOUR) is None
    assert revise(job, T0 + 2 * HOUR + MINUTE) is None
    late = revise(job, T0 + 2 * HOUR + 2 * MINUTE)
    assert late == (T0 + HOUR, T0 + 3 * HOUR, 1)


@pytest.mark.parametrize(
    "job",
    [
        job_of(ONCE),
        job_of(HOURLY, None),
        job_of(HOURLY, current_retry_count=1),
        job_of(HOURLY, release_count=1),
    ],
    ids=["one-off", "without a plan", "retrying", "released"],
)
def test_what_has_begun_or_does_not_recur_is_not_revised(job):
    assert revise(job, OUTAGE) is None


# -- whatever happens ----------------------------------------------------------------------------

windows = st.sampled_from([None, NIGHT, parse_window("Mon-Fri 09:00-17:00 Europe/Berlin")])
schedules = st.one_of(
    st.integers(1, 200_000).map(lambda s: Interval(timedelta(seconds=s), anchor=T0)),
    st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 12 * * mon", "@hourly"]).map(
        lambda text: Cron(text, "Europe/Berlin")
    ),
)
policies = st.builds(
    CatchUp,
    st.sampled_from(CatchUpMode),
    st.none() | st.integers(1, 100_000).map(lambda s: timedelta(seconds=s)),
    st.integers(1, 5),
)
specs = st.builds(
    JobSpec,
    st.just("noop"),
    schedule=schedules,
    catch_up=policies,
    window=windows,
    schedule_delay=st.integers(0, 7200).map(lambda s: timedelta(seconds=s)),
    retry=st.builds(RetryPolicy, max_retries=st.integers(0, 3)),
)
seconds = st.integers(0, 300_000) | st.integers(0, 60)
steps = st.tuples(seconds, seconds, st.sampled_from([DONE, FAILED]), st.floats(-1, 1))


@given(specs, st.lists(steps, max_size=25))
def test_plans_only_go_forward_and_none_starts_before_its_time(spec, walk):
    first = spec.schedule.next_after(T0)
    job = job_of(spec, first)
    job = job._replace(next_run_at=due_time(job, first))
    for late, took, outcome, spread in walk:
        now = job.next_run_at + timedelta(seconds=late)
        revised = revise(job, now)
        if revised is not None:
            assert revised.plan_time >= job.plan_time
            if spec.catch_up.mode is CatchUpMode.LATEST_ONLY and spec.catch_up.window is not None:
                assert revised.skipped == 0 or revised.plan_time > job.plan_time
            else:
                assert (revised.skipped >= 1) == (revised.plan_time > job.plan_time)
            assert spec.window is None or spec.window.contains(max(now, revised.start_at))
            job = job._replace(plan_time=revised.plan_time)
            if revised.start_at > now:
                job = job._replace(next_run_at=revised.start_at)
                continue
        assert due_time(job, job.plan_time) <= now or job.current_retry_count
        assert spec.window is None or spec.window.contains(now)
        end = now + timedelta(seconds=took)
        after = next_step(job, outcome, end, spread)
        assert after.status is JobStatus.SCHEDULED
        if after.retry_count:
            assert (after.plan_time, after.retry_count) == (
                job.plan_time,
                job.current_retry_count + 1,
            )
            assert after.next_run_at >= end
        else:
            assert after.plan_time > job.plan_time
        assert after.next_run_at >= after.plan_time
        assert after.skipped >= 0
        job = job._replace(
            plan_time=after.plan_time,
            next_run_at=after.next_run_at,
            current_retry_count=after.retry_count,
            burst_count=after.burst_count,
        )


@given(specs.filter(lambda spec: spec.window is not None), seconds)
def test_a_next_run_that_is_still_to_come_lies_inside_the_window(spec, took):
    plan = spec.schedule.next_after(T0)
    now = plan + timedelta(seconds=took)
    after = next_step(job_of(spec, plan), DONE, now)
    assert spec.window.contains(max(after.next_run_at, now))
