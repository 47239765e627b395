"""The admin API, jobs: counts, lists, and setting states and priorities by hand.

Reading takes an operator, changing an admin. `words` has the words for states.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, Field

from evenbeat.api.bulk import BulkChanged, RefusedDocument, bulk_changed
from evenbeat.api.dependencies import Admin, Operator, Service, ServiceDep
from evenbeat.api.fields import (
    EstimatedPage,
    Json,
    Limit,
    PageQuery,
    Rounded,
    counts_schema,
    fields_of,
    id_of,
)
from evenbeat.api.queries import JobOffset, Words, words_schema
from evenbeat.api.requests import MAX_BULK, Request
from evenbeat.api.responses import JobDocument, job_document
from evenbeat.compat.words import WORD_OF, WORDS, states_of, verb_to
from evenbeat.domain.job import JobRecord
from evenbeat.domain.states import FINISHED, JobStatus, Verb
from evenbeat.errors import IllegalTransition, NotFound
from evenbeat.store.lists import JobFilter

router = APIRouter(prefix="/api/admin/jobs", tags=["admin"])

_NO_ID = "ids are UUIDs as text, not numbers; the lists of jobs and scheduled jobs give them"

JobId = Annotated[UUID, BeforeValidator(lambda value: id_of(value, _NO_ID))]
Status = Literal[
    "queued", "crawling", "success", "failed", "pending", "scheduled", "running", "paused",
    "completed", "cancelled",
]  # fmt: skip
StatusWord = Literal["queued", "crawling", "success", "failed", "paused", "cancelled"]


class AdminPageQuery(PageQuery):
    limit: Limit = 100
    offset: JobOffset = 0


class AdminJobQuery(AdminPageQuery):
    status: Annotated[Words, words_schema(enum=[*WORDS])] = Field(
        None, description=f"Any of {', '.join(WORDS)}."
    )


AdminCounts = Annotated[dict[str, int], counts_schema([*JobStatus, "queued", "total"])]


class StatusBody(Request):
    status: Status


class PriorityBody(Request):
    priority: Annotated[int, Field(ge=0, le=100)]


class BoostBody(Request):
    """By how much to raise the priority."""

    boost: Annotated[int, Field(ge=1, le=100)]


class BulkIds(Request):
    job_ids: Annotated[list[JobId], Field(min_length=1, max_length=MAX_BULK)]


class BulkStatusBody(BulkIds):
    status: Status


@fields_of(JobDocument, only=[
    "id", "name", "task", "payload", "queue", "priority", "max_retries", "error_message",
    "created_at", "updated_at",
])  # fmt: skip
class AdminJob(BaseModel):
    """A job in the admin API's words. `/api/v1/jobs/{id}` has everything else."""

    subreddit_id: int | str | None = Field(description="Of the payload.")
    status: StatusWord
    state: str = Field(description="The same in the words of /api/v1.")
    retries: int = Field(
        validation_alias="current_retry_count", description="The older name of retry_count."
    )
    retry_count: int = Field(validation_alias="current_retry_count")
    visible_at: datetime | None = Field(description="When it can be claimed, while it waits.")
    next_retry_at: datetime | None = Field(description="The same, while it waits for a retry.")
    last_attempt: datetime | None = Field(
        validation_alias="started_at", description="When its last run began."
    )
    duration_ms: Rounded | None = Field(description="How long its last run took.")
    enqueued_by: str | None = Field(validation_alias="created_by")


class AdminJobList(EstimatedPage):
    jobs: list[AdminJob]


class AdminBulkChanged(BulkChanged):
    """What became of many jobs. Those that had the state already are counted as unchanged."""

    unchanged: int = 0


def admin_fields(document: JobDocument) -> Json:
    """What /api/v1 says of a job, and what the admin API says besides or in other words."""
    fields = document.model_dump()
    state, word = fields["status"], WORD_OF[fields["status"]]
    subreddit = fields["payload"].get("subreddit_id")
    known = isinstance(subreddit, int | str) and not isinstance(subreddit, bool)
    visible_at = fields["next_run_at"] if word == "queued" else None
    return fields | {
        "state": state,
        "status": word,
        "enabled": not fields["is_paused"] and state not in FINISHED,
        "subreddit_id": subreddit if known else None,
        "visible_at": visible_at,
        "next_retry_at": visible_at if fields["current_retry_count"] else None,
    }


def admin_jobs(service: Service, jobs: Sequence[JobRecord]) -> list[AdminJob]:
    """Jobs as this API shows them."""
    past = service.store.read.last_outcomes([job.id for job in jobs], 2)  # one may still run
    documents = [admin_fields(job_document(job)) for job in jobs]
    for document in documents:
        took = [run.duration_ms for run in past[document["id"]] if run.duration_ms is not None]
        document["duration_ms"] = took[-1] if took else None
    return [AdminJob.model_validate(document) for document in documents]


def admin_job(service: Service, job: JobRecord) -> AdminJob:
    """One of them."""
    return admin_jobs(service, [job])[0]


@router.get("/stats", summary="Count jobs by state")
def admin_job_stats(service: ServiceDep, _principal: Operator) -> AdminCounts:
    """How many jobs there are in each of the seven states, as `queued` (those pending and scheduled
    together), and in `total`. With very many jobs, of the last half minute."""
    counts = service.store.read.counts_by_status()
    by_state = {state.value: counts.get(state.value, 0) for state in JobStatus}
    queued = sum(by_state[state] for state in WORDS["queued"])
    return by_state | {"queued": queued, "total": sum(by_state.values())}


@router.get("", summary="List jobs by state")
def admin_list_jobs(
    query: Annotated[AdminJobQuery, Query()], service: ServiceDep, _principal: Operator
) -> AdminJobList:
    """A page of the jobs in these states, newest first."""
    filter_ = JobFilter(statuses=None if query.status is None else states_of(query.status))
    page = service.store.read.jobs(filter_, **query.paging)
    return AdminJobList.of(page, **query.paging, jobs=admin_jobs(service, page.jobs))


@router.put("/bulk/status", summary="Set the state of many jobs")
def admin_bulk_status(
    body: BulkStatusBody, service: ServiceDep, _principal: Admin
) -> AdminBulkChanged:
    """As for one job, each by its own state: what cannot be is refused, the others change."""
    ids = list(dict.fromkeys(body.job_ids))
    rows = map(JobRecord._make, service.store.database.rows("jobs", {"ids": ids}))
    jobs = {job.id: job for job in rows}
    errors: dict[UUID, Exception] = {id_: NotFound("job", id_) for id_ in ids if id_ not in jobs}
    ids_by_verb: dict[Verb | None, list[UUID]] = defaultdict(list)
    for job in jobs.values():
        try:
            ids_by_verb[_verb_to(job, body.status)].append(job.id)
        except IllegalTransition as error:
            errors[job.id] = error
    unchanged = len(ids_by_verb.pop(None, ()))
    apply, now = service.store.control.apply, service.now
    result = bulk_changed(
        (apply(verb, ids, now=now) for verb, ids in ids_by_verb.items() if verb),
        [RefusedDocument(id=id_, reason=str(error)) for id_, error in errors.items()],
    )
    return AdminBulkChanged(**result.model_dump(), unchanged=unchanged)


@router.post("/bulk/retry", summary="Retry many jobs")
def admin_bulk_retry(body: BulkIds, service: ServiceDep, _principal: Admin) -> AdminBulkChanged:
    """Run failed and cancelled jobs again, now, with their retries back at 0; refuse others."""
    ids = list(dict.fromkeys(body.job_ids))
    result = bulk_changed([service.store.control.retry(ids, now=service.now)])
    return AdminBulkChanged(**result.model_dump())


@router.put("/{job_id}/status", summary="Set a job's state")
def admin_set_status(
    job_id: JobId, body: StatusBody, service: ServiceDep, _principal: Admin
) -> AdminJob:
    """Do what leads there: `queued` retries, runs again or resumes, `pending` also runs a scheduled
    job now, `paused` pauses, `cancelled` cancels. Only a run makes a job `crawling`, `success` or
    `failed`: asking for those is a 409 that lists what can be set."""
    job = service.store.read.job(job_id)
    verb = _verb_to(job, body.status)
    if verb is not None:
        job = service.store.control.apply(verb, [job_id], now=service.now).only()
    return admin_job(service, job)


def _verb_to(job: JobRecord, word: str) -> Verb | None:
    if word == "paused" and job.is_paused:
        return None  # it pauses after the run in progress
    return verb_to(JobStatus(job.status), word)


@router.put("/{job_id}/priority", summary="Set a job's priority")
def admin_set_priority(
    job_id: JobId, body: PriorityBody, service: ServiceDep, _principal: Admin
) -> AdminJob:
    """0 to 100; higher runs first. What aging has added is forgotten."""
    control = service.store.control
    return admin_job(service, control.set_priority([job_id], body.priority, now=service.now).only())


@router.post("/{job_id}/boost", summary="Raise a job's priority")
def admin_boost(job_id: JobId, body: BoostBody, service: ServiceDep, _principal: Admin) -> AdminJob:
    """By so much, at most to 100."""
    return admin_job(
        service, service.store.control.boost([job_id], body.boost, now=service.now).only()
    )


@router.post("/{job_id}/retry", summary="Retry a job")
def admin_retry(job_id: JobId, service: ServiceDep, _principal: Admin) -> AdminJob:
    """Run a failed or cancelled job again, now, with its retries back at 0."""
    return admin_job(service, service.store.control.retry([job_id], now=service.now).only())
