"""Jobs over HTTP: add, list, look at, edit, delete, and the verbs on one job."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from evenbeat.api.auth.tokens import Principal
from evenbeat.api.dependencies import DENIED, Operator, Service, ServiceDep, Viewer
from evenbeat.api.idempotency import REPLAYED, KeyHeader, done_once, json_response
from evenbeat.api.job_requests import (
    edited_metadata,
    edited_payload,
    edited_spec,
    moved_once,
    new_job,
    schedule_for,
    task_of,
)
from evenbeat.api.problems import responses
from evenbeat.api.queries import JobQuery
from evenbeat.api.requests import JobCreate, JobEdit
from evenbeat.api.responses import JobDocument, JobList, job_document
from evenbeat.api.tasks import ResolvedTask, known_task
from evenbeat.domain.dependencies import Dependency
from evenbeat.domain.job import Job, JobSpec, NewJob
from evenbeat.domain.schedule import After
from evenbeat.domain.states import FINISHED
from evenbeat.errors import Conflict, InvalidInput, NotFound
from evenbeat.store.bulk import Added
from evenbeat.store.control import Changes
from evenbeat.store.database import Connection

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=DENIED)

_NO_JOB = responses(404)
_NOT_NOW = responses(404, 409)
CREATED: dict[int | str, dict[str, Any]] = {
    200: {
        "model": JobDocument,
        "description": "The job was there already: by its dedup_key, or by the Idempotency-Key.",
        "headers": {
            REPLAYED: {
                "description": "`true` when the request was answered before.",
                "schema": {"type": "string"},
            }
        },
    },
    201: {
        "description": "The job was added.",
        "headers": {"Location": {"description": "Where the job is.", "schema": {"type": "string"}}},
    },
}


# -- add and list --------------------------------------------------------------------------------


@router.post(
    "",
    operation_id="create_job",
    summary="Add a job",
    status_code=201,
    response_model=JobDocument,
    responses=responses(409) | CREATED,
)
def create_job(
    body: JobCreate,
    request: Request,
    service: ServiceDep,
    principal: Operator,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Run a task once or on a schedule. What the request leaves out comes from the task."""
    return create(body, request, service, principal, idempotency_key)


def create(
    body: JobCreate,
    request: Request,
    service: Service,
    principal: Principal,
    key: str | None,
    *,
    asked: BaseModel | None = None,
) -> Response:
    """Add a job and answer it. `asked` is what the request was where that is not the job itself:
    by it a request that is sent again is known."""
    task = known_task(service, task_of(body))
    job = job_from(body, task, principal.subject)
    place = request.scope.get("root_path", "") + "/api/v1/jobs/"

    def add(connection: Connection) -> Response:
        added = service.app.add(job, connection)
        if body.paused and added.created:
            service.app.store.control.pause([added.id], now=service.now, connection=connection)
        return _added_answer(service, added, task, place, connection)

    return done_once(service, principal, asked or body, [job], add, key=key)


def job_from(body: JobCreate, task: ResolvedTask, created_by: str) -> NewJob:
    """The job that a request describes, with its payload checked by the task."""
    payload = task.checked(edited_payload(body, {}) or {})
    return new_job(body, task.spec, payload, created_by)


def _added_answer(
    service: Service, added: Added, task: ResolvedTask, place: str, connection: Connection
) -> Response:
    row = service.app.store.database.row("job", {"id": added.id}, connection)
    if row is None:
        raise NotFound("job", added.id)
    job = Job._make(row)
    document = job_document(
        job,
        warnings=task.warnings,
        duplicate=not added.created,
        awaited=_awaited_by(service, [job], connection)[job.id],
    )
    headers = {"Location": f"{place}{added.id}"}
    return json_response(document, 201 if added.created else 200, headers)


@router.get("", operation_id="list_jobs", summary="List jobs", response_model=JobList)
def list_jobs(
    query: Annotated[JobQuery, Query()], service: ServiceDep, _principal: Viewer
) -> Response:
    """A page of the jobs that match, newest first unless sorted otherwise."""
    page = service.app.store.read.jobs(
        query.job_filter(), sort=query.sort, limit=query.limit, offset=query.offset
    )
    awaited = _awaited_by(service, page.jobs)
    document = JobList(
        jobs=[job_document(job, awaited=awaited[job.id]) for job in page.jobs],
        total=page.total,
        total_is_estimate=page.total_is_estimate,
        limit=query.limit,
        offset=query.offset,
    )
    return json_response(document)


# -- one job -------------------------------------------------------------------------------------


@router.get("/{job_id:uuid}", operation_id="get_job", summary="Look at a job", responses=_NO_JOB)
def get_job(job_id: UUID, service: ServiceDep, _principal: Viewer) -> JobDocument:
    """Everything that is known of a job but its history."""
    return _as_it_stands(service, service.app.store.read.job(job_id))


def _as_it_stands(service: Service, job: Job, warnings: Sequence[str] = ()) -> JobDocument:
    return job_document(
        job,
        warnings=warnings,
        awaited=_awaited_by(service, [job])[job.id],
        dependents=service.app.store.dependencies.dependents_of(job.id),
    )


def _awaited_by(
    service: Service, jobs: Sequence[Job], connection: Connection | None = None
) -> Mapping[UUID, Sequence[Dependency]]:
    """What each of these jobs waits for; most wait for nothing, and then nothing is asked."""
    waiting = [job.id for job in jobs if job.schedule_kind == "after"]
    awaited = service.app.store.dependencies.awaited_by(waiting, connection) if waiting else {}
    return {job.id: awaited.get(job.id, ()) for job in jobs}


@router.patch("/{job_id:uuid}", operation_id="update_job", summary="Edit a job", responses=_NOT_NOW)
def update_job(
    job_id: UUID, body: JobEdit, service: ServiceDep, _principal: Operator
) -> JobDocument:
    """Change what is given and leave the rest. A changed schedule is planned anew; a run in
    progress ends under the old definition."""
    return _edited(service, job_id, body)


@router.put(
    "/{job_id:uuid}", operation_id="put_job", summary="Edit a job (as PATCH)", responses=_NOT_NOW
)
def put_job(job_id: UUID, body: JobEdit, service: ServiceDep, _principal: Operator) -> JobDocument:
    """The same as PATCH: what is not given stays as it is."""
    return _edited(service, job_id, body)


@router.delete(
    "/{job_id:uuid}",
    operation_id="delete_job",
    summary="Delete a job",
    status_code=204,
    responses=_NOT_NOW,
)
def delete_job(
    job_id: UUID,
    service: ServiceDep,
    _principal: Operator,
    force: Annotated[
        bool, Query(description="Also when other jobs wait for it; they stay, and go on waiting.")
    ] = False,
) -> None:
    """Remove a job with its history, whatever its state. A run in progress is given up."""
    service.app.store.control.delete([job_id], force=force).only()


def _edited(service: Service, job_id: UUID, body: JobEdit) -> JobDocument:
    store = service.app.store
    job = store.read.job(job_id)
    _check_edit(body, job)
    task = known_task(service, body.task or job.task)
    moment = store.clock(service.now)

    payload = _checked_payload(body, job, task)
    rewiring = _waits_for_others(service, job, body)

    def edit(spec: JobSpec) -> JobSpec:
        waits_on = isinstance(spec.schedule, After) and body.after is not None and not rewiring
        schedule = spec.schedule if waits_on else schedule_for(body, spec.schedule)
        schedule = moved_once(body, schedule, moment)
        return edited_spec(body, spec, task.spec, schedule, payload or job.payload)

    edited = store.control.update(
        job_id,
        edit,
        payload=payload,
        metadata=edited_metadata(body, job.metadata),
        name=body.name,
        rewiring=rewiring,
        now=service.now,
    )
    return _as_it_stands(service, edited, [*task.warnings, *_declared_in_code(edited)])


def _waits_for_others(service: Service, job: Job, body: JobEdit) -> bool:
    """Whether an edit changes what the job waits for."""
    if "after" not in body.model_fields_set:
        return False
    awaited = _awaited_by(service, [job])[job.id]
    present = {(str(one.id), one.wanted) for one in awaited}
    schedule = schedule_for(body, None)
    jobs = schedule.jobs if isinstance(schedule, After) else ()
    return {(str(one.job), str(one.on)) for one in jobs} != present


def _declared_in_code(job: Job) -> Iterator[str]:
    if job.created_by is not None and job.created_by.startswith("code:"):
        yield (
            "This schedule is declared in code: the application puts it back to what it declares "
            "when its workers start next. Change it there, too."
        )


def _check_edit(body: JobEdit, job: Job) -> None:
    if "name" in body.model_fields_set and body.name is None and job.name is not None:
        raise InvalidInput("A name can be changed, but not taken away.", field="name")
    moved = body.run_at is not None or body.delay is not None
    if moved and job.status in FINISHED:
        raise Conflict(
            f"The job is {job.status}, so its run cannot be moved. "
            f"POST /api/v1/jobs/{job.id}/run runs it again."
        )


def _checked_payload(body: JobEdit, job: Job, task: ResolvedTask) -> Mapping[str, Any] | None:
    payload = edited_payload(body, job.payload)
    if payload is None and (body.task is None or body.task == job.task):
        return None
    return task.checked(job.payload if payload is None else payload)


# -- verbs ---------------------------------------------------------------------------------------


@router.post(
    "/{job_id:uuid}/pause", operation_id="pause_job", summary="Pause a job", responses=_NOT_NOW
)
def pause_job(job_id: UUID, service: ServiceDep, _principal: Operator) -> JobDocument:
    """Keep it from running. A run in progress is finished first."""
    return _changed(service, service.app.store.control.pause([job_id], now=service.now))


@router.post(
    "/{job_id:uuid}/resume", operation_id="resume_job", summary="Resume a job", responses=_NOT_NOW
)
def resume_job(job_id: UUID, service: ServiceDep, _principal: Operator) -> JobDocument:
    """Let a paused job run again, at the next plan of its rhythm."""
    return _changed(service, service.app.store.control.resume([job_id], now=service.now))


@router.post(
    "/{job_id:uuid}/cancel", operation_id="cancel_job", summary="Cancel a job", responses=_NOT_NOW
)
def cancel_job(job_id: UUID, service: ServiceDep, _principal: Operator) -> JobDocument:
    """End it. A run in progress is stopped, and its result thrown away."""
    return _changed(service, service.app.store.control.cancel([job_id], now=service.now))


@router.post(
    "/{job_id:uuid}/retry", operation_id="retry_job", summary="Retry a job", responses=_NOT_NOW
)
def retry_job(job_id: UUID, service: ServiceDep, _principal: Operator) -> JobDocument:
    """Run a failed or cancelled job again, now, with its retries back at 0."""
    return _changed(service, service.app.store.control.retry([job_id], now=service.now))


@router.post(
    "/{job_id:uuid}/run", operation_id="run_job", summary="Run a job now", responses=_NOT_NOW
)
def run_job(job_id: UUID, service: ServiceDep, _principal: Operator) -> JobDocument:
    """Run it now, besides its schedule; its rhythm stays."""
    return _changed(service, service.app.store.control.run_now([job_id], now=service.now))


def _changed(service: Service, changes: Changes) -> JobDocument:
    job = changes.only()
    return job_document(job, awaited=_awaited_by(service, [job])[job.id])
