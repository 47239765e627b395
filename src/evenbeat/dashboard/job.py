"""Screen 3, one job: what it is, when it runs, why it does or does not, its runs, its backfill."""

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any
from uuid import UUID

from fastapi import Response

from evenbeat import charts, humanize
from evenbeat.api.dependencies import Operator, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.job_form import REFUSED, errors_of, local_minute, moment_of
from evenbeat.dashboard.jobs import RunFigures, effects_of_stopping, run_figures, tags_of, verbs_for
from evenbeat.dashboard.pages import Form, FormDep, Notice, PageDep, PageRequest, id_of
from evenbeat.domain.execution import Execution
from evenbeat.domain.job import JobRecord, recurring_of, spec_of
from evenbeat.domain.traces import decisive_frame, read_trace
from evenbeat.errors import InvalidInput
from evenbeat.observe.explain import describe_schedule, explain
from evenbeat.store.backfill import MOST_PLANS
from evenbeat.store.summaries import PastRun

router = pages.router()

PAGE_SIZE = 20
_RUNS_CHARTED = 200
_STATES = ("running", "completed", "failed", "cancelled")
_OFFERED_BACKFILL = timedelta(days=1)


@router.get("/jobs/{job_id}", name="job")
def job(page: PageDep, job_id: str, _viewer: Viewer) -> Response:
    read, dependencies = page.store.read, page.store.dependencies
    job = read.job(id_of(job_id))
    status = page.query.text("status") if page.query.text("status") in _STATES else ""
    statuses, offset = [status] if status else None, (page.number() - 1) * PAGE_SIZE
    runs = read.executions_of(job.id, statuses=statuses, limit=PAGE_SIZE, offset=offset)
    past = read.last_outcomes([job.id], _RUNS_CHARTED)[job.id]
    figures = run_figures(past)
    awaited = dependencies.awaited_by([job.id])[job.id]

    def address(number: int) -> str:
        fields = {"status": status, "page": str(number) if number > 1 else ""}
        fields = {name: value for name, value in fields.items() if value}
        return page.url("job", job_id=job.id, query=fields) + "#runs"

    return page.render(
        "job.html",
        job=job,
        schedule=describe_schedule(job, awaited),
        awaited=awaited,
        dependents=dependencies.dependents_of(job.id),
        tags=tags_of(job),
        verbs=verbs_for(job),
        why=explain(read.circumstances(job.id, now=page.service.now)),
        figures=figures,
        chart=_chart(past, figures, page.zone),
        runs=runs.executions,
        run_status=status,
        run_states=_STATES,
        page=page.pager(address, PAGE_SIZE, len(runs.executions), runs.total),
        recurring=recurring_of(job) is not None,
        spec=spec_of(job),
        steps=page.store.steps.of(job.id, job.plan_time or _last_plan(runs.executions)),
    )


@router.get("/executions/{execution_id}", name="execution")
def execution(page: PageDep, execution_id: str, _viewer: Viewer) -> Response:
    """One run; the list of a job's runs shows the same when one is opened."""
    run = page.store.read.execution(id_of(execution_id, "execution"))
    loads = (load for worker in page.store.upkeep.workers() for load in worker.loads)
    held = {one.execution_id: one for load in loads for one in load.held}.get(run.id)
    steps = page.store.steps.in_run(run.job_id, run.plan_time, run.id)
    trace = read_trace((run.stack_trace or "").rstrip())
    return page.render(
        "execution.html",
        run=run,
        job=page.store.read.job(run.job_id),
        held=held,
        steps=steps,
        attempts=page.store.read.attempts_at(run.job_id, run.plan_time),
        trace=trace,
        decisive=decisive_frame(trace),
        log=page.store.run_logs.page(run.id),
        before=0,
    )


@router.get("/executions/{execution_id}/log", name="log_tail")
def log_tail(page: PageDep, execution_id: str, _viewer: Viewer) -> Response:
    """What a run has logged since a line, as a fragment; nothing (204) while it only goes on."""
    after = page.query.text("after")
    before = int(after) if after.isdecimal() and len(after) < 10 else 0
    run = page.store.read.execution(id_of(execution_id, "execution"))
    log = page.store.run_logs.page(run.id, after=before)
    if log.after == before and run.status == "running":
        return Response(status_code=204)
    return page.render("log.html", run=run, log=log, before=before)


def _last_plan(runs: Sequence[Execution]) -> datetime | None:
    return max((run.plan_time for run in runs), default=None)


@router.get("/executions/{execution_id}/stop", name="ask_to_stop")
def ask_to_stop(page: PageDep, execution_id: str, _operator: Operator) -> Response:
    """Ask first: what is lost, what stays, and what it means for the handler."""
    run = page.store.read.execution(id_of(execution_id, "execution"))
    job = page.store.read.job(run.job_id)
    stopping, again = effects_of_stopping(page, [job.id]), job.schedule_kind != "once"
    return page.render("stop_run.html", run=run, job=job, stopping=stopping, recurring=again)


@router.post("/executions/{execution_id}/stop", name="stop_run")
def stop_run(page: PageDep, execution_id: str, _operator: Operator) -> Response:
    """End this run; the job goes on."""
    job = page.store.stop_run(id_of(execution_id, "execution"), now=page.service.now)
    text = "Stopped the run."
    if job.next_run_at is not None:
        text += (
            f" The schedule stays; the next run is {humanize.relative(job.next_run_at, page.now)}."
        )
    return page.back(page.url("job", job_id=job.id), Notice(text))


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
    lines = {"median": figures.median_ms, "p95": figures.p95_ms}
    return charts.durations(
        points,
        title=f"How long the last {shown} took; {figures.failed} failed",
        lines={name: ms / 1000 for name, ms in lines.items() if ms is not None},
        labels=labels,
    )


@router.get("/jobs/{job_id}/backfill", name="backfill")
def backfill(page: PageDep, job_id: str, _operator: Operator) -> Response:
    """Ask for the period to run again; the last day is offered."""
    moments = {"from": page.now - _OFFERED_BACKFILL, "to": page.now}
    form = Form([(name, local_minute(at, page.zone)) for name, at in moments.items()])
    return _backfill_page(page, page.store.read.job(id_of(job_id)), form)


@router.post("/jobs/{job_id}/backfill", name="backfill_now")
def backfill_now(page: PageDep, job_id: str, operator: Operator, form: FormDep) -> Response:
    job, by = page.store.read.job(id_of(job_id)), operator.subject
    try:
        done = page.store.backfill.add(job.id, **_period(page, form), created_by=by)
    except REFUSED as error:
        return _backfill_page(page, job, form, errors_of(error))
    text = "Nothing to do: every plan of that period already ran or is scheduled."
    if done.created:
        skipped = f"; {done.existing:,} skipped because they already ran or are scheduled"
        started = humanize.count(done.created, "past run")
        text = f"Started {started}{skipped if done.existing else ''}."
    return page.back(page.url("job", job_id=job.id), Notice(text))


@router.post("/jobs/{job_id}/backfill/preview", name="preview_backfill")
def preview_backfill(page: PageDep, job_id: str, _operator: Operator, form: FormDep) -> Response:
    """How many runs there would be, as a fragment."""
    return page.render("backfill_preview.html", preview=_preview(page, id_of(job_id), form))


def _preview(page: PageRequest, job_id: UUID, form: Form) -> str:
    try:
        plans = page.store.backfill.add(job_id, **_period(page, form), dry_run=True)
    except REFUSED as error:
        return str(error)
    text = f"{humanize.count(plans.created, 'past run')} would start now, in parallel."
    more = f" {plans.existing:,} more already ran or are scheduled."
    return text + more if plans.existing else text


def _period(page: PageRequest, form: Form) -> dict[str, Any]:
    period = {}
    for name, field in (("start", "from"), ("end", "to")):
        period[name] = moment_of(form, field, page.zone)
        if period[name] is None:
            raise InvalidInput("Give a date and time.", field=field)
    again = form.flag("include_completed")
    return {**period, "include_completed": again, "limit": MOST_PLANS, "now": page.service.now}


def _backfill_page(
    page: PageRequest, job: JobRecord, form: Form, errors: dict[str, str] | None = None
) -> Response:
    preview = "" if errors else _preview(page, job.id, form)
    status, errors = 422 if errors else 200, errors or {}
    values: dict[str, Any] = {"job": job, "form": form, "errors": errors, "preview": preview}
    return page.render("backfill.html", status=status, **values)
