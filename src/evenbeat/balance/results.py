"""What the balancer answers."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from evenbeat.placement import Distribution, Move, RebalancePlan, SkippedJob


class PlanPreview(NamedTuple):
    """What a rebalance would do. Give `plan_id` to `rebalance` to have just this applied."""

    plan_id: str
    at: datetime
    plan: RebalancePlan

    @property
    def moves(self) -> list[Move]:
        """The jobs that would move, each with its reason."""
        return self.plan.moves

    @property
    def skipped(self) -> list[SkippedJob]:
        """The jobs that may not move, each with the rule that holds it."""
        return self.plan.skipped


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
        """The score before it."""
        return self.before.score

    @property
    def new_score(self) -> float:
        """The score after it."""
        return self.after.score


class Counters(NamedTuple):
    """Totals for metrics. `placements` by type: `new` and `reschedule` count what this process has
    placed, `rebalance` every move in this database, like the other figures."""

    placements: Mapping[str, int]
    rebalances: int
    last_moved: int | None
    last_skipped: int | None
