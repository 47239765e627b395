"""After an outage: when each of many late jobs starts, so that they are no herd.

The most urgent start first, each as soon as the load stays within half more than the usual peak.
If that takes longer than the time that is allowed, more run at once: as many as it takes.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import NamedTuple

import numpy as np

from evenbeat.domain.catch_up import CatchUpMode
from evenbeat.domain.decision import revise
from evenbeat.domain.job import JobRecord, catch_up_of, recurring_of
from evenbeat.placement.load import RUN, Load, LoadModel, duration_ms

_RAISED = 1.1
_LONGEST = 86_400  # a run that takes longer counts for its first day


class LateJob(NamedTuple):
    """A job that waits for a plan that has come. `spacing` is how many seconds its plans lie apart;
    `next_plan` is in how many seconds the next one is due, which runs in place of this one if it
    comes first, or None where each plan runs. `latest` is when this one would be given up."""

    priority: int
    spacing: int
    next_plan: int | None
    lasting: int
    latest: int | None = None

    @classmethod
    def of(cls, job: JobRecord, now: datetime) -> "LateJob | None":
        """None for one that does not start now anyway."""
        schedule, plan = recurring_of(job), job.plan_time
        if schedule is None or plan is None or job.next_run_at is None:
            return None
        revision, policy = revise(job, now), catch_up_of(job)
        if revision is not None:
            if revision.start_at > now:
                return None
            plan = revision.plan_time
        delay = timedelta(seconds=job.schedule_delay_seconds)
        following = schedule.next_after(max(plan, now - delay))
        spacing = schedule.next_after(following) - following
        next_plan: int | None = ceil((following + delay - now).total_seconds())
        lasting = duration_ms(job.average_duration_ms if job.cost_ms is None else job.cost_ms)
        if policy.mode is CatchUpMode.EVERY_PLAN:
            lasting *= max(1, schedule.count(plan, now - delay))
            next_plan = None
        ends = []
        if policy.window is not None:
            ends.append(plan + delay + policy.window)
        if job.must_start_within_seconds is not None:
            ends.append(job.next_run_at + timedelta(seconds=job.must_start_within_seconds))
        left = [int((end - now).total_seconds()) for end in ends if end > now]
        return cls(
            job.priority - job.aging_bonus,
            int(spacing.total_seconds()),
            next_plan,
            ceil(lasting / 1000),
            min(left, default=None),
        )

    @property
    def urgency(self) -> tuple[int, int, int]:
        """What starts first: higher priority, then a shorter interval, then a nearer plan."""
        return -self.priority, self.spacing, self.next_plan or 0


def spread_late(model: LoadModel, now: int, jobs: Sequence[LateJob], seconds: int) -> list[int]:
    """In how many seconds from now (seconds since 1970) each job starts, at most `seconds`. The
    model has the load of the regular plans."""
    order = sorted(range(len(jobs)), key=lambda n: jobs[n].urgency)
    longest = max(min(job.lasting, _LONGEST) for job in jobs)
    coming = np.arange(seconds + longest + 1) + (now - model.since)
    load = model.seconds.take(coming, mode="wrap")
    level = max(model.workers_needed + 1, model.workers_needed * 3 // 2)
    while (starts := _starts(load.copy(), [jobs[n] for n in order], seconds, level)) is None:
        level = ceil(level * _RAISED)
    by_number = dict(zip(order, starts, strict=True))
    return [by_number[n] for n in range(len(jobs))]


def _starts(load: Load, jobs: Sequence[LateJob], seconds: int, level: int) -> list[int] | None:
    """The starts of jobs in this order, none before one that is more urgent, while at most `level`
    run at once; None if they do not all start in time."""
    starts, at, full = [], 0, level * RUN
    for job in jobs:
        lasting = max(1, min(job.lasting, _LONGEST))
        while at <= seconds and len(over := np.flatnonzero(load[at : at + lasting] >= full)):
            at += int(over[-1]) + 1
        if job.next_plan is not None and job.next_plan <= min(at, seconds):
            starts.append(job.next_plan)  # which is part of the load
            continue
        if at > seconds:
            return None
        start = at if job.latest is None else min(at, job.latest)
        load[start : start + lasting] += RUN
        starts.append(start)
    return starts
