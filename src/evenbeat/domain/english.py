"""Times and schedules as a person would say them."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from evenbeat.domain.dependencies import Dependency, say_dependencies
from evenbeat.domain.job import Job, schedule_of
from evenbeat.domain.schedule import Cron, Interval, Once, Schedule

_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
_EVERY_FEW_MINUTES = re.compile(r"\*/([1-9]|[1-5][0-9]) \* \* \* \*")
_SHORT = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def say_schedule(schedule: Schedule) -> str:
    """A schedule in plain English: "every 30 minutes", "daily at 09:00, Europe/Berlin"."""
    if isinstance(schedule, Interval):
        return f"every {_every(schedule.every)}"
    if isinstance(schedule, Cron):
        return _cron(schedule)
    return schedule.describe()


def say_job_schedule(job: Job, awaited: Sequence[Dependency] = ()) -> str:
    """When a job runs, with its delay and its window; after which others, if these are given."""
    schedule = schedule_of(job)
    text = say_dependencies(awaited) if awaited else say_schedule(schedule)
    if job.parent_id is not None and job.plan_time is not None:
        text = f"once, for the plan of {say_moment(job.plan_time)}"
    elif isinstance(schedule, Once) and job.next_run_at is not None:
        text = f"once at {say_moment(job.next_run_at)}"
    if job.schedule_delay_seconds:
        text += f", {say_span(timedelta(seconds=job.schedule_delay_seconds))} later"
    if job.execution_window is not None:
        text += f", only {job.execution_window}"
    return text


def say_span(duration: timedelta) -> str:
    """A length of time in its two largest units: "3 h 12 m", "45 s", "under a second"."""
    rest = round(abs(duration).total_seconds())
    if rest == 0:
        return "under a second"
    parts = []
    for unit, size in _SHORT:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def say_distance(moment: datetime, now: datetime) -> str:
    """Where a moment lies from now: "in 3 h 12 m", "5 m ago", "now"."""
    distance = moment - now
    if abs(distance) < timedelta(seconds=1):
        return "now"
    span = say_span(distance)
    return f"in {span}" if distance > timedelta(0) else f"{span} ago"


def say_moment(moment: datetime) -> str:
    """A moment in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def say_count(number: int, noun: str) -> str:
    """ "1 plan", "2 plans"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _cron(cron: Cron) -> str:
    step = _EVERY_FEW_MINUTES.fullmatch(cron.expression)
    if step and 60 % int(step[1]) == 0:
        return f"every {_every(timedelta(minutes=int(step[1])))}"
    zone = f" ({cron.timezone})"
    return f"{cron.describe().removesuffix(zone)}, {cron.timezone}"


def _every(interval: timedelta) -> str:
    rest = int(interval.total_seconds())
    parts = []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
    if len(parts) == 1 and parts[0].startswith("1 "):
        return parts[0].removeprefix("1 ")
    return " ".join(parts)
