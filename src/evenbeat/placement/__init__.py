"""Load-aware placement: pure functions over values, no database and no clock.

`LoadModel` holds the expected load of the coming week, `place` and `place_many` choose the phases
of new jobs, `rebalance` plans moves, `distribution` says how even it all is, `simulate` replays a
week.
"""

from evenbeat.placement.distribution import Distribution, distribution
from evenbeat.placement.load import CronLoad, LoadModel, beat_of, cron_loads
from evenbeat.placement.periodic_load import Beat
from evenbeat.placement.planner import Placed, Rhythm, place, place_many
from evenbeat.placement.rebalancing import (
    Move,
    RebalancePlan,
    SkippedJob,
    protection_window,
    reason_to_stay,
    rebalance,
)

__all__ = [
    "Beat",
    "CronLoad",
    "Distribution",
    "LoadModel",
    "Move",
    "Placed",
    "RebalancePlan",
    "Rhythm",
    "SkippedJob",
    "beat_of",
    "cron_loads",
    "distribution",
    "place",
    "place_many",
    "protection_window",
    "reason_to_stay",
    "rebalance",
]
