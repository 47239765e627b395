"""The admin API, jobs: counts, lists, and setting states and priorities by hand.

Looking takes an operator, changing an admin. Words for states: `admin_words`.
"""

from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from evenbeat.api.answers import BulkChanged, Number, RefusedDocument
from evenbeat.api.dependencies import DENIED, Admin, Operator, Service, ServiceDep
from evenbeat.api.documents import plain
from evenbeat.api.fields import Limit, Offset
from evenbeat.api.problems import responses
from evenbeat.api.queries import Words
from evenbeat.api.schemas import MAX_BULK, Json, Request
from evenbeat.compat.states import SPOKEN, WORDS, Step, states_of_all, step_to
from evenbeat.domain.job import Job
from evenbeat.domain.states import JobStatus
from evenbeat.errors import EvenbeatError, IllegalTransition, NotFound
from evenbeat.store.control import Changes
from evenbeat.store.filters import JobFilter

router = APIRouter(prefix="/api/admin/jobs", tags=["admin"], responses=DENIED)

_REFUSALS_SHOWN = 100
_NO_JOB = responses(404)
_NOT_NOW = responses(404, 409)


def _id(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    if isinstance(value, str) and len(value) in (32, 36):
        return UUID(value)
    raise ValueError(
        "ids are UUIDs as text, not numbers; the lists of jobs and scheduled jobs give them"
    )


JobId = Annotated[UUID, BeforeValidator(_id)]
Status = Literal[
    "queued", "crawling", "success", "failed", "pending", "scheduled", "running", "paused",
    "completed", "cancelled",
]  # fmt: skip
Spoken = Literal["queued", "crawling", "success", "failed", "paused", "cancelled"]
Ids = Annotated[list[JobId], Field(min_length=1, max_length=MAX_BULK)]


# -- requests ------------------------------------------------------------------------------------


class AdminJobQuery(BaseModel):
    """The query of the list."""

    model_config = ConfigDict(extra="forbid")

    status: Words = Field(None, description=f"Any of {', '.join(WORDS)}.")
    limit: Limit = 100
    offset: Offset = 0


class StatusBody(Request):
    """The state that a job is to have."""

    status: Status


class PriorityBody(Request):
    """The priority that a job is to have."""

    priority: Annotated[int, Field(ge=0, le=100)]


class BoostBody(Request):
    """By how much to raise the priority."""

    boost: Annotated[int, Field(ge=1, le=100)]


class BulkIds(Request):
    """Which jobs are meant."""

    job_ids: Ids


class BulkStatusBody(BulkIds):
    """Which jobs are meant, and the state that they are to have."""

    status: Status


# -- answers -------------------------------------------------------------------------------------


class AdminJobStats(BaseModel):
    """Jobs by state; `queued` are those pending and scheduled together."""

    queued: int
    running: int
    failed: int
    completed: int
    paused: int
    cancelled: int
    pending: int
    scheduled: int
    total: int


class AdminJob(BaseModel):
    """A job in the admin API's words. `/api/v1/jobs/{id}` has everything else."""

    id: UUID
    name: str | None
    task: str
    payload: Json
    subreddit_id: int | str | None = Field(description="Of the payload.")
    queue: str
    status: Spoken
    state: str = Field(description="The same in the words of /api/v1.")
    priority: int
    retries: int = Field(description="The older name of retry_count.")
    retry_count: int
    max_retries: int
    visible_at: datetime | None = Field(description="When it can be claimed, while it waits.")
    next_retry_at: datetime | None = Field(description="The same, while it waits for a retry.")
    last_attempt: datetime | None = Field(description="When its last run began.")
    duration_ms: Number | None = Field(description="How long its runs take, by a moving average.")
    error_message: str | None
    enqueued_by: str | None
    created_at: datetime
    updated_at: datetime


class AdminJobList(BaseModel):
    """A page of jobs."""

    jobs: list[AdminJob]
    total: int
    total_is_estimate: bool
    limit: int
    offset: int


class AdminBulkChanged(BulkChanged):
    """What became of many jobs. Those that had the state already are counted as unchanged."""

    unchanged: int = 0


def admin_job(job: Job) -> AdminJob:
    """A job as answered."""
    waits = job.status in WORDS["queued"]
    visible_at = job.next_run_at if waits else None
    return AdminJob(
        **{name: getattr(job, name) for name in _SAME_NAME},
        subreddit_id=subreddit_of(job),
        status=spoken(job),
        state=job.status,
        retries=job.current_retry_count,
        retry_count=job.current_retry_count,
        visible_at=visible_at,
        next_retry_at=visible_at if job.current_retry_count else None,
        last_attempt=job.started_at,
        duration_ms=plain(job.average_duration_ms),
        enqueued_by=job.created_by,
    )


_SAME_NAME = tuple(
    set(AdminJob.model_fields) & set(Job._fields) - {"status"}
)  # fmt: skip


def spoken(job: Job) -> Any:
    """The job's state in the admin API's words."""
    return SPOKEN[JobStatus(job.status)]


def subreddit_of(job: Job) -> int | str | None:
    """The payload's subreddit_id, where it has one that is a number or a text."""
    value = job.payload.get("subreddit_id")
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


# -- looking -------------------------------------------------------------------------------------


@router.get("/stats", operation_id="admin_job_stats", summary="Count jobs by state")
def admin_job_stats(service: ServiceDep, _principal: Operator) -> AdminJobStats:
    """How many jobs there are in each state. With very many jobs, of the last half minute."""
    counts = service.app.store.read.counts_by_status()
    by_state = {state.value: counts.get(state.value, 0) for state in JobStatus}
    queued = sum(by_state[state] for state in WORDS["queued"])
    return AdminJobStats(**by_state, queued=queued, total=sum(by_state.values()))


@router.get("", operation_id="admin_list_jobs", summary="List jobs by state")
def admin_list_jobs(
    query: Annotated[AdminJobQuery, Query()], service: ServiceDep, _principal: Operator
) -> AdminJobList:
    """A page of the jobs in these states, newest first."""
    page = service.app.store.read.jobs(
        JobFilter(statuses=states_of_all(query.status)), limit=query.limit, offset=query.offset
    )
    return AdminJobList(
        jobs=[admin_job(job) for job in page.jobs],
        total=page.total,
        total_is_estimate=page.total_is_estimate,
        limit=query.limit,
        offset=query.offset,
    )


# -- many jobs; before the single ones, since "bulk" is not the id of one ------------------------


@router.put("/bulk/status", operation_id="admin_bulk_status", summary="Set the state of many jobs")
def admin_bulk_status(
    body: BulkStatusBody, service: ServiceDep, _principal: Admin
) -> AdminBulkChanged:
    """As for one job, each by its own state: what cannot be is refused, the others change."""
    ids = list(dict.fromkeys(body.job_ids))
    jobs = _jobs(service, ids)
    refused = [_refusal(id_, NotFound("job", id_)) for id_ in ids if id_ not in jobs]
    groups: dict[Step, list[UUID]] = defaultdict(list)
    for job in jobs.values():
        try:
            groups[_step(job, body.status)].append(job.id)
        except IllegalTransition as error:
            refused.append(_refusal(job.id, error))
    unchanged = len(groups.pop(Step.STAY, ()))
    done = [_take(service, step, group) for step, group in groups.items()]
    return _bulk_answer(done, refused, unchanged)


@router.post("/bulk/retry", operation_id="admin_bulk_retry", summary="Retry many jobs")
def admin_bulk_retry(body: BulkIds, service: ServiceDep, _principal: Admin) -> AdminBulkChanged:
    """Run failed and cancelled jobs again, now, with their retries back at 0; refuse others."""
    return _bulk_answer([_take(service, Step.RETRY, list(dict.fromkeys(body.job_ids)))], [], 0)


def _jobs(service: Service, ids: list[UUID]) -> dict[UUID, Job]:
    rows = service.app.store.database.rows("jobs", {"ids": ids})
    return {job.id: job for job in map(Job._make, rows)}


def _refusal(id_: UUID, error: EvenbeatError) -> RefusedDocument:
    return RefusedDocument(id=id_, reason=str(error))


def _bulk_answer(
    done: list[Changes], refused: list[RefusedDocument], unchanged: int
) -> AdminBulkChanged:
    refused = refused + [_refusal(one.id, one.error()) for part in done for one in part.refused]
    return AdminBulkChanged(
        changed=sum(len(part.changed) for part in done),
        unchanged=unchanged,
        refused=refused[:_REFUSALS_SHOWN],
        refused_count=len(refused),
    )


# -- one job -------------------------------------------------------------------------------------


@router.put(
    "/{job_id}/status",
    operation_id="admin_set_status",
    summary="Set a job's state",
    responses=_NOT_NOW,
)
def admin_set_status(
    job_id: JobId, body: StatusBody, service: ServiceDep, _principal: Admin
) -> AdminJob:
    """Do what leads there: `queued` retries, runs again or resumes, `pending` also runs a scheduled
    job now, `paused` pauses, `cancelled` cancels. Only a run makes a job `crawling`, `success` or
    `failed`: asking for those is a 409 that lists what can be set."""
    job = service.app.store.read.job(job_id)
    step = _step(job, body.status)
    return admin_job(job if step is Step.STAY else _take(service, step, [job_id]).only())


@router.put(
    "/{job_id}/priority",
    operation_id="admin_set_priority",
    summary="Set a job's priority",
    responses=_NO_JOB,
)
def admin_set_priority(
    job_id: JobId, body: PriorityBody, service: ServiceDep, _principal: Admin
) -> AdminJob:
    """0 to 100; higher runs first. What aging has added is forgotten."""
    control = service.app.store.control
    return admin_job(control.set_priority([job_id], body.priority, now=service.now).only())


@router.post(
    "/{job_id}/boost",
    operation_id="admin_boost",
    summary="Raise a job's priority",
    responses=_NO_JOB,
)
def admin_boost(job_id: JobId, body: BoostBody, service: ServiceDep, _principal: Admin) -> AdminJob:
    """By so much, at most to 100."""
    return admin_job(service.app.store.control.boost([job_id], body.boost, now=service.now).only())


@router.post(
    "/{job_id}/retry", operation_id="admin_retry", summary="Retry a job", responses=_NOT_NOW
)
def admin_retry(job_id: JobId, service: ServiceDep, _principal: Admin) -> AdminJob:
    """Run a failed or cancelled job again, now, with its retries back at 0."""
    return admin_job(_take(service, Step.RETRY, [job_id]).only())


def _step(job: Job, word: str) -> Step:
    if word == "paused" and job.is_paused:
        return Step.STAY  # after the run that is in progress
    return step_to(JobStatus(job.status), word)


def _take(service: Service, step: Step, ids: list[UUID]) -> Changes:
    control = service.app.store.control
    verbs: dict[Step, Callable[..., Changes]] = {
        Step.PAUSE: control.pause,
        Step.RESUME: control.resume,
        Step.CANCEL: control.cancel,
        Step.RETRY: control.retry,
        Step.RUN_NOW: control.run_now,
    }
    return verbs[step](ids, now=service.now)
