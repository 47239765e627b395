"""Rebalancing a live schedule: plan on a snapshot, move each job only if it is as it was."""

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from evenbeat.balance.results import PlanPreview, Rebalance
from evenbeat.domain.ids import uuid7
from evenbeat.errors import Conflict, InvalidInput
from evenbeat.placement import (
    Distribution,
    LoadModel,
    Move,
    RebalancePlan,
    SkippedJob,
    beat_of,
    distribution,
    reason_to_stay,
    rebalance,
)
from evenbeat.store.database import Connection
from evenbeat.store.placement import JobMove, LoadEntry
from evenbeat.store.store import Store

CHANGED = "changed_meanwhile"
_MOST_MOVES = 10_000_000
_REMEMBERED = 16
_REMEMBERED_MOVES = 100_000
_LEAST_AHEAD = timedelta(minutes=1)

Entries = Mapping[UUID, LoadEntry]


def checked_moves(max_moves: int | None) -> int | None:
    """The bound on moves, or an error that says what it may be."""
    if max_moves is None or (type(max_moves) is int and 1 <= max_moves <= _MOST_MOVES):
        return max_moves
    raise InvalidInput(
        f"max_moves must be a whole number from 1 to {_MOST_MOVES:,}, or none for no bound; "
        f"got {max_moves!r}.",
        field="max_moves",
    )


class Rebalancer:
    """Makes plans, remembers the last ones that were previewed, and carries them out."""

    def __init__(self, store: Store, override: Callable[[], datetime | None]) -> None:
        self._store = store
        self._override = override
        self._previewed: OrderedDict[str, list[Move]] = OrderedDict()
        self._remembering = threading.Lock()

    def preview(self, max_moves: int | None) -> PlanPreview:
        """Plan, and write nothing."""
        now = self._store.clock(self._override())
        plan = rebalance(self._snapshot(now), now, max_moves)
        plan_id = _plan_id(plan)
        self._remember(plan_id, plan.moves)
        return PlanPreview(plan_id, now, plan)

    def rebalance(self, max_moves: int | None, *, by: str | None, plan_id: str | None) -> Rebalance:
        """Plan, or take the previewed plan as far as it holds, and apply; one at a time."""
        with self._store.upkeep.exclusive("rebalance"):
            now = self._store.clock(self._override())
            snapshot = self._snapshot(now)
            if plan_id is None:
                plan = rebalance(snapshot, now, max_moves)
            else:
                plan = self._agreed(plan_id, snapshot, now, max_moves)
            entries = {entry.id: entry for entry in snapshot}
            return self._store.database.atomically(
                lambda connection: self._apply(plan, entries, now, by, connection)
            )

    # --------------------------------------------------------------------------------------------

    def _remember(self, plan_id: str, moves: list[Move]) -> None:
        """Keep the moves alone: who stays is looked up anew, and may be a million jobs."""
        with self._remembering:
            self._previewed[plan_id] = moves
            self._previewed.move_to_end(plan_id)
            kept = sum(map(len, self._previewed.values()))
            while len(self._previewed) > _REMEMBERED or (
                kept > _REMEMBERED_MOVES and len(self._previewed) > 1
            ):
                kept -= len(self._previewed.popitem(last=False)[1])

    def _snapshot(self, now: datetime) -> list[LoadEntry]:
        """Every recurring job. One that was moved and has not run since counts as just placed: a
        move every hour, half an interval each, would else push its run out for ever."""
        return [
            entry._replace(placed_at=now) if entry.unproven else entry
            for entry in self._store.placement.load_snapshot()
        ]

    def _agreed(
        self, plan_id: str, snapshot: Sequence[LoadEntry], now: datetime, max_moves: int | None
    ) -> RebalancePlan:
        with self._remembering:
            previewed = self._previewed.get(plan_id)
        if previewed is not None:
            return _what_holds(previewed, snapshot, now)
        # Previewed in another process, or long ago: good if it comes out the same.
        plan = rebalance(snapshot, now, max_moves)
        if _plan_id(plan) != plan_id:
            raise Conflict(
                f"The schedule has changed since the preview {plan_id!r}, or there was none. "
                "Preview again and apply that plan."
            )
        return plan

    def _apply(
        self,
        plan: RebalancePlan,
        entries: Entries,
        now: datetime,
        by: str | None,
        connection: Connection,
    ) -> Rebalance:
        placement, id_ = self._store.placement, uuid7()
        wanted = [_job_move(move, entries[move.job_id]) for move in plan.moves]
        created_at, done = placement.rebalance(
            id_, wanted, _figures(plan.before, plan.after), connection, by=by, now=self._override()
        )
        moved = [move for move in plan.moves if move.job_id in done]
        changed = [
            SkippedJob(move.job_id, CHANGED, move.name)
            for move in plan.moves
            if move.job_id not in done
        ]
        skipped, after = [*plan.skipped, *changed], plan.after
        if changed:
            after = _projected(list(entries.values()), moved, now)[1]
        reasons = dict(Counter(job.reason for job in skipped))
        figures = _figures(plan.before, after)
        placement.close(id_, len(moved), reasons, figures, connection)
        return Rebalance(id_, created_at, by, moved, skipped, plan.before, after)


def _plan_id(plan: RebalancePlan) -> str:
    """The same for the same moves, in any process."""
    text = "\n".join(f"{m.job_id} {m.old_time} {m.new_time}" for m in plan.moves)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _what_holds(
    previewed: Sequence[Move], snapshot: Sequence[LoadEntry], now: datetime
) -> RebalancePlan:
    """The previewed moves of jobs that are as they were and may still move."""
    entries = {entry.id: entry for entry in snapshot}
    reasons = {m.job_id: _reason_against(m, entries.get(m.job_id), now) for m in previewed}
    moves = [move for move in previewed if reasons[move.job_id] is None]
    skipped = [
        SkippedJob(entry.id, reason, entry.name)
        for entry in snapshot
        if (reason := reasons.get(entry.id) or reason_to_stay(entry, now)) is not None
    ]
    skipped += [SkippedJob(m.job_id, CHANGED, m.name) for m in previewed if m.job_id not in entries]
    return RebalancePlan(moves, skipped, *_projected(snapshot, moves, now))


def _reason_against(move: Move, entry: LoadEntry | None, now: datetime) -> str | None:
    if entry is None or entry.next_run_at != move.old_time:
        return CHANGED
    # The operator has agreed to the new time; only so late that it could be missed, it is not.
    too_late = move.new_time - now <= _LEAST_AHEAD
    return reason_to_stay(entry, now) or ("protection_window" if too_late else None)


def _projected(
    snapshot: Sequence[LoadEntry], moves: Sequence[Move], now: datetime
) -> tuple[Distribution, Distribution]:
    """How even it is, and would be after these moves."""
    model = LoadModel.of(snapshot, now)
    names = {str(e.id): e.name or e.task for e in snapshot if e.schedule_kind == "cron"}
    before = distribution(model, names)
    to = {move.job_id: move.new_time for move in moves}
    old = [entry for entry in snapshot if entry.id in to]
    model.add_many([beat_of(entry) for entry in old], [-1] * len(old))
    model.add_many([beat_of(entry._replace(next_run_at=to[entry.id])) for entry in old])
    return before, distribution(model, names)


def _job_move(move: Move, entry: LoadEntry) -> JobMove:
    return JobMove(
        move.job_id, move.old_time, move.new_time, entry.anchor_at, entry.schedule_version
    )


def _figures(before: Distribution, after: Distribution) -> dict[str, float]:
    return {
        "old_score": before.score,
        "new_score": after.score,
        "old_peak": before.peak_load,
        "new_peak": after.peak_load,
    }
