"""Queues and workers over HTTP."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from evenbeat.api.dependencies import DENIED, Operator, Service, ServiceDep, Viewer
from evenbeat.api.models import fields_of
from evenbeat.api.problems import responses
from evenbeat.domain.setting_kinds import MAX_NAME
from evenbeat.errors import NotFound
from evenbeat.store.reads import QueueDepth
from evenbeat.store.summaries import SILENT_AFTER
from evenbeat.store.upkeep import WorkerRecord

router = APIRouter(prefix="/api/v1", tags=["queues, workers, tasks"], responses=DENIED)

QueueInPath = Annotated[str, Path(min_length=1, max_length=MAX_NAME)]


@fields_of(QueueDepth)
class QueueDocument(BaseModel):
    """What waits and runs in a queue."""

    name: str


class QueueList(BaseModel):
    """Every queue with due or running jobs, and those that were ever paused."""

    queues: list[QueueDocument]


@fields_of(WorkerRecord, omit=["process_started_at"])
class WorkerDocument(BaseModel):
    """A worker as the registry knows it."""

    queues: list[str] | None = Field(description="null: all.")
    tasks: list[str] | None = Field(description="null: all.")
    alive: bool = Field(description="Whether it sent a heartbeat within the last minute.")


class WorkerList(BaseModel):
    """Every known worker."""

    workers: list[WorkerDocument]


@router.get("/queues", summary="List queues")
def list_queues(service: ServiceDep, _principal: Viewer) -> QueueList:
    """How much waits and runs in each queue."""
    queues = service.app.store.read.queues(now=service.now)
    return QueueList(queues=[QueueDocument.model_validate(queue._asdict()) for queue in queues])


@router.post("/queues/{name:path}/pause", summary="Pause a queue", responses=responses(404))
def pause_queue(name: QueueInPath, service: ServiceDep, principal: Operator) -> QueueDocument:
    """Claim nothing more from it. What runs goes on, and what is added waits."""
    service.app.store.control.pause_queue(name, now=service.now)
    return _queue(service, principal, name)


@router.post("/queues/{name:path}/resume", summary="Resume a queue", responses=responses(404))
def resume_queue(name: QueueInPath, service: ServiceDep, principal: Operator) -> QueueDocument:
    """Claim from it again."""
    service.app.store.control.resume_queue(name, now=service.now)
    return _queue(service, principal, name)


def _queue(service: Service, principal: Operator, name: str) -> QueueDocument:
    for queue in list_queues(service, principal).queues:
        if queue.name == name:
            return queue
    raise NotFound("queue", name)


@router.get("/workers", summary="List workers")
def list_workers(service: ServiceDep, _principal: Viewer) -> WorkerList:
    """Every worker that has not been silent for an hour."""
    store = service.app.store
    now = store.clock(service.now)
    return WorkerList(workers=[_worker(worker, now) for worker in store.upkeep.workers()])


@router.post("/workers/{worker_id}/drain", summary="Drain a worker", responses=responses(404))
def drain_worker(worker_id: UUID, service: ServiceDep, _principal: Operator) -> WorkerDocument:
    """Ask a worker to take no more jobs. It finishes what it has, and learns of it with its next
    heartbeat."""
    store = service.app.store
    if store.upkeep.drain_worker(worker_id):
        now = store.clock(service.now)
        for worker in store.upkeep.workers():
            if worker.id == worker_id:
                return _worker(worker, now)
    raise NotFound("worker", worker_id)


def _worker(worker: WorkerRecord, now: datetime) -> WorkerDocument:
    alive = worker.heartbeat_at >= now - SILENT_AFTER
    return WorkerDocument.model_validate(worker._asdict() | {"alive": alive})
