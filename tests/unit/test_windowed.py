"""Jobs with execution windows: where they are placed, when they start, what the model counts."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evenbeat.domain.catch_up import CatchUp, CatchUpMode
from evenbeat.domain.decision import Decision, decide, due_time, revise
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobRecord, JobSpec, Placement, spec_columns, window_of
from evenbeat.domain.load_entry import LoadEntry
from evenbeat.domain.moments import EPOCH, at_second, epoch_second
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.domain.window import due_at, parse_window, usable
from evenbeat.placement.distribution import distribution
from evenbeat.placement.load import WEEK, Beat, CronLoad, LoadModel
from evenbeat.placement.off_peak import off_peak_hours
from evenbeat.placement.planner import Placed, Rhythm, place, place_many
from evenbeat.placement.rebalancing import rebalance
from evenbeat.placement.windowed import Hours, weekly_runs

SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=s) for s in (1, 60, 3600, 86_400))
NIGHT, BERLIN_NIGHT = "01:00-05:00 UTC", "01:00-05:00 Europe/Berlin"

windows = st.sampled_from([
    NIGHT, BERLIN_NIGHT, "Mon-Fri 22:00-06:00 Europe/Berlin",
    "Sat-Sun 09:00-17:30 America/New_York", "Sun 02:00-02:30 Europe/Berlin",
    "23:59-00:01 Australia/Lord_Howe", "Fri-Mon 00:00-24:00",
    "off_peak 03:00-07:00 UTC",
])  # fmt: skip
# An ordinary week, and weeks in which clocks change.
mondays = st.sampled_from([
    datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 3, 23, tzinfo=UTC),
    datetime(2026, 10, 19, tzinfo=UTC), datetime(2026, 10, 26, tzinfo=UTC),
])  # fmt: skip
starts = st.builds(lambda monday, s: monday + s * SECOND, mondays, st.integers(0, WEEK))
periods = st.sampled_from([300, 3600, 5 * 3600, 6 * 3600, 86_400, 90_000, 2 * 86_400, WEEK]) | (
    st.integers(600, WEEK)
)
delays = st.sampled_from([timedelta(0), 10 * MINUTE, 5 * HOUR])


def job_of(spec: JobSpec, plan: datetime) -> JobRecord:
    """A scheduled row of this spec whose next plan this is."""
    columns = dict.fromkeys(JobRecord._fields) | {
        "id": uuid4(), "status": "running", "plan_time": plan, "anchor_at": plan, "aging_bonus": 0,
        "current_retry_count": 0, "release_count": 0, "burst_count": 0,
    }  # fmt: skip
    job = JobRecord(**(columns | spec_columns(spec)))
    return job._replace(next_run_at=due_time(job, plan))


def runs_of(job: JobRecord, until: datetime) -> Iterator[tuple[datetime, datetime, int]]:
    """Each run (plan, start, plans skipped for it) of a job that takes no time, on idle workers."""
    skipped = 0
    while (now := job.next_run_at) is not None and now < until:
        revised = revise(job, now)
        if revised is not None:
            assert revised.start_at <= now, "what is due starts"
            job, skipped = job._replace(plan_time=revised.plan_time), skipped + revised.skipped
        assert job.plan_time is not None
        yield job.plan_time, now, skipped
        after = decide(job, Outcome(), now).decision
        assert isinstance(after, Decision)
        job = job._replace(
            plan_time=after.plan_time, next_run_at=after.next_run_at, burst_count=after.burst_count
        )
        skipped = after.skipped


# ---------------------------------------------------------------- when plans start


specs = st.builds(
    lambda text, period, who, delay, mode: JobSpec(
        "noop",
        schedule=Interval(period * SECOND),
        placement=who,
        schedule_delay=delay,
        window=parse_window(text),
        catch_up=CatchUp(mode, None, 1000),
    ),
    windows,
    periods,
    st.sampled_from(Placement),
    delays,
    st.sampled_from([CatchUpMode.LATEST_ONLY, CatchUpMode.EVERY_PLAN]),
)


@given(specs, starts)
@settings(max_examples=60, deadline=None)
def test_no_plan_is_lost_or_doubled_or_starts_outside(spec: JobSpec, start: datetime) -> None:
    assert isinstance(spec.schedule, Interval)
    schedule, delay, mode = spec.schedule, spec.schedule_delay, spec.catch_up.mode
    job, previous, due_inside = job_of(spec, start), start - schedule.every, []
    until = min(start + 15 * DAY, start + 150 * schedule.every)
    window = window_of(job)
    assert window is not None
    for plan, at, skipped in runs_of(job, until):
        assert window.contains(at)
        assert at >= plan + delay
        handled = (plan - previous) // schedule.every
        assert handled == 1 + skipped, "each plan runs once, or is counted as skipped"
        assert skipped == 0 or mode is CatchUpMode.LATEST_ONLY
        if window.contains(plan + delay):
            due_inside.append(plan)
            assert mode is CatchUpMode.EVERY_PLAN or at == plan + delay, "no run in its way"
        previous = plan
    all_inside = [
        plan
        for n in range((previous - start) // schedule.every + 1)
        if window.contains((plan := start + n * schedule.every) + delay)
    ]
    assert due_inside == all_inside, "what falls inside runs, whatever was held back before it"


@given(windows, starts, periods, delays)
def test_a_held_back_plan_starts_before_the_next_one_and_well_before_the_window_closes(
    text: str, start: datetime, period: int, delay: timedelta
) -> None:
    window, dues = parse_window(text), Interval(period * SECOND, start + delay)
    assume(not window.contains(start + delay))
    at = due_at(start, delay, window, dues)
    opening, closing = window.open_span(start + delay)
    assert opening <= at < opening + usable(closing - opening)
    following = dues.next_after(opening - SECOND / 10**6)
    assert at < following or at == following == opening
    last = dues.latest_until(opening - SECOND / 10**6)
    assert last is not None
    assert due_at(last - delay, delay, window, dues) == at, "all that wait start together, once"


def test_hourly_jobs_do_not_all_start_as_their_window_opens() -> None:
    opening = datetime(2026, 1, 5, 22, tzinfo=UTC)
    spec = JobSpec("noop", schedule=Interval(HOUR), window=parse_window("22:00-06:00"))
    at = []
    for minute in range(60):
        job = job_of(spec, opening - 3 * HOUR + minute * MINUTE)
        own = [start for _, start, _ in runs_of(job, opening + 2 * HOUR)]
        first = opening + minute * MINUTE
        held = [opening + minute * MINUTE / 2] if minute else []
        assert own == [*held, first, first + HOUR]
        at.append(own[0])
    assert len(set(at)) == 60
    pinned = job_of(replace(spec, placement=Placement.PINNED), opening - 150 * MINUTE)
    assert pinned.next_run_at == opening


# ---------------------------------------------------------------- what the model counts


@given(windows, starts, st.lists(st.tuples(st.integers(0, WEEK), st.booleans()), min_size=1,
                                 max_size=3), periods)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_the_model_counts_the_real_starts(
    text: str, now: datetime, jobs: list[tuple[int, bool]], period: int
) -> None:
    since = epoch_second(now)
    for phase, is_balanced in jobs:
        table = np.array([[period, since + phase, 1]])
        runs, owners = weekly_runs(table, Hours(text, is_balanced), since)
        schedule = Interval(period * SECOND, at_second(since + phase))
        dues = schedule if is_balanced else None
        # From the last plan that may start in the week: one that was held back all the week before.
        plan, expected = schedule.next_after(now - 9 * DAY), set()
        while plan < now + WEEK * SECOND:
            start = epoch_second(due_at(plan, timedelta(0), parse_window(text), dues))
            expected.add(start)
            plan = schedule.next_after(plan)
        assert sorted(runs[:, 1].tolist()) == sorted(
            second for second in expected if since <= second < since + WEEK
        )
        assert set(owners.tolist()) <= {0}


def test_windowed_jobs_are_added_and_removed_exactly() -> None:
    now = datetime(2026, 3, 23, tzinfo=UTC)
    model, empty = LoadModel(now), LoadModel(now)
    beats = [Beat(86_400, n * 977, 90_000 + n, Hours(BERLIN_NIGHT)) for n in range(40)]
    beats += [Beat(3600, n * 77, 9_000, Hours("Mon-Fri 22:00-06:00 UTC")) for n in range(40)]
    model.add_many(beats)
    assert model.jobs == 80
    assert not model.seconds[12 * 3600 : 20 * 3600].any(), "nothing runs by day"
    for beat in beats:
        model.remove(beat)
    assert model.jobs == 0
    for name in ("seconds", "uncertain_load", "cells", "starts"):
        assert (getattr(model, name) == getattr(empty, name)).all()


def test_cron_jobs_count_when_their_window_lets_them_start() -> None:
    now = datetime(2026, 1, 5, tzinfo=UTC)
    model = LoadModel(now)
    model.add_crons({"late": CronLoad(Cron("0 12 * * *"), 60_000, NIGHT)})
    assert model.seconds[3600] == 1024
    assert not model.seconds[12 * 3600]


# ---------------------------------------------------------------- where they are placed


def peak_of(places: list[Placed], window: str, lasting: timedelta, now: datetime) -> int:
    """How many run at once in the coming week, by the rule for starts and not by the model."""
    changes: list[tuple[datetime, int]] = []
    hours = parse_window(window)
    for placed in places:
        rhythm = Interval(placed.beat.period * SECOND, placed.at)
        dues = {
            due_at(placed.at + n * rhythm.every, timedelta(0), hours, rhythm)
            for n in range(int(WEEK * SECOND / rhythm.every))
        }
        changes += [(at, 1) for at in dues] + [(at + lasting, -1) for at in dues]
    running = highest = 0
    for _, change in sorted(changes):
        running += change
        highest = max(highest, running)
    return highest


@pytest.mark.parametrize(
    ("every", "window", "bound"),
    [
        (DAY, NIGHT, 3),  # 500 minutes in 225
        (DAY, BERLIN_NIGHT, 4),  # in 165, as summer and winter share three hours
        (DAY, "22:00-02:00 America/New_York", 4),
        (7 * DAY, "Sat-Sun 01:00-05:00 Europe/Berlin", 2),
        (HOUR, "22:00-06:00 UTC", 26),  # 9 for each hour, and those held back in the first half
    ],
)
def test_many_spread_over_their_window(every: timedelta, window: str, bound: int) -> None:
    now = datetime(2026, 1, 6, 12, tzinfo=UTC)
    model = LoadModel(now)
    places = place_many(model, [Rhythm(every, 60_000, window)] * 500, now)
    assert model.peak <= bound
    assert peak_of(places, window, MINUTE, now) <= bound
    assert all(now < placed.at <= now + every for placed in places)


@pytest.mark.parametrize(
    ("every", "window"),
    [
        (DAY, BERLIN_NIGHT),
        (2 * DAY, "22:00-02:00 America/New_York"),
        (7 * DAY, "Sat-Sun 09:00-12:00 Europe/Berlin"),
        (7 * DAY, "Sun 23:00-03:00 Europe/Berlin"),
    ],
)
def test_a_place_is_right_in_summer_and_in_winter(every: timedelta, window: str) -> None:
    now, hours = datetime(2026, 1, 6, 12, tzinfo=UTC), parse_window(window)
    model = LoadModel(now)
    for _ in range(4):
        placed = place(model, Rhythm(every, 600_000, window, 10 * MINUTE), now)
        model.add(placed.beat)
        dues = [placed.at + 10 * MINUTE + n * every for n in range(365 * DAY // every)]
        assert all(map(hours.contains, dues))


def test_a_place_in_a_window_avoids_what_runs_there() -> None:
    now = datetime(2026, 1, 5, tzinfo=UTC)
    model = LoadModel(now)
    model.add_crons({"long": CronLoad(Cron("0 1 * * *"), 3 * 3_600_000)})
    placed = place(model, Rhythm(DAY, 600_000, NIGHT), now)
    assert 4 <= placed.at.hour < 5
    hourly = place(model, Rhythm(HOUR, 60_000, "22:00-00:00"), now)
    assert hourly.load == 0, "what runs by day is nothing to a job of the night"


# ---------------------------------------------------------------- rebalancing


def entry(number: int, at: datetime, window: str | None, every: timedelta = DAY) -> LoadEntry:
    job: dict[str, Any] = dict.fromkeys(LoadEntry._fields)
    job |= {
        "id": UUID(int=number), "task": "noop", "queue": "default", "schedule_kind": "interval",
        "interval_seconds": int(every / SECOND), "timezone": "UTC", "anchor_at": at,
        "plan_time": at, "next_run_at": at, "status": "scheduled", "placement": "balanced",
        "cost_ms": 60_000.0, "execution_window": window, "delay_seconds": 0.0,
    }  # fmt: skip
    if window is not None:
        job["next_run_at"] = due_at(at, timedelta(0), parse_window(window), Interval(every, at))
    return LoadEntry(**job)


@pytest.mark.parametrize("window", [NIGHT, BERLIN_NIGHT, "Mon-Fri 01:00-05:00 UTC"])
def test_a_rebalance_spreads_jobs_within_their_window(window: str) -> None:
    now = datetime(2026, 1, 5, 10, tzinfo=UTC)
    snapshot = [entry(n, now + 16 * HOUR, window) for n in range(100)]
    plan = rebalance(snapshot, now)
    assert plan.before.peak_load >= 100
    assert plan.after.peak_load <= 5
    assert not plan.skipped
    hours, to = parse_window(window), {move.job_id: move.new_time for move in plan.moves}
    assert all(hours.contains(time) and time < now + DAY for time in to.values())
    placed = [job._replace(placed_at=now) for job in snapshot]
    moved = [
        job._replace(plan_time=to[job.id], anchor_at=to[job.id], next_run_at=to[job.id])
        if job.id in to
        else job
        for job in placed
    ]
    assert distribution(LoadModel.of(moved, now)) == plan.after, "what it says is what comes"
    assert rebalance(moved, now).moves == []


def test_a_job_that_waits_for_its_window_is_left_alone() -> None:
    now = datetime(2026, 1, 5, 10, tzinfo=UTC)
    waiting = [entry(n, now + 4 * HOUR, NIGHT) for n in range(5)]
    plan = rebalance(waiting, now)
    assert {job.reason for job in plan.skipped} == {"window"}
    assert not plan.moves


@given(st.lists(st.tuples(windows, st.integers(0, 86_400), st.sampled_from([HOUR, 6 * HOUR, DAY])),
                min_size=10, max_size=60))  # fmt: skip
@settings(max_examples=10, deadline=None)
def test_a_rebalance_never_leaves_a_window_nor_raises_the_peak(
    jobs: list[tuple[str, int, timedelta]],
) -> None:
    now = datetime(2026, 3, 26, 10, tzinfo=UTC)
    snapshot = [
        entry(n, now + phase // 3600 * HOUR + MINUTE, text, every)
        for n, (text, phase, every) in enumerate(jobs)
    ]
    plan, by_id = rebalance(snapshot, now), {job.id: job for job in snapshot}
    assert plan.after.peak_load <= plan.before.peak_load
    for move in plan.moves:
        job = by_id[move.job_id]
        assert parse_window(job.execution_window or "").contains(move.new_time)
        assert abs(move.new_time - move.old_time) <= job.interval_seconds * SECOND / 2


# ---------------------------------------------------------------- off_peak


def test_off_peak_is_where_the_least_load_is() -> None:
    now = datetime(2026, 1, 6, 17, 45, tzinfo=UTC)
    model = LoadModel(now)
    assert str(off_peak_hours(model, None)) == "off_peak 00:00-04:00 UTC"
    for hour in range(24):
        if hour not in (22, 23, 0, 1):
            model.add(Beat(86_400, (now - EPOCH) // DAY * 86_400 + hour * 3600 + 600, 900_000))
    assert str(off_peak_hours(model, None)) == "off_peak 22:00-02:00 UTC"


def test_off_peak_stays_unless_others_are_much_quieter() -> None:
    now = datetime(2026, 1, 6, tzinfo=UTC)

    def with_load(at: dict[int, int]) -> LoadModel:
        model = LoadModel(now)
        for hour in range(24):
            model.add(Beat(86_400, hour * 3600, at.get(hour, 1000) * 1000))
        return model

    present = parse_window("off_peak 02:00-06:00 UTC")
    a_little = with_load(dict.fromkeys(range(2, 6), 500) | dict.fromkeys(range(10, 14), 450))
    assert off_peak_hours(a_little, present) == present
    much = with_load(dict.fromkeys(range(2, 6), 500) | dict.fromkeys(range(10, 14), 390))
    assert str(off_peak_hours(much, present)) == "off_peak 10:00-14:00 UTC"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("off_peak", "off_peak"),
        (" Off-Peak ", "off_peak"),
        ("off_peak 01:00-05:00", "off_peak 01:00-05:00 UTC"),
        ("off_peak 22:00-02:00 UTC", "off_peak 22:00-02:00 UTC"),
    ],
)
def test_off_peak_reads_and_writes(text: str, normal: str) -> None:
    assert str(parse_window(text)) == normal
    assert parse_window(normal) == parse_window(text)
    assert parse_window(text).off_peak


def test_off_peak_is_open_all_day_until_its_hours_are_known() -> None:
    hour = datetime(2026, 1, 6, tzinfo=UTC)
    assert all(parse_window("off_peak").contains(hour + n * HOUR) for n in range(24))
    known = parse_window("off_peak 01:00-05:00")
    opened = [known.contains(hour + n * HOUR) for n in range(24)]
    assert [n for n, (a, b) in enumerate(pairwise(opened)) if a != b] == [0, 4]
