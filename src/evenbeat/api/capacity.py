"""What can run, and how much at once, over HTTP: queues, workers, and the limits of keys."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from evenbeat.api.dependencies import Operator, Service, ServiceDep, Viewer
from evenbeat.api.fields import Moment, Page, PageQuery, RateText, RowDocument, fields_of, one_given
from evenbeat.api.requests import Request
from evenbeat.domain.limits import MAX_RUNNING, KeyLimit
from evenbeat.domain.runner_load import HeldRun, RunnerLoad
from evenbeat.domain.setting_kinds import MAX_NAME
from evenbeat.errors import NotFound
from evenbeat.store.control import MAX_REASON
from evenbeat.store.reads import QueueDepth
from evenbeat.store.summaries import SILENT_AFTER, FleetPause
from evenbeat.store.upkeep import WorkerRecord

router = APIRouter(prefix="/api/v1", tags=["queues, workers, tasks"])
limits_router = APIRouter(prefix="/api/v1/limits", tags=["limits"])

NameInPath = Annotated[
    str, Path(min_length=1, max_length=MAX_NAME, json_schema_extra={"format": "name"})
]


@fields_of(QueueDepth)
class QueueDocument(RowDocument):
    """What waits and runs in a queue."""


class QueueList(BaseModel):
    """Every queue with due or running jobs, and those that were ever paused."""

    queues: list[QueueDocument]


@router.get("/queues", summary="List queues")
def list_queues(service: ServiceDep, _principal: Viewer) -> QueueList:
    """How much waits and runs in each queue."""
    queues = service.store.read.queues(now=service.now)
    return QueueList(queues=[QueueDocument.of(queue) for queue in queues])


@router.post("/queues/{name:path}/pause", summary="Pause a queue")
def pause_queue(name: NameInPath, service: ServiceDep, _principal: Operator) -> QueueDocument:
    """Claim nothing more from it. What runs goes on, and what is added waits."""
    service.store.control.pause_queue(name, now=service.now)
    return _queue(service, name)


@router.post("/queues/{name:path}/resume", summary="Resume a queue")
def resume_queue(name: NameInPath, service: ServiceDep, _principal: Operator) -> QueueDocument:
    """Claim from it again."""
    service.store.control.resume_queue(name, now=service.now)
    return _queue(service, name)


def _queue(service: Service, name: str) -> QueueDocument:
    for queue in service.store.read.queues(now=service.now):
        if queue.name == name:
            return QueueDocument.of(queue)
    raise NotFound("queue", name)


@fields_of(FleetPause)
class FleetPauseDocument(RowDocument):
    """Everything is paused."""

    ends_at: datetime | None = Field(
        description="When it ends by itself; null: when somebody resumes."
    )


class FleetPauseRequest(Request):
    """Why, and until when."""

    reason: str = Field("", max_length=MAX_REASON, description="Shown to everybody meanwhile.")
    until: Moment | None = Field(None, description="When it ends by itself.")


@router.get("/pause", summary="Is everything paused?")
def get_pause(service: ServiceDep, _principal: Viewer) -> FleetPauseDocument | None:
    """The pause of everything, if it is on; null otherwise."""
    pause = service.store.read.fleet_pause(now=service.now)
    return pause and FleetPauseDocument.of(pause)


@router.put("/pause", summary="Pause everything")
def pause_everything(
    body: FleetPauseRequest, service: ServiceDep, principal: Operator
) -> FleetPauseDocument:
    """Let no worker start anything more, until somebody resumes or the moment has come. What runs
    goes on. Neither jobs nor queues are touched: each keeps its rhythm."""
    pause = service.store.control.pause_everything(
        body.reason, by=principal.subject, until=body.until, now=service.now
    )
    return FleetPauseDocument.of(pause)


@router.delete("/pause", summary="Resume everything", status_code=204)
def resume_everything(service: ServiceDep, _principal: Operator) -> None:
    """Let workers start jobs again: exactly those that could before the pause."""
    service.store.control.resume_everything(now=service.now)


@fields_of(HeldRun)
class HeldRunDocument(RowDocument):
    """A run that is over, whose function still goes on in its thread."""

    reason: str = Field(description="cancelled, timeout or lost.")
    since: datetime = Field(description="When it was over.")


@fields_of(RunnerLoad)
class RunnerDocument(RowDocument):
    """Slots of one kind."""

    runner: str = Field(description="async, thread or process, as of a task.")
    held: list[HeldRunDocument] = Field(description="Runs that are over and still have a slot.")


@fields_of(WorkerRecord, omit=["process_started_at"])
class WorkerDocument(RowDocument):
    """A worker as the registry knows it."""

    id: UUID
    queues: list[str] | None = Field(description="null: all.")
    tasks: list[str] | None = Field(description="null: all.")
    checked_at: datetime = Field(description="When it last looked for due jobs.")
    runners: list[RunnerDocument] = Field(description="How full each kind of slots is.")
    alive: bool = Field(description="Whether it sent a heartbeat within the last minute.")


class WorkerList(BaseModel):
    workers: list[WorkerDocument]


@router.get("/workers", summary="List workers")
def list_workers(service: ServiceDep, _principal: Viewer) -> WorkerList:
    """Every worker that has not been silent for an hour."""
    since, rows = service.store.clock(service.now) - SILENT_AFTER, service.store.upkeep.workers()
    workers = [WorkerDocument.of(row, alive=row.heartbeat_at >= since) for row in rows]
    return WorkerList(workers=workers)


@router.post("/workers/{worker_id}/drain", summary="Drain a worker")
def drain_worker(worker_id: UUID, service: ServiceDep, principal: Operator) -> WorkerDocument:
    """Ask a worker to take no more jobs. It finishes what it has, and learns of it with its next
    heartbeat."""
    if service.store.upkeep.drain_worker(worker_id):
        for worker in list_workers(service, principal).workers:
            if worker.id == worker_id:
                return worker
    raise NotFound("worker", worker_id)


@fields_of(KeyLimit, omit=["max_running"])
class LimitDocument(RowDocument):
    """A key, its limits, and how it stands."""

    concurrency_limit: int | None = Field(
        validation_alias="max_running", description="How many may run at once; null: any number."
    )
    rate_limit: str | None = Field(description="How often one may start; null: at any time.")
    next_start_at: datetime | None = Field(description="When the rate lets the next one start.")
    is_set: bool = Field(description="Set by an operator, whatever its jobs ask for.")
    waiting: int = Field(description="Counted up to 1000.")


class LimitList(Page):
    limits: list[LimitDocument]


class LimitChange(Request):
    """The new limits of a key. Give one of them, or both; what is left out is not limited."""

    model_config = ConfigDict(json_schema_extra=one_given("concurrency_limit", "rate_limit"))

    concurrency_limit: Annotated[int, Field(ge=1, le=MAX_RUNNING)] | None = None
    rate_limit: RateText | None = None


@limits_router.get("", summary="List keys and their limits")
def list_limits(
    query: Annotated[PageQuery, Query()], service: ServiceDep, _principal: Viewer
) -> LimitList:
    """Every known concurrency key, with how many jobs run and wait. A key is known from its first
    job on, and forgotten when it has been without jobs for a day and nobody has set it."""
    return LimitList.of(service.store.limits.page(**query.paging), **query.paging)


@limits_router.get("/{key:path}", summary="Get a key")
def get_limit(key: NameInPath, service: ServiceDep, _principal: Viewer) -> LimitDocument:
    """One key as it stands."""
    return LimitDocument.of(service.store.limits.get(key))


@limits_router.put("/{key:path}", summary="Set the limits of a key")
def set_limit(
    key: NameInPath, body: LimitChange, service: ServiceDep, _principal: Operator
) -> LimitDocument:
    """From now on these apply to the key, whatever its jobs ask for. What runs goes on."""
    limits, running, rate = service.store.limits, body.concurrency_limit, body.rate_limit
    return LimitDocument.of(limits.put(key, max_running=running, rate=rate, now=service.now))


@limits_router.delete("/{key:path}", summary="Leave a key to its jobs")
def reset_limit(key: NameInPath, service: ServiceDep, _principal: Operator) -> LimitDocument:
    """Take back what was set: what its jobs ask for applies again."""
    return LimitDocument.of(service.store.limits.reset(key, now=service.now))
