"""Schedules over HTTP: trying one out, a job's next plans, and plans of the past."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel

from evenbeat.api.dependencies import Operator, ServiceDep, Viewer
from evenbeat.api.fields import Rounded, RowDocument, fields_of, only_if_any
from evenbeat.api.requests import BackfillRequest, PreviewRequest
from evenbeat.domain.schedule import Interval, Recurring, schedule_from_fields
from evenbeat.domain.window import parse_window
from evenbeat.errors import InvalidInput, InvalidSchedule
from evenbeat.observe.explain import Explanation, Fact, describe_schedule, explain, next_plans

router = APIRouter(prefix="/api/v1", tags=["schedules"])

_USUAL_BACKFILL = 1000
_PLANS_SHOWN = 100


class PlacedDocument(RowDocument):
    """Where a new job would be placed, and the load it would meet there."""

    at: datetime
    load: Rounded | None


class PreviewDocument(BaseModel):
    """A schedule in words and in times."""

    schedule: str
    explanation: str
    plans: list[datetime]
    placement: PlacedDocument | None = only_if_any("Where a new job would come to run.")


class PlansDocument(BaseModel):
    """The next plans of a job."""

    plans: list[datetime]
    schedule_text: str


@fields_of(Fact)
class FactDocument(BaseModel):
    """One reason or circumstance: a code for programs, a sentence for people."""


@fields_of(Explanation)
class ExplanationDocument(RowDocument):
    """Why a job did or did not run."""

    facts: list[FactDocument]


class BackfilledDocument(RowDocument):
    """What a backfill made; the first 100 plans are listed."""

    created: int
    existing: int
    plans: list[datetime]


@router.post("/schedules/preview", summary="Try a schedule out")
def preview_schedule(
    body: PreviewRequest, service: ServiceDep, _principal: Viewer
) -> PreviewDocument:
    """The schedule in plain English, and when it would run. An interval without a first run is
    shown from `after` on; a job gets its own place in it."""
    fields = body.schedule_fields()
    fields.pop("after", None)  # a moment here, not the jobs that a job waits for
    schedule = schedule_from_fields(fields)
    if not isinstance(schedule, Recurring):
        raise InvalidInput(
            'There is no schedule to try out. Give for example "schedule": "0 9 * * mon-fri".',
            field="schedule",
        )
    after = body.after or service.store.clock(service.now)
    placement, window, balancer = None, None, service.app.balancer
    if body.window is not None:
        window = balancer.hours(parse_window(body.window))
    if isinstance(schedule, Interval):
        placed = balancer.where(schedule.every, window=window)
        placement = PlacedDocument.of(placed)
        schedule = Interval(schedule.every, after if window is None else placed.at)
    plans: list[datetime] = []
    try:
        while len(plans) < body.count:
            plans.append(schedule.next_after(plans[-1] if plans else after))
    except InvalidSchedule:  # the schedule comes to its end
        if not plans:
            raise
    return PreviewDocument(
        schedule=schedule.text or "",
        explanation=schedule.describe(),
        placement=placement,
        plans=[plan if window is None else window.next_open(plan) for plan in plans],
    )


@router.get("/jobs/{job_id:uuid}/plans", summary="A job's next plans")
def list_job_plans(
    job_id: UUID,
    service: ServiceDep,
    _principal: Viewer,
    count: Annotated[int, Query(ge=1, le=100, description="How many.")] = 5,
) -> PlansDocument:
    """When the job will run next, if nothing changes. A job that waits for nothing has no plans."""
    job, present = service.store.read.job(job_id), service.store.clock(service.now)
    return PlansDocument(
        plans=next_plans(job, present, count), schedule_text=describe_schedule(job)
    )


@router.get("/jobs/{job_id:uuid}/explain", summary="Why did, or didn't, this job run?")
def explain_job(job_id: UUID, service: ServiceDep, _principal: Viewer) -> ExplanationDocument:
    """Where the job stands and why, in sentences: what it waits for, who could run it, what became
    of its last runs."""
    circumstances = service.store.read.circumstances(job_id, now=service.now)
    return ExplanationDocument.of(explain(circumstances))


@router.post("/jobs/{job_id:uuid}/backfill", summary="Run plans of the past")
def backfill_job(
    job_id: UUID, body: BackfillRequest, service: ServiceDep, principal: Operator
) -> BackfilledDocument:
    """Run every plan of a period that has not run, each once, as a job of its own. Asking again
    adds nothing."""
    result = service.store.backfill.add(
        job_id,
        body.from_,
        body.to,
        limit=body.limit or _USUAL_BACKFILL,
        include_completed=body.include_completed,
        created_by=principal.subject,
        now=service.now,
    )
    return BackfilledDocument.of(result, plans=result.plans[:_PLANS_SHOWN])
