"""The admin API, scheduled jobs: every job that has an interval or a cron schedule.

`enabled` is the opposite of paused. What a request calls `cron_expression` is any schedule text:
five cron fields, a name such as `@daily`, or `@every 90m`.
"""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response
from fastapi import Request as HttpRequest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from evenbeat.api.dependencies import Admin, Operator, Service, ServiceDep
from evenbeat.api.fields import EstimatedPage, JobName, Json, ScheduleText, fields_of, only_if_any
from evenbeat.api.idempotency import KeyHeader
from evenbeat.api.jobs import CREATED, create, update_job
from evenbeat.api.requests import CRAWL, JobCreate, JobEdit, Request, given_twice
from evenbeat.api.responses import JobDocument, job_document
from evenbeat.compat.jobs import AdminPageQuery, JobId, StatusWord, admin_fields
from evenbeat.domain.job import JobRecord
from evenbeat.domain.schedule import RECURRING_KINDS, parse_schedule
from evenbeat.domain.states import FINISHED, PAUSE, RESUME
from evenbeat.errors import Conflict, NotFound
from evenbeat.store.lists import JobFilter

router = APIRouter(prefix="/api/admin/scheduled-jobs", tags=["admin"])

Expression = Annotated[ScheduleText, AfterValidator(lambda text: parse_schedule(text) and text)]


@fields_of(JobEdit, only=[
    "name", "description", "timezone", "priority", "queue", "task", "payload", "url",
])  # fmt: skip
class ScheduledEdit(Request):
    """Changes to a scheduled job: what is not given stays as it is."""

    cron_expression: Expression | None = Field(
        None, description="Five cron fields, a name such as @daily, or @every and a duration."
    )
    enabled: bool | None = Field(None, description="false: it is paused.")
    subreddit_id: Annotated[int, Field(ge=-(2**53), le=2**53)] | None = Field(
        None, description="Stored in the payload."
    )


class ScheduledCreate(ScheduledEdit):
    """A scheduled job to add."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "daily-askreddit", "subreddit_id": 1, "cron_expression": "@daily"}
            ]
        }
    )

    name: JobName
    cron_expression: Expression
    enabled: bool = True


class ToggleBody(Request):
    enabled: bool


@fields_of(JobDocument, only=[
    "id", "name", "description", "task", "payload", "queue", "timezone", "schedule_text",
    "priority", "next_run_at", "created_at", "updated_at", "created_by",
])  # fmt: skip
class ScheduledJob(BaseModel):
    """A job with a schedule. `/api/v1/jobs/{id}` has everything else."""

    subreddit_id: int | str | None
    cron_expression: str = Field(validation_alias="schedule")
    schedule_text: str = Field(description="The schedule in plain English.")
    enabled: bool = Field(description="false: paused, or ended for good.")
    status: StatusWord
    last_run_at: datetime | None = Field(validation_alias="started_at")
    warnings: list[str] | None = only_if_any("What may need attention.")


class ScheduledJobList(EstimatedPage):
    scheduled_jobs: list[ScheduledJob]


def scheduled_job(document: JobDocument) -> ScheduledJob:
    """A scheduled job as this API shows it."""
    return ScheduledJob.model_validate(admin_fields(document))


@router.get("", summary="List scheduled jobs")
def admin_list_scheduled_jobs(
    query: Annotated[AdminPageQuery, Query()], service: ServiceDep, _principal: Operator
) -> ScheduledJobList:
    """A page of the jobs that have an interval or a cron schedule, newest first."""
    filter_ = JobFilter(kinds=RECURRING_KINDS)
    page = service.store.read.jobs(filter_, **query.paging)
    jobs = [scheduled_job(job_document(job)) for job in page.jobs]
    return ScheduledJobList.of(page, **query.paging, scheduled_jobs=jobs)


@router.post(
    "",
    summary="Add a scheduled job",
    status_code=201,
    response_model=ScheduledJob,
    responses=CREATED | {200: CREATED[200] | {"model": ScheduledJob}},
)
def admin_create_scheduled_job(
    body: ScheduledCreate,
    request: HttpRequest,
    service: ServiceDep,
    principal: Admin,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Run a task, `crawl` unless another is named, on a schedule. The subreddit_id and the url are
    arguments in its payload."""
    fields = _job_fields(body, {}) | {"paused": not body.enabled}
    fields["task"] = fields.get("task") or CRAWL
    job, key = JobCreate(**fields), idempotency_key
    return create(job, request, service, principal, key, asked=body, shown=scheduled_job)


@router.get("/{job_id}", summary="Look at a scheduled job")
def admin_get_scheduled_job(
    job_id: JobId, service: ServiceDep, _principal: Operator
) -> ScheduledJob:
    """What it runs and when, when it ran last and will run next."""
    return scheduled_job(job_document(_scheduled(service, job_id)))


@router.put("/{job_id}", summary="Edit a scheduled job")
def admin_update_scheduled_job(
    job_id: JobId, body: ScheduledEdit, service: ServiceDep, principal: Admin
) -> ScheduledJob:
    """What is not given stays as it is. A changed schedule is planned again."""
    job = _scheduled(service, job_id)
    if body.enabled:
        _check_not_ended(job)
    edit = JobEdit(**_job_fields(body, job.payload, job.timezone))
    warnings = update_job(job_id, edit, service, principal).warnings or ()
    job = _scheduled(service, job_id)
    if body.enabled is not None:
        job = _set_enabled(service, job, body.enabled)
    return scheduled_job(job_document(job, warnings=warnings))


@router.delete("/{job_id}", summary="Delete a scheduled job", status_code=204)
def admin_delete_scheduled_job(job_id: JobId, service: ServiceDep, _principal: Admin) -> None:
    """Remove it with its history. A run in progress is given up."""
    _scheduled(service, job_id)
    service.store.control.delete([job_id]).only()


@router.post("/{job_id}/toggle", summary="Enable or disable a scheduled job")
def admin_toggle_scheduled_job(
    job_id: JobId, body: ToggleBody, service: ServiceDep, _principal: Admin
) -> ScheduledJob:
    """Pause it, or resume it. One that is so already stays as it is."""
    job = _set_enabled(service, _scheduled(service, job_id), body.enabled)
    return scheduled_job(job_document(job))


# -- from the admin API's fields to those of /api/v1 ---------------------------------------------


def _scheduled(service: Service, job_id: UUID) -> JobRecord:
    job = service.store.read.job(job_id)
    if job.schedule_kind not in RECURRING_KINDS:
        raise NotFound("scheduled job", job_id)
    return job


def _set_enabled(service: Service, job: JobRecord, enabled: bool) -> JobRecord:
    if enabled:
        _check_not_ended(job)
    if enabled == job.is_paused:
        verb = RESUME if enabled else PAUSE
        return service.store.control.apply(verb, [job.id], now=service.now).only()
    return job


def _check_not_ended(job: JobRecord) -> None:
    if job.status in FINISHED:
        raise Conflict(
            f"This schedule has ended: the job is {job.status}, not paused. "
            f"POST /api/admin/jobs/{job.id}/retry runs it again and takes its schedule up."
        )


def _job_fields(body: ScheduledEdit, payload: Json, timezone: str | None = None) -> Json:
    """The fields that were given, by the names that /api/v1 has for them."""
    others = {"cron_expression", "enabled", "subreddit_id"}
    fields = body.model_dump(exclude=others, exclude_unset=True)
    if body.cron_expression is not None:
        fields["schedule"] = body.cron_expression
        fields.setdefault("timezone", timezone)
    if not body.model_fields_set & {"payload", "subreddit_id"}:
        return fields
    new_payload = fields.get("payload")
    fields["payload"] = dict(payload if new_payload is None else new_payload)
    if new_payload is None and fields.get("url") is not None:
        fields["payload"].pop("url", None)
    if body.subreddit_id is not None:
        if (new_payload or {}).get("subreddit_id", body.subreddit_id) != body.subreddit_id:
            raise given_twice("subreddit_id")
        fields["payload"]["subreddit_id"] = body.subreddit_id
    return fields
