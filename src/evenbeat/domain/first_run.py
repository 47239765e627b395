"""Where a job enters the schedule: new, resumed or edited. Pure."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from evenbeat.domain.decision import due_time
from evenbeat.domain.job import JobRecord, JobSpec, Placement, recurring_of, spec_of
from evenbeat.domain.schedule import After, Cron, Interval, Recurring
from evenbeat.domain.states import JobStatus
from evenbeat.domain.window import due_at


class FirstRun(NamedTuple):
    """Where a new or resumed job enters: its state, its first plan and when that is due, and when
    its place was chosen if somebody did."""

    status: JobStatus
    plan_time: datetime | None
    next_run_at: datetime | None
    anchor_at: datetime | None
    placed_at: datetime | None = None


def first_run(spec: JobSpec, start: datetime | timedelta | None, now: datetime) -> FirstRun:
    """The first occurrence of a new job, within one interval from now unless `start` is given."""
    moment = now + start if isinstance(start, timedelta) else start
    on_grid = spec.placement is Placement.GRID
    plan, anchor = spec.schedule.first_plan(moment, now, on_grid=on_grid)
    if plan is None:
        return FirstRun(JobStatus.PENDING, None, None, None)
    dues = None
    if isinstance(spec.schedule, Interval) and spec.placement is Placement.BALANCED:
        dues = Interval(spec.schedule.every, (anchor or plan) + spec.schedule_delay)
    due = due_at(plan, spec.schedule_delay, spec.window, dues)
    at_once = due <= now and not isinstance(spec.schedule, Recurring)
    return FirstRun(JobStatus.PENDING if at_once else JobStatus.SCHEDULED, plan, due, anchor)


def resumed_run(job: JobRecord, now: datetime, has_begun: bool = False) -> FirstRun:
    """Where a paused job enters again: where it waited, or, if a recurring one has missed that,
    at the next plan of its rhythm. An occurrence of which something is done goes on."""
    schedule = recurring_of(job)
    if job.next_run_at is not None and job.next_run_at > now:
        return FirstRun(JobStatus.SCHEDULED, job.plan_time, job.next_run_at, job.anchor_at)
    if schedule is None or has_begun:
        return FirstRun(JobStatus.PENDING, job.plan_time, job.next_run_at, job.anchor_at)
    plan = schedule.next_after(now)
    return FirstRun(JobStatus.SCHEDULED, plan, due_time(job, plan), job.anchor_at)


# -- edits -----------------------------------------------------------------------------------------


def schedule_changed(job: JobRecord, spec: JobSpec) -> bool:
    """Whether an edited job must be planned again. One that runs after others has no plan but the
    run that was asked for, which stays; another delay counts from the next one on."""
    if isinstance(spec.schedule, After) and job.schedule_kind == After.kind:
        return False
    before = unanchored(spec_of(job))
    rhythm = ("schedule", "placement", "schedule_delay", "window")
    after = unanchored(spec)
    if any(getattr(before, name) != getattr(after, name) for name in rhythm):
        return True
    anchor = spec.schedule.anchor if isinstance(spec.schedule, Interval) else None
    return anchor is not None and anchor != job.anchor_at


def with_its_rhythm(job: JobRecord, spec: JobSpec) -> JobSpec:
    """The edited spec with the anchor it should have: an interval that stays what it was, or is
    pinned where it is, keeps its rhythm; one that becomes balanced or goes on the grid, or is
    balanced and gets another window, loses it."""
    before = spec_of(job)
    if not isinstance(before.schedule, Interval) or not isinstance(spec.schedule, Interval):
        return spec
    if spec.schedule.every != before.schedule.every:
        return spec
    stays = spec.placement in (before.placement, Placement.PINNED)
    if spec.placement is Placement.BALANCED and spec.window not in (None, before.window):
        stays = False
    if stays and spec.schedule.anchor is None:
        return replace(spec, schedule=before.schedule)
    if not stays and spec.schedule.anchor == job.anchor_at:
        return unanchored(spec)
    return spec


def in_its_place(job: JobRecord, spec: JobSpec) -> JobSpec:
    """The edited spec where the job was, if its schedule is cron with the same slack."""
    before, after = spec_of(job).schedule, spec.schedule
    if isinstance(before, Cron) and before.placed(None) == after:
        return replace(spec, schedule=before)
    return spec


def unanchored(spec: JobSpec) -> JobSpec:
    """The spec without the beginning of its interval."""
    schedule = spec.schedule
    if not isinstance(schedule, Interval):
        return spec
    return replace(spec, schedule=Interval(schedule.every))


def status_after_edit(status: JobStatus, planned: JobStatus, spec: JobSpec) -> JobStatus:
    """A new schedule wakes a completed job; running, paused, failed and cancelled ones stay so."""
    if status in (JobStatus.PENDING, JobStatus.SCHEDULED):
        return planned
    if status is JobStatus.COMPLETED and spec.schedule.repeats:
        recurring = isinstance(spec.schedule, Recurring)
        return JobStatus.SCHEDULED if recurring else JobStatus.PENDING
    return status
