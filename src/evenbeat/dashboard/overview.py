"""Screen 1, the overview: is everything all right, what needs attention, what comes next."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from fastapi import Response

from evenbeat import charts, humanize
from evenbeat.api.dependencies import Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import PageDep
from evenbeat.store.summaries import Attention

router = pages.router()

_NEXT_RUNS = 10
_MOST_CONCERNS = 8


class Concern(NamedTuple):
    """Something that needs attention: what it is, about which job or lane, and since when."""

    title: str
    text: str
    since: datetime
    job_id: UUID | None = None
    queue: str | None = None
    task: str | None = None
    is_bad: bool = True


@router.get("/", name="overview")
def overview(page: PageDep, _viewer: Viewer) -> Response:
    read, service = page.store.read, page.service
    hours, states = read.hourly(now=service.now), read.counts_by_status()
    counted = page.store.upkeep.figures().get("counting")
    concerns = concerns_of(read.attention(limit=_MOST_CONCERNS, now=service.now))
    completed = [hour.completed for hour in hours]
    failed = [hour.failed for hour in hours]
    ended = sum(completed) + sum(failed)
    distribution, distribution_chart = service.app.balancer.recent_distribution(), None
    if distribution is not None:
        most_at = f"the most at {distribution.peak_hour}:00"
        distribution_chart = charts.bars(
            distribution.jobs_per_hour,
            title=f"Runs planned in each hour of the next day; {most_at}",
            labels=[f"{hour:02d}" for hour in range(24)],
            unit="runs",
            width=460,
            height=150,
        )
    return page.render(
        "overview.html",
        failed=sum(failed),
        counted_at=counted and counted.updated_at,
        jobs=sum(states.values()),
        active=sum(states.get(state, 0) for state in ("pending", "scheduled", "running")),
        states=states,
        ended=ended,
        hours_chart=charts.stacked(
            completed,
            failed,
            title=f"Runs that ended in each of the last 24 hours: {humanize.count(ended, 'run')}, "
            f"{sum(failed):,} failed",
            labels=[f"{hour.hour.astimezone(page.zone):%H}" for hour in hours],
        ),
        concerns=concerns[:_MOST_CONCERNS],
        more_concerns=len(concerns) - _MOST_CONCERNS,
        upcoming=read.upcoming(_NEXT_RUNS),
        following=next(iter(read.upcoming(1, after=page.now)), None),
        distribution=distribution,
        distribution_chart=distribution_chart,
    )


def concerns_of(attention: Attention) -> list[Concern]:
    """Everything that needs attention, the worst kind first, the newest of each kind first."""
    concerns = []
    for lane in (*attention.unserved, *attention.late):
        jobs, title = humanize.count(lane.jobs, "job is", "jobs are"), "No worker"
        text = f"{jobs} waiting for a worker with the task {lane.task} and the queue {lane.queue}."
        if lane.workers:
            title, workers = "Late", humanize.count(lane.workers, "worker")
            text = f"{jobs} late in the queue {lane.queue}; {workers} cannot keep up."
        one = Concern(title, text, lane.oldest_due, queue=lane.queue, task=lane.task)
        concerns.append(one._replace(is_bad=not lane.workers))
    for job in attention.failing:
        text = (job.error_message or "").strip().split("\n", 1)[0][:200]
        if job.current_retry_count:
            text += f" Retry {job.current_retry_count} of {job.max_retries} follows."
        since = job.completed_at or job.updated_at
        concerns.append(Concern(job.name or job.task, text, since, job.id))
    for run in attention.lost:
        title, job_id = run.name or run.task or "A deleted job", run.job_id if run.task else None
        text = "Its worker vanished during a run, and the run was given up."
        since = run.completed_at or run.started_at
        concerns.append(Concern(title, text, since, job_id, is_bad=False))
    return concerns
