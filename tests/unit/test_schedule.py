"""Schedules: intervals, cron over clock changes, and what is refused."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given
from hypothesis import strategies as st

from evenbeat.domain.moments import _stretches
from evenbeat.domain.schedule import (
    After,
    AfterCondition,
    Awaited,
    Cron,
    Interval,
    Once,
    Recurring,
    after_jobs,
    cron,
    parse_schedule,
)
from evenbeat.domain.schedule.cron import NAMED_CRON
from evenbeat.errors import InvalidInput, InvalidSchedule

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
BERLIN, LOS_ANGELES, LORD_HOWE = "Europe/Berlin", "America/Los_Angeles", "Australia/Lord_Howe"
JOB = UUID("01900000-0000-7000-8000-000000000001")

# Local days on which the clocks change: (zone, a UTC midnight before the gap, one before the fold).
CLOCK_CHANGES = [
    (BERLIN, datetime(2025, 3, 29, tzinfo=UTC), datetime(2025, 10, 25, tzinfo=UTC)),
    (LOS_ANGELES, datetime(2025, 3, 8, tzinfo=UTC), datetime(2025, 11, 1, tzinfo=UTC)),
    (LORD_HOWE, datetime(2025, 10, 4, tzinfo=UTC), datetime(2025, 4, 5, tzinfo=UTC)),
    # A gap that ends at midnight, a gap at midnight, and a zone that skipped a whole day.
    ("America/Nuuk", datetime(2024, 3, 30, tzinfo=UTC), datetime(2024, 10, 26, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2024, 4, 25, tzinfo=UTC), datetime(2024, 10, 31, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 29, tzinfo=UTC), datetime(2012, 3, 31, tzinfo=UTC)),
    # Clocks that fell back across midnight, at one minute past.
    ("America/St_Johns", datetime(2010, 3, 13, tzinfo=UTC), datetime(2010, 11, 6, tzinfo=UTC)),
]
ZONES = ["UTC", *(zone for zone, _, _ in CLOCK_CHANGES), "Asia/Kathmandu"]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


def plans_between(schedule: Recurring, after: datetime, until: datetime) -> list[datetime]:
    plans = []
    while (after := schedule.next_after(after)) <= until:
        plans.append(after)
    return plans


def on_the_clock(plans: list[datetime], zone: str) -> list[str]:
    return [f"{plan.astimezone(ZoneInfo(zone)):%d %H:%M}" for plan in plans]


# ---------------------------------------------------------------- strategies

moments = st.datetimes(
    datetime(2008, 1, 1),  # noqa: DTZ001  hypothesis adds the zone
    datetime(2031, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
near_changes = st.builds(
    lambda days, offset: days + offset,
    st.sampled_from([day for _, gap, fold in CLOCK_CHANGES for day in (gap, fold)]),
    st.timedeltas(timedelta(0), timedelta(days=3)),
)
intervals = st.builds(
    Interval,
    st.integers(1, 10**8).map(lambda seconds: timedelta(seconds=seconds)),
    st.none() | moments,
)


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.integers(1, high)
    return st.one_of(
        st.just("*"),
        number.map(str),
        span,
        st.builds("*/{}".format, step),
        st.builds("{}/{}".format, span, step),
        st.lists(number.map(str), min_size=2, max_size=4).map(",".join),
    )


days_of_month = st.one_of(
    st.just("*"), field(1, 28), st.sampled_from(["L", "LW", "31", "29-31", "*/2"])
)
days_of_week = st.one_of(
    st.just("*"), field(0, 7), st.sampled_from(["mon-fri", "sun", "1#2", "5L", "*/3"])
)
months = st.one_of(st.just("*"), st.just("*"), field(1, 12))
expressions = st.builds(
    "{} {} {} {} {}".format, field(0, 59), field(0, 23), days_of_month, months, days_of_week
)


def as_cron(expression: str, zone: str) -> Cron | None:
    try:
        return Cron(expression, zone)
    except InvalidSchedule:
        return None


crons = st.builds(as_cron, expressions, st.sampled_from(ZONES)).filter(
    lambda cron: cron is not None
)
# Plans close enough to each other that a test can list those of some days.
busy_crons = st.builds(
    Cron,
    st.builds(
        "{} {} * * {}".format, field(0, 59), field(0, 23), st.sampled_from(["*", "*/2", "5-7"])
    ),
    st.sampled_from(ZONES),
)


# ---------------------------------------------------------------- intervals


def test_every_hour_and_a_half() -> None:
    schedule = parse_schedule("@every 1h30m")
    assert schedule == Interval(timedelta(minutes=90))
    assert schedule.preview(utc(1970, 1, 1), 3) == [
        utc(1970, 1, 1, 1, 30),
        utc(1970, 1, 1, 3),
        utc(1970, 1, 1, 4, 30),
    ]


def test_a_week_keeps_its_weekday_and_time() -> None:
    schedule = Interval(timedelta(days=7), anchor=utc(2025, 1, 6, 9, 0))
    assert schedule.next_after(utc(2025, 6, 1)) == utc(2025, 6, 2, 9, 0)
    assert parse_schedule("@every 7d") == Interval(timedelta(days=7))


def test_an_interval_longer_than_a_week() -> None:
    schedule = Interval(timedelta(days=10), anchor=utc(2025, 1, 1))
    assert schedule.preview(utc(2025, 1, 1), 2) == [utc(2025, 1, 11), utc(2025, 1, 21)]
    assert schedule.latest_until(utc(2025, 1, 20)) == utc(2025, 1, 11)


def test_plans_exist_before_the_anchor_too() -> None:
    schedule = Interval(HOUR, anchor=utc(2025, 1, 1, 0, 20))
    assert schedule.next_after(utc(2024, 1, 1)) == utc(2024, 1, 1, 0, 20)


def test_the_anchor_keeps_its_microseconds() -> None:
    anchor = utc(2025, 1, 1, 0, 0, 0, 123_457)
    schedule = Interval(timedelta(seconds=1), anchor)
    assert schedule.next_after(utc(2999, 1, 1)) == utc(2999, 1, 1, 0, 0, 0, 123_457)
    assert schedule.next_after(anchor) == anchor + timedelta(seconds=1)
    assert schedule.latest_until(anchor) == anchor
    assert schedule.latest_until(anchor - MICROSECOND) == anchor - timedelta(seconds=1)


def test_an_anchor_elsewhere_is_kept_in_utc() -> None:
    anchor = datetime(2025, 7, 1, 12, tzinfo=ZoneInfo(BERLIN))
    assert Interval(HOUR, anchor).anchor == utc(2025, 7, 1, 10)
    assert Interval(HOUR, anchor).next_after(anchor).tzinfo is UTC


@pytest.mark.parametrize(
    "every",
    [
        timedelta(0),
        timedelta(seconds=-1),
        timedelta(milliseconds=500),
        timedelta(seconds=1.5),
        3651 * DAY,
    ],
)
def test_refuses_intervals(every: timedelta) -> None:
    with pytest.raises(InvalidSchedule, match="@every 10s"):
        Interval(every)


@given(intervals, moments)
def test_interval_neighbours(schedule: Interval, moment: datetime) -> None:
    following, latest = schedule.next_after(moment), schedule.latest_until(moment)
    assert latest is not None
    assert latest <= moment < following
    assert following - latest == schedule.every
    assert schedule.count(latest, following) == 1
    assert (following - (schedule.anchor or utc(1970, 1, 1))) % schedule.every == timedelta(0)


@given(intervals, moments, st.integers(0, 50))
def test_interval_count_agrees_with_walking(
    schedule: Interval, after: datetime, plans: int
) -> None:
    until = after + schedule.every * plans
    assert schedule.count(after, until) == len(plans_between(schedule, after, until))


# ---------------------------------------------------------------- cron


def test_29_february() -> None:
    schedule = Cron("0 0 29 2 *")
    assert schedule.preview(utc(2024, 3, 1), 2) == [utc(2028, 2, 29), utc(2032, 2, 29)]
    assert schedule.latest_until(utc(2027, 1, 1)) == utc(2024, 2, 29)
    assert schedule.next_after(utc(2097, 1, 1)) == utc(2104, 2, 29)
    assert schedule.count(utc(2000, 1, 1), utc(2400, 1, 1)) == 97


def test_years_without_a_plan_are_passed_over() -> None:
    """Their clocks were looked at one day after another: a preview took 6 to 10 s."""
    schedule = Cron("0 0 */28 2 mon#5", "Asia/Tehran")
    before = _stretches.cache_info().misses
    plans = schedule.preview(utc(2026, 1, 1), 100)
    assert plans[:2] == [utc(2044, 2, 28, 20, 30), utc(2072, 2, 28, 20, 30)]
    assert plans[-1] == utc(4692, 2, 28, 20, 30)
    assert _stretches.cache_info().misses - before <= 2 * 100


@pytest.mark.parametrize(("zone", "gap", "fold"), CLOCK_CHANGES[:2])
def test_a_fixed_time_fires_once_a_day_over_clock_changes(
    zone: str, gap: datetime, fold: datetime
) -> None:
    expression = "30 2 * * *" if zone == BERLIN else "30 1,2 * * *"
    for day in (gap, fold):
        plans = plans_between(Cron(expression, zone), day, day + 3 * DAY)
        assert len(plans) == 3 * (len(expression.split()[1]) // 2 + 1)
    assert Cron("30 2 * * *", zone).count(gap, gap + 3 * DAY) == 3
    assert Cron("30 2 * * *", zone).count(fold, fold + 3 * DAY) == 3


def test_where_the_gap_and_the_fold_put_a_fixed_time() -> None:
    berlin = Cron("30 2 * * *", BERLIN)
    assert berlin.preview(utc(2025, 3, 29, 12), 2) == [
        utc(2025, 3, 30, 1, 0),
        utc(2025, 3, 31, 0, 30),
    ]
    assert berlin.preview(utc(2025, 10, 25, 12), 2) == [
        utc(2025, 10, 26, 0, 30),
        utc(2025, 10, 27, 1, 30),
    ]
    # Inside the second pass the first one is over: the next plan is tomorrow's.
    assert berlin.next_after(utc(2025, 10, 26, 1, 10)) == utc(2025, 10, 27, 1, 30)
    assert berlin.latest_until(utc(2025, 10, 26, 1, 40)) == utc(2025, 10, 26, 0, 30)


def test_several_fixed_times_in_one_gap_become_one_plan() -> None:
    schedule, day = Cron("0,30 2,3 * * *", BERLIN), (utc(2025, 3, 30), utc(2025, 3, 30, 12))
    assert on_the_clock(plans_between(schedule, *day), BERLIN) == ["30 03:00", "30 03:30"]
    assert schedule.count(*day) == 2


def test_a_gap_that_ends_at_midnight_moves_the_plan_to_the_next_day() -> None:
    plans = plans_between(
        Cron("30 23 * * *", "America/Nuuk"), utc(2024, 3, 30, 12), utc(2024, 4, 1)
    )
    assert on_the_clock(plans, "America/Nuuk") == ["31 00:00"]


def test_a_skipped_day_moves_its_plan_to_the_day_after() -> None:
    plans = plans_between(Cron("0 12 * * *", "Pacific/Apia"), utc(2011, 12, 29), utc(2011, 12, 31))
    assert on_the_clock(plans, "Pacific/Apia") == ["29 12:00", "31 00:00", "31 12:00"]


@pytest.mark.parametrize(("zone", "gap", "fold"), CLOCK_CHANGES)
def test_wildcards_follow_real_time(zone: str, gap: datetime, fold: datetime) -> None:
    for day in (gap, fold):
        plans = plans_between(Cron("*/15 * * * *", zone), day, day + 3 * DAY)
        if zone != "America/St_Johns":  # one minute past midnight breaks the quarter hours there
            assert {b - a for a, b in pairwise(plans)} == {15 * MINUTE}
        every_minute = Cron("* * * * *", zone)
        assert every_minute.count(day, day + 3 * DAY) == 3 * 1440


def test_half_an_hour_of_daylight_saving_loses_nothing() -> None:
    # The clocks go from 02:00 to 02:30 and back from 02:00 to 01:30.
    gap = plans_between(Cron("*/15 1-3 * * *", LORD_HOWE), utc(2025, 10, 4, 12), utc(2025, 10, 5))
    assert on_the_clock(gap, LORD_HOWE) == [
        "05 01:00", "05 01:15", "05 01:30", "05 01:45", "05 02:30", "05 02:45",
        "05 03:00", "05 03:15", "05 03:30", "05 03:45",
    ]  # fmt: skip
    fold = plans_between(Cron("*/15 1,2 * * *", LORD_HOWE), utc(2025, 4, 5, 12), utc(2025, 4, 6))
    assert on_the_clock(fold, LORD_HOWE) == [
        "06 01:00", "06 01:15", "06 01:30", "06 01:45", "06 01:30", "06 01:45",
        "06 02:00", "06 02:15", "06 02:30", "06 02:45",
    ]  # fmt: skip


def test_seconds_and_microseconds_do_not_hide_a_plan() -> None:
    schedule = Cron("*/5 * * * *")
    plan = utc(2025, 1, 1, 0, 5)
    assert schedule.next_after(plan - MICROSECOND) == plan
    assert schedule.next_after(plan) == plan + 5 * MINUTE
    assert schedule.latest_until(plan) == plan
    assert schedule.latest_until(plan - MICROSECOND) == plan - 5 * MINUTE
    assert schedule.latest_until(plan + MICROSECOND) == plan
    assert schedule.count(plan - MICROSECOND, plan) == 1
    assert schedule.count(plan, plan + MICROSECOND) == 0


def test_an_offset_with_seconds_is_respected() -> None:
    # Amsterdam kept its local mean time, 19 min 32 s ahead of UTC, until 1937.
    schedule = Cron("0 12 * * *", "Europe/Amsterdam")
    plan = schedule.next_after(utc(1900, 1, 1))
    assert f"{plan.astimezone(ZoneInfo('Europe/Amsterdam')):%H:%M:%S}" == "12:00:00"
    assert schedule.latest_until(plan) == plan


@given(crons, moments | near_changes)
def test_backwards_and_forwards_agree(schedule: Cron, moment: datetime) -> None:
    following, latest = schedule.next_after(moment), schedule.latest_until(moment)
    assert latest is not None
    assert latest <= moment < following
    assert schedule.next_after(latest) == following
    assert schedule.latest_until(following) == following
    assert schedule.latest_until(following - MICROSECOND) == latest
    assert schedule.next_after(latest - MICROSECOND) == latest
    assert schedule.count(latest, following) == 1
    assert schedule.count(latest, following - MICROSECOND) == 0


@given(busy_crons, near_changes, st.timedeltas(timedelta(0), timedelta(hours=30)))
def test_plans_are_those_that_the_wall_clock_shows(
    schedule: Cron, after: datetime, length: timedelta
) -> None:
    until = after + length
    expected = sorted(set(wall_clock_plans(schedule, after, until)))
    assert plans_between(schedule, after, until) == expected
    assert schedule.count(after, until) == len(expected)


def wall_clock_plans(schedule: Cron, after: datetime, until: datetime) -> Iterator[datetime]:
    """Find plans by looking at every minute, as someone with a watch and the crontab would."""
    fields = CronSim(schedule.expression, after)
    zone = ZoneInfo(schedule.timezone)
    minute, hour = schedule.expression.split()[:2]
    fixed = not minute.startswith("*") and not hour.startswith("*")

    def named(wall: datetime) -> bool:
        return (
            wall.hour in fields.hours
            and wall.minute in fields.minutes
            and wall.month in fields.months
            and fields.match_day(wall.date())
        )

    start = after.replace(second=0, microsecond=0) - 2 * HOUR
    past = (start - 2 * HOUR).astimezone(zone).replace(tzinfo=None)
    for step in range((until - start) // MINUTE + 1):
        moment = start + step * MINUTE
        wall = moment.astimezone(zone).replace(tzinfo=None)
        if fixed:
            # Everything between the furthest that the clock has shown and now takes its turn.
            due = (past + n * MINUTE for n in range(1, (wall - past) // MINUTE + 1))
            hit = any(named(passed) for passed in due) if step else False
            past = max(past, wall)
        else:
            hit = named(wall)
        if hit and after < moment <= until:
            yield moment


@given(crons, st.sampled_from([BERLIN, LOS_ANGELES, "UTC"]), near_changes)
def test_agrees_with_cronsim_where_clocks_shift_by_whole_hours(
    schedule: Cron, zone: str, moment: datetime
) -> None:
    schedule = Cron(schedule.expression, zone)
    walk = CronSim(schedule.expression, moment.astimezone(ZoneInfo(zone)))
    theirs = (plan.astimezone(UTC) for plan in walk)
    # In the second pass of a fold, cronsim starts with plans of the first: they are over.
    theirs = (plan for plan in theirs if plan > moment)
    assert schedule.preview(moment, 4) == [next(theirs) for _ in range(4)]


@given(
    st.builds(
        "{} {} * * {}".format, field(0, 59), st.integers(0, 23), st.sampled_from(["*", "1-5"])
    ),
    st.sampled_from(ZONES),
    near_changes,
    st.timedeltas(timedelta(0), timedelta(days=20)),
)
def test_count_agrees_with_walking(
    expression: str, zone: str, after: datetime, length: timedelta
) -> None:
    schedule = Cron(expression, zone)
    assert schedule.count(after, after + length) == len(
        plans_between(schedule, after, after + length)
    )


@given(crons, st.lists(moments, min_size=3, max_size=3).map(sorted))
def test_counts_of_adjoining_spans_add_up(schedule: Cron, three: list[datetime]) -> None:
    a, b, c = three
    assert schedule.count(a, b) + schedule.count(b, c) == schedule.count(a, c)
    assert schedule.count(b, a) == 0


def test_a_year_of_minutes_is_counted_by_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    original = cron._matching_days
    monkeypatch.setattr(
        cron, "_matching_days", lambda *args: looked_at.append(args) or original(*args)
    )
    assert Cron("* * * * *", BERLIN).count(utc(2025, 1, 1), utc(2026, 1, 1)) == 365 * 1440
    assert len(looked_at) < 50


@pytest.mark.parametrize("name", NAMED_CRON)
def test_named_forms(name: str) -> None:
    assert parse_schedule(name.upper()) == Cron(name)
    moment = utc(2025, 5, 17, 13, 45)
    assert Cron(name, BERLIN).preview(moment, 3) == Cron(NAMED_CRON[name], BERLIN).preview(
        moment, 3
    )


# ---------------------------------------------------------------- the edges of time


@pytest.mark.parametrize(
    "schedule",
    [
        Interval(HOUR),
        Interval(3650 * DAY, utc(9000, 5, 5)),
        Cron("* * * * *", "Asia/Tokyo"),
        Cron("0 0 29 2 *"),
    ],
)
def test_nothing_is_planned_beyond_9998(schedule: Recurring) -> None:
    last = schedule.latest_until(datetime.max.replace(tzinfo=UTC))
    assert last is not None
    assert last.year < 9999
    for moment in (last, datetime.max.replace(tzinfo=UTC)):
        with pytest.raises(InvalidSchedule, match="no plan left before the year 9999"):
            schedule.next_after(moment)
    assert schedule.count(last, datetime.max.replace(tzinfo=UTC)) == 0


@pytest.mark.parametrize(
    "schedule",
    [Interval(3650 * DAY), Interval(timedelta(seconds=7)), Cron("0 0 29 2 *", "Asia/Tokyo")],
)
def test_nothing_was_planned_before_the_year_2(schedule: Recurring) -> None:
    beginning = datetime.min.replace(tzinfo=UTC)
    assert schedule.latest_until(beginning) is None
    first = schedule.next_after(beginning)
    assert first.year < 12
    assert schedule.latest_until(first) == first
    assert schedule.latest_until(first - MICROSECOND) is None
    assert schedule.count(beginning, first) == 1


@pytest.mark.parametrize("schedule", [Interval(HOUR), Cron("@daily")])
def test_naive_moments_are_refused(schedule: Recurring) -> None:
    naive = datetime(2025, 1, 1)  # noqa: DTZ001
    for verb in (schedule.next_after, schedule.latest_until, lambda m: schedule.count(m, m)):
        with pytest.raises(
            InvalidInput, match=r"'2025-01-01T00:00:00' has no time zone.*tzinfo=UTC"
        ):
            verb(naive)


def test_moments_in_another_zone_are_understood() -> None:
    moment = datetime(2025, 10, 26, 2, 30, fold=1, tzinfo=ZoneInfo(BERLIN))
    assert Interval(HOUR).next_after(moment) == utc(2025, 10, 26, 2)
    assert Cron("@hourly").next_after(moment) == utc(2025, 10, 26, 2)


# ---------------------------------------------------------------- reading schedules


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@every 10s", Interval(timedelta(seconds=10))),
        ("  @EVERY   2d12h ", Interval(timedelta(hours=60))),
        ("30m", Interval(timedelta(minutes=30))),
        ("0 9 * * mon-fri", Cron("0 9 * * mon-fri")),
        ("  0   9 * *  1 ", Cron("0 9 * * 1")),
        ("@Daily", Cron("@daily")),
        ("0 0 L * *", Cron("0 0 L * *")),
    ],
)
def test_reads_schedules(text: str, expected: Recurring) -> None:
    assert parse_schedule(text) == expected


def test_the_timezone_goes_to_cron() -> None:
    assert parse_schedule("@daily", timezone=BERLIN) == Cron("@daily", BERLIN)


@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        ("", "@every 30m"),
        ("   ", "@every 30m"),
        (None, "@every 30m"),
        (30, "@every 30m"),
        ("sometimes", "1h30m"),
        ("once", "1h30m"),
        ("@now", "@every 1h30m"),
        ("@reboot", "@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly"),
        ("@daily 5", "@daily"),
        ("@", "@hourly"),
        ("@every", "1h30m"),
        ("@every 0s", "@every 10s"),
        ("@every -5m", "1h30m"),
        ("@every 1.5s", "whole number of seconds"),
        ("@every 500ms", "from 1s"),
        ("@every 3651d", "to 3650d"),
        ("@every 99999999d", "1h30m"),
        ("@every 5x", "1h30m"),
        ("@every 1h 30m", "1h30m"),
        ("@every1h", "@every 1h30m"),
        ("0s", "@every 10s"),
        ("30", "30s"),
        ("30 m", "0 9 * * mon-fri"),
        ("* * * *", "0 9 * * mon-fri"),
        ("*/10 * * * * *", "@every 10s"),
        ("1 2 3 4 5 6 7", "0 9 * * mon-fri"),
        ("60 * * * *", "0-59"),
        ("* 24 * * *", "0-23"),
        ("* * 0 * *", "1-31"),
        ("* * * 13 *", "jan-dec"),
        ("* * * * 8", "sun-sat"),
        ("* * * * fri-mon", "0 9 * * mon-fri"),
        ("*/0 * * * *", "0-59"),
        ("a b c d e", "0 9 * * mon-fri"),
        ("0 0 30 2 *", "0 9 * * mon-fri"),
        ("0 0 31 4,6 *", "0 9 * * mon-fri"),
        ("0 0 */30 2 mon#5", "never fires"),
        ("9" * 5000 + " * * * *", "0 9 * * mon-fri"),
    ],
)
def test_refuses_and_shows_the_way(bad: Any, shown: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        parse_schedule(bad)
    assert repr(bad) in str(caught.value)
    assert shown in str(caught.value)
    assert "for example" in str(caught.value) or "is written like" in str(caught.value)


def test_six_fields_are_told_about_seconds() -> None:
    with pytest.raises(InvalidSchedule, match="seconds are not supported"):
        parse_schedule("*/10 * * * * *")


@pytest.mark.parametrize(
    "zone",
    ["Mars/Phobos", "", " ", "../x", "/etc/passwd", "Europe", "Europe/", "a\0b", "x" * 5000, "CEST",
     "europe/berlin", "localtime", "right/UTC", "zone.tab", "\ud800", None, 5],
)  # fmt: skip
def test_refuses_time_zones(zone: Any) -> None:
    for make in (lambda: Cron("@daily", zone), lambda: parse_schedule("30m", timezone=zone)):
        with pytest.raises(InvalidSchedule) as caught:
            make()
        assert repr(zone) in str(caught.value)
        assert "Europe/Berlin" in str(caught.value)
        assert caught.value.field == "timezone"


@given(st.text(alphabet="0123456789*/-,#LW@ hmsdeveryjan", max_size=30) | st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        schedule = parse_schedule(text)
    except InvalidSchedule:
        return
    assert schedule.next_after(utc(2025, 1, 1)) > utc(2025, 1, 1)
    assert schedule.describe()


# ---------------------------------------------------------------- once and after


def test_once() -> None:
    assert Once().run_at is None
    assert Once(datetime(2025, 7, 1, 12, tzinfo=ZoneInfo(BERLIN))).run_at == utc(2025, 7, 1, 10)
    with pytest.raises(InvalidInput, match="has no time zone") as caught:
        Once(datetime(2025, 7, 1))  # noqa: DTZ001
    assert caught.value.field == "run_at"


def test_after() -> None:
    assert after_jobs([JOB]).jobs == (Awaited(JOB, AfterCondition.SUCCESS),)
    assert after_jobs([JOB, str(JOB)], "any") == After((Awaited(JOB, AfterCondition.ANY),))
    assert after_jobs([Awaited("a", AfterCondition.ANY), "b"]).jobs[1].on == "success"


def test_after_takes_names_and_ids() -> None:
    hexadecimal = JOB.hex
    jobs = after_jobs(["nightly", hexadecimal, "x" * 32]).jobs
    assert [awaited.job for awaited in jobs] == ["nightly", JOB, "x" * 32]


def test_after_needs_jobs() -> None:
    with pytest.raises(InvalidSchedule, match="Name at least one"):
        after_jobs([])


@pytest.mark.parametrize("job", [None, 1, "", " ", "a\nb"])
def test_after_refuses_what_is_no_job(job: Any) -> None:
    with pytest.raises(InvalidSchedule, match="cannot be waited for"):
        after_jobs([job])


def test_after_refuses_two_ways_for_one_job() -> None:
    with pytest.raises(InvalidSchedule, match="a is waited for in two ways: any and success"):
        after_jobs([Awaited("a", AfterCondition.ANY), "a"])


def test_after_takes_any_number_but_none() -> None:
    assert len(after_jobs(map(str, range(10_000))).jobs) == 10_000
    with pytest.raises(InvalidSchedule, match="others"):
        after_jobs([])


def test_after_refuses_other_conditions() -> None:
    with pytest.raises(InvalidSchedule, match=r"'maybe' is not a condition.*success, failure, any"):
        after_jobs([JOB], "maybe")


# ---------------------------------------------------------------- in words


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Interval(30 * MINUTE), "every 30 minutes"),
        (Interval(90 * MINUTE), "every 1 hour 30 minutes"),
        (Interval(HOUR), "every hour"),
        (Interval(7 * DAY), "every 7 days"),
        (Interval(timedelta(seconds=1)), "every second"),
        (Cron("0 9 * * *", BERLIN), "daily at 09:00, Europe/Berlin"),
        (Cron("* * * * *"), "every minute, UTC"),
        (Cron("@hourly"), "at the start of every hour, UTC"),
        (Cron("0 9 * * mon-fri"), "at 09:00 on Monday through Friday, UTC"),
        (Once(), "once, as soon as possible"),
        (Once(utc(2030, 1, 31, 9)), "once at 2030-01-31 09:00:00 UTC"),
        (After(), "after other jobs"),
        (after_jobs([JOB]), "after 1 job has completed"),
        (after_jobs([JOB, UUID(int=1)], "any"), "after 2 jobs have ended"),
        (after_jobs(["a", Awaited(JOB, AfterCondition.ANY)]), "after 2 jobs have ended as wanted"),
    ],
)
def test_describes(schedule: Recurring | Once | After, words: str) -> None:
    assert schedule.describe() == words


@given(crons | intervals)
@example(Cron("0 0 LW,L * *"))
@example(Cron("5/15 */7 L/2 jan-mar 1#1,5L"))
def test_anything_valid_can_be_described(schedule: Recurring) -> None:
    assert schedule.describe()
