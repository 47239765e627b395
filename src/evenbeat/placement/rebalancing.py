"""Rebalance: the fewest moves that lower the peak, as a plan that changes nothing by itself.

A plan is found in rounds. A round aims at a target below the peak: it takes jobs off the seconds
above the target, longest interval first, and puts each where it stays within it. A round counts
only if it reaches its target everywhere; otherwise it is forgotten as a whole. So every move kept
helps to lower the peak, and none can raise it; what fixed jobs load by themselves is no target to
aim below. Rounds go on, with the jobs that have not moved yet, until none reaches a target.

A second rebalance straight after starts exactly where that last round did (jobs that moved are in
cooldown by then). All is whole numbers, so it fails alike and proposes nothing.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import numpy as np

from evenbeat.domain.moments import EPOCH
from evenbeat.placement import beats
from evenbeat.placement.beats import RUN, WEEK
from evenbeat.placement.distribution import Distribution, distribution
from evenbeat.placement.load import Entry, LoadModel, beat_of
from evenbeat.placement.rounds import Attempt, Round, by_period

PROTECTION_WINDOW = timedelta(minutes=30)
PLACEMENT_COOLDOWN = timedelta(hours=1)


class Move(NamedTuple):
    """A job's next run, as it is and as it should be; its anchor and plan shift alike."""

    job_id: UUID
    old_time: datetime
    new_time: datetime


class Skipped(NamedTuple):
    """A job that stays, and the rule that holds it."""

    job_id: UUID
    reason: str


class Plan(NamedTuple):
    """What a rebalance would do, with the distribution before and after."""

    moves: list[Move]
    skipped: list[Skipped]
    before: Distribution
    after: Distribution


def rebalance(snapshot: Sequence[Entry], now: datetime, max_moves: int | None = None) -> Plan:
    """Plan the moves that lower the peak, deterministically for a snapshot and a moment.

    Straight after its moves (which stamp `placed_at`) another finds none. One that `max_moves`
    cut short lowers the peak as far as so many moves can; the next one goes on from there.
    """
    model = LoadModel.of(snapshot, now)
    before = distribution(model)
    skipped, movable = _sorted_out(snapshot, now)
    search = _Search(model, movable, now)
    search.run(len(movable) if max_moves is None else max_moves)
    moves = [_move(movable[n], second) for n, second in sorted(search.moved.items())]
    return Plan(moves, skipped, before, distribution(search.model_after()))


def _move(entry: Entry, second: int) -> Move:
    assert entry.next_run_at is not None  # noqa: S101 - only jobs with a next run are movable
    return Move(entry.id, entry.next_run_at, beats.at_second(second))


# ---------------------------------------------------------------- who may move


def reason_to_stay(entry: Entry, now: datetime) -> str | None:
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
    return _too_fresh(entry.next_run_at, entry.placed_at, now)


def _too_fresh(next_run_at: datetime, placed_at: datetime | None, now: datetime) -> str | None:
    if next_run_at - now <= PROTECTION_WINDOW:
        return "protection_window"
    if placed_at is not None and now - placed_at < PLACEMENT_COOLDOWN:
        return "placement_cooldown"
    return None


def _sorted_out(snapshot: Sequence[Entry], now: datetime) -> tuple[list[Skipped], list[Entry]]:
    skipped, movable = [], []
    for entry in snapshot:
        reason = reason_to_stay(entry, now)
        if reason is None:
            movable.append(entry)
        else:
            skipped.append(Skipped(entry.id, reason))
    return skipped, movable


# ---------------------------------------------------------------- the search


class _Search:
    """The state of a rebalance between rounds."""

    def __init__(self, model: LoadModel, movable: Sequence[Entry], now: datetime) -> None:
        self.since = model.since
        self.model = model
        self.seconds = model.seconds
        self.moved: dict[int, int] = {}
        self.beats = [beat_of(entry) for entry in movable]
        earliest = beats.epoch_second(now + PROTECTION_WINDOW) + 1
        self.jobs = by_period(self.beats, [_due(entry) for entry in movable], earliest)

    def run(self, budget: int) -> None:
        """Lower the peak round by round."""
        while budget > len(self.moved):
            best = self._lowest(budget - len(self.moved))
            if best is None:
                return
            self.seconds = best.seconds
            self.moved |= best.moved
            gone = np.fromiter(best.moved, np.int64)
            self.jobs = [jobs.only(~np.isin(jobs.number, gone)) for jobs in self.jobs]

    def model_after(self) -> LoadModel:
        """The model with the moves made."""
        old = [self.beats[n] for n in self.moved]
        self.model.add_many(old, [-1] * len(old))
        self.model.add_many(
            [beat._replace(phase=at) for beat, at in zip(old, self.moved.values(), strict=True)]
        )
        return self.model

    def _lowest(self, budget: int) -> Round | None:
        """The round with the lowest target that can be reached, approached from below in widening
        steps and then closed in on."""
        peak, floor = int(self.seconds.max()), self._floor()
        highest, step = peak - _gain(peak), _gain(floor)
        failed, target, found = floor - step, floor, None
        while found is None and target <= highest:
            found = self._round(target, budget)
            if found is None:
                wider = min(2 * target - failed, highest)
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
            fixed -= jobs.load(self.since, jobs.next_run)
        mean = -(-int(self.seconds.sum(dtype=np.int64)) // WEEK)
        return -(-max(mean, RUN, int(fixed.max())) // RUN) * RUN

    def _round(self, target: int, budget: int) -> Round | None:
        return Attempt(self.since, self.seconds, target, budget).run(self.jobs)


def _gain(load: int) -> int:
    """The least difference that counts: one run, or a hundredth where many run at once."""
    return max(RUN, load // 100)


def _due(entry: Entry) -> int:
    assert entry.next_run_at is not None  # noqa: S101 - see _move
    return (entry.next_run_at - EPOCH) // timedelta(microseconds=1)
