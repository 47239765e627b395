"""What if: the load of some jobs over a week as they are, and as Evenbeat would place them.

Both are replayed run by run. Afterwards, intervals that may be placed are placed, longest first,
and so are cron jobs whose plans only say "every so often" (`0 * * * *`, `0 0 * * *`,
`0 */6 * * *`). Others keep their times: somebody may rely on half past nine.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from evenbeat.domain.cron import NAMED_CRON
from evenbeat.domain.duration import format_duration
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.placement import periodic_load
from evenbeat.placement.load import CronLoad, LoadModel, SnapshotJob
from evenbeat.placement.periodic_load import Beat
from evenbeat.placement.planner import Rhythm, place
from evenbeat.placement.simulate import Curve, ListedRuns, PeriodicRuns, compare, steady

_DAY = 86_400
_MONDAY = datetime.fromisoformat("2026-01-05T00:00:00Z")  # any Monday midnight


class RecurringJob(NamedTuple):
    """A recurring job to forecast. Intervals without an anchor all start together, as those do
    that were created by one script."""

    name: str
    schedule: Interval | Cron
    duration: timedelta = timedelta(seconds=60)
    pinned: bool = False


class ConvertedJob(NamedTuple):
    """A cron job that becomes a balanced interval."""

    name: str
    expression: str
    every: timedelta


class UnchangedJob(NamedTuple):
    """A job that keeps its times, and why."""

    name: str
    schedule: str
    reason: str


class Forecast(NamedTuple):
    """A week before and after, and what was done with whom."""

    since: datetime
    jobs: int
    placed: int
    turned: list[ConvertedJob]
    kept: list[UnchangedJob]
    before: Curve
    after: Curve


def forecast(jobs: Sequence[RecurringJob], now: datetime) -> Forecast:
    """Replay the week (Monday to Sunday, UTC) that `now` lies in."""
    since = monday_of(now)
    turned = [
        ConvertedJob(job.name, job.schedule.expression, every)
        for job in jobs
        if isinstance(job.schedule, Cron) and (every := _interval_of(job)) is not None
    ]
    kept = [_kept(job) for job in jobs if _interval_of(job) is None]
    both = compare([_as_is(job, since) for job in jobs], _as_placed(jobs, since))
    placed = len(jobs) - len(kept) - len(turned)
    return Forecast(since, len(jobs), placed, turned, kept, *both)


def monday_of(now: datetime) -> datetime:
    """Midnight of the Monday of a moment's week."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=now.weekday())


def known_of(entry: SnapshotJob) -> RecurringJob:
    """A job of the database."""
    lasting = timedelta(milliseconds=periodic_load.duration_ms(entry.cost_ms))
    name = entry.name or str(entry.id)
    if entry.schedule_kind == "cron":
        return RecurringJob(name, Cron(entry.cron_expression or "", entry.timezone), lasting)
    every = timedelta(seconds=entry.interval_seconds or 1)
    anchor = entry.next_run_at or entry.plan_time or entry.anchor_at
    fixed = entry.placement not in (None, "balanced") or entry.execution_window is not None
    return RecurringJob(name, Interval(every, anchor), lasting, fixed)


# ---------------------------------------------------------------- cron that means an interval


def every_of(cron: Cron) -> timedelta | None:
    """The interval that an expression stands for: any day, evenly spaced, counted from midnight."""
    fields = NAMED_CRON.get(cron.expression, cron.expression).split()
    if fields[2:] != ["*", "*", "*"] and cron.expression != "@weekly":  # which names no day
        return None
    starts = periodic_load.cron_starts(Cron(cron.expression), periodic_load.epoch_second(_MONDAY))
    gaps = set(np.diff(starts).tolist())
    if len(gaps) != 1 or starts[-1] % _DAY % min(gap := gaps.pop(), _DAY):
        return None
    return timedelta(seconds=gap)


def _interval_of(job: RecurringJob) -> timedelta | None:
    """The interval at which a job may be placed, unless it keeps its times."""
    if job.pinned:
        return None
    return every_of(job.schedule) if isinstance(job.schedule, Cron) else job.schedule.every


def _kept(job: RecurringJob) -> UnchangedJob:
    if isinstance(job.schedule, Cron):
        why = "pinned" if job.pinned else "cron at a chosen time"
        return UnchangedJob(job.name, job.schedule.expression, why)
    return UnchangedJob(job.name, f"every {format_duration(job.schedule.every)}", "pinned")


# ---------------------------------------------------------------- runs


def _as_is(job: RecurringJob, since: datetime) -> PeriodicRuns | ListedRuns:
    lasting = _seconds(job.duration)
    if isinstance(job.schedule, Cron):
        return ListedRuns(
            periodic_load.cron_starts(job.schedule, periodic_load.epoch_second(since)), lasting
        )
    first = 0 if job.schedule.anchor is None else int((job.schedule.anchor - since).total_seconds())
    return steady([PeriodicRuns(first, _seconds(job.schedule.every), lasting)])[0]


def _as_placed(jobs: Sequence[RecurringJob], since: datetime) -> list[PeriodicRuns | ListedRuns]:
    """Keep what keeps its times; then place the others, those first that are hardest to place."""
    kept = [job for job in jobs if _interval_of(job) is None]
    model = _model_of(kept, since)
    replayed = [_as_is(job, since) for job in kept]
    movable = [(every, job.duration) for job in jobs if (every := _interval_of(job)) is not None]
    for every, lasting in sorted(movable, reverse=True):
        seconds = _seconds(lasting)
        found = place(model, Rhythm(timedelta(seconds=_seconds(every)), seconds * 1000.0), since)
        model.add(found.beat)
        replayed += steady(
            [PeriodicRuns(found.beat.phase - model.since, found.beat.period, seconds)]
        )
    return replayed


def _model_of(kept: Sequence[RecurringJob], since: datetime) -> LoadModel:
    model, crons = LoadModel(since), {}
    for number, job in enumerate(kept):
        cost = _seconds(job.duration) * 1000
        if isinstance(job.schedule, Cron):
            crons[str(number)] = CronLoad(job.schedule, cost)
        else:
            model.add(Beat.at(job.schedule.every, job.schedule.anchor or since, cost))
    model.add_crons(crons)
    return model


def _seconds(duration: timedelta) -> int:
    return max(1, round(duration.total_seconds()))
