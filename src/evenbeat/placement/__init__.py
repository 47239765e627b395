"""Load-aware placement: pure functions over values, no database and no clock.

`LoadModel` knows the expected load of the coming week, `place` finds a new job its phase,
`rebalance` plans moves, `distribution` tells how even it all is, `simulate` replays a week.
"""

from evenbeat.placement.distribution import Distribution, distribution
from evenbeat.placement.documents import (
    distribution_document,
    preview_document,
    rebalance_document,
    undo_document,
)
from evenbeat.placement.load import CronLoad, LoadModel, SnapshotJob, beat_of, cron_of, crons_of
from evenbeat.placement.periodic_load import Beat
from evenbeat.placement.planner import Placed, Rhythm, place
from evenbeat.placement.rebalancing import (
    PLACEMENT_COOLDOWN,
    PROTECTION_WINDOW,
    Move,
    RebalancePlan,
    SkippedJob,
    protection_window,
    reason_to_stay,
    rebalance,
)

__all__ = [
    "PLACEMENT_COOLDOWN",
    "PROTECTION_WINDOW",
    "Beat",
    "CronLoad",
    "Distribution",
    "LoadModel",
    "Move",
    "Placed",
    "RebalancePlan",
    "Rhythm",
    "SkippedJob",
    "SnapshotJob",
    "beat_of",
    "cron_of",
    "crons_of",
    "distribution",
    "distribution_document",
    "place",
    "preview_document",
    "protection_window",
    "reason_to_stay",
    "rebalance",
    "rebalance_document",
    "undo_document",
]
