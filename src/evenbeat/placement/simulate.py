"""Replay: every run of a week, second by second, from first times, intervals and durations.

Nothing here knows how the load model works, so it can tell whether the model is right.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenbeat.placement.load import score

Counts = NDArray[np.int64]
WEEK = 604_800


class PeriodicRuns(NamedTuple):
    """A job to replay, in seconds: it runs at first, first + period, and so on; 0 for no period."""

    first: int
    period: int
    duration: int


class ListedRuns(NamedTuple):
    """A job to replay whose runs follow no interval: all its starts in order, in seconds."""

    starts: Counts
    duration: int


class Curve(NamedTuple):
    """How many run at once at every second of the replayed time."""

    per_second: Counts

    @property
    def peak(self) -> int:
        """The most at once: how many slots the workers need for nothing to wait."""
        return int(self.per_second.max(initial=0))

    @property
    def mean(self) -> float:
        """How many at once on average."""
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

    def per_minute(self) -> NDArray[np.float64]:
        """The mean of every whole minute, for drawing."""
        whole = len(self.per_second) // 60 * 60
        minutes: NDArray[np.float64] = self.per_second[:whole].reshape(-1, 60).mean(axis=1)
        return minutes


class Comparison(NamedTuple):
    """The same jobs at two sets of times."""

    before: Curve
    after: Curve


def replay(jobs: Sequence[PeriodicRuns | ListedRuns], *, horizon: int = WEEK) -> Curve:
    """Count what runs at each second of [0, horizon). A job never overlaps itself: a run longer
    than its interval delays the next, and the job runs without a break."""
    changes = np.zeros(horizon + 1, np.int64)
    for job in jobs:
        starts, lasting = _starts(job, horizon)
        np.add.at(changes, np.clip(starts, 0, horizon), 1)
        np.add.at(changes, np.clip(starts + lasting, 0, horizon), -1)
    return Curve(np.cumsum(changes[:-1]))


def _starts(job: PeriodicRuns | ListedRuns, horizon: int) -> tuple[Counts, Counts | int]:
    if isinstance(job, ListedRuns):
        lasting = np.full(len(job.starts), job.duration)
        lasting[:-1] = np.minimum(lasting[:-1], np.diff(job.starts))
        return job.starts, lasting
    if job.period <= 0:
        return np.array([job.first], np.int64), job.duration
    return np.arange(job.first, horizon, job.period), min(job.duration, job.period)


def steady(jobs: Sequence[PeriodicRuns]) -> list[PeriodicRuns]:
    """The same jobs as if they had always been running: their first runs lie before the week."""
    return [job._replace(first=job.first % job.period - job.period) for job in jobs]


def compare(
    before: Sequence[PeriodicRuns | ListedRuns],
    after: Sequence[PeriodicRuns | ListedRuns],
    *,
    horizon: int = WEEK,
) -> Comparison:
    """Both curves, for a picture of what a change would gain."""
    return Comparison(replay(before, horizon=horizon), replay(after, horizon=horizon))


def run_times(
    first: datetime, every: timedelta, until: datetime, moved: tuple[datetime, datetime] | None
) -> list[datetime]:
    """A job's runs up to `until`; a move (old time, new time) shifts that run and all after it."""
    times, at = [], first
    while at <= until:
        if moved is not None and at == moved[0]:
            at, moved = moved[1], None
            continue
        times.append(at)
        at += every
    return times
