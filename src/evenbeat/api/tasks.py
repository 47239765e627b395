"""Tasks over HTTP."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from evenbeat.api.dependencies import Service, ServiceDep, Viewer
from evenbeat.api.fields import Json, RowDocument
from evenbeat.named_task import ResolvedTask, resolved_task

router = APIRouter(prefix="/api/v1", tags=["queues, workers, tasks"])


class TaskDocument(RowDocument):
    """A task that jobs can be for."""

    name: str
    queue: str
    runner: str = Field(description="async, thread or process.")
    schema_: Json = Field(alias="schema", description="The payload's JSON schema.")
    doc: str
    workers: int = Field(description="How many live workers have it.")


class TaskList(BaseModel):
    """Every task that a worker, or this process, has."""

    tasks: list[TaskDocument]


@router.get("/tasks", summary="List tasks")
def list_tasks(service: ServiceDep, _principal: Viewer) -> TaskList:
    """What jobs can be for: every task that a worker or this process has."""
    return TaskList(tasks=known_tasks(service))


def known_tasks(service: Service) -> list[TaskDocument]:
    """Every task that a worker or this process has, by name."""
    tasks = {
        task.name: TaskDocument(
            name=task.name,
            queue=task.spec.queue,
            runner=task.runs.value,
            schema=task.signature.json_schema(),
            doc=task.description,
            workers=0,
        )
        for task in service.app.registry
    }
    for task in service.store.read.tasks(now=service.now):
        tasks[task.name] = TaskDocument.of(task, workers=task.workers_now)
    return [tasks[name] for name in sorted(tasks)]


def known_task(service: Service, name: str) -> ResolvedTask:
    """What is known of the task of this name, here or by the workers."""
    return resolved_task(name, service.app.registry, service.store, service.now)
