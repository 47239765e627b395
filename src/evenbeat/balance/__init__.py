"""Placement at work: the balancer of a process, between the store and the pure rules.

`Balancer` finds new jobs their place, tells how even the schedule is, previews, applies and undoes
rebalances. It is made on first use, because NumPy takes a while to import.
"""

from evenbeat.balance.balancer import Balancer
from evenbeat.balance.results import Counters, PlanPreview, Rebalance

__all__ = ["Balancer", "Counters", "PlanPreview", "Rebalance"]
