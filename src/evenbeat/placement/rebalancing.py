"""Rebalance: the fewest moves that lower the peak, as a plan that changes nothing by itself.

A plan is found in rounds. A round aims at a target below the peak: it takes jobs off the seconds
above the target, longest interval first, and puts each where it stays within it. A round counts
only if it reaches its target everywhere; otherwise it is forgotten as a whole. So every move kept
helps to lower the peak, and none can raise it; what fixed jobs load by themselves is no target to
aim below. Rounds go on, with the jobs that have not moved yet, until none reaches a target.

A job is left alone shortly before its run: 30 minutes, or half its interval where that is less, for
else a job that runs every half hour could never move. The same bound holds for its new time.

A second rebalance straight after starts exactly where that last round did (jobs that moved are in
cooldown by then). All is whole numbers, so it fails alike and proposes nothing.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import NamedTuple
from uuid import UUID

import numpy as np

from evenbeat.placement import periodic_load
from evenbeat.placement.distribution import Distribution, distribution
from evenbeat.placement.load import LoadModel, SnapshotJob, table_of
from evenbeat.placement.movable_jobs import by_period
from evenbeat.placement.periodic_load import RUN, WEEK, Ints
from evenbeat.placement.rounds import STAYS, Attempt, Round
from evenbeat.placement.start_candidates import crowds_of

PROTECTION_WINDOW = timedelta(minutes=30)
LEAST_PROTECTION = timedelta(seconds=60)
PLACEMENT_COOLDOWN = timedelta(hours=1)


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
        """Why it moves, in words."""
        when = periodic_load.at_second(self.crowded_at)
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
    snapshot: Sequence[SnapshotJob], now: datetime, max_moves: int | None = None
) -> RebalancePlan:
    """Plan the moves that lower the peak, deterministically for a snapshot and a moment.

    Straight after its moves (which stamp `placed_at`) another finds none. One that `max_moves`
    cut short lowers the peak as far as so many moves can; the next one goes on from there.
    """
    model = LoadModel.of(snapshot, now)
    names = {str(entry.id): entry.name or str(entry.id) for entry in snapshot if _is_cron(entry)}
    before = distribution(model, names)
    skipped, movable = _sorted_out(snapshot, now)
    search = _Search(model, movable, now)
    search.run(len(movable) if max_moves is None else max_moves)
    moved = search.moved()
    crowds = crowds_of(model.seconds, model.since, search.table[moved])
    to = search.to[moved].tolist()
    moves = [
        _move(movable[n], second, crowd)
        for n, second, crowd in zip(moved.tolist(), to, crowds, strict=True)
    ]
    return RebalancePlan(moves, skipped, before, distribution(search.model_after(), names))


def _is_cron(entry: SnapshotJob) -> bool:
    return entry.schedule_kind == "cron"


def _move(entry: SnapshotJob, second: int, crowd: tuple[float, int]) -> Move:
    assert entry.next_run_at is not None  # noqa: S101 - only jobs with a next run are movable
    return Move(entry.id, entry.next_run_at, periodic_load.at_second(second), entry.name, *crowd)


# ---------------------------------------------------------------- who may move


def reason_to_stay(entry: SnapshotJob, now: datetime) -> str | None:
    """The rule that keeps a job where it is, if any."""
    if entry.schedule_kind != "interval":
        return "cron"
    if entry.status == "paused" or entry.next_run_at is None:
        return "paused"
    # A plan that has come but waits for its delay or its retry is under way as well.
    if entry.status == "running" or (entry.plan_time is not None and entry.plan_time <= now):
        return "job_running"
    if entry.placement not in (None, "balanced"):
        return "pinned"
    # Its hours are the user's choice; half an interval away they might be closed.
    if entry.execution_window is not None:
        return "window"
    return _too_fresh(entry, entry.next_run_at - now, now)


def _too_fresh(entry: SnapshotJob, ahead: timedelta, now: datetime) -> str | None:
    if ahead <= protection_window(entry.interval_seconds or 1):
        return "protection_window"
    if entry.placed_at is not None and now - entry.placed_at < PLACEMENT_COOLDOWN:
        return "placement_cooldown"
    return None


@lru_cache(maxsize=4096)
def protection_window(interval_seconds: int) -> timedelta:
    """How near its run a job is left alone: 30 minutes, half of an interval under an hour, and
    never less than a minute."""
    half = timedelta(seconds=interval_seconds) / 2
    return max(LEAST_PROTECTION, min(PROTECTION_WINDOW, half))


def _sorted_out(
    snapshot: Sequence[SnapshotJob], now: datetime
) -> tuple[list[SkippedJob], list[SnapshotJob]]:
    skipped, movable = [], []
    for entry in snapshot:
        reason = reason_to_stay(entry, now)
        if reason is None:
            movable.append(entry)
        else:
            skipped.append(SkippedJob(entry.id, reason, entry.name))
    return skipped, movable


# ---------------------------------------------------------------- the search


class _Search:
    """The state of a rebalance between rounds."""

    def __init__(self, model: LoadModel, movable: Sequence[SnapshotJob], now: datetime) -> None:
        self.since = model.since
        self.model = model
        self.seconds = model.seconds
        self.table, due = table_of(movable)
        self.to = np.full(len(movable), STAYS)
        self.jobs = by_period(self.table, due, _earliest(self.table[:, 0], now))

    def run(self, budget: int) -> None:
        """Lower the peak round by round."""
        while budget > 0:
            best = self._lowest(budget)
            if best is None:
                return
            self.seconds = best.seconds
            gone = best.to != STAYS
            self.to[gone] = best.to[gone]
            self.jobs = [jobs.only(~gone[jobs.number]) for jobs in self.jobs]
            budget -= int(gone.sum())

    def moved(self) -> Ints:
        """Which jobs get another time."""
        return np.flatnonzero(self.to != STAYS)

    def model_after(self) -> LoadModel:
        """The model with the moves made."""
        moved = self.moved()
        new = self.table[moved]
        self.model.add_table(new, np.full(len(moved), -1))
        new[:, 1] = self.to[moved]
        self.model.add_table(new)
        return self.model

    def _lowest(self, budget: int) -> Round | None:
        """The round with the lowest target that can be reached, approached from below in widening
        steps and then closed in on."""
        peak, floor = int(self.seconds.max()), self._floor()
        highest, step = peak - _gain(peak), _step(floor)
        failed, target, found = floor - step, floor, None
        while found is None and target <= highest:
            found = self._round(target, budget)
            if found is None:
                wider = min(3 * target - 2 * failed, highest)
                failed, target = target, max(target + 1, wider)
        return found and self._closed_in(found, range(failed, target, step), budget)

    def _closed_in(self, found: Round, targets: range, budget: int) -> Round:
        """Halve the way between a target that failed and one that was reached."""
        while len(targets) > 1:
            middle = targets[len(targets) // 2]
            better = self._round(middle, budget)
            failed, reached = (middle, targets.stop) if better is None else (targets.start, middle)
            targets, found = range(failed, reached, targets.step), better or found
        return found

    def _floor(self) -> int:
        """No target is reached below the mean, a single run, or what stays fixed anyway."""
        fixed = self.seconds.copy()
        for jobs in self.jobs:
            periodic_load.lay(fixed, -jobs.load(self.since))
        mean = -(-int(self.seconds.sum(dtype=np.int64)) // WEEK)
        return -(-max(mean, RUN, int(fixed.max())) // RUN) * RUN

    def _round(self, target: int, budget: int) -> Round | None:
        return Attempt(self.since, self.seconds, target, budget).run(self.jobs, len(self.to))


def _gain(peak: int) -> int:
    """The least gain that is worth moving jobs: one run or a hundredth, a thirtieth where thousands
    run at once, for there that takes thousands of moves."""
    return max(RUN, peak // (100 if peak < 1000 * RUN else 30))


def _step(load: int) -> int:
    """How closely the lowest target is searched: to one run, or to a hundredth."""
    return max(RUN, load // 100)


def _earliest(periods: Ints, now: datetime) -> Ints:
    """The first second that is not protected, for each."""
    different, which = np.unique(periods, return_inverse=True)
    ends = [periodic_load.epoch_second(now + protection_window(p)) + 1 for p in different.tolist()]
    return np.array(ends, np.int64)[which]
