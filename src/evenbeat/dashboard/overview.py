"""Screen 1, the overview: is everything all right, what needs a person, what comes next."""

from datetime import datetime, tzinfo
from typing import NamedTuple
from uuid import UUID

from fastapi import Request, Response

from evenbeat import charts, humanize
from evenbeat.api.dependencies import ServiceDep, Viewer
from evenbeat.dashboard import pages
from evenbeat.placement.distribution import Distribution
from evenbeat.store.summaries import Attention, FailingJob, HourOutcomes, LostRun, WaitingLane

router = pages.router()

_NEXT = 10
_SHOWN = 8


class Concern(NamedTuple):
    """One thing to look at: what it is, about which job or which jobs, and since when."""

    title: str
    text: str
    since: datetime
    job_id: UUID | None = None
    queue: str | None = None
    task: str | None = None
    is_bad: bool = True


@router.get("/", name="overview")
def overview(request: Request, _viewer: Viewer, service: ServiceDep) -> Response:
    """The whole at a glance."""
    read, now = service.app.store.read, pages.now_of(request)
    told = read.overview(now=service.now)
    states = read.counts_by_status()
    concerns = concerns_of(read.attention(limit=_SHOWN, now=service.now))
    spread = service.app.balancer.recent_distribution()
    return pages.render(
        request,
        "overview.html",
        now=now,
        told=told,
        jobs=sum(states.values()),
        live=sum(states.get(state, 0) for state in ("pending", "scheduled", "running")),
        states=states,
        ended=sum(hour.completed + hour.failed for hour in told.hours),
        hours_chart=_hours_chart(told.hours, pages.zone_of(request)),
        concerns=concerns[:_SHOWN],
        more_concerns=len(concerns) - _SHOWN,
        upcoming=read.upcoming(_NEXT),
        following=next(iter(read.upcoming(1, after=now)), None),
        spread=spread,
        spread_chart=None if spread is None else _spread_chart(spread),
    )


def _spread_chart(spread: Distribution) -> str:
    return charts.bars(
        spread.jobs_per_hour,
        title=f"Runs planned in each hour of the coming day; the most at {spread.peak_hour}:00",
        labels=[f"{hour:02d}" for hour in range(24)],
        peak_index=spread.peak_hour,
        unit="runs",
        width=460,
        height=150,
    )


def _hours_chart(hours: list[HourOutcomes], zone: tzinfo) -> str:
    done, failed = [hour.completed for hour in hours], [hour.failed for hour in hours]
    total = humanize.count(sum(done) + sum(failed), "run")
    return charts.stacked(
        done,
        failed,
        title=f"Runs that ended in each of the last 24 hours: {total}, {sum(failed):,} failed",
        labels=[f"{hour.hour.astimezone(zone):%H}" for hour in hours],
    )


# -- what needs attention --------------------------------------------------------------------------


def concerns_of(found: Attention) -> list[Concern]:
    """Everything that needs a person, the newest of each kind first, the worst kind first."""
    return [
        *map(_unserved, found.unserved),
        *map(_late, found.late),
        *map(_failing, found.failing),
        *map(_lost, found.lost),
    ]


def _unserved(lane: WaitingLane) -> Concern:
    jobs = humanize.count(lane.jobs, "job waits", "jobs wait")
    return Concern(
        "No worker",
        f"{jobs} for a worker with the task {lane.task} and the queue {lane.queue}.",
        lane.oldest_due,
        queue=lane.queue,
        task=lane.task,
    )


def _late(lane: WaitingLane) -> Concern:
    jobs = humanize.count(lane.jobs, "job is", "jobs are")
    workers = humanize.count(lane.workers, "worker")
    text = f"{jobs} late in the queue {lane.queue}; {workers} cannot keep up."
    return Concern("Late", text, lane.oldest_due, queue=lane.queue, task=lane.task, is_bad=False)


def _failing(job: FailingJob) -> Concern:
    tries = ""
    if job.current_retry_count:
        tries = f" Retry {job.current_retry_count} of {job.max_retries} is to come."
    title = job.name or job.task
    first_line = job.error_message.strip().split("\n", 1)[0][:200]
    return Concern(title, first_line + tries, job.completed_at, job_id=job.id)


def _lost(run: LostRun) -> Concern:
    title = run.name or run.task or "A deleted job"
    text = "Its worker vanished during a run, and the run was given up."
    job_id = run.job_id if run.task else None
    return Concern(title, text, run.completed_at, job_id=job_id, is_bad=False)
