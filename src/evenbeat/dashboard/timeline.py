"""Screen 5, the timeline: what ran recently and what is to come, in lanes or as a table."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from fastapi import Response

from evenbeat import humanize
from evenbeat.api.dependencies import Viewer
from evenbeat.charts.timeline import Bar, Lane, TimelinePeriod, arrange, together
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import PageDep, PageRequest
from evenbeat.dashboard.workers import name_of
from evenbeat.domain.decision import due_time
from evenbeat.domain.job import JobRecord, recurring_of
from evenbeat.errors import InvalidInput
from evenbeat.store.part import MAX_PAGE
from evenbeat.store.summaries import TimelineRun

router = pages.router()

_PAST = 2 / 3
"""The part of the period that lies behind; the rest is to come."""

MOST_RUNS, MOST_PLANNED, MOST_LANES = 3 * MAX_PAGE, 1500, 40
MOST_BARS, MOST_OUTLINES = 240, 80
_MOST_ROWS = 100
_MOST_JOBS = 200
_UNKNOWN = timedelta(minutes=1)
_TO_COME = Lane("", "to come")


class Planned(NamedTuple):
    """A run to come, as far as one can say."""

    at: datetime
    job_id: UUID
    job: JobRecord
    lasting: timedelta


@router.get("/timeline", name="timeline")
def timeline(page: PageDep, _viewer: Viewer) -> Response:
    hours = int(_choice(page, "hours", "6", ("1", "6", "24")))
    by = _choice(page, "by", "worker", ("worker", "job"))
    view = _choice(page, "view", "chart", ("chart", "table"))
    since = page.now - timedelta(hours=hours) * _PAST
    period = TimelinePeriod(since, since + timedelta(hours=hours), page.now, page.zone)
    ran, upcoming = _ran(page, period), page.store.read.upcoming(_MOST_JOBS)
    jobs = [job for job in upcoming if _first_due(job, period) < period.until]
    planned = list(islice(merge(*(_plans(job, period) for job in jobs)), MOST_PLANNED))
    workers = {one.id: name_of(one) for one in page.store.upkeep.workers()}
    lanes, bars, outlines = _drawable(page, ran, planned, workers)
    shown = {lane.key for lane in lanes[:MOST_LANES]}
    drawn = [
        *together((bar for bar in bars if bar.lane in shown), MOST_BARS, period),
        *together((bar for bar in outlines if bar.lane in shown), MOST_OUTLINES, period),
    ]
    options: dict[str, Any] = {"hours": hours, "by": by, "view": view}
    return page.render(
        "timeline.html",
        period=period,
        ran=ran,
        more_runs=len(ran) >= MOST_RUNS,
        planned=planned,
        planned_in_all=sum(_number_of_plans(job, period) for job in jobs),
        more_planned=len(jobs) == _MOST_JOBS,
        workers=workers,
        lanes=arrange(lanes[:MOST_LANES], drawn, period),
        lanes_in_all=len(lanes),
        merged=len(drawn) < len(bars) + len(outlines),
        most_rows=_MOST_ROWS,
        short=_short,
        at=lambda **changes: page.url("timeline", query=options | changes),
        **options,
    )


def _choice(page: PageRequest, name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = page.query.text(name) or default
    if value in allowed:
        return value
    raise InvalidInput(f"{name} is one of {', '.join(allowed)}, not {value[:20]!r}.", field=name)


def _ran(page: PageRequest, period: TimelinePeriod) -> list[TimelineRun]:
    """The newest runs, read a page at a time."""
    ran, until = dict[UUID, TimelineRun](), period.now + timedelta(seconds=1)
    while len(ran) < MOST_RUNS and until > period.since:
        newest = page.store.read.timeline(period.since, until, MAX_PAGE)
        ran |= {run.id: run for run in newest}
        if len(newest) < MAX_PAGE or newest[-1].started_at >= until:
            break
        until = newest[-1].started_at
    return list(ran.values())


def _first_due(job: JobRecord, period: TimelinePeriod) -> datetime:
    return max(job.next_run_at or period.now, period.now)


def _plans(job: JobRecord, period: TimelinePeriod) -> Iterator[Planned]:
    """Every run of a job that is expected within the period, in order."""
    expected_ms = job.average_duration_ms or job.cost_ms
    lasting = timedelta(milliseconds=expected_ms) if expected_ms else _UNKNOWN
    last = _first_due(job, period)
    yield Planned(last, job.id, job, lasting)
    schedule, plan = recurring_of(job), max(job.plan_time or period.now, period.now)
    if schedule is None:
        return
    while True:
        plan = schedule.next_after(plan)
        due = due_time(job, plan)
        if due >= period.until:
            return
        if due > last:  # all plans that a window holds back become one run
            yield Planned(due, job.id, job, lasting)
            last = due


def _number_of_plans(job: JobRecord, period: TimelinePeriod) -> int:
    schedule, plan = recurring_of(job), max(job.plan_time or period.now, period.now)
    return 1 if schedule is None else 1 + schedule.count(plan, period.until)


def _drawable(
    page: PageRequest, ran: list[TimelineRun], planned: list[Planned], workers: dict[UUID, str]
) -> tuple[list[Lane], list[Bar], list[Bar]]:
    """The lanes, the runs as bars, and the runs to come as outlines."""
    run_url, job_url = page.urls("execution", "execution_id"), page.urls("job", "job_id")
    by_job, zone = page.query.text("by") == "job", page.zone
    bars = []
    for run in ran:
        end = run.completed_at or page.now
        started, length = run.started_at.astimezone(zone), humanize.duration(end - run.started_at)
        tip = f"{run.name or run.task or 'deleted job'}: {run.status}, {started:%H:%M:%S}, {length}"
        if run.error_code:
            tip += f", {run.error_code}"
        if by_job:
            tip += f", on {workers.get(run.worker_id, 'a worker that is gone')}"
        lane = str(run.job_id if by_job else run.worker_id)
        href = run_url(run.id) if run.task else ""
        bars.append(Bar(lane, run.status, [(run.started_at, end)], tip, href))
    outlines = []
    for one in planned:
        tip = f"{one.job.name or one.job.task}: expected at {one.at.astimezone(zone):%H:%M:%S}, "
        tip += f"about {humanize.duration(one.lasting)}"
        lane, times = str(one.job_id) if by_job else _TO_COME.key, [(one.at, one.at + one.lasting)]
        outlines.append(Bar(lane, "planned", times, tip, job_url(one.job_id)))
    if by_job:  # those that ran or will run the nearest, by name, then the others
        names = {run.job_id: run.name or run.task or "deleted job" for run in ran}
        names |= {one.job_id: one.job.name or one.job.task for one in planned}
        near, rest = list(names)[:MOST_LANES], list(names)[MOST_LANES:]
        ids = [*sorted(near, key=lambda id_: names[id_].casefold()), *rest]
        return [Lane(str(id_), names[id_], job_url(id_)) for id_ in ids], bars, outlines
    # A lane for each worker, the gone ones last, and one for what no worker has yet.
    used = {run.worker_id: None for run in ran} | dict.fromkeys(workers)
    lanes = [Lane(str(id_), workers.get(id_, _short(id_))) for id_ in used]
    lanes.sort(key=lambda lane: (lane.label.startswith("gone"), lane.label))
    return [*lanes, _TO_COME] if planned else lanes, bars, outlines


def _short(worker_id: UUID) -> str:
    return f"gone · {str(worker_id)[-8:]}"
