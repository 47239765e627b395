"""What if: a week of jobs, replayed run by run, as they are and as Evenbeat would place them.

The replay does not use the load model, so it can tell whether the model is right.

In a forecast, intervals that may be placed are placed, longest first, and so are cron jobs whose
expressions only say "every so often" (`0 * * * *`, `0 0 * * *`, `0 */6 * * *`). Others keep their
times: somebody may rely on half past nine.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenbeat.domain.duration import format_duration
from evenbeat.domain.load_entry import LoadEntry
from evenbeat.domain.moments import epoch_second
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.domain.schedule.cron import NAMED_CRON
from evenbeat.placement.load import (
    WEEK,
    Beat,
    CronLoad,
    LoadModel,
    cron_starts,
    duration_ms,
    score,
)
from evenbeat.placement.planner import Rhythm, place

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
    def score(self) -> float:
        """How flat it is, as the load model scores it."""
        return score(self.mean, self.peak)

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
    that were created by one script."""

    name: str
    schedule: Interval | Cron
    duration: timedelta = timedelta(seconds=60)
    pinned: bool = False

    @classmethod
    def of(cls, job: LoadEntry) -> "RecurringJob":
        lasting = timedelta(milliseconds=duration_ms(job.cost_ms))
        name = job.name or str(job.id)
        if job.cron_expression is not None:
            return cls(name, Cron(job.cron_expression, job.timezone), lasting)
        every = timedelta(seconds=job.interval_seconds or 1)
        anchor = job.next_run_at or job.plan_time or job.anchor_at
        fixed = job.placement not in (None, "balanced") or job.execution_window is not None
        return cls(name, Interval(every, anchor), lasting, fixed)

    @property
    def seconds(self) -> int:
        return max(1, round(self.duration.total_seconds()))

    @property
    def movable_interval(self) -> timedelta | None:
        """The interval at which it may be placed, unless it keeps its times."""
        if self.pinned:
            return None
        schedule = self.schedule
        return equivalent_interval(schedule) if isinstance(schedule, Cron) else schedule.every

    def runs(self, since: datetime) -> Runs:
        """Its runs at its own times, in seconds since a moment."""
        if isinstance(self.schedule, Cron):
            return Runs(cron_starts(self.schedule, epoch_second(since)), self.seconds)
        first = int(((self.schedule.anchor or since) - since).total_seconds())
        return Runs.steady(first, int(self.schedule.every.total_seconds()), self.seconds)


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
    """A week before and after, and what became of each job."""

    since: datetime
    jobs: int
    placed: int
    converted: list[ConvertedJob]
    unchanged: list[UnchangedJob]
    before: Curve
    after: Curve


def forecast(jobs: Sequence[RecurringJob], now: datetime) -> Forecast:
    """Replay the week (Monday to Sunday, UTC) that `now` lies in."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since = midnight - timedelta(days=now.weekday())
    model, crons, after = LoadModel(since), {}, []
    converted, unchanged, movable = [], [], []
    for job in jobs:
        schedule, every = job.schedule, job.movable_interval
        if every is not None:
            movable.append((every, job.duration, job.seconds))
            if isinstance(schedule, Cron):
                converted.append(ConvertedJob(job.name, schedule.expression, every))
            continue
        if isinstance(schedule, Cron):
            reason = "pinned" if job.pinned else "cron at a chosen time"
            unchanged.append(UnchangedJob(job.name, schedule.expression, reason))
            crons[str(len(unchanged))] = CronLoad(schedule, job.seconds * 1000)
        else:
            words = f"every {format_duration(schedule.every)}"
            unchanged.append(UnchangedJob(job.name, words, "pinned"))
            first = epoch_second(schedule.anchor or since)
            model.add(Beat(int(schedule.every.total_seconds()), first, job.seconds * 1000))
        after.append(job.runs(since))
    model.add_crons(crons)
    for every, _, seconds in sorted(movable, reverse=True):  # the hardest to place come first
        beat = place(model, Rhythm(every, seconds * 1000.0), since).beat
        model.add(beat)
        after.append(Runs.steady(beat.phase - model.since, beat.period, seconds))
    before = replay(job.runs(since) for job in jobs)
    placed_intervals = len(movable) - len(converted)
    return Forecast(since, len(jobs), placed_intervals, converted, unchanged, before, replay(after))


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
