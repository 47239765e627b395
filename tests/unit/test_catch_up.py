"""Catch-up: which plan runs after downtime, and that every plan is accounted for."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.catch_up import SKIP_GRACE, CatchUp, CatchUpMode, Upcoming, upcoming
from evenbeat.domain.job import JobSpec
from evenbeat.domain.schedule import Cron, Interval, Recurring
from evenbeat.errors import InvalidInput

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SKIP = CatchUp(CatchUpMode.SKIP)
LATEST_ONLY = CatchUp()
EVERY_PLAN = CatchUp(CatchUpMode.EVERY_PLAN)
HOURLY = Interval(HOUR)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


def within(mode: CatchUpMode, window: timedelta) -> CatchUp:
    return CatchUp(mode, window)


# ---------------------------------------------------------------- examples

NOON = utc(2025, 1, 1, 12)
LATE = utc(2025, 1, 1, 15, 30)


@pytest.mark.parametrize("policy", [SKIP, LATEST_ONLY, EVERY_PLAN])
def test_a_plan_to_come_is_left_alone(policy: CatchUp) -> None:
    assert upcoming(HOURLY, policy, NOON, NOON - MINUTE) == Upcoming(NOON, 0)


@pytest.mark.parametrize("policy", [SKIP, LATEST_ONLY, EVERY_PLAN])
def test_a_plan_that_is_due_now_runs(policy: CatchUp) -> None:
    assert upcoming(HOURLY, policy, NOON, NOON) == Upcoming(NOON, 0)
    assert upcoming(HOURLY, policy, NOON, NOON + SKIP_GRACE) == Upcoming(NOON, 0)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (LATEST_ONLY, Upcoming(utc(2025, 1, 1, 15), 3)),
        # Plans before the window are not counted.
        (within(CatchUpMode.LATEST_ONLY, 4 * HOUR), Upcoming(utc(2025, 1, 1, 15), 3)),
        (within(CatchUpMode.LATEST_ONLY, 150 * MINUTE), Upcoming(utc(2025, 1, 1, 15), 2)),
        (within(CatchUpMode.LATEST_ONLY, 149 * MINUTE), Upcoming(utc(2025, 1, 1, 15), 1)),
        (within(CatchUpMode.LATEST_ONLY, 30 * MINUTE), Upcoming(utc(2025, 1, 1, 15), 0)),
        (within(CatchUpMode.LATEST_ONLY, 29 * MINUTE), Upcoming(utc(2025, 1, 1, 16), 0)),
        (SKIP, Upcoming(utc(2025, 1, 1, 16), 4)),
        (within(CatchUpMode.SKIP, 30 * MINUTE), Upcoming(utc(2025, 1, 1, 15), 3)),
        (EVERY_PLAN, Upcoming(NOON, 0)),
        (within(CatchUpMode.EVERY_PLAN, 4 * HOUR), Upcoming(NOON, 0)),
        (within(CatchUpMode.EVERY_PLAN, 90 * MINUTE), Upcoming(utc(2025, 1, 1, 14), 2)),
        (within(CatchUpMode.EVERY_PLAN, 89 * MINUTE), Upcoming(utc(2025, 1, 1, 15), 3)),
        (within(CatchUpMode.EVERY_PLAN, 10 * MINUTE), Upcoming(utc(2025, 1, 1, 16), 4)),
        (within(CatchUpMode.LATEST_ONLY, timedelta.max), Upcoming(utc(2025, 1, 1, 15), 3)),
        (within(CatchUpMode.EVERY_PLAN, timedelta.max), Upcoming(NOON, 0)),
    ],
)
def test_after_three_and_a_half_hours(policy: CatchUp, expected: Upcoming) -> None:
    assert upcoming(HOURLY, policy, NOON, LATE) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (LATEST_ONLY, Upcoming(utc(2025, 1, 1, 15), 3)),  # 12:10, 13:00 and 14:00 are given up
        (SKIP, Upcoming(utc(2025, 1, 1, 16), 4)),
        (EVERY_PLAN, Upcoming(utc(2025, 1, 1, 12, 10), 0)),
    ],
)
def test_a_manual_run_off_the_schedule_counts_as_a_plan(
    policy: CatchUp, expected: Upcoming
) -> None:
    assert upcoming(HOURLY, policy, utc(2025, 1, 1, 12, 10), LATE) == expected


def test_a_manual_run_newer_than_the_newest_plan_is_the_one() -> None:
    manual = utc(2025, 1, 1, 15, 20)
    assert upcoming(HOURLY, LATEST_ONLY, manual, LATE) == Upcoming(manual, 0)
    assert upcoming(HOURLY, SKIP, manual, LATE) == Upcoming(utc(2025, 1, 1, 16), 1)


# ---------------------------------------------------------------- a year of downtime


class Calls:
    """Counts what is asked of a schedule."""

    def __init__(self, schedule: Recurring) -> None:
        self.schedule = schedule
        self.asked: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        self.asked.append(verb)
        return getattr(self.schedule, verb)


@pytest.mark.parametrize(
    "schedule", [Interval(MINUTE), Cron("* * * * *"), Cron("* * * * *", "Europe/Berlin")]
)
@pytest.mark.parametrize("policy", [LATEST_ONLY, SKIP, within(CatchUpMode.EVERY_PLAN, HOUR)])
def test_a_year_of_downtime_is_not_walked(
    schedule: Recurring, policy: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = []
    original = type(schedule).next_after
    monkeypatch.setattr(
        type(schedule),
        "next_after",
        lambda self, moment: walked.append(moment) or original(self, moment),
    )
    spy: Any = Calls(schedule)
    start, now = utc(2024, 1, 1), utc(2024, 12, 31, 0, 0, 30)
    result = upcoming(spy, policy, start, now)
    assert result.skipped == schedule.count(start, result.plan_time) > 525_000
    assert result.plan_time >= now - HOUR
    assert len(spy.asked) <= 3
    assert len(walked) <= 1


# ---------------------------------------------------------------- properties

schedules = st.one_of(
    st.builds(
        Interval,
        st.integers(1, 100_000).map(lambda seconds: timedelta(seconds=seconds)),
        st.none() | st.just(utc(2025, 1, 1, 0, 0, 0, 5)),
    ),
    st.builds(
        Cron,
        st.sampled_from(["*/20 * * * *", "30 2 * * *", "0 9-17 * * 1-5", "5,35 1,2,3 * * *"]),
        st.sampled_from(["UTC", "Europe/Berlin", "America/Los_Angeles", "Australia/Lord_Howe"]),
    ),
)
policies = st.builds(
    CatchUp,
    st.sampled_from(CatchUpMode),
    st.none() | st.timedeltas(timedelta(seconds=1), timedelta(days=40)),
)
starts = st.builds(
    lambda day, offset: day + offset,
    st.sampled_from([utc(2025, 3, 29), utc(2025, 10, 25), utc(2025, 11, 1), utc(2025, 4, 5)]),
    st.timedeltas(timedelta(0), timedelta(days=2)),
)
# How long it was down, in plans, so that listing them stays cheap.
outages = st.floats(-2, 30)


def outage_end(schedule: Recurring, earliest: datetime, plans: float) -> datetime:
    step = schedule.every if isinstance(schedule, Interval) else 12 * HOUR
    return earliest + step * plans


def unhandled(schedule: Recurring, earliest: datetime, until: datetime) -> list[datetime]:
    plans, plan = [], earliest
    while plan <= until:
        plans.append(plan)
        plan = schedule.next_after(plan)
    return plans


@given(schedules, policies, starts, outages, st.booleans())
def test_every_plan_is_accounted_for_once(
    schedule: Recurring, policy: CatchUp, start: datetime, plans: float, manual: bool
) -> None:
    earliest = start if manual else schedule.next_after(start)
    now = outage_end(schedule, earliest, plans)
    result = upcoming(schedule, policy, earliest, now)
    missed = unhandled(schedule, earliest, now)
    given_up = [plan for plan in missed if plan < result.plan_time]
    if policy.mode is CatchUpMode.LATEST_ONLY and policy.window is not None:
        given_up = [plan for plan in given_up if now - plan <= policy.window]
    left = [plan for plan in missed if plan >= result.plan_time]
    assert result.plan_time >= earliest
    assert result.skipped == len(given_up)
    assert left == unhandled(schedule, result.plan_time, now)


@given(schedules, policies, starts, outages)
def test_asking_again_changes_nothing(
    schedule: Recurring, policy: CatchUp, start: datetime, plans: float
) -> None:
    earliest = schedule.next_after(start)
    now = outage_end(schedule, earliest, plans)
    first = upcoming(schedule, policy, earliest, now)
    assert upcoming(schedule, policy, first.plan_time, now) == Upcoming(first.plan_time, 0)


@given(schedules, policies, starts, outages)
def test_what_runs_is_never_older_than_the_window(
    schedule: Recurring, policy: CatchUp, start: datetime, plans: float
) -> None:
    earliest = schedule.next_after(start)
    now = outage_end(schedule, earliest, plans)
    result = upcoming(schedule, policy, earliest, now)
    if policy.window is not None:
        assert now - result.plan_time <= policy.window
    if policy.mode is CatchUpMode.SKIP and policy.window is None:
        assert now - result.plan_time <= SKIP_GRACE


# ---------------------------------------------------------------- policies


@pytest.mark.parametrize(
    ("values", "setting"),
    [
        ({"mode": "sometimes"}, "catch_up"),
        ({"mode": None}, "catch_up"),
        ({"window": timedelta(0)}, "catch_up_window"),
        ({"window": timedelta(hours=-1)}, "catch_up_window"),
        ({"max_plans_per_tick": 0}, "max_plans_per_tick"),
        ({"max_plans_per_tick": True}, "max_plans_per_tick"),
        ({"max_plans_per_tick": 1.5}, "max_plans_per_tick"),
    ],
)
def test_a_spec_refuses_values_that_their_settings_do_not_allow(
    values: dict[str, Any], setting: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        JobSpec("noop", catch_up=CatchUp(**values))
    assert caught.value.field == setting


def test_naive_moments_are_refused() -> None:
    with pytest.raises(InvalidInput, match="has no time zone"):
        upcoming(HOURLY, LATEST_ONLY, datetime(2025, 1, 1), NOON)  # noqa: DTZ001
