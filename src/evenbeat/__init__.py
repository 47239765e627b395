"""Evenbeat: a durable, self-balancing job scheduler for Python."""

__version__ = "0.1.0.dev0"

from evenbeat.app import Evenbeat
from evenbeat.declared import static_scopes
from evenbeat.domain.catch_up import CatchUpMode
from evenbeat.domain.job import Job, OnFailure, Placement
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.scope import Scope
from evenbeat.errors import EvenbeatError, Fail, LeaseLost, Retry
from evenbeat.events import Event, EventKind
from evenbeat.task import Task
from evenbeat.tasks.context import Context

__all__ = [
    "CatchUpMode",
    "Context",
    "Evenbeat",
    "EvenbeatError",
    "Event",
    "EventKind",
    "Fail",
    "Job",
    "LeaseLost",
    "OnFailure",
    "Placement",
    "Retry",
    "RetryPolicy",
    "Scope",
    "Task",
    "static_scopes",
]
