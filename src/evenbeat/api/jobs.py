"""Jobs over HTTP: add, list, look at, edit, delete, and the verbs on one job."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from evenbeat.api.auth.tokens import Principal
from evenbeat.api.dependencies import Operator, Service, ServiceDep, Viewer
from evenbeat.api.idempotency import REPLAYED_HEADER, KeyHeader, done_once, json_response
from evenbeat.api.queries import JobQuery
from evenbeat.api.requests import (
    JobCreate,
    JobEdit,
    edited_metadata,
    edited_payload,
    edited_spec,
    moved_once,
    new_job,
    schedule_for,
    task_of,
)
from evenbeat.api.responses import JobDocument, JobList, job_document
from evenbeat.api.tasks import known_task
from evenbeat.domain.dependencies import Dependency
from evenbeat.domain.job import JobRecord, JobSpec, NewJob
from evenbeat.domain.schedule import RECURRING_KINDS, After
from evenbeat.domain.states import FINISHED, PAUSE, RESUME, VERBS, Verb
from evenbeat.errors import Conflict, InvalidInput, NotFound
from evenbeat.job import Job
from evenbeat.named_task import ResolvedTask
from evenbeat.store.bulk import Added
from evenbeat.store.database import Connection

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])

_LOCATION = {"Location": {"description": "Where the job is.", "schema": {"type": "string"}}}
CREATED: dict[int | str, dict[str, Any]] = {
    201: {"headers": _LOCATION},
    200: {
        "model": JobDocument,
        "description": "A job was there already: by its dedup_key, as one that is unique, "
        "throttled or debounced, or by the Idempotency-Key.",
        "headers": _LOCATION | REPLAYED_HEADER,
    },
}


@router.post(
    "", summary="Add a job", status_code=201, response_model=JobDocument, responses=CREATED
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
    asked: Any = None,
    shown: Callable[[JobDocument], BaseModel] = lambda document: document,
) -> Response:
    """Add a job and answer it as `shown` makes it. `asked` is what the request was where that is
    not the job itself: by it a request that is sent again is known."""
    task, store = known_task(service, task_of(body)), service.store
    job = job_from(body, task, principal.subject)
    place = request.scope.get("root_path", "") + "/api/v1/jobs/"

    def add(connection: Connection) -> Response:
        added = service.app.add(job, connection)
        if body.paused and added.created:
            store.control.pause([added.id], now=service.now, connection=connection)
        note_added(service, [job], [added], connection)
        row = store.database.row("job", {"id": added.id}, connection)
        if row is None:
            raise NotFound("job", added.id)
        more = {"warnings": task.warnings, "duplicate": not added.created}
        document = _document(service, JobRecord._make(row), connection, **more)
        headers = {"Location": f"{place}{added.id}"}
        return json_response(shown(document), 201 if added.created else 200, headers)

    return done_once(service, principal, asked or body, [job], add, key=key)


def note_added(
    service: Service,
    jobs: Iterable[NewJob],
    added: Iterable[Added | Job[Any]],
    connection: Connection | None = None,
) -> None:
    """Write jobs that have a schedule or a name into the audit log. Of the others there may be
    thousands a second, and each says itself who added it."""
    noted = [
        (job, one.id)
        for job, one in zip(jobs, added, strict=True)
        if one.created and (job.name or job.spec.schedule.repeats)
    ]
    if not noted:
        return
    job, ids = noted[0][0], [id_ for _, id_ in noted]
    about: dict[str, Any] = {}
    if len(ids) == 1:
        schedule = job.spec.schedule.text
        about["after"] = {"task": job.spec.task, "schedule": schedule, "payload": dict(job.payload)}
        about["name"] = job.name or job.spec.task
    about |= {"connection": connection, "now": service.now}
    service.store.audit.add("job.add", ids=ids, count=len(ids), **about)


def job_from(body: JobCreate, task: ResolvedTask, created_by: str) -> NewJob:
    """The job that a request describes, with its payload checked by the task."""
    payload = task.checked(edited_payload(body, {}) or {})
    return new_job(body, task.spec, payload, created_by)


@router.get("", summary="List jobs", response_model=JobList)
def list_jobs(
    query: Annotated[JobQuery, Query()], service: ServiceDep, _principal: Viewer
) -> Response:
    """A page of the jobs that match, newest first unless sorted otherwise."""
    page = service.store.read.jobs(query.job_filter(), sort=query.sort, **query.paging)
    awaited = _awaited_by(service, page.jobs)
    jobs = [job_document(job, awaited=awaited[job.id]) for job in page.jobs]
    return json_response(JobList.of(page, **query.paging, jobs=jobs))


@router.get("/{job_id:uuid}", summary="Look at a job")
def get_job(job_id: UUID, service: ServiceDep, _principal: Viewer) -> JobDocument:
    """Everything that is known of a job but its history."""
    dependents = service.store.dependencies.dependents_of(job_id)
    return _document(service, service.store.read.job(job_id), dependents=dependents)


@router.put("/{job_id:uuid}", name="put_job", summary="Edit a job (as PATCH)")
@router.patch("/{job_id:uuid}", summary="Edit a job")
def update_job(
    job_id: UUID, body: JobEdit, service: ServiceDep, _principal: Operator
) -> JobDocument:
    """Change what is given and leave the rest. A changed schedule is planned again; a run in
    progress ends under the old definition."""
    store = service.store
    job = store.read.job(job_id)
    if "name" in body.model_fields_set and body.name is None and job.name is not None:
        raise InvalidInput("A name can be changed, but not taken away.", field="name")
    if (body.run_at is not None or body.delay is not None) and job.status in FINISHED:
        raise Conflict(
            f"The job is {job.status}, so its run cannot be moved. "
            f"POST /api/v1/jobs/{job.id}/run runs it again."
        )
    task = known_task(service, body.task or job.task)
    payload = edited_payload(body, job.payload)
    if payload is not None or task.name != job.task:
        payload = task.checked(job.payload if payload is None else payload)
    moment, rewiring = store.clock(service.now), _waits_for_others(service, job, body)

    def edit(spec: JobSpec) -> JobSpec:
        waits_on = isinstance(spec.schedule, After) and body.after is not None and not rewiring
        schedule = spec.schedule if waits_on else schedule_for(body, spec.schedule)
        schedule = moved_once(body, schedule, moment)
        after = payload or job.payload
        edited = edited_spec(body, spec, task.spec, schedule, after, before=job.payload)
        service.app.registry.check_limits(edited)
        return edited

    edited = store.control.update(
        job_id,
        edit,
        payload=payload,
        metadata=edited_metadata(body, job.metadata),
        name=body.name,
        rewiring=rewiring,
        now=service.now,
    )
    if body.schedule_enabled is not None and edited.schedule_kind in RECURRING_KINDS:
        verb = RESUME if body.schedule_enabled else PAUSE
        if verb.suits(edited.status, edited.is_paused):
            edited = store.control.apply(verb, [job_id], now=service.now).only()
    warnings = list(task.warnings)
    if (edited.created_by or "").startswith("code:"):
        warnings.append(
            "This schedule is declared in code: the application puts it back to what it declares "
            "when its workers start next. Change it there, too."
        )
    dependents = store.dependencies.dependents_of(job_id)
    return _document(service, edited, warnings=warnings, dependents=dependents)


def _waits_for_others(service: Service, job: JobRecord, body: JobEdit) -> bool:
    """Whether an edit changes what the job waits for."""
    if "after" not in body.model_fields_set:
        return False
    awaited = _awaited_by(service, [job])[job.id]
    present = {(str(one.id), one.wanted) for one in awaited}
    schedule = schedule_for(body, None)
    jobs = schedule.jobs if isinstance(schedule, After) else ()
    return {(str(one.job), str(one.on)) for one in jobs} != present


@router.delete("/{job_id:uuid}", summary="Delete a job", status_code=204)
def delete_job(
    job_id: UUID,
    service: ServiceDep,
    _principal: Operator,
    force: Annotated[
        bool, Query(description="Also when other jobs wait for it; they stay, and go on waiting.")
    ] = False,
) -> None:
    """Remove a job with its history, whatever its state. A run in progress is given up."""
    service.store.control.delete([job_id], force=force).only()


def _document(
    service: Service, job: JobRecord, connection: Connection | None = None, **more: Any
) -> JobDocument:
    return job_document(job, awaited=_awaited_by(service, [job], connection)[job.id], **more)


def _awaited_by(
    service: Service, jobs: Sequence[JobRecord], connection: Connection | None = None
) -> Mapping[UUID, Sequence[Dependency]]:
    """What each of these jobs waits for; most wait for nothing, and then nothing is asked."""
    waiting = [job.id for job in jobs if job.schedule_kind == "after"]
    awaited = service.store.dependencies.awaited_by(waiting, connection) if waiting else {}
    return {job.id: awaited.get(job.id, ()) for job in jobs}


_EFFECTS = {
    "pause": "Keep it from running. A run in progress is finished first.",
    "resume": "Let a paused job run again, at the next plan of its rhythm.",
    "cancel": "End it with its schedule. A run in progress is stopped, and its result thrown away. "
    "To stop one run of a job that goes on, cancel the execution.",
    "retry": "Run a failed or cancelled job again, now, with its retries back at 0.",
    "run": "Run it now, besides its schedule; its rhythm stays.",
}


def _change(verb: Verb) -> Callable[..., JobDocument]:
    def change(job_id: UUID, service: ServiceDep, _principal: Operator) -> JobDocument:
        return _document(
            service, service.store.control.apply(verb, [job_id], now=service.now).only()
        )

    return change


for _name, _effect in _EFFECTS.items():
    _path, _summary = f"/{{job_id:uuid}}/{_name}", f"{_name.capitalize()} a job"
    _route = router.post(_path, name=f"{_name}_job", summary=_summary, description=_effect)
    _route(_change(VERBS[_name]))
