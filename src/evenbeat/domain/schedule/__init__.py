"""When a job runs. Each kind of schedule is one class in one file; `KINDS` lists them all."""

from collections.abc import Mapping
from typing import Any

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.moments import zone_named
from evenbeat.domain.schedule.after import (
    MOST_AWAITED,
    After,
    AfterCondition,
    Awaited,
    after_jobs,
)
from evenbeat.domain.schedule.base import (
    FirstPlan,
    Recurring,
    Schedule,
    ScheduleRow,
    split_words,
)
from evenbeat.domain.schedule.cron import Cron
from evenbeat.domain.schedule.interval import LONGEST_INTERVAL, Interval
from evenbeat.domain.schedule.once import Once
from evenbeat.errors import InvalidInput

__all__ = (
    "KINDS", "LONGEST_INTERVAL", "MOST_AWAITED", "RECURRING_KINDS", "SCHEDULE_COLUMNS",
    "After", "AfterCondition", "Awaited", "Cron", "FirstPlan", "Interval", "Once",
    "Recurring", "Schedule", "ScheduleRow", "after_jobs", "parse_schedule",
    "schedule_columns", "schedule_from_fields", "schedule_from_row",
)  # fmt: skip

KINDS: dict[str, type[Schedule]] = {kind.kind: kind for kind in (Once, Interval, Cron, After)}
RECURRING_KINDS = tuple(name for name, kind in KINDS.items() if issubclass(kind, Recurring))
SCHEDULE_COLUMNS = {"interval_seconds": None, "cron_expression": None, "timezone": "UTC"}
"""Every column that some kind has, with what it holds for the others."""


def parse_schedule(text: str, *, timezone: str = "UTC") -> Recurring:
    """Read a recurring schedule: "@every 1h30m", "30m", five cron fields, or a name such as @daily.

    `timezone` is the one that cron is read in; it must be valid even where it is not needed.
    """
    zone_named(timezone)
    split_words(text)
    schedules = (kind.from_text(text, timezone) for kind in KINDS.values())
    return next(one for one in schedules if isinstance(one, Recurring))


def schedule_from_row(row: ScheduleRow) -> Schedule:
    """The schedule that a row of `jobs` describes."""
    return KINDS[row.schedule_kind].from_row(row)


def schedule_columns(schedule: Schedule) -> dict[str, object]:
    """The columns of `jobs` that a schedule fixes."""
    return {"schedule_kind": schedule.kind, **SCHEDULE_COLUMNS, **schedule.columns()}


def schedule_from_fields(fields: Mapping[str, Any], present: Schedule | None = None) -> Schedule:
    """The schedule that a document describes, for a new job or as an edit of the present one:
    `schedule` with `timezone`, `interval_seconds`, or `after` with `after_on`; `anchor_at` for the
    rhythm of an interval. Null ends a schedule, and what is missing changes nothing."""
    said = {name: value for name, value in fields.items() if value is not None}
    forms: dict[str, Schedule] = {}
    if "after" in said:
        forms["after"] = _after_from(said["after"], said.get("after_on"))
    elif "after_on" in said:
        raise InvalidInput(
            "after_on says how the jobs of `after` must end, and that is missing.", field="after_on"
        )
    if "schedule" in said:
        try:
            forms["schedule"] = parse_schedule(
                said["schedule"], timezone=said.get("timezone", "UTC")
            )
        except InvalidInput as error:
            error.field = error.field if error.field == "timezone" else "schedule"
            raise
    if "interval_seconds" in said:
        forms["interval_seconds"] = Interval(
            parse_duration(said["interval_seconds"], field="interval_seconds")
        )
    if len(set(forms.values())) > 1:
        first, second, *_ = forms
        verb = "when" if first == "after" else "how often"
        raise InvalidInput(
            f"{first} and {second} both say {verb} to run. Give one of them.",
            field=first if first == "after" else second,
        )
    ended = present is None or any(
        name in fields and name in present.document_fields for name in ("schedule", "after")
    )
    schedule = next(iter(forms.values()), Once() if ended or present is None else present)
    return schedule.edited(said)


def _after_from(jobs: Any, on: Any) -> After:
    default = on or AfterCondition.SUCCESS
    return after_jobs(
        [
            Awaited(one["job"], one.get("on") or default) if isinstance(one, Mapping) else one
            for one in (jobs if isinstance(jobs, list | tuple) else [jobs])
        ],
        default,
    )
