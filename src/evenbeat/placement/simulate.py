"""What if: a week of jobs, replayed run by run, as they are and as Evenbeat would place them.

The replay does not use the load model, so it can tell whether the model is right.

In a forecast, intervals that may be placed are placed, longest first and inside their windows, and
so are cron jobs whose expressions only say "every so often" (`0 * * * *`, `0 0 * * *`,
`0 */6 * * *`). Others keep their times: somebody may rely on half past nine.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenbeat.domain.duration import format_duration
from evenbeat.domain.load_entry import LoadEntry, SlackCron
from evenbeat.domain.moments import at_second, epoch_second
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.domain.schedule.cron import NAMED_CRON
from evenbeat.domain.window import OFF_PEAK
from evenbeat.placement.advice import IntervalAdvice, advice
from evenbeat.placement.load import (
    WEEK,
    Beat,
    CronLoad,
    LoadModel,
    beat_of,
    cron_starts,
    duration_ms,
)
from evenbeat.placement.off_peak import off_peak_hours
from evenbeat.placement.planner import Rhythm, place_crons, place_many
from evenbeat.placement.windowed import Hours, open_spans, starts_inside

Counts = NDArray[np.int64]

_DAY = 86_400
_MONDAY = datetime.fromisoformat("2026-01-05T00:00:00Z")  # any Monday midnight


# ---------------------------------------------------------------- replay


class Runs(NamedTuple):
    """The runs of a job to replay, in seconds: their starts in order, and how long each takes."""

    starts: Counts
    duration: int

    @classmethod
    def steady(cls, first: int, period: int, duration: int) -> "Runs":
        """A week of a job that runs at first, first + period, and so on, and always has."""
        return cls(np.arange(first % period - period, WEEK, period), duration)

    @classmethod
    def of(cls, beat: Beat, since: int) -> "Runs":
        """A week of a job with this beat; one with a window starts where that lets it."""
        period, first, duration = beat.period, beat.phase - since, -(-beat.duration_ms // 1000)
        if beat.hours is None:
            return cls.steady(first, period, duration)
        long_before = -(-2 * WEEK // period) * period  # what is held back may come from there
        plans = np.arange(first % period - long_before, WEEK, period)
        cycle = min(period, WEEK) if beat.hours.is_balanced else None
        spans = open_spans(beat.hours.window, since)
        return cls(starts_inside(plans[None, :], cycle, spans)[0], duration)


class Curve(NamedTuple):
    """How many run at once at every second of the replayed time."""

    per_second: Counts

    @property
    def peak(self) -> int:
        """The most at once: how many slots the workers need for nothing to wait."""
        return int(self.per_second.max(initial=0))

    @property
    def mean(self) -> float:
        return float(self.per_second.mean()) if len(self.per_second) else 0.0

    @property
    def ratio(self) -> float:
        """Peak over mean: 1.0 is perfectly flat."""
        return self.peak / self.mean if self.mean else 1.0

    def peaks(self, width: int) -> list[int]:
        """The highest of every `width` seconds, for drawing."""
        whole = len(self.per_second) // width * width
        highest: list[int] = self.per_second[:whole].reshape(-1, width).max(axis=1).tolist()
        return highest


def replay(jobs: Iterable[Runs], *, horizon: int = WEEK) -> Curve:
    """Count what runs at each second of [0, horizon). A job never overlaps itself: a run longer
    than its interval delays the next, and the job runs without a break."""
    changes = np.zeros(horizon + 1, np.int64)
    for starts, duration in jobs:
        lasting = np.full(len(starts), duration)
        lasting[:-1] = np.minimum(lasting[:-1], np.diff(starts))
        np.add.at(changes, np.clip(starts, 0, horizon), 1)
        np.add.at(changes, np.clip(starts + lasting, 0, horizon), -1)
    return Curve(np.cumsum(changes[:-1]))


# ---------------------------------------------------------------- forecast


class RecurringJob(NamedTuple):
    """A recurring job to forecast. Intervals without an anchor all start together, as those do
    that were created by one script. The window `off_peak` without hours means those that are
    found, and before that any time."""

    name: str
    schedule: Interval | Cron
    duration: timedelta = timedelta(seconds=60)
    pinned: bool = False
    window: str | None = None

    @classmethod
    def of(cls, job: LoadEntry) -> "RecurringJob":
        lasting = timedelta(milliseconds=duration_ms(job.cost_ms))
        name = job.name or str(job.id)
        if job.cron_expression is not None:
            cron = Cron(job.cron_expression, job.timezone)
            return cls(name, cron, lasting, window=job.execution_window)
        beat = beat_of(job)
        schedule = Interval(timedelta(seconds=beat.period), at_second(beat.phase))
        is_pinned = job.placement not in (None, "balanced")
        return cls(name, schedule, lasting, is_pinned, job.execution_window)

    @property
    def seconds(self) -> int:
        return max(1, round(self.duration.total_seconds()))

    def balanced(self, slack: timedelta | None) -> Interval | Cron:
        """The schedule that may be placed in its stead; cron without slack keeps its times."""
        if self.pinned or isinstance(self.schedule, Interval):
            return self.schedule
        return balanced_form(self.schedule, slack)

    def advised(self, advice: Sequence[IntervalAdvice]) -> "RecurringJob":
        """The job with the interval that it is advised to have."""
        if isinstance(self.schedule, Cron) or self.window is not None:
            return self
        instead = {one.every: one.instead for one in advice}
        every = instead.get(int(self.schedule.every.total_seconds()))
        return self if every is None else self._replace(schedule=Interval(timedelta(seconds=every)))

    def runs(self, since: datetime) -> Runs:
        """Its runs at its own times, in seconds since a moment."""
        if isinstance(self.schedule, Cron):
            cron = CronLoad(self.schedule, self.seconds * 1000, self.window)
            return Runs(cron.starts(epoch_second(since)), self.seconds)
        return Runs.of(self.beat(self.schedule, since), epoch_second(since))

    def beat(self, interval: Interval, since: datetime) -> Beat:
        hours = None if self.window is None else Hours(self.window, not self.pinned)
        phase = epoch_second(interval.anchor or since)
        return Beat(int(interval.every.total_seconds()), phase, self.seconds * 1000, hours)


class ConvertedJob(NamedTuple):
    """A cron job that becomes a balanced interval, or gets slack."""

    name: str
    expression: str
    becomes: Interval | Cron


class UnchangedJob(NamedTuple):
    """A job that keeps its times, and why."""

    name: str
    schedule: str
    reason: str


class Forecast(NamedTuple):
    """A week before and after, and what became of each job."""

    since: datetime
    jobs: int
    placed: int
    converted: list[ConvertedJob]
    unchanged: list[UnchangedJob]
    before: Curve
    after: Curve
    workers_sufficient: int
    """How many no schedule of these jobs could do without: see `LoadModel`."""
    advice: tuple[IntervalAdvice, ...] = ()
    workers_with_advice: int | None = None
    """How many would be needed with those intervals."""


def forecast(
    jobs: Sequence[RecurringJob], now: datetime, slack: timedelta | None = None
) -> Forecast:
    """Replay the week (Monday to Sunday, UTC) that `now` lies in. With `slack`, cron jobs that name
    a time get up to so much of it."""
    result = _forecast(jobs, now, slack)
    if not result.advice:
        return result
    advised = _forecast([job.advised(result.advice) for job in jobs], now, slack)
    return result._replace(workers_with_advice=advised.after.peak)


def _forecast(jobs: Sequence[RecurringJob], now: datetime, slack: timedelta | None) -> Forecast:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since = midnight - timedelta(days=now.weekday())
    model, crons, after = LoadModel(since), {}, []
    fixed: list[Runs] = []
    converted, unchanged, movable = [], [], []
    loose: list[tuple[RecurringJob, SlackCron]] = []
    for job in jobs:
        schedule, becomes = job.schedule, job.balanced(slack)
        if isinstance(schedule, Cron) and becomes != schedule:
            converted.append(ConvertedJob(job.name, schedule.expression, becomes))
        if isinstance(becomes, Cron) and becomes.slack and not job.pinned:
            loose.append((job, SlackCron(job.name, becomes, job.seconds * 1000.0)))
            continue
        if isinstance(becomes, Interval) and not job.pinned:
            movable.append(Rhythm(becomes.every, job.seconds * 1000.0, job.window))
            continue
        if isinstance(schedule, Cron):
            reason = "pinned" if job.pinned else "cron at a chosen time"
            unchanged.append(UnchangedJob(job.name, schedule.expression, reason))
            crons[str(len(unchanged))] = CronLoad(schedule, job.seconds * 1000, job.window)
        else:
            words = f"every {format_duration(schedule.every)}"
            unchanged.append(UnchangedJob(job.name, words, "pinned"))
            model.add(job.beat(schedule, since))
        fixed.append(job.runs(since))
    model.add_crons(crons)
    placed_crons = place_crons(model, [cron for _, cron in loose])
    for (job, _), cron in zip(loose, placed_crons, strict=True):
        after.append(job._replace(schedule=cron).runs(since))
    at_any_time = [rhythm for rhythm in movable if rhythm.window != OFF_PEAK]
    after += [Runs.of(placed.beat, model.since) for placed in place_many(model, at_any_time, since)]
    hours = str(off_peak_hours(model, None))
    off_peak = [rhythm._replace(window=hours) for rhythm in movable if rhythm.window == OFF_PEAK]
    after += [Runs.of(placed.beat, model.since) for placed in place_many(model, off_peak, since)]
    before = replay(job.runs(since) for job in jobs)
    balanced = replay([*fixed, *after])
    sufficient = max(ceil(balanced.mean), replay(fixed).peak)
    placed_intervals = len(movable) + len(loose) - len(converted)
    changes = placed_intervals, converted, unchanged
    return Forecast(since, len(jobs), *changes, before, balanced, sufficient, advice(model))


def balanced_form(cron: Cron, slack: timedelta | None = None) -> Interval | Cron:
    """What an expression may become: cron with slack where it names a time and slack is given,
    otherwise the interval that it stands for, if it does; as it is if neither."""
    _, hour, *_ = cron.fields.split()
    if slack is not None and hour.isdecimal():
        return cron.with_slack(slack)
    every = equivalent_interval(cron)
    if every is not None:
        return Interval(every)
    return cron if slack is None else cron.with_slack(slack)


def equivalent_interval(cron: Cron) -> timedelta | None:
    """The interval that an expression stands for: any day, evenly spaced, counted from midnight."""
    fields = NAMED_CRON.get(cron.expression, cron.expression).split()
    if fields[2:] != ["*", "*", "*"] and cron.expression != "@weekly":  # which names no day
        return None
    starts = cron_starts(Cron(cron.expression), epoch_second(_MONDAY))
    gaps = set(np.diff(starts).tolist())
    if len(gaps) != 1 or starts[-1] % _DAY % min(gap := gaps.pop(), _DAY):
        return None
    return timedelta(seconds=gap)
