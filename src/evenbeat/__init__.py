"""Evenbeat: a durable, self-balancing job scheduler for Python."""

__version__ = "0.1.0.dev0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenbeat.app import Evenbeat
    from evenbeat.batch import Batch
    from evenbeat.declared import (
        PeriodicOptions,
        ScheduleOptions,
        ScopeContext,
        SyncReport,
        TaskOptions,
        static_scopes,
    )
    from evenbeat.domain.batch import BatchCounts, BatchRecord, BatchStatus
    from evenbeat.domain.caller import Caller
    from evenbeat.domain.catch_up import CatchUpMode
    from evenbeat.domain.execution import Execution
    from evenbeat.domain.job import JobOptions, JobRecord, NewJob, OnFailure, Placement
    from evenbeat.domain.retry import RetryPolicy
    from evenbeat.domain.run_log import LogLine
    from evenbeat.domain.schedule import AfterCondition, Awaited
    from evenbeat.domain.scope import Scope
    from evenbeat.domain.states import ExecutionStatus, JobStatus
    from evenbeat.domain.step import Step
    from evenbeat.eager import Eager, EagerJob
    from evenbeat.engine.worker import Worker
    from evenbeat.errors import (
        EvenbeatError,
        EventTimeout,
        Fail,
        JobCancelled,
        JobFailed,
        LeaseLost,
        Retry,
        Snooze,
    )
    from evenbeat.events import BalanceEvent, Event, EventKind, WorkerEvent
    from evenbeat.job import Job
    from evenbeat.jobs import JobFilters
    from evenbeat.task import Task, TaskDecorator, chain
    from evenbeat.tasks.context import CURRENT, Context, State
    from evenbeat.tasks.inputs import Inputs

__all__ = [
    "CURRENT",
    "AfterCondition",
    "Awaited",
    "BalanceEvent",
    "Batch",
    "BatchCounts",
    "BatchRecord",
    "BatchStatus",
    "Caller",
    "CatchUpMode",
    "Context",
    "Eager",
    "EagerJob",
    "Evenbeat",
    "EvenbeatError",
    "Event",
    "EventKind",
    "EventTimeout",
    "Execution",
    "ExecutionStatus",
    "Fail",
    "Inputs",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobFilters",
    "JobOptions",
    "JobRecord",
    "JobStatus",
    "LeaseLost",
    "LogLine",
    "NewJob",
    "OnFailure",
    "PeriodicOptions",
    "Placement",
    "Retry",
    "RetryPolicy",
    "ScheduleOptions",
    "Scope",
    "ScopeContext",
    "Snooze",
    "State",
    "Step",
    "SyncReport",
    "Task",
    "TaskDecorator",
    "TaskOptions",
    "Worker",
    "WorkerEvent",
    "chain",
    "static_scopes",
]

_HOMES = {
    "CURRENT": "tasks.context",
    "AfterCondition": "domain.schedule",
    "Awaited": "domain.schedule",
    "BalanceEvent": "events",
    "Batch": "batch",
    "BatchCounts": "domain.batch",
    "BatchRecord": "domain.batch",
    "BatchStatus": "domain.batch",
    "Caller": "domain.caller",
    "CatchUpMode": "domain.catch_up",
    "Context": "tasks.context",
    "Eager": "eager",
    "EagerJob": "eager",
    "Evenbeat": "app",
    "EvenbeatError": "errors",
    "Event": "events",
    "EventKind": "events",
    "Execution": "domain.execution",
    "ExecutionStatus": "domain.states",
    "EventTimeout": "errors",
    "Fail": "errors",
    "Inputs": "tasks.inputs",
    "Job": "job",
    "JobCancelled": "errors",
    "JobFailed": "errors",
    "JobFilters": "jobs",
    "JobOptions": "domain.job",
    "JobRecord": "domain.job",
    "JobStatus": "domain.states",
    "LeaseLost": "errors",
    "LogLine": "domain.run_log",
    "NewJob": "domain.job",
    "OnFailure": "domain.job",
    "PeriodicOptions": "declared",
    "Placement": "domain.job",
    "Retry": "errors",
    "RetryPolicy": "domain.retry",
    "ScheduleOptions": "declared",
    "Scope": "domain.scope",
    "ScopeContext": "declared",
    "Snooze": "errors",
    "State": "tasks.context",
    "Step": "domain.step",
    "SyncReport": "declared",
    "Task": "task",
    "TaskDecorator": "task",
    "TaskOptions": "declared",
    "Worker": "engine.worker",
    "WorkerEvent": "events",
    "chain": "task",
    "static_scopes": "declared",
}


def __getattr__(name: str) -> Any:
    """A public name, loaded when it is first asked for: `evenbeat --help` needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except AttributeError as error:  # in a dependency; `from evenbeat import …` would swallow it
        raise ImportError(f"evenbeat.{name} cannot be loaded: {error}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
