"""What an edit does to when a job runs; pure."""

from dataclasses import replace

from evenbeat.domain.job import Job, JobSpec, Placement, spec_of
from evenbeat.domain.schedule import After, Cron, Interval
from evenbeat.domain.states import JobStatus


def schedule_changed(job: Job, spec: JobSpec) -> bool:
    """Whether the job must be planned anew. One that runs after others has no plan but the run that
    was asked for, which stays; another delay counts from the next one on."""
    if job.schedule_kind == "after" and isinstance(spec.schedule, After):
        return False
    if _rhythm(spec_of(job)) != _rhythm(spec):
        return True
    anchor = spec.schedule.anchor if isinstance(spec.schedule, Interval) else None
    return anchor is not None and anchor != job.anchor_at


def _rhythm(spec: JobSpec) -> JobSpec:
    """The part of a spec that decides when it runs. For which jobs one waits is kept elsewhere."""
    schedule = unanchored(spec).schedule
    return JobSpec(
        task="any",
        schedule=After() if isinstance(schedule, After) else schedule,
        placement=spec.placement,
        schedule_delay=spec.schedule_delay,
        window=spec.window,
    )


def with_its_rhythm(job: Job, spec: JobSpec) -> JobSpec:
    """The edited spec with the anchor it should have: an interval that stays what it was, or is
    pinned where it is, keeps its rhythm; one that becomes balanced or goes on the grid loses it."""
    before = spec_of(job)
    if not isinstance(before.schedule, Interval) or not isinstance(spec.schedule, Interval):
        return spec
    if spec.schedule.every != before.schedule.every:
        return spec
    stays = spec.placement in (before.placement, Placement.PINNED)
    if stays and spec.schedule.anchor is None:
        return replace(spec, schedule=before.schedule)
    if not stays and spec.schedule.anchor == job.anchor_at:
        return unanchored(spec)
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
    if status is JobStatus.COMPLETED and isinstance(spec.schedule, Interval | Cron):
        return JobStatus.SCHEDULED
    if status is JobStatus.COMPLETED and isinstance(spec.schedule, After):
        return JobStatus.PENDING
    return status
