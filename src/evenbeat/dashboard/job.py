"""Screen 3, one job: what it is, when it runs, why it did or did not, and every run it had."""

from datetime import datetime, tzinfo
from statistics import median, quantiles
from typing import NamedTuple

from fastapi import Request, Response

from evenbeat import charts, humanize
from evenbeat.api.dependencies import ServiceDep, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.forms import QueryDep, id_of
from evenbeat.dashboard.jobs import Slice, tags_of
from evenbeat.dashboard.verbs import VERBS
from evenbeat.domain.job import Job, recurring_of, spec_of
from evenbeat.errors import InvalidInput
from evenbeat.observe.explain import describe_schedule, explain
from evenbeat.store.reads import ExecutionPage
from evenbeat.store.summaries import PastRun

router = pages.router()

RUNS = 20
_CHARTED = 200


class Figures(NamedTuple):
    """A job's latest runs in figures."""

    runs: int
    failed: int
    success: float | None
    median_ms: float | None
    p95_ms: float | None


@router.get("/jobs/{job_id}", name="job")
def job(
    request: Request, job_id: str, _viewer: Viewer, service: ServiceDep, query: QueryDep
) -> Response:
    """Everything about one job."""
    read, now = service.app.store.read, pages.now_of(request)
    found = read.job(id_of(job_id))
    status = query.text("status") if query.text("status") in _STATES else ""
    offset = _offset(query.text("page"))
    runs = read.executions_of(
        found.id, statuses=[status] if status else None, limit=RUNS, offset=offset
    )
    past = read.last_outcomes([found.id], _CHARTED)[found.id]
    figures = _figures(past)
    dependencies = service.app.store.dependencies
    awaited = dependencies.awaited_by([found.id])[found.id]
    return pages.render(
        request,
        "job.html",
        now=now,
        job=found,
        schedule=describe_schedule(found, awaited),
        awaited=awaited,
        dependents=dependencies.dependents_of(found.id),
        tags=tags_of(found),
        verbs=[verb for verb in VERBS.values() if verb.suits(found)],
        why=explain(read.circumstances(found.id, now=service.now)),
        figures=figures,
        chart=_chart(past, figures, pages.zone_of(request)),
        runs=runs.executions,
        run_status=status,
        run_states=_STATES,
        page=_slice(request, found, status, offset, runs),
        recurring=recurring_of(found) is not None,
        spec=spec_of(found),
    )


@router.get("/executions/{execution_id}", name="execution")
def execution(
    request: Request, execution_id: str, _viewer: Viewer, service: ServiceDep
) -> Response:
    """One run; the list of a job's runs shows the same when one is opened."""
    read = service.app.store.read
    run = read.execution(id_of(execution_id, "execution"))
    found = read.job(run.job_id)
    return pages.render(request, "execution.html", now=pages.now_of(request), run=run, job=found)


# -- how it ran ------------------------------------------------------------------------------------


def _figures(past: list[PastRun]) -> Figures:
    ended = [run for run in past if run.status in ("completed", "failed")]
    failed = sum(run.status == "failed" for run in ended)
    took = sorted(run.duration_ms for run in ended if run.duration_ms is not None and _ok(run))
    return Figures(
        len(ended),
        failed,
        1 - failed / len(ended) if ended else None,
        median(took) if took else None,
        quantiles(took, n=20, method="inclusive")[-1] if len(took) > 1 else None,
    )


def _ok(run: PastRun) -> bool:
    return run.status == "completed"


def _chart(past: list[PastRun], figures: Figures, zone: tzinfo) -> str:
    points = [
        charts.DurationPoint(
            run.started_at.timestamp(), run.duration_ms / 1000, _ok(run), _tip(run, zone)
        )
        for run in past
        if run.duration_ms is not None and run.status in ("completed", "failed")
    ]
    if not points:
        return ""
    shown = humanize.count(len(points), "run")
    return charts.durations(
        points,
        title=f"How long the last {shown} took; {figures.failed} failed",
        median=None if figures.median_ms is None else figures.median_ms / 1000,
        p95=None if figures.p95_ms is None else figures.p95_ms / 1000,
        labels=_edges(points, zone),
        height=200,
    )


def _tip(run: PastRun, zone: tzinfo) -> str:
    took = humanize.milliseconds(run.duration_ms)
    return f"{humanize.timestamp(run.started_at, zone)}: {took}, {run.status}"


def _edges(points: list[charts.DurationPoint], zone: tzinfo) -> list[str]:
    """The moments in the middle of six equal parts of the time that the dots cover."""
    begin, end = points[0].at, points[-1].at
    if end - begin < 1:
        return []
    pattern = "%H:%M" if end - begin < 86_400 else "%d %b %H:%M"
    middles = (begin + (end - begin) * (part + 0.5) / 6 for part in range(6))
    return [f"{datetime.fromtimestamp(at, zone):{pattern}}" for at in middles]


# -- its history -----------------------------------------------------------------------------------

_STATES = ("running", "completed", "failed", "cancelled")


def _offset(text: str) -> int:
    if not text:
        return 0
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 1_000_000:
        raise InvalidInput(f"There is no page {text[:20]!r}.", field="page")
    return (int(text[:9]) - 1) * RUNS


def _slice(request: Request, found: Job, status: str, offset: int, runs: ExecutionPage) -> Slice:
    number, last = offset // RUNS + 1, offset + len(runs.executions)

    def address(page: int) -> str:
        given = {"status": status, "page": str(page) if page > 1 else ""}
        query = {name: value for name, value in given.items() if value}
        return pages.url(request, "job", job_id=found.id, query=query) + "#runs"

    before = address(number - 1) if number > 1 else ""
    after = address(number + 1) if last < runs.total else ""
    return Slice(offset + 1 if runs.executions else 0, last, runs.total, False, before, after)
