"""Adding and editing a job, with a preview of when it would run and where it would be placed."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from fastapi import Request, Response

from evenbeat.api.dependencies import Operator, Service, ServiceDep
from evenbeat.api.jobs import job_from, update_job
from evenbeat.api.requests import JobCreate, task_of
from evenbeat.api.tasks import known_task
from evenbeat.dashboard import job_form, pages
from evenbeat.dashboard.forms import Form, FormDep, QueryDep, id_of
from evenbeat.dashboard.job_form import Refused, TaskChoice
from evenbeat.dashboard.pages import Notice
from evenbeat.domain.job import Job, JobSpec, Placement, with_settings
from evenbeat.domain.schedule import Interval, Recurring, schedule_from_fields
from evenbeat.domain.window import due_at
from evenbeat.errors import InvalidInput

router = pages.router()

_PREVIEWED = 5


class Preview(NamedTuple):
    """What a form would come to, as far as it can be shown yet."""

    schedule: str = ""
    runs: tuple[datetime, ...] = ()
    load: float | None = None
    trouble: str = ""
    task: TaskChoice | None = None
    arguments: tuple[job_form.Argument, ...] = ()
    warnings: tuple[str, ...] = ()


@router.get("/jobs/new", name="new_job")
def new_job(
    request: Request, _operator: Operator, service: ServiceDep, query: QueryDep
) -> Response:
    """An empty form; `?task=` and `?queue=` fill it in."""
    values = job_form.blank(query.text("task"), query.text("queue"))
    return _page(request, service, values)


@router.post("/jobs/new", name="add_job")
def add_job(request: Request, operator: Operator, service: ServiceDep, form: FormDep) -> Response:
    """Add the job, or show the form again with what is wrong with it."""
    try:
        body = job_form.new_request(form, pages.zone_of(request))
        added, created = job_form.refusing(lambda: _add(service, body, operator.subject))
    except Refused as refused:
        return _page(request, service, job_form.sent(form), errors=refused.errors)
    warnings = [Notice(text, "refused") for text in known_task(service, task_of(body)).warnings]
    words = f"Added {body.name or body.task}." if created else "A job like this was there already."
    return pages.back(request, pages.url(request, "job", job_id=added), Notice(words), *warnings)


@router.get("/jobs/{job_id}/edit", name="edit_job")
def edit_job(request: Request, job_id: str, _operator: Operator, service: ServiceDep) -> Response:
    """The form of a job that exists."""
    job = service.app.store.read.job(id_of(job_id))
    awaited = service.app.store.dependencies.awaited_by([job.id])[job.id]
    return _page(request, service, job_form.filled(job, pages.zone_of(request), awaited), job)


@router.post("/jobs/{job_id}/edit", name="change_job")
def change_job(
    request: Request, job_id: str, operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """Change the job, or show the form again with what is wrong with it."""
    job = service.app.store.read.job(id_of(job_id))
    try:
        body = job_form.edit_request(form, job, pages.zone_of(request))
        job_form.refusing(lambda: update_job(job.id, body, service, operator))
    except Refused as refused:
        return _page(request, service, job_form.sent(form), job, refused.errors)
    return pages.back(request, pages.url(request, "job", job_id=job.id), Notice("Saved."))


@router.post("/jobs/preview", name="preview_job")
def preview_job(
    request: Request, _operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """What the form would come to, as a fragment."""
    return pages.render(
        request,
        "job_preview.html",
        now=pages.now_of(request),
        preview=preview(service, form, request),
    )


def _add(service: Service, body: JobCreate, subject: str) -> tuple[str, bool]:
    task = known_task(service, task_of(body))
    added = service.app.add(job_from(body, task, subject))
    if body.paused and added.created:
        service.app.store.control.pause([added.id], now=service.now)
    return str(added.id), added.created


def _page(
    request: Request,
    service: Service,
    values: dict[str, str],
    job: Job | None = None,
    errors: dict[str, str] | None = None,
) -> Response:
    form = Form(list(values.items()))
    errors = dict(errors or {})
    if "schedule" in errors and values["kind"] in ("every", "cron"):
        errors[values["kind"]] = errors.pop("schedule")
    return pages.render(
        request,
        "job_form.html",
        status=422 if errors else 200,
        now=pages.now_of(request),
        values=values,
        job=job,
        errors=errors,
        tasks=job_form.task_choices(service),
        groups=job_form.setting_groups(),
        preview=preview(service, form, request),
    )


# -- the preview -----------------------------------------------------------------------------------


def preview(service: Service, form: Form, request: Request) -> Preview:
    """As much as can be said; a form that is not finished yet is no error."""
    task = next((t for t in job_form.task_choices(service) if t.name == form.text("task")), None)
    shown = Preview(task=task, arguments=job_form.arguments_of(task.schema) if task else ())
    if form.text("task"):
        shown = shown._replace(warnings=known_task(service, form.text("task")[:200]).warnings)
    if form.text("kind") in ("every", "cron") and not form.text(form.text("kind")):
        return shown
    if form.text("kind") == "after":
        return shown._replace(schedule="after other jobs")
    try:
        return shown._replace(**_planned(service, form, request))
    except Refused as refused:
        return shown._replace(trouble=str(refused))
    except InvalidInput as error:
        return shown._replace(trouble=str(error))


def _planned(service: Service, form: Form, request: Request) -> dict[str, Any]:
    timing = Form([(k, v) for k, v in form.pairs if k in _TIMING] + [("task", "any")])
    body = job_form.new_request(timing, pages.zone_of(request))
    now = pages.now_of(request)
    schedule = schedule_from_fields(body.schedule_fields())
    spec = with_settings(JobSpec(task="any"), body.changed_settings())
    if not isinstance(schedule, Recurring):
        run_at = body.run_at if body.run_at is not None and body.run_at > now else now
        return {"schedule": "once", "runs": (run_at,)}
    first, load = schedule.next_after(now), None
    if isinstance(schedule, Interval) and spec.placement is Placement.BALANCED:
        cost = None if spec.cost is None else spec.cost.total_seconds() * 1000
        placed = service.app.balancer.where(schedule.every, cost)
        first, load = placed.at, placed.load
        schedule = Interval(schedule.every, first)
    elif isinstance(schedule, Interval) and spec.placement is Placement.PINNED:
        first = now + schedule.every
        schedule = Interval(schedule.every, first)
    plans = [first, *schedule.preview(first, _PREVIEWED - 1)]
    runs = tuple(due_at(plan, timedelta(0), spec.window) for plan in plans)
    return {"schedule": schedule.describe(), "runs": runs, "load": load}


_TIMING = frozenset({"kind", "every", "cron", "timezone", "run_at", "placement", "window", "cost"})
