"""What to run after downtime: which plan is next, and how many were given up."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from evenbeat.domain.duration import format_duration
from evenbeat.domain.moments import as_utc
from evenbeat.domain.schedule import Recurring
from evenbeat.errors import InvalidInput

# How late a plan of mode `skip` may still start: claiming it takes a moment even without downtime.
SKIP_GRACE = timedelta(seconds=60)
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", _mode(self.mode))
        if self.window is not None and self.window <= timedelta(0):
            raise InvalidInput(
                f"The catch-up window {format_duration(self.window)!r} must be longer than zero; "
                "for example '6h', or none for no limit.",
                field="catch_up_window",
            )
        _check_count(self.max_plans_per_tick)


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
        chosen = _oldest_within(schedule, policy.window, earliest, now)
    else:
        grace = SKIP_GRACE if policy.mode is CatchUpMode.SKIP else None
        chosen = _newest_within(schedule, policy.window or grace, earliest, now)
    # (earliest, chosen] has as many plans as [earliest, chosen): both ends count as plans.
    return Upcoming(chosen, schedule.count(earliest, chosen))


def _newest_within(
    schedule: Recurring, window: timedelta | None, earliest: datetime, now: datetime
) -> datetime:
    latest = max(schedule.latest_until(now) or earliest, earliest)
    if window is not None and now - latest > window:
        return schedule.next_after(now)
    return latest


def _oldest_within(
    schedule: Recurring, window: timedelta | None, earliest: datetime, now: datetime
) -> datetime:
    if window is None or now - earliest <= window:
        return earliest
    # The first plan at or after now - window; when none is left, that is the next one to come.
    return schedule.next_after(now - window - _MICROSECOND)


def _check_count(given: object) -> None:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InvalidInput(
            f"max_plans_per_tick is {given!r}; it must be a whole number above zero, "
            "for example 10.",
            field="max_plans_per_tick",
        )


def _mode(given: str) -> CatchUpMode:
    try:
        return CatchUpMode(given)
    except ValueError:
        modes = ", ".join(CatchUpMode)
        raise InvalidInput(
            f"{given!r} is not a catch-up mode; choose one of {modes}, for example 'latest_only'.",
            field="catch_up",
        ) from None
