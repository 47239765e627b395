"""Advice on intervals: which of them meet other runs wherever they start, and what would not.

Two jobs can avoid each other for ever if and only if a run of each fits into the greatest common
divisor of their intervals, one after the other. 37 and 30 minutes have only a minute in common, so
they meet sooner or later whatever their phases; 36 and 30 minutes have six.
"""

from collections.abc import Mapping
from datetime import timedelta
from math import ceil, gcd
from typing import NamedTuple

import numpy as np

from evenbeat.domain.duration import format_duration
from evenbeat.placement.load import Ints, LoadModel, duration_ms

_DAY = 86_400
_WHOLE_MINUTES = 600  # the neighbours of an interval this long are whole minutes
_MOST = 300  # so many intervals, those that are busy most of the time; of more, others hardly count
_SHOWN = 3
_FEW_JOBS = 5  # among fewer there is always room
_LEAST_MEETINGS = 1.0  # a day


class IntervalAdvice(NamedTuple):
    """An interval in seconds, how many jobs have it, and a neighbour that gets on better: how often
    a day runs of each have to meet others, wherever they start."""

    every: int
    jobs: int
    instead: int
    meetings: float
    remaining: float

    @property
    def text(self) -> str:
        every, instead = (format_duration(timedelta(seconds=s)) for s in (self.every, self.instead))
        left = f"about {self.remaining:,.0f} times" if self.remaining >= 0.5 else "hardly ever"
        return (
            f"Every {every} meets other runs about {self.meetings:,.0f} times a day wherever it "
            f"starts; every {instead} {left}"
        )


def can_avoid(one: int, one_lasting: int, other: int, other_lasting: int) -> bool:
    """Whether two jobs, each by its interval and how long a run takes, never need to overlap."""
    return one_lasting + other_lasting <= gcd(one, other)


def advice(model: LoadModel) -> tuple[IntervalAdvice, ...]:
    """The intervals that meet others most and need not, the worst first."""
    found = []
    for every, (jobs, ms) in _busiest(model).items():
        own = advice_for(model, every, ms / jobs, jobs=jobs, is_counted=True)
        if own is not None:
            found.append(own)
    return tuple(sorted(found, key=lambda own: own.remaining - own.meetings)[:_SHOWN])


def advice_for(
    model: LoadModel,
    every: int,
    cost_ms: float | None,
    *,
    jobs: int = 1,
    is_counted: bool = False,
) -> IntervalAdvice | None:
    """A better neighbour of an interval, if its jobs would have to meet most of what else runs."""
    others = dict(_busiest(model))
    if is_counted:  # those of one interval change it together
        del others[every]
    if sum(number for number, _ in others.values()) < _FEW_JOBS:
        return None
    lasting = max(1, ceil(duration_ms(cost_ms) / 1000))
    rows = np.array([[p, n, max(1, ceil(ms / n / 1000))] for p, (n, ms) in others.items()])
    here = np.array([every])
    now = float(_meetings(here, lasting, rows)[0]) * jobs
    anyhow = float(_meetings(here, lasting, rows, always=True)[0]) * jobs
    if now < _LEAST_MEETINGS or 2 * now < anyhow:
        return None
    step = 900 if every >= _DAY else 60 if every >= _WHOLE_MINUTES else 1
    most = every // 10 // step
    near = (every // step + np.arange(-most, most + 2)) * step
    near = near[(np.abs(near - every) <= every // 10) & (near > lasting) & (near != every)]
    if not len(near):
        return None
    then = _meetings(near, lasting, rows) * jobs
    if 2 * then.min() > now:
        return None
    good = np.flatnonzero(then <= max(now / 10, float(then.min())))  # the nearest of the good ones
    best = good[np.abs(near[good] - every).argmin()]
    return IntervalAdvice(every, jobs, int(near[best]), now, float(then[best]))


def _busiest(model: LoadModel) -> Mapping[int, tuple[int, int]]:
    """How many jobs have an interval, and how many milliseconds their runs take together."""
    there = {every: own for every, own in model.intervals.items() if own[0] > 0}
    if len(there) > _MOST:
        busiest = sorted(there, key=lambda every: there[every][1] / every, reverse=True)
        there = {every: there[every] for every in busiest[:_MOST]}
    return there


def _meetings(every: Ints, lasting: int, others: Ints, *, always: bool = False) -> Ints:
    """How often a day a run of each interval has to meet one of the others, on average over time:
    rows of (interval, jobs, how long a run takes). `always` counts those that could avoid it."""
    periods, jobs, seconds = others.T
    together = lasting + seconds
    rate = jobs * together * (_DAY / every[:, None]) / periods
    if not always:
        rate = rate * (together > np.gcd(every[:, None], periods[None, :]))
    total: Ints = rate.sum(axis=1)
    return total
