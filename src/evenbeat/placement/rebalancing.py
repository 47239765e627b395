"""Rebalance: the fewest moves that lower the peak, as a plan that changes nothing by itself.

A plan is found in rounds. A round aims at a target below the peak: it takes jobs off the seconds
above the target, longest interval first, and puts each where it stays within it. A round counts
only if it reaches its target everywhere; otherwise it is forgotten as a whole. So every move kept
helps to lower the peak, and none can raise it; what fixed jobs load by themselves is no target to
aim below. Rounds go on, with the jobs that have not moved yet, until none reaches a target.

A job is left alone shortly before its run: 30 minutes, or half its interval where that is less,
since otherwise a job that runs every half hour could never move. The same holds for its new time.

A second rebalance straight after starts exactly where that last round did (jobs that moved are in
cooldown by then). Everything is whole numbers, so it fails the same way and proposes nothing.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import NamedTuple
from uuid import UUID

import numpy as np

from evenbeat.domain.load_entry import LoadEntry
from evenbeat.domain.moments import at_second, epoch_second
from evenbeat.placement.distribution import Distribution, distribution
from evenbeat.placement.load import (
    RUN,
    WEEK,
    Ints,
    Load,
    LoadModel,
    beat_of,
    table_of,
)
from evenbeat.placement.period_mover import PeriodMover, by_period
from evenbeat.placement.planner import folded_peak, open_week
from evenbeat.placement.windowed import open_spans, reach

PROTECTION_WINDOW = timedelta(minutes=30)
LEAST_PROTECTION = timedelta(seconds=60)
PLACEMENT_COOLDOWN = timedelta(hours=1)

_STAYS = -1
_BITS = 20  # enough for a second of the week


class Move(NamedTuple):
    """A job's next run, as it is and as it should be; its anchor and plan shift alike.

    `crowd` is the most that run at once during any of its runs of the week, at `crowded_at`
    (seconds since 1970).
    """

    job_id: UUID
    old_time: datetime
    new_time: datetime
    name: str | None = None
    crowd: float = 0.0
    crowded_at: int = 0

    @property
    def reason(self) -> str:
        when = at_second(self.crowded_at)
        return f"leaves {when:%A %H:%M} UTC, where {ceil(self.crowd):,} run at once"


class SkippedJob(NamedTuple):
    """A job that stays, and the rule that holds it."""

    job_id: UUID
    reason: str
    name: str | None = None


class RebalancePlan(NamedTuple):
    """What a rebalance would do, with the distribution before and after."""

    moves: list[Move]
    skipped: list[SkippedJob]
    before: Distribution
    after: Distribution


def rebalance(
    snapshot: Sequence[LoadEntry], now: datetime, max_moves: int | None = None
) -> RebalancePlan:
    """Plan the moves that lower the peak, deterministically for a snapshot and a moment.

    Straight after its moves (which stamp `placed_at`) another finds none. One that `max_moves`
    cut short lowers the peak as far as so many moves can; the next one goes on from there.
    """
    model = LoadModel.of(snapshot, now)
    crons = [job for job in snapshot if job.cron_expression is not None]
    names = {str(job.id): job.name or str(job.id) for job in crons}
    before = distribution(model, names)
    skipped, movable = [], []
    for job in snapshot:
        reason = reason_to_stay(job, now)
        if reason is None:
            movable.append(job)
        else:
            skipped.append(SkippedJob(job.id, reason, job.name))
    to = _Search(model, movable, now).run(len(movable) if max_moves is None else max_moves)
    moving = [movable[n] for n in np.flatnonzero(to != _STAYS).tolist()]
    times = [at_second(second) for second in to[to != _STAYS].tolist()]
    moves = [
        Move(job.id, job.next_run_at or time, time, job.name, crowd, at)
        for job, time, (crowd, at) in zip(moving, times, _crowds(model, moving), strict=True)
    ]
    model.add_many([beat_of(job) for job in moving], [-1] * len(moving))
    model.add_many([beat_of(moved(job, time)) for job, time in zip(moving, times, strict=True)])
    return RebalancePlan(moves, skipped, before, distribution(model, names))


def reason_to_stay(job: LoadEntry, now: datetime) -> str | None:  # noqa: PLR0911 - one a rule
    """The rule that keeps a job where it is, if any."""
    if job.cron_expression is not None:
        return "cron"
    if job.status == "paused" or job.next_run_at is None:
        return "paused"
    # A plan that has come but waits for its delay or its retry is in progress as well.
    if job.status == "running" or (job.plan_time is not None and job.plan_time <= now):
        return "job_running"
    if job.placement not in (None, "balanced"):
        return "pinned"
    if job.next_run_at - now <= protection_window(job.interval_seconds or 1):
        return "protection_window"
    if job.placed_at is not None and now - job.placed_at < PLACEMENT_COOLDOWN:
        return "placement_cooldown"
    # A plan outside of its hours waits for them, and starts at its own distance from the others.
    if job.execution_window is not None and reach_of(job) is None:
        return "window"
    return None


def reach_of(job: LoadEntry) -> tuple[int, int] | None:
    """Between which seconds (since 1970) the next run of a job with a window may move."""
    beat = beat_of(job)
    if beat.hours is None or job.next_run_at is None:
        return None
    is_held = epoch_second(job.next_run_at) != beat.phase
    return None if is_held else reach(beat.hours.window, min(beat.period, WEEK), beat.phase)


def moved(job: LoadEntry, to: datetime) -> LoadEntry:
    """The job with its next run elsewhere; its plan shifts alike."""
    assert job.next_run_at is not None  # noqa: S101 - only jobs with a next run are movable
    plan = None if job.plan_time is None else job.plan_time + (to - job.next_run_at)
    return job._replace(next_run_at=to, plan_time=plan)


@lru_cache(maxsize=4096)
def protection_window(interval_seconds: int) -> timedelta:
    """How near its run a job is left alone: 30 minutes, half of an interval under an hour, and
    never less than a minute."""
    half = timedelta(seconds=interval_seconds) / 2
    return max(LEAST_PROTECTION, min(PROTECTION_WINDOW, half))


def _crowds(model: LoadModel, jobs: Sequence[LoadEntry]) -> list[tuple[float, int]]:
    """For each job the most that run at once during any of its runs, and the second (since 1970) at
    which they do."""
    table, highest = table_of(jobs)[0], np.zeros(len(jobs), np.int64)
    alike: dict[tuple[int, str | None], list[int]] = defaultdict(list)
    for n, job in enumerate(jobs):
        alike[job.interval_seconds or 1, job.execution_window].append(n)
    # The load and, below it, the second counted from the week's end: the highest has both.
    marked = (model.seconds.astype(np.int64) << _BITS) + np.arange(WEEK, 0, -1)
    for (period, window), numbers in alike.items():
        rows, cycle, inside = np.array(numbers), min(period, WEEK), marked
        if window is not None:
            inside = open_week(marked, open_spans(window, model.since))
        starts = (table[rows, 1] - model.since) % cycle
        lasting = np.clip(-(-table[rows, 2] // 1000), 1, cycle)
        # The arcs in order of their starts cost little more than one walk around the circle.
        order = np.argsort(starts, kind="stable")
        edges = np.column_stack([starts[order], starts[order] + lasting[order]]).ravel()
        circle = folded_peak(inside, cycle)
        twice = np.concatenate([circle, circle, circle[:1]])
        highest[rows[order]] = np.maximum.reduceat(twice, edges)[::2]
    seconds = model.since + WEEK - (highest & ((1 << _BITS) - 1))
    return list(zip(((highest >> _BITS) / RUN).tolist(), seconds.tolist(), strict=True))


# ---------------------------------------------------------------- the search


class _Search:
    def __init__(self, model: LoadModel, jobs: Sequence[LoadEntry], now: datetime) -> None:
        table, due = table_of(jobs)
        self._since = model.since
        self._seconds = model.seconds
        self._to = np.full(len(table), _STAYS)
        periods, which = np.unique(table[:, 0], return_inverse=True)
        unprotected = [epoch_second(now + protection_window(p)) + 1 for p in periods.tolist()]
        windows = [job.execution_window for job in jobs]
        reaches = {n: reach_of(jobs[n]) for n, window in enumerate(windows) if window is not None}
        self._periods = by_period(
            table, due, np.array(unprotected, np.int64)[which], windows, reaches
        )

    def run(self, budget: int) -> Ints:
        """Lower the peak round by round; returns where each job goes."""
        while budget > 0 and (best := self._lowest(budget)) is not None:
            self._seconds, to = best
            gone = to != _STAYS
            self._to[gone] = to[gone]
            self._periods = [jobs.only(~gone[jobs.number]) for jobs in self._periods]
            budget -= int(gone.sum())
        return self._to

    def _lowest(self, budget: int) -> tuple[Load, Ints] | None:
        """What the round with the lowest target that can be reached leads to: the load, and for
        each job the second (since 1970) of its next run, or that it stays."""
        peak, fixed = int(self._seconds.max()), self._seconds.copy()
        for jobs in self._periods:
            jobs.add_to(fixed, self._since, jobs.next_run, -1)
        # No target is reached below the mean, a single run, or what stays fixed anyway.
        mean = -(-int(self._seconds.sum(dtype=np.int64)) // WEEK)
        floor = -(-max(mean, RUN, int(fixed.max())) // RUN) * RUN
        # The least gain that is worth moving jobs: one run or a hundredth, a thirtieth where
        # thousands run at once, since there it takes thousands of moves.
        highest = peak - max(RUN, peak // (100 if peak < 1000 * RUN else 30))
        step = max(RUN, floor // 100)
        targets, best = range(highest, floor - 1, -step), None
        while targets:
            n = len(targets) * 3 // 4  # low targets are reached more often than not
            better = self._round(targets[n], budget)
            targets = targets[:n] if better is None else targets[n + 1 :]
            best = better or best
        return best

    def _round(self, target: int, budget: int) -> tuple[Load, Ints] | None:
        """Take jobs off the seconds above a target and put them below it, period by period, again
        and again while that helps: what fits nowhere now may fit once others have made room."""
        seconds, to, moved = self._seconds.copy(), np.full(len(self._to), _STAYS), 0
        while moved <= budget:
            moved_before = moved
            for jobs in self._periods:
                staying = jobs.only(to[jobs.number] == _STAYS)
                if not len(staying.number) or moved > budget:
                    continue
                mover = PeriodMover(staying, self._since, seconds, target)
                mover.run(to, budget - moved)
                if mover.moved:
                    gone = staying.only(to[staying.number] != _STAYS)
                    gone.add_to(seconds, self._since, gone.next_run, -1)
                    gone.add_to(seconds, self._since, to[gone.number], 1)
                moved += mover.moved
            # Another turn is not worth it if the last one moved few beside what is too much.
            excess = int(seconds.max()) - target
            if excess <= 0 or 8 * (moved - moved_before) * RUN < excess:
                break
        reached = int(seconds.max()) <= target and moved <= budget
        return (seconds, to) if reached else None
