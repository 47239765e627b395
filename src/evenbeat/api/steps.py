"""Steps of jobs over HTTP, and the events that their runs wait for."""

from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from evenbeat.api.dependencies import Operator, ServiceDep, Viewer
from evenbeat.api.event_links import LONGEST, sign_link
from evenbeat.api.fields import Duration, Limit, Rounded, RowDocument, fields_of
from evenbeat.domain import setting_kinds as kinds
from evenbeat.domain.step import Step

router = APIRouter(prefix="/api/v1/jobs", tags=["steps"])

_LIFETIME = kinds.Duration(least=timedelta(seconds=1), most=LONGEST).json_schema


@fields_of(Step)
class StepDocument(RowDocument):
    """A step, a sleep, or an event that a run waits for, waited for, or will."""

    duration_ms: Rounded | None = Field(description="How long it took, or was waited for.")


class StepList(BaseModel):
    steps: list[StepDocument]


class EventBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    payload: Any = Field(None, description="What `ctx.wait_event` returns; at most 64 KiB.")


class EventSent(BaseModel):
    awaited: bool = Field(description="Whether a run waits for it; otherwise it is kept for one.")


class LinkBody(EventBody):
    payload: Any = Field(None, description="What `ctx.wait_event` returns; at most 2 KiB.")
    expires: Annotated[Duration, WithJsonSchema(_LIFETIME)] = Field(
        default_factory=lambda: timedelta(days=7),
        description="How long the link is good, at most 366d. Default: 7d.",
    )


class LinkDocument(BaseModel):
    """A link that sends the event once, for whoever has it."""

    url: str
    expires_at: datetime


@router.get("/{job_id:uuid}/steps", summary="List a job's steps")
def list_steps(
    job_id: UUID, service: ServiceDep, _principal: Viewer, limit: Annotated[Limit, Query()] = 1000
) -> StepList:
    """What its runs have done for good, and sleep or wait for, in this order."""
    service.store.read.job(job_id)
    steps = service.store.steps.of(job_id, limit=limit)
    return StepList(steps=[StepDocument.of(step, duration_ms=step.duration_ms) for step in steps])


@router.post("/{job_id:uuid}/events/{name}", summary="Send an event to a job")
def send_event(
    job_id: UUID, name: str, body: EventBody, service: ServiceDep, principal: Operator
) -> EventSent:
    """Give an event to the run that waits for it longest, or keep it for the next one that does."""
    sent_by = principal.subject
    steps = service.store.steps
    awaited = steps.send_event(job_id, name, body.payload, sent_by=sent_by, now=service.now)
    return EventSent(awaited=awaited)


@router.post("/{job_id:uuid}/events/{name}/link", summary="Make a link that sends an event")
def make_event_link(
    job_id: UUID,
    name: str,
    body: LinkBody,
    request: Request,
    service: ServiceDep,
    _principal: Operator,
) -> LinkDocument:
    """For a person without an account: the page behind it asks, and sends the event."""
    service.store.read.job(job_id)
    path, until = sign_link(service.app.settings, job_id, name, body.payload, body.expires)
    after = {"event": name, "payload": body.payload, "expires_at": until.isoformat()}
    service.store.audit.add("job.event_link", ids=[job_id], name=name, after=after)
    return LinkDocument(url=f"{str(request.base_url).rstrip('/')}{path}", expires_at=until)
