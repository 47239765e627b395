"""Screen 5, the timeline: what ran of late and what is to come, in lanes or as a table."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from heapq import merge
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from fastapi import Request, Response

from evenbeat import humanize
from evenbeat.api.dependencies import Service, ServiceDep, Viewer
from evenbeat.charts.timeline import Bar, Lane, TimelinePeriod, draw, together
from evenbeat.dashboard import pages
from evenbeat.dashboard.fleet import name_of
from evenbeat.dashboard.forms import Form, QueryDep
from evenbeat.domain.job import Job, recurring_of, window_of
from evenbeat.domain.window import due_at
from evenbeat.errors import InvalidInput
from evenbeat.store.lists import MAX_PAGE
from evenbeat.store.summaries import TimelineRun

router = pages.router()

Urls = Callable[[UUID], str]

ZOOMS = (1, 6, 24)
_PAST = 2 / 3
"""The part of the period that lies behind; the rest is to come."""

MOST_RUNS, MOST_PLANNED, MOST_LANES = 3 * MAX_PAGE, 1500, 40
MOST_BARS, MOST_OUTLINES = 240, 80
_MOST_ROWS = 100
_LOOKED_AT = 200
_UNKNOWN = timedelta(minutes=1)
_TO_COME = Lane("", "to come")


class Planned(NamedTuple):
    """A run to come, as far as one can say."""

    at: datetime
    job_id: UUID
    job: Job
    lasting: timedelta


class Seen(NamedTuple):
    """What there is in a period, and how much of it is not shown."""

    runs: list[TimelineRun]
    planned: list[Planned]
    planned_in_all: int
    more_runs: bool
    more_planned: bool


@router.get("/timeline", name="timeline")
def timeline(request: Request, _viewer: Viewer, service: ServiceDep, query: QueryDep) -> Response:
    """The last hours and the next ones."""
    now, zone = pages.now_of(request), pages.zone_of(request)
    hours = int(_choice(query, "hours", tuple(map(str, ZOOMS)), "6"))
    by = _choice(query, "by", ("worker", "job"), "worker")
    view = _choice(query, "view", ("chart", "table"), "chart")
    chosen = {"hours": hours, "by": by, "view": view}
    past = timedelta(hours=hours) * _PAST
    period = TimelinePeriod(now - past, now - past + timedelta(hours=hours), now, zone)
    seen = _seen(service, period)
    workers = _names_of_workers(service)
    of_run, of_job = pages.urls(request, "execution", "execution_id"), _job_urls(request)
    ran = [_ran(of_run, run, workers, by, period) for run in seen.runs]
    coming = [_coming(of_job, one, by, period.zone) for one in seen.planned]
    lanes = _job_lanes(request, seen) if by == "job" else _worker_lanes(seen, workers)
    shown = {lane.key for lane in lanes[:MOST_LANES]}
    drawn = [
        *together([bar for bar in ran if bar.lane in shown], MOST_BARS, period),
        *together([bar for bar in coming if bar.lane in shown], MOST_OUTLINES, period),
    ]
    picture = draw(lanes[:MOST_LANES], drawn, period)
    return pages.render(
        request,
        "timeline.html",
        now=now,
        period=period,
        hours=hours,
        by=by,
        view=view,
        zooms=ZOOMS,
        seen=seen,
        runs=seen.runs[:_MOST_ROWS],
        planned=seen.planned[:_MOST_ROWS],
        workers=workers,
        chart=picture.svg,
        missing=_missing(seen, len(lanes), len(drawn), picture.crowded_out),
        failed=sum(run.status == "failed" for run in seen.runs),
        short=_short,
        at=lambda **changed: pages.url(request, "timeline", query=chosen | changed),
    )


def _choice(query: Form, name: str, allowed: tuple[str, ...], otherwise: str) -> str:
    given = query.text(name) or otherwise
    if given in allowed:
        return given
    raise InvalidInput(f"{name} is one of {', '.join(allowed)}, not {given[:20]!r}.", field=name)


# -- what there is ---------------------------------------------------------------------------------


def _seen(service: Service, period: TimelinePeriod) -> Seen:
    read = service.app.store.read
    soon = period.now + timedelta(seconds=1)
    runs = _runs(service, period.since, soon)
    jobs = read.upcoming(_LOOKED_AT)
    coming = [job for job in jobs if _first_due(job, period.now) < period.until]
    planned = list(islice(merge(*(_plans(job, period) for job in coming)), MOST_PLANNED))
    return Seen(
        runs,
        planned,
        sum(_number_of_plans(job, period) for job in coming),
        more_runs=len(runs) >= MOST_RUNS,
        more_planned=len(coming) == _LOOKED_AT,
    )


def _runs(service: Service, since: datetime, until: datetime) -> list[TimelineRun]:
    """The newest runs of the period, a page at a time."""
    found: dict[UUID, TimelineRun] = {}
    while len(found) < MOST_RUNS and until > since:
        page = service.app.store.read.timeline(since, until, MAX_PAGE)
        found |= {run.id: run for run in page}
        if len(page) < MAX_PAGE or page[-1].started_at >= until:
            break
        until = page[-1].started_at
    return list(found.values())


def _first_due(job: Job, now: datetime) -> datetime:
    return max(job.next_run_at or now, now)


def _plans(job: Job, period: TimelinePeriod) -> Iterator[Planned]:
    """Every run of a job that is expected within the period, in order."""
    lasting = _lasting(job)
    yield Planned(_first_due(job, period.now), job.id, job, lasting)
    schedule, plan = recurring_of(job), max(job.plan_time or period.now, period.now)
    if schedule is None:
        return
    window, delay = window_of(job), timedelta(seconds=job.schedule_delay_seconds)
    last = _first_due(job, period.now)
    while True:
        plan = schedule.next_after(plan)
        due = due_at(plan, delay, window)
        if due >= period.until:
            return
        if due > last:  # all plans that a window holds back become one run at its opening
            yield Planned(due, job.id, job, lasting)
            last = due


def _number_of_plans(job: Job, period: TimelinePeriod) -> int:
    schedule, plan = recurring_of(job), max(job.plan_time or period.now, period.now)
    return 1 if schedule is None else 1 + schedule.count(plan, period.until)


def _lasting(job: Job) -> timedelta:
    known = job.average_duration_ms or job.cost_ms
    return timedelta(milliseconds=known) if known else _UNKNOWN


def _names_of_workers(service: Service) -> dict[UUID, str]:
    return {one.id: name_of(one) for one in service.app.store.upkeep.workers()}


def _missing(seen: Seen, lanes: int, bars: int, crowded_out: int) -> str:
    """What the picture leaves out, in words; nothing if it shows everything."""
    parts = []
    if seen.more_runs:
        parts.append(f"the newest {len(seen.runs):,} runs")
    if len(seen.planned) < seen.planned_in_all or seen.more_planned:
        more = "more than " if seen.more_planned else ""
        parts.append(f"the next {len(seen.planned):,} of {more}{seen.planned_in_all:,} to come")
    if lanes > MOST_LANES:
        parts.append(f"{MOST_LANES} of {lanes} lanes")
    said = [f"Shown are {' and '.join(parts)}."] if parts else []
    if bars < len(seen.runs) + len(seen.planned):
        said.append("Where there are very many, neighbours are told of together.")
    if crowded_out:
        said.append(f"{humanize.count(crowded_out, 'bar')} found no room.")
    return " ".join(said)


# -- lanes -----------------------------------------------------------------------------------------


def _worker_lanes(seen: Seen, workers: dict[UUID, str]) -> list[Lane]:
    """A lane for each worker, the gone ones last, and one for what no worker has yet."""
    used = {run.worker_id: None for run in seen.runs} | dict.fromkeys(workers)
    lanes = [Lane(str(id_), workers.get(id_, _short(id_))) for id_ in used]
    lanes.sort(key=lambda lane: (lane.label.startswith("gone"), lane.label))
    return [*lanes, _TO_COME] if seen.planned else lanes


def _job_lanes(request: Request, seen: Seen) -> list[Lane]:
    """A lane for each job, those that ran or will run the nearest first, then by name."""
    names = {run.job_id: run.name or run.task or "deleted job" for run in seen.runs}
    names |= {one.job_id: one.job.name or one.job.task for one in seen.planned}
    near: Sequence[UUID] = list(names)[:MOST_LANES]
    rest: Sequence[UUID] = list(names)[MOST_LANES:]
    ordered = [*sorted(near, key=lambda id_: names[id_].casefold()), *rest]
    of_job = _job_urls(request)
    return [Lane(str(id_), names[id_], of_job(id_)) for id_ in ordered]


def _job_urls(request: Request) -> Urls:
    return pages.urls(request, "job", "job_id")


def _ran(
    of_run: Urls, run: TimelineRun, workers: dict[UUID, str], by: str, period: TimelinePeriod
) -> Bar:
    end = run.completed_at or period.now
    name = run.name or run.task or "deleted job"
    took = humanize.duration(end - run.started_at)
    tip = f"{name}: {run.status}, {run.started_at.astimezone(period.zone):%H:%M:%S}, {took}"
    if run.error_code:
        tip += f", {run.error_code}"
    if by == "job":
        tip += f", on {workers.get(run.worker_id, 'a worker that is gone')}"
    lane = str(run.job_id if by == "job" else run.worker_id)
    href = of_run(run.id) if run.task else ""
    return Bar(lane, run.started_at, end, run.status, tip, href)


def _coming(of_job: Urls, one: Planned, by: str, zone: tzinfo) -> Bar:
    name = one.job.name or one.job.task
    took = humanize.duration(one.lasting)
    tip = f"{name}: expected at {one.at.astimezone(zone):%H:%M:%S}, about {took}"
    lane = str(one.job_id) if by == "job" else _TO_COME.key
    href = of_job(one.job_id)
    return Bar(lane, one.at, one.at + one.lasting, "planned", tip, href)


def _short(worker_id: UUID) -> str:
    return f"gone · {str(worker_id)[-8:]}"
