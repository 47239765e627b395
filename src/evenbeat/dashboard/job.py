"""Screen 3, one job: what it is, when it runs, why it does or does not, its runs, its backfill."""

from datetime import datetime, timedelta, tzinfo
from statistics import median, quantiles
from typing import Any, NamedTuple
from uuid import UUID

from fastapi import Request, Response

from evenbeat import charts, humanize
from evenbeat.api.dependencies import Operator, Service, ServiceDep, Viewer
from evenbeat.dashboard import job_form, pages
from evenbeat.dashboard.forms import Form, FormDep, QueryDep, id_of
from evenbeat.dashboard.job_form import Refused
from evenbeat.dashboard.jobs import tags_of
from evenbeat.dashboard.pages import Notice
from evenbeat.domain.job import Job, recurring_of, spec_of
from evenbeat.domain.states import VERBS
from evenbeat.observe.explain import describe_schedule, explain
from evenbeat.store.backfill import MOST_PLANS
from evenbeat.store.summaries import PastRun

router = pages.router()

PAGE_SIZE = 20
_RUNS_CHARTED = 200
_STATES = ("running", "completed", "failed", "cancelled")
_OFFERED_BACKFILL = timedelta(days=1)


class RunFigures(NamedTuple):
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
    read, dependencies = service.app.store.read, service.app.store.dependencies
    job = read.job(id_of(job_id))
    status = query.text("status") if query.text("status") in _STATES else ""
    number = pages.page_number(query)
    page = read.executions_of(
        job.id,
        statuses=[status] if status else None,
        limit=PAGE_SIZE,
        offset=(number - 1) * PAGE_SIZE,
    )
    past = read.last_outcomes([job.id], _RUNS_CHARTED)[job.id]
    figures = _figures(past)
    awaited = dependencies.awaited_by([job.id])[job.id]

    def address(number: int) -> str:
        fields = {"status": status, "page": str(number) if number > 1 else ""}
        fields = {name: value for name, value in fields.items() if value}
        return pages.url(request, "job", job_id=job.id, query=fields) + "#runs"

    return pages.render(
        request,
        "job.html",
        now=pages.now_of(request),
        job=job,
        schedule=describe_schedule(job, awaited),
        awaited=awaited,
        dependents=dependencies.dependents_of(job.id),
        tags=tags_of(job),
        verbs=[verb for verb in VERBS.values() if verb.suits(job.status, job.is_paused)],
        why=explain(read.circumstances(job.id, now=service.now)),
        figures=figures,
        chart=_chart(past, figures, pages.zone_of(request)),
        runs=page.executions,
        run_status=status,
        run_states=_STATES,
        page=pages.pager(number, PAGE_SIZE, len(page.executions), page.total, address),
        recurring=recurring_of(job) is not None,
        spec=spec_of(job),
    )


@router.get("/executions/{execution_id}", name="execution")
def execution(
    request: Request, execution_id: str, _viewer: Viewer, service: ServiceDep
) -> Response:
    """One run; the list of a job's runs shows the same when one is opened."""
    read = service.app.store.read
    run = read.execution(id_of(execution_id, "execution"))
    job = read.job(run.job_id)
    return pages.render(request, "execution.html", now=pages.now_of(request), run=run, job=job)


def _figures(past: list[PastRun]) -> RunFigures:
    ended = [run for run in past if run.status in ("completed", "failed")]
    completed = [run.duration_ms for run in ended if run.status == "completed"]
    durations = sorted(duration for duration in completed if duration is not None)
    return RunFigures(
        len(ended),
        len(ended) - len(completed),
        len(completed) / len(ended) if ended else None,
        median(durations) if durations else None,
        quantiles(durations, n=20, method="inclusive")[-1] if len(durations) > 1 else None,
    )


def _chart(past: list[PastRun], figures: RunFigures, zone: tzinfo) -> str:
    points = []
    for run in past:
        if run.duration_ms is not None and run.status in ("completed", "failed"):
            started = humanize.timestamp(run.started_at, zone)
            tip = f"{started}: {humanize.milliseconds(run.duration_ms)}, {run.status}"
            at, seconds = run.started_at.timestamp(), run.duration_ms / 1000
            points.append(charts.DurationPoint(at, seconds, run.status == "completed", tip))
    if not points:
        return ""
    begin, length = points[0].at, points[-1].at - points[0].at
    labels = []
    if length >= 1:  # the middle of each sixth of the time that the dots cover
        pattern = "%H:%M" if length < 86_400 else "%d %b %H:%M"
        middles = (begin + length * (part + 0.5) / 6 for part in range(6))
        labels = [f"{datetime.fromtimestamp(at, zone):{pattern}}" for at in middles]
    shown = humanize.count(len(points), "run")
    return charts.durations(
        points,
        title=f"How long the last {shown} took; {figures.failed} failed",
        median=None if figures.median_ms is None else figures.median_ms / 1000,
        p95=None if figures.p95_ms is None else figures.p95_ms / 1000,
        labels=labels,
        height=200,
    )


# -- backfill --------------------------------------------------------------------------------------


@router.get("/jobs/{job_id}/backfill", name="backfill")
def backfill(request: Request, job_id: str, _operator: Operator, service: ServiceDep) -> Response:
    """Ask for the period to run again; the last day is offered."""
    job, now = service.app.store.read.job(id_of(job_id)), pages.now_of(request)
    zone = pages.zone_of(request)
    start = job_form.local_minute(now - _OFFERED_BACKFILL, zone)
    form = Form([("from", start), ("to", job_form.local_minute(now, zone))])
    return _backfill_page(request, service, job, form)


@router.post("/jobs/{job_id}/backfill", name="backfill_now")
def backfill_now(
    request: Request, job_id: str, operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """Start the runs of the period."""
    job, store = service.app.store.read.job(id_of(job_id)), service.app.store.backfill
    try:
        period = _period(request, form)
        done = job_form.refusing(
            lambda: store.add(job.id, **period, created_by=operator.subject, now=service.now)
        )
    except Refused as refused:
        return _backfill_page(request, service, job, form, refused.errors)
    text = "Nothing to do: every plan of that period already ran or is scheduled."
    if done.created:
        skipped = f"; {done.existing:,} skipped because they already ran or are scheduled"
        started = humanize.count(done.created, "past run")
        text = f"Started {started}{skipped if done.existing else ''}."
    return pages.back(request, pages.url(request, "job", job_id=job.id), Notice(text))


@router.post("/jobs/{job_id}/backfill/preview", name="preview_backfill")
def preview_backfill(
    request: Request, job_id: str, _operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """How many runs there would be, as a fragment."""
    preview = _preview(request, service, id_of(job_id), form)
    return pages.render(request, "backfill_preview.html", preview=preview)


def _preview(request: Request, service: Service, job_id: UUID, form: Form) -> str:
    store = service.app.store.backfill
    try:
        period = _period(request, form)
        plans = job_form.refusing(lambda: store.preview(job_id, **period, now=service.now))
    except Refused as refused:
        return str(refused)
    text = f"{humanize.count(plans.created, 'past run')} would start now, in parallel."
    return (
        f"{text} {plans.existing:,} more already ran or are scheduled." if plans.existing else text
    )


def _period(request: Request, form: Form) -> dict[str, Any]:
    zone = pages.zone_of(request)
    start = job_form.moment_of(form.text("from"), zone, "from")
    end = job_form.moment_of(form.text("to"), zone, "to")
    if start is None or end is None:
        raise Refused({"from" if start is None else "to": "Give a date and time."})
    again = form.flag("include_completed")
    return {"start": start, "end": end, "include_completed": again, "limit": MOST_PLANS}


def _backfill_page(
    request: Request, service: Service, job: Job, form: Form, errors: dict[str, str] | None = None
) -> Response:
    return pages.render(
        request,
        "backfill.html",
        status=422 if errors else 200,
        job=job,
        form=form,
        errors=errors or {},
        preview="" if errors else _preview(request, service, job.id, form),
    )
