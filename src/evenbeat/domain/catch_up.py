"""What to run after downtime: which plan is next, and how many were given up."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from evenbeat.domain.moments import as_utc
from evenbeat.domain.schedule import Recurring

# How late a plan of mode `skip` may still start: claiming it takes a moment even without downtime.
SKIP_GRACE = timedelta(seconds=60)
FEW = 50
"""So many late jobs, or so many retries of one error within their delay, are no herd."""
_MICROSECOND = timedelta(microseconds=1)


class CatchUpMode(StrEnum):
    """What happens to plans that came due while nothing could run them."""

    SKIP = "skip"
    LATEST_ONLY = "latest_only"
    EVERY_PLAN = "every_plan"


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A mode, how old a missed plan may be (`window`), and how many plans one tick may take."""

    mode: CatchUpMode = CatchUpMode.LATEST_ONLY
    window: timedelta | None = None
    max_plans_per_tick: int = 10


class Upcoming(NamedTuple):
    """The plan to run next, and how many unhandled plans before it are given up."""

    plan_time: datetime
    skipped: int


def upcoming(schedule: Recurring, policy: CatchUp, earliest: datetime, now: datetime) -> Upcoming:
    """Choose the plan to run next, where `earliest` is the first plan not yet handled.

    `earliest` may lie off the schedule (a manual run): it then counts as one plan more.
    """
    earliest, now = as_utc(earliest), as_utc(now)
    if earliest > now:
        return Upcoming(earliest, 0)
    if policy.mode is CatchUpMode.EVERY_PLAN:
        plan = earliest
        if policy.window is not None and now - earliest > policy.window:
            # The first plan at or after now - window; if none is left, the next one to come.
            plan = schedule.next_after(now - policy.window - _MICROSECOND)
    else:
        plan = max(schedule.latest_until(now) or earliest, earliest)
        window = policy.window or (SKIP_GRACE if policy.mode is CatchUpMode.SKIP else None)
        if window is not None and now - plan > window:
            plan = schedule.next_after(now)
        if (
            policy.mode is CatchUpMode.LATEST_ONLY
            and window is not None
            and now - earliest > window
        ):
            since = now - window - _MICROSECOND  # plans before the window do not count
            return Upcoming(plan, schedule.count(since, plan - _MICROSECOND))
    # (earliest, plan] has as many plans as [earliest, plan): both ends count as plans.
    return Upcoming(plan, schedule.count(earliest, plan))
