"""The admin API, scheduled jobs: every job that has an interval or a cron schedule.

`enabled` is the other side of paused. What a request calls `cron_expression` is any schedule text:
five cron fields, a name such as `@daily`, or `@every 90m`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from evenbeat.api.answers import JobDocument
from evenbeat.api.building import CRAWL
from evenbeat.api.dependencies import DENIED, Admin, Operator, Service, ServiceDep
from evenbeat.api.documents import job_document, schedule_text
from evenbeat.api.fields import (
    MAX_DESCRIPTION,
    JobName,
    Limit,
    Offset,
    QueueName,
    ScheduleText,
    TaskName,
    Timezone,
    Url,
)
from evenbeat.api.idempotency import KeyHeader, done_once, json_response
from evenbeat.api.jobs import job_from, update_job
from evenbeat.api.problems import responses
from evenbeat.api.schemas import JobCreate, JobEdit, Json, Request
from evenbeat.api.tasks import known_task
from evenbeat.compat.jobs import JobId, Spoken, spoken, subreddit_of
from evenbeat.domain.job import Job, recurring_of
from evenbeat.domain.states import FINISHED
from evenbeat.errors import Conflict, InvalidInput, NotFound
from evenbeat.store.database import Connection
from evenbeat.store.filters import JobFilter

router = APIRouter(prefix="/api/admin/scheduled-jobs", tags=["admin"], responses=DENIED)

_RECURRING = ("interval", "cron")
_NO_JOB = responses(404)
_NOT_NOW = responses(404, 409)


# -- requests ------------------------------------------------------------------------------------


class ScheduledEdit(Request):
    """Changes to a scheduled job: what is not given stays as it is."""

    name: JobName | None = Field(None, description="Unique.")
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION)] | None = None
    cron_expression: ScheduleText | None = Field(
        None, description="Five cron fields, a name such as @daily, or @every and a duration."
    )
    timezone: Timezone | None = Field(None, description="The IANA time zone that cron is read in.")
    enabled: bool | None = Field(None, description="false: it is paused.")
    priority: Annotated[int, Field(ge=0, le=100)] | None = None
    queue: QueueName | None = None
    task: TaskName | None = Field(None, description="The handler to run; crawl unless given.")
    payload: Json | None = Field(None, description="The handler's arguments.")
    url: Url | None = Field(None, description="Kept in the payload.")
    subreddit_id: Annotated[int, Field(ge=-(2**53), le=2**53)] | None = Field(
        None, description="Kept in the payload."
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
    cron_expression: ScheduleText
    enabled: bool = True


class ToggleBody(Request):
    """Whether it is to run."""

    enabled: bool


class ScheduledQuery(BaseModel):
    """The query of the list."""

    model_config = ConfigDict(extra="forbid")

    limit: Limit = 100
    offset: Offset = 0


# -- answers -------------------------------------------------------------------------------------


class ScheduledJob(BaseModel):
    """A job with a schedule. `/api/v1/jobs/{id}` has everything else."""

    id: UUID
    name: str | None
    description: str | None
    subreddit_id: int | str | None
    task: str
    payload: Json
    queue: str
    cron_expression: str
    timezone: str
    schedule_text: str = Field(description="The schedule in plain English.")
    enabled: bool = Field(description="false: paused, or ended for good.")
    status: Spoken
    priority: int
    next_run_at: datetime | None
    last_run_at: datetime | None
    created_at: datetime
    updated_at: datetime
    created_by: str | None
    warnings: list[str] | None = Field(
        None, description="What may need attention.", exclude_if=lambda value: value is None
    )


class ScheduledJobList(BaseModel):
    """A page of scheduled jobs."""

    scheduled_jobs: list[ScheduledJob]
    total: int
    total_is_estimate: bool
    limit: int
    offset: int


def scheduled_job(job: Job, warnings: list[str] | None = None) -> ScheduledJob:
    """A scheduled job as answered."""
    document = job_document(job)
    return ScheduledJob(
        **{name: getattr(document, name) for name in _SAME_NAME},
        subreddit_id=subreddit_of(job),
        cron_expression=schedule_text(recurring_of(job)) or "",
        enabled=_is_enabled(job),
        status=spoken(job),
        last_run_at=job.started_at,
        warnings=warnings or None,
    )


_SAME_NAME = tuple(
    set(ScheduledJob.model_fields) & set(JobDocument.model_fields)
    - {"subreddit_id", "cron_expression", "status", "warnings"}
)  # fmt: skip


def _is_enabled(job: Job) -> bool:
    return not job.is_paused and job.status not in FINISHED


# -- endpoints -----------------------------------------------------------------------------------


@router.get("", operation_id="admin_list_scheduled_jobs", summary="List scheduled jobs")
def admin_list_scheduled_jobs(
    query: Annotated[ScheduledQuery, Query()], service: ServiceDep, _principal: Operator
) -> ScheduledJobList:
    """A page of the jobs that have an interval or a cron schedule, newest first."""
    page = service.app.store.read.jobs(
        JobFilter(kinds=_RECURRING), limit=query.limit, offset=query.offset
    )
    return ScheduledJobList(
        scheduled_jobs=[scheduled_job(job) for job in page.jobs],
        total=page.total,
        total_is_estimate=page.total_is_estimate,
        limit=query.limit,
        offset=query.offset,
    )


@router.post(
    "",
    operation_id="admin_create_scheduled_job",
    summary="Add a scheduled job",
    status_code=201,
    response_model=ScheduledJob,
    responses=responses(409) | {200: {"model": ScheduledJob, "description": "Done before."}},
)
def admin_create_scheduled_job(
    body: ScheduledCreate,
    service: ServiceDep,
    principal: Admin,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Run a task, `crawl` unless another is named, on a schedule. The subreddit_id and the url are
    arguments in its payload."""
    asked = JobCreate(**_as_v1(body, {}) | {"task": body.task or CRAWL})
    task = known_task(service, body.task or CRAWL)
    with _naming_the_expression():
        job = job_from(asked, task, principal.subject)

    def add(connection: Connection) -> Response:
        added = service.app.add(job, connection)
        if not body.enabled:
            service.app.store.control.pause([added.id], now=service.now, connection=connection)
        row = service.app.store.database.row("job", {"id": added.id}, connection)
        if row is None:
            raise NotFound("scheduled job", added.id)
        return json_response(scheduled_job(Job._make(row), list(task.warnings)), 201)

    return done_once(service, principal, body, [job], add, key=idempotency_key)


@router.get(
    "/{job_id}",
    operation_id="admin_get_scheduled_job",
    summary="Look at a scheduled job",
    responses=_NO_JOB,
)
def admin_get_scheduled_job(
    job_id: JobId, service: ServiceDep, _principal: Operator
) -> ScheduledJob:
    """What it runs and when, when it ran last and will run next."""
    return scheduled_job(_scheduled(service, job_id))


@router.put(
    "/{job_id}",
    operation_id="admin_update_scheduled_job",
    summary="Edit a scheduled job",
    responses=_NOT_NOW,
)
def admin_update_scheduled_job(
    job_id: JobId, body: ScheduledEdit, service: ServiceDep, principal: Admin
) -> ScheduledJob:
    """What is not given stays as it is. A changed schedule is planned anew."""
    job = _scheduled(service, job_id)
    if body.enabled is not None:
        _check_toggle(job, body.enabled)
    edit = JobEdit(**_as_v1(body, job.payload, job.timezone))
    with _naming_the_expression():
        warnings = update_job(job_id, edit, service, principal).warnings
    if body.enabled is not None:
        _toggle(service, _scheduled(service, job_id), body.enabled)
    return scheduled_job(_scheduled(service, job_id), warnings)


@router.delete(
    "/{job_id}",
    operation_id="admin_delete_scheduled_job",
    summary="Delete a scheduled job",
    status_code=204,
    responses=_NO_JOB,
)
def admin_delete_scheduled_job(job_id: JobId, service: ServiceDep, _principal: Admin) -> None:
    """Remove it with its history. A run in progress is given up."""
    _scheduled(service, job_id)
    service.app.store.control.delete([job_id]).only()


@router.post(
    "/{job_id}/toggle",
    operation_id="admin_toggle_scheduled_job",
    summary="Enable or disable a scheduled job",
    responses=_NOT_NOW,
)
def admin_toggle_scheduled_job(
    job_id: JobId, body: ToggleBody, service: ServiceDep, _principal: Admin
) -> ScheduledJob:
    """Pause it, or resume it. One that is so already stays as it is."""
    return scheduled_job(_toggle(service, _scheduled(service, job_id), body.enabled))


# -- from the admin API's fields to the job's ----------------------------------------------------


def _scheduled(service: Service, job_id: UUID) -> Job:
    job = service.app.store.read.job(job_id)
    if job.schedule_kind not in _RECURRING:
        raise NotFound("scheduled job", job_id)
    return job


def _toggle(service: Service, job: Job, enabled: bool) -> Job:
    _check_toggle(job, enabled)
    if _is_enabled(job) == enabled:
        return job
    control = service.app.store.control
    return (control.resume if enabled else control.pause)([job.id], now=service.now).only()


def _check_toggle(job: Job, enabled: bool) -> None:
    if enabled and job.status in FINISHED:
        raise Conflict(
            f"This schedule has ended: the job is {job.status}, not paused. "
            f"POST /api/admin/jobs/{job.id}/retry runs it again and takes its schedule up."
        )


def _as_v1(
    body: ScheduledEdit, payload: Mapping[str, Any], timezone: str | None = None
) -> dict[str, Any]:
    """The fields that were given, by the names that a job has for them."""
    same = ("name", "description", "priority", "queue", "timezone", "url", "task")
    given = {name: getattr(body, name) for name in same if name in body.model_fields_set}
    if body.cron_expression is not None:
        given["schedule"] = body.cron_expression
        given.setdefault("timezone", timezone)
    if body.model_fields_set & {"payload", "subreddit_id"}:
        given["payload"] = _with_subreddit(body, payload)
    return given


def _with_subreddit(body: ScheduledEdit, payload: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(payload if body.payload is None else body.payload)
    if body.payload is None and body.url is not None:
        result.pop("url", None)
    if body.subreddit_id is None:
        return result
    if body.payload and body.payload.get("subreddit_id", body.subreddit_id) != body.subreddit_id:
        raise InvalidInput(
            "subreddit_id is given twice, in the payload and beside it, and differs. Give it once.",
            field="subreddit_id",
        )
    return result | {"subreddit_id": body.subreddit_id}


@contextmanager
def _naming_the_expression() -> Iterator[None]:
    """Let a refused schedule name the field that it came in."""
    try:
        yield
    except InvalidInput as error:
        if error.field == "schedule":
            error.field = "cron_expression"
        raise
