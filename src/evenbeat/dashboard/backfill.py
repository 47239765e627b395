"""Backfill: run the plans of a period that has passed, after a look at how many there are."""

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from fastapi import Request, Response

from evenbeat import humanize
from evenbeat.api.dependencies import Operator, Service, ServiceDep
from evenbeat.dashboard import job_form, pages
from evenbeat.dashboard.forms import Form, FormDep, id_of
from evenbeat.dashboard.job_form import Refused
from evenbeat.dashboard.notices import Notice
from evenbeat.domain.job import Job
from evenbeat.store.backfill import MOST_PLANS, Backfilled

router = pages.router()

_OFFERED = timedelta(days=1)


class Period(NamedTuple):
    """What a form asks for."""

    start: datetime
    end: datetime
    include_completed: bool


@router.get("/jobs/{job_id}/backfill", name="backfill")
def backfill(request: Request, job_id: str, _operator: Operator, service: ServiceDep) -> Response:
    """Ask for the period; the last day is offered."""
    job, now = service.app.store.read.job(id_of(job_id)), pages.now_of(request)
    zone = pages.zone_of(request)
    offered = {
        "from": job_form.local_minute(now - _OFFERED, zone),
        "to": job_form.local_minute(now, zone),
        "include_completed": "",
    }
    return _page(request, service, job, Form(list(offered.items())))


@router.post("/jobs/{job_id}/backfill", name="backfill_now")
def backfill_now(
    request: Request, job_id: str, operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """Run them."""
    job = service.app.store.read.job(id_of(job_id))
    try:
        period = _period(request, form)
        done = job_form.refusing(lambda: _add(service, job.id, period, operator.subject))
    except Refused as refused:
        return _page(request, service, job, form, refused.errors)
    return pages.back(request, pages.url(request, "job", job_id=job.id), Notice(_told(done)))


@router.post("/jobs/{job_id}/backfill/preview", name="preview_backfill")
def preview_backfill(
    request: Request, job_id: str, _operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """How many there would be, as a fragment."""
    told = _preview(request, service, id_of(job_id), form)
    return pages.render(request, "backfill_preview.html", told=told)


def _add(service: Service, job_id: UUID, period: Period, subject: str) -> Backfilled:
    return service.app.store.backfill.add(
        job_id,
        period.start,
        period.end,
        limit=MOST_PLANS,
        include_completed=period.include_completed,
        created_by=subject,
        now=service.now,
    )


def _preview(request: Request, service: Service, job_id: UUID, form: Form) -> str:
    try:
        period = _period(request, form)
        found = job_form.refusing(
            lambda: service.app.store.backfill.preview(
                job_id,
                period.start,
                period.end,
                limit=MOST_PLANS,
                include_completed=period.include_completed,
                now=service.now,
            )
        )
    except Refused as refused:
        return str(refused)
    rest = f" {found.existing:,} more ran already, or will by themselves." if found.existing else ""
    return f"{humanize.count(found.created, 'plan')} would run now, side by side.{rest}"


def _told(done: Backfilled) -> str:
    if not done.created:
        return "Nothing to do: every plan of that period ran, or will by itself."
    return (
        f"Started {humanize.count(done.created, 'plan')} of the past; {done.existing:,} left out."
    )


def _period(request: Request, form: Form) -> Period:
    zone = pages.zone_of(request)
    start = job_form.moment_of(form.text("from"), zone, "from")
    end = job_form.moment_of(form.text("to"), zone, "to")
    if start is None or end is None:
        raise Refused({"from" if start is None else "to": "Give a date and time."})
    return Period(start, end, form.flag("include_completed"))


def _page(
    request: Request, service: Service, job: Job, form: Form, errors: dict[str, str] | None = None
) -> Response:
    return pages.render(
        request,
        "backfill.html",
        status=422 if errors else 200,
        job=job,
        form=form,
        errors=errors or {},
        told="" if errors else _preview(request, service, job.id, form),
    )
