"""Many jobs at once over HTTP: adding them, and the verbs by ids or by filter."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, Self
from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import Operator, Service, ServiceDep
from evenbeat.api.fields import Id, only_if_any
from evenbeat.api.idempotency import REPLAYED_HEADER, KeyHeader, done_once, json_response
from evenbeat.api.jobs import job_from, note_added
from evenbeat.api.queries import JobFilterFields
from evenbeat.api.requests import MAX_BULK, JobCreate, Request, task_of
from evenbeat.api.tasks import known_task
from evenbeat.domain.job import NewJob
from evenbeat.domain.states import VERBS
from evenbeat.errors import InvalidInput, RoleTooLow
from evenbeat.named_task import ResolvedTask
from evenbeat.store.control import Changes
from evenbeat.store.database import Connection

router = APIRouter(prefix="/api/v1/jobs/bulk", tags=["bulk"])

BulkVerb = Literal["pause", "resume", "cancel", "retry", "run"]
"""Every verb but `delete`, which takes more to be allowed."""

_CHUNK = 500
_REFUSALS_SHOWN = 100


class BulkCreate(Request):
    jobs: Annotated[list[JobCreate], Field(min_length=1, max_length=MAX_BULK)]


class AddedDocument(BaseModel):
    """A job of a bulk request; not created when a live one stood there already."""

    id: UUID
    created: bool


class BulkCreated(BaseModel):
    """What became of a bulk request, in its order."""

    jobs: list[AddedDocument]
    created: int
    warnings: list[str] | None = only_if_any("What may need attention.")


@router.post(
    "",
    summary="Add many jobs, all or none",
    status_code=201,
    response_model=BulkCreated,
    responses={
        200: {"model": BulkCreated, "description": "Done before.", "headers": REPLAYED_HEADER}
    },
)
def create_jobs(
    body: BulkCreate, service: ServiceDep, principal: Operator, idempotency_key: KeyHeader = None
) -> Response:
    """Up to 1000 jobs in one transaction. One whose dedup_key or name is taken is answered with the
    job that has it."""
    tasks: dict[str, ResolvedTask] = {}
    jobs: list[NewJob] = []
    for number, request in enumerate(body.jobs):
        try:
            name = task_of(request)
            if name not in tasks:
                tasks[name] = known_task(service, name)
            jobs.append(job_from(request, tasks[name], principal.subject))
        except InvalidInput as error:
            error.field = f"jobs.{number}.{error.field or 'task'}"
            raise

    def add(connection: Connection) -> Response:
        added = service.app.enqueue_many(jobs, connection=connection)
        note_added(service, jobs, added, connection)
        paused = [
            job.id
            for job, request in zip(added, body.jobs, strict=True)
            if request.paused and job.created
        ]
        if paused:
            service.store.control.pause(paused, now=service.now, connection=connection)
        document = BulkCreated(
            jobs=[AddedDocument(id=job.id, created=job.created) for job in added],
            created=sum(job.created for job in added),
            warnings=[warning for task in tasks.values() for warning in task.warnings] or None,
        )
        return json_response(document, 201)

    return done_once(service, principal, body, jobs, add, key=idempotency_key)


class Selection(Request):
    """Which jobs are meant: either `ids` or `filter`."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": [one], "properties": {one: {"type": kind}, other: {"type": "null"}}}
                for one, kind, other in (("ids", "array", "filter"), ("filter", "object", "ids"))
            ]
        }
    )

    ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_BULK)] | None = None
    filter: JobFilterFields | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or filter")
        if self.filter is not None and not self.filter.model_dump(exclude_none=True):
            raise ValueError(
                "an empty filter would mean every job; if that is meant, list every status"
            )
        return self

    def chunks(self, service: Service) -> Iterator[Sequence[UUID]]:
        """The selected ids, some at a time, so that a million take no more room than a few."""
        if self.filter is None:
            yield list(dict.fromkeys(self.ids or ()))
            return
        filter_, after = self.filter.job_filter(), None
        while ids := service.store.read.ids(filter_, after=after, limit=_CHUNK):
            yield ids
            after = ids[-1]


class Deletion(Selection):
    force: bool = Field(False, description="Also those that others, who stay, wait for.")


class RefusedDocument(BaseModel):
    """A job that was left alone."""

    id: UUID
    reason: str


class BulkChanged(BaseModel):
    """What a verb did to many jobs; the first 100 refusals are listed."""

    changed: int
    refused: list[RefusedDocument]
    refused_count: int


@router.post("/delete", summary="Delete many jobs")
def bulk_delete(body: Deletion, service: ServiceDep, principal: Operator) -> BulkChanged:
    """Remove jobs with their history, but not those that others wait for. By filter, for admins."""
    if body.filter is not None and not principal.role.covers(Role.ADMIN):
        raise RoleTooLow(Role.ADMIN, principal.role)
    delete = service.store.control.delete
    return bulk_changed(delete(ids, force=body.force) for ids in body.chunks(service))


@router.post("/{verb}", summary="Pause, resume, cancel, retry or run many jobs")
def bulk_change(
    verb: BulkVerb, body: Selection, service: ServiceDep, _principal: Operator
) -> BulkChanged:
    """Apply a verb to every selected job. A job whose state forbids it is left alone and counted as
    refused; the others are changed all the same."""
    apply, now = service.store.control.apply, service.now
    return bulk_changed(apply(VERBS[verb], ids, now=now) for ids in body.chunks(service))


def bulk_changed(
    changes: Iterable[Changes], refused: Sequence[RefusedDocument] = ()
) -> BulkChanged:
    """What became of many jobs, `refused` being those that were left alone before any verb."""
    result = BulkChanged(
        changed=0, refused=list(refused[:_REFUSALS_SHOWN]), refused_count=len(refused)
    )
    for part in changes:
        result.changed += len(part.changed)
        result.refused_count += len(part.refused)
        shown = part.refused[:_REFUSALS_SHOWN]
        result.refused += [RefusedDocument(id=one.id, reason=str(one.error())) for one in shown]
        del result.refused[_REFUSALS_SHOWN:]
    return result
