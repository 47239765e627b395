"""Deadlines of a job: by when its runs must have started or succeeded, and which it has missed."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from evenbeat.domain.clock_time import ClockTime, parse_clock_time
from evenbeat.domain.job import JobRecord, due_of, recurring_of
from evenbeat.domain.states import JobStatus
from evenbeat.humanize import duration

_TICK = timedelta(microseconds=1)


class Deadline(StrEnum):
    """What a job can have missed. The values are the rules of `domain/alerts.py`."""

    START = "late_start"
    SUCCESS = "overdue"


class LatestRuns(NamedTuple):
    """A job's newest run: when it started, and how long it had waited by then; and its newest
    success: of which plan it was, and when it ended."""

    started_at: datetime | None = None
    wait_ms: float | None = None
    succeeded_plan: datetime | None = None
    succeeded_at: datetime | None = None


class MissedDeadline(NamedTuple):
    """A deadline that was missed, since when, and how that is said."""

    deadline: Deadline
    since: datetime
    text: str


def missed_deadlines(job: JobRecord, runs: LatestRuns, now: datetime) -> list[MissedDeadline]:
    """Those that a job has missed and not made up for: a late start by the next run that starts in
    time, a missing success by a success. Of each kind, the one that was missed first."""
    first: dict[Deadline, MissedDeadline] = {}
    for one in _missed(job, runs, now):
        if one.deadline not in first or one.since < first[one.deadline].since:
            first[one.deadline] = one
    return list(first.values())


def _missed(job: JobRecord, runs: LatestRuns, now: datetime) -> Iterator[MissedDeadline]:
    status = JobStatus(job.status)
    if status is JobStatus.CANCELLED:
        return
    if job.must_start_within_seconds is not None:
        within = timedelta(seconds=job.must_start_within_seconds)
        if (since := _late_since(job, runs, within, now)) is not None:
            yield MissedDeadline(
                Deadline.START,
                since,
                f"It must start within {duration(within)} of the time at which it is due.",
            )
    if status is JobStatus.COMPLETED and job.schedule_kind == "once":
        return
    if job.must_succeed_every_seconds is not None:
        every = timedelta(seconds=job.must_succeed_every_seconds)
        since = (runs.succeeded_at or job.created_at) + every
        if since < now:
            last = "It never has." if runs.succeeded_at is None else f"The last: {_at(runs)}."
            text = f"It must succeed at least every {duration(every)}. {last}"
            yield MissedDeadline(Deadline.SUCCESS, since, text)
    if job.must_finish_by is not None:
        by = parse_clock_time(job.must_finish_by)
        if (since := _unfinished_since(job, runs, by, now)) is not None:
            last = "" if runs.succeeded_at is None else f" The last success: {_at(runs)}."
            text = f"It must have finished by {by}, and has not.{last}"
            yield MissedDeadline(Deadline.SUCCESS, since, text)


def _late_since(
    job: JobRecord, runs: LatestRuns, within: timedelta, now: datetime
) -> datetime | None:
    due = due_of(job)
    if due is not None and due + within < now:
        return due + within
    late = timedelta(milliseconds=runs.wait_ms or 0) - within
    if runs.started_at is None or late <= timedelta(0):
        return None
    return runs.started_at - late


def _unfinished_since(
    job: JobRecord, runs: LatestRuns, by: ClockTime, now: datetime
) -> datetime | None:
    """The newest plans before the time of day must have succeeded by then."""
    schedule = recurring_of(job)
    if job.schedule_kind == "once":
        limit = by.next_after(job.plan_time or job.created_at)
        return limit if limit <= now else None
    limit = by.latest_until(now)
    if schedule is None:  # it runs after others: at least once a day
        before = by.latest_until(limit - _TICK)
        is_done = runs.succeeded_at is not None and runs.succeeded_at > before
        return None if is_done or job.created_at > before else limit
    plan = schedule.latest_until(limit - _TICK)
    if plan is None or plan < job.created_at:
        return None
    is_done = runs.succeeded_plan is not None and runs.succeeded_plan >= plan
    return None if is_done else limit


def _at(runs: LatestRuns) -> str:
    return f"{runs.succeeded_at:%Y-%m-%d %H:%M} UTC"
