"""Load-aware placement: pure functions over values, no database and no clock.

`LoadModel` knows the expected load of the coming week, `place` finds a new job its phase,
`rebalance` plans moves, `distribution` tells how even it all is, `simulate` replays a week.
"""

from evenbeat.placement.beats import Beat
from evenbeat.placement.distribution import Distribution, distribution
from evenbeat.placement.documents import (
    distribution_document,
    preview_document,
    rebalance_document,
    undo_document,
)
from evenbeat.placement.load import CronLoad, Entry, LoadModel, beat_of, cron_of, crons_of
from evenbeat.placement.planner import Placed, Rhythm, place
from evenbeat.placement.rebalancing import (
    PLACEMENT_COOLDOWN,
    PROTECTION_WINDOW,
    Move,
    Plan,
    Skipped,
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
    "Entry",
    "LoadModel",
    "Move",
    "Placed",
    "Plan",
    "Rhythm",
    "Skipped",
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
