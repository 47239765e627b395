"""Placement at work: the balancer of a process, between the store and the pure rules.

`Balancer` places new jobs, reports how even the schedule is, and previews, applies and undoes
rebalances. It is made on first use, because NumPy takes a while to import.
"""

from evenbeat.balance.balancer import Balancer
from evenbeat.balance.rebalancer import PlanPreview, Rebalance

__all__ = ["Balancer", "PlanPreview", "Rebalance"]
