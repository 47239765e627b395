"""Rebalancing a live schedule: plan on a snapshot, move each job only if it is as it was."""

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.ids import uuid7
from evenbeat.domain.load_entry import LoadEntry
from evenbeat.errors import Conflict, InvalidInput
from evenbeat.placement.distribution import Distribution, distribution
from evenbeat.placement.load import LoadModel, beat_of
from evenbeat.placement.rebalancing import (
    Move,
    RebalancePlan,
    SkippedJob,
    moved,
    reason_to_stay,
    rebalance,
)
from evenbeat.store.database import Connection
from evenbeat.store.store import Store

CHANGED = "changed_meanwhile"
_MOST_MOVES = 10_000_000
_MOST_PREVIEWS = 16
_MOST_PREVIEWED_MOVES = 100_000
_LEAST_AHEAD = timedelta(minutes=1)


class PlanPreview(NamedTuple):
    """What a rebalance would do: the moves, each with its reason, and the jobs that may not move,
    each with the rule that holds it. Give `plan_id` to `rebalance` to have just this applied."""

    plan_id: str
    at: datetime
    moves: list[Move]
    skipped: list[SkippedJob]
    before: Distribution
    after: Distribution


class Rebalance(NamedTuple):
    """What a rebalance did; `id` is for `undo`."""

    id: UUID
    created_at: datetime
    created_by: str | None
    moved: list[Move]
    skipped: list[SkippedJob]
    before: Distribution
    after: Distribution

    @property
    def old_score(self) -> float:
        return self.before.score

    @property
    def new_score(self) -> float:
        return self.after.score


class Rebalancer:
    """Makes plans, remembers the last ones that were previewed, and carries them out."""

    def __init__(self, store: Store, override: Callable[[], datetime | None]) -> None:
        self._store = store
        self._override = override
        self._previews: OrderedDict[str, list[Move]] = OrderedDict()
        self._lock = threading.Lock()

    def preview(self, max_moves: int | None) -> PlanPreview:
        """Plan, and write nothing. Only the moves are remembered: the jobs that stay may be a
        million, and are looked up again."""
        now = self._store.clock(self._override())
        plan = rebalance(self._snapshot(now), now, _checked(max_moves))
        plan_id = _plan_id(plan)
        with self._lock:
            self._previews[plan_id] = plan.moves
            self._previews.move_to_end(plan_id)
            moves = sum(map(len, self._previews.values()))
            while len(self._previews) > _MOST_PREVIEWS or (
                moves > _MOST_PREVIEWED_MOVES and len(self._previews) > 1
            ):
                moves -= len(self._previews.popitem(last=False)[1])
        return PlanPreview(plan_id, now, *plan)

    def rebalance(self, max_moves: int | None, *, by: str | None, plan_id: str | None) -> Rebalance:
        """Plan, or take the previewed plan as far as it holds, and apply; one at a time."""
        max_moves = _checked(max_moves)
        with self._store.upkeep.exclusive("rebalance"):
            now = self._store.clock(self._override())
            snapshot = self._snapshot(now)
            with self._lock:
                previewed = None if plan_id is None else self._previews.get(plan_id)
            if previewed is not None:
                plan = _what_holds(previewed, snapshot, now)
            else:
                plan = rebalance(snapshot, now, max_moves)
                # Previewed in another process, or long ago: good if it comes out the same.
                if plan_id not in (None, _plan_id(plan)):
                    raise Conflict(
                        f"The schedule has changed since the preview {plan_id!r}, or there was "
                        "none. Preview again and apply that plan."
                    )
            id_, jobs = uuid7(), {job.id: job for job in snapshot}

            def work(connection: Connection) -> Rebalance:
                placement, figures = self._store.placement, _figures(plan.before, plan.after)
                moves = [(jobs[move.job_id], move.new_time) for move in plan.moves]
                created_at, done = placement.rebalance(
                    id_, moves, figures, connection, by=by, now=self._override()
                )
                moved = [move for move in plan.moves if move.job_id in done]
                changed = [
                    SkippedJob(move.job_id, CHANGED, move.name)
                    for move in plan.moves
                    if move.job_id not in done
                ]
                after = _projected(snapshot, moved, now)[1] if changed else plan.after
                skipped = [*plan.skipped, *changed]
                reasons = dict(Counter(job.reason for job in skipped))
                figures = _figures(plan.before, after)
                placement.complete_rebalance(id_, len(moved), reasons, figures, connection)
                return Rebalance(id_, created_at, by, moved, skipped, plan.before, after)

            return self._store.database.atomically(work)

    def _snapshot(self, now: datetime) -> list[LoadEntry]:
        """Every recurring job. One that was moved and has not run since counts as just placed:
        otherwise a move of half an interval every hour would push its run out forever."""
        return [
            job._replace(placed_at=now) if job.unproven else job
            for job in self._store.placement.load_snapshot(now)
        ]


def _checked(max_moves: int | None) -> int | None:
    if max_moves is None or (type(max_moves) is int and 1 <= max_moves <= _MOST_MOVES):
        return max_moves
    raise InvalidInput(
        f"max_moves must be a whole number from 1 to {_MOST_MOVES:,}, or none for no bound; "
        f"got {max_moves!r}.",
        field="max_moves",
    )


def _plan_id(plan: RebalancePlan) -> str:
    """The same for the same moves, in any process."""
    text = "\n".join(f"{m.job_id} {m.old_time} {m.new_time}" for m in plan.moves)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _what_holds(
    previewed: Sequence[Move], snapshot: Sequence[LoadEntry], now: datetime
) -> RebalancePlan:
    """The previewed moves of jobs that are as they were and may still move."""
    jobs = {job.id: job for job in snapshot}
    reasons: dict[UUID, str | None] = {}
    for move in previewed:
        job = jobs.get(move.job_id)
        if job is None or job.next_run_at != move.old_time:
            reasons[move.job_id] = CHANGED
            continue
        # The operator has agreed to the new time; it fails only if that could be missed by now.
        too_late = move.new_time - now <= _LEAST_AHEAD
        late = "protection_window" if too_late else None
        reasons[move.job_id] = reason_to_stay(job, now) or late
    moves = [move for move in previewed if reasons[move.job_id] is None]
    skipped = [
        SkippedJob(job.id, reason, job.name)
        for job in snapshot
        if (reason := reasons.get(job.id) or reason_to_stay(job, now)) is not None
    ]
    skipped += [SkippedJob(m.job_id, CHANGED, m.name) for m in previewed if m.job_id not in jobs]
    return RebalancePlan(moves, skipped, *_projected(snapshot, moves, now))


def _projected(
    snapshot: Sequence[LoadEntry], moves: Sequence[Move], now: datetime
) -> tuple[Distribution, Distribution]:
    """How even it is, and would be after these moves."""
    model = LoadModel.of(snapshot, now)
    crons = [job for job in snapshot if job.cron_expression is not None]
    names = {str(job.id): job.name or job.task for job in crons}
    before = distribution(model, names)
    to = {move.job_id: move.new_time for move in moves}
    moving = [job for job in snapshot if job.id in to]
    model.add_many([beat_of(job) for job in moving], [-1] * len(moving))
    model.add_many([beat_of(moved(job, to[job.id])) for job in moving])
    return before, distribution(model, names)


def _figures(before: Distribution, after: Distribution) -> dict[str, float]:
    return {
        "old_score": before.score,
        "new_score": after.score,
        "old_peak": before.peak_load,
        "new_peak": after.peak_load,
    }
