"""Recurring jobs as placement sees them: what the store reads and the load model counts."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.schedule import Cron


class LoadEntry(NamedTuple):
    """What placement needs to know of a recurring job; `cost_ms` is expected, None if unknown.

    An `unproven` one was placed again and has not run since.
    """

    id: UUID
    name: str | None
    task: str
    queue: str
    schedule_kind: str
    interval_seconds: int | None
    cron_expression: str | None
    timezone: str
    anchor_at: datetime | None
    plan_time: datetime | None
    next_run_at: datetime | None
    status: str
    placement: str | None
    placed_at: datetime | None
    cost_ms: float | None
    execution_window: str | None = None
    schedule_version: int = 0
    unproven: bool = False
    delay_seconds: float = 0.0


class SlackCron(NamedTuple):
    """A cron job with slack that is to be placed in it, and the name that people know it by."""

    name: str
    cron: Cron
    cost_ms: float | None = None
    task: str = ""

    @property
    def minutes(self) -> int:
        slack = self.cron.slack
        return 0 if slack is None else slack.minutes


class CronEntry(NamedTuple):
    """A cron job, with the name that people know it by."""

    id: UUID
    name: str
    cron_expression: str
    timezone: str
    cost_ms: float | None
    execution_window: str | None = None
