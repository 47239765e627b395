"""What runs jobs, over HTTP: queues, workers, and the tasks they have."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from evenbeat.api.dependencies import DENIED, Operator, Service, ServiceDep, Viewer
from evenbeat.api.problems import responses
from evenbeat.domain.job import MAX_NAME
from evenbeat.errors import NotFound
from evenbeat.store.summaries import SILENT_AFTER
from evenbeat.store.upkeep import WorkerRecord
from evenbeat.tasks.registry import Runs

router = APIRouter(prefix="/api/v1", tags=["queues, workers, tasks"], responses=DENIED)

_RUNNERS = {Runs.ON_LOOP: "async", Runs.IN_THREAD: "thread", Runs.ISOLATED: "process"}

QueueInPath = Annotated[str, Path(min_length=1, max_length=MAX_NAME)]


class QueueDocument(BaseModel):
    """What waits and runs in a queue."""

    name: str
    due: int
    running: int
    oldest_due: datetime | None
    paused_at: datetime | None


class QueueList(BaseModel):
    """Every queue with due or running jobs, and those that were ever paused."""

    queues: list[QueueDocument]


class WorkerDocument(BaseModel):
    """A worker as the registry knows it."""

    id: UUID
    host: str
    pid: int
    version: str
    queues: list[str] | None = Field(description="null: all.")
    tasks: list[str] | None = Field(description="null: all.")
    concurrency: int
    running: int
    status: str
    alive: bool = Field(description="Whether it gave a sign of life within the last minute.")
    started_at: datetime
    heartbeat_at: datetime


class WorkerList(BaseModel):
    """Every known worker."""

    workers: list[WorkerDocument]


class TaskDocument(BaseModel):
    """A task that jobs can be for."""

    name: str
    queue: str
    runner: str = Field(description="async, thread or process.")
    schema_: dict[str, Any] = Field(alias="schema", description="The payload's JSON schema.")
    doc: str
    workers: int = Field(description="How many live workers have it.")


class TaskList(BaseModel):
    """Every task that a worker, or this process, has."""

    tasks: list[TaskDocument]


# -- queues --------------------------------------------------------------------------------------


@router.get("/queues", summary="List queues")
def list_queues(service: ServiceDep, _principal: Viewer) -> QueueList:
    """How much waits and runs in each queue."""
    return QueueList(queues=_queues(service))


@router.post("/queues/{name:path}/pause", summary="Pause a queue", responses=responses(404))
def pause_queue(name: QueueInPath, service: ServiceDep, _principal: Operator) -> QueueDocument:
    """Claim nothing more from it. What runs goes on, and what is added waits."""
    service.app.store.control.pause_queue(name, now=service.now)
    return _queue(service, name)


@router.post("/queues/{name:path}/resume", summary="Resume a queue", responses=responses(404))
def resume_queue(name: QueueInPath, service: ServiceDep, _principal: Operator) -> QueueDocument:
    """Claim from it again."""
    service.app.store.control.resume_queue(name, now=service.now)
    return _queue(service, name)


def _queues(service: Service) -> list[QueueDocument]:
    found = service.app.store.read.queues(now=service.now)
    return [QueueDocument(**queue._asdict()) for queue in found]


def _queue(service: Service, name: str) -> QueueDocument:
    for queue in _queues(service):
        if queue.name == name:
            return queue
    raise NotFound("queue", name)


# -- workers -------------------------------------------------------------------------------------


@router.get("/workers", summary="List workers")
def list_workers(service: ServiceDep, _principal: Viewer) -> WorkerList:
    """Every worker that has not been silent for an hour."""
    store = service.app.store
    present = store.clock(service.now)
    return WorkerList(workers=[_worker(one, present) for one in store.upkeep.workers()])


@router.post("/workers/{worker_id}/drain", summary="Drain a worker", responses=responses(404))
def drain_worker(worker_id: UUID, service: ServiceDep, _principal: Operator) -> WorkerDocument:
    """Ask a worker to take no more jobs. It finishes what it has, and learns of it with its next
    sign of life."""
    store = service.app.store
    if store.upkeep.drain_worker(worker_id):
        present = store.clock(service.now)
        for one in store.upkeep.workers():
            if one.id == worker_id:
                return _worker(one, present)
    raise NotFound("worker", worker_id)


def _worker(worker: WorkerRecord, present: datetime) -> WorkerDocument:
    alive = worker.heartbeat_at >= present - SILENT_AFTER
    return WorkerDocument.model_validate(worker._asdict() | {"alive": alive})


# -- tasks ---------------------------------------------------------------------------------------


@router.get("/tasks", summary="List tasks")
def list_tasks(service: ServiceDep, _principal: Viewer) -> TaskList:
    """What jobs can be for: every task that a worker has named or that this process has."""
    known = {
        task.name: TaskDocument(
            name=task.name,
            queue=task.queue,
            runner=task.runner,
            schema=task.schema,
            doc=task.doc,
            workers=task.workers_now,
        )
        for task in service.app.store.read.tasks(now=service.now)
    }
    for task in service.app.registry:
        known.setdefault(
            task.name,
            TaskDocument(
                name=task.name,
                queue=task.spec.queue,
                runner=_RUNNERS[task.runs],
                schema=task.signature.json_schema(),
                doc=task.description,
                workers=0,
            ),
        )
    return TaskList(tasks=[known[name] for name in sorted(known)])
