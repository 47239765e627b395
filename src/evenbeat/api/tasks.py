"""Tasks over HTTP, and what is known of a task that a request names: settings, arguments, workers.

This process may have the handler itself. Otherwise it goes by what the workers have recorded in the
database: the settings of the task and the JSON schema of its payload.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pydantic_core
from fastapi import APIRouter
from jsonschema import Draft202012Validator, ValidationError, validators
from jsonschema.exceptions import SchemaError
from pydantic import BaseModel, Field
from pydantic_core import SchemaValidator, core_schema

from evenbeat.api.dependencies import Service, ServiceDep, Viewer
from evenbeat.api.fields import Json, RowDocument
from evenbeat.domain.job import JobSpec, spec_from_settings
from evenbeat.errors import InvalidInput
from evenbeat.store.upkeep import KnownTask
from evenbeat.tasks.registry import TaskDefinition

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


@dataclass(frozen=True, slots=True)
class ResolvedTask:
    """A task by its name, as this process has it (`definition`) or the workers do (`recorded`)."""

    name: str
    definition: TaskDefinition | None = None
    recorded: KnownTask | None = None

    @property
    def spec(self) -> JobSpec:
        """What jobs of this task start from."""
        if self.definition is not None:
            return self.definition.spec
        if self.recorded is not None:
            return spec_from_settings(self.name, self.recorded.queue, self.recorded.defaults)
        return JobSpec(task=self.name)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the person who adds a job for it should know."""
        if self.definition is not None or (self.recorded and self.recorded.workers_now):
            return ()
        yet = "yet" if self.recorded is None else "now"
        warning = (
            f"No worker has the task {self.name!r} {yet}. The job waits until one that does is "
            "started; GET /api/v1/tasks lists what there is."
        )
        return (warning,)

    def checked(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The payload as it is stored, or `InvalidInput` that names the wrong argument."""
        if self.definition is not None:
            return self.definition.signature.encode((), payload)
        if self.recorded is not None:
            try:
                validator = _VALIDATOR(dict(self.recorded.schema))
                error = next(validator.iter_errors(dict(payload)), None)
            except (*_UNUSABLE, LookupError, RecursionError, TypeError, ValueError):
                error = None  # an unusable schema finds nothing wrong: the worker will
            if error is not None:
                raise InvalidInput(f"{self.name}: {_explain(error)}.", field="payload")
        return dict(payload)


def known_task(service: Service, name: str) -> ResolvedTask:
    """What is known of the task of this name, here or by the workers."""
    if name in service.app.registry:
        return ResolvedTask(name, definition=service.app.registry.get(name))
    recorded = service.store.read.tasks(now=service.now)
    return ResolvedTask(name, recorded=next((task for task in recorded if task.name == name), None))


@lru_cache(64)
def _compiled(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern))


def _check_pattern(
    _validator: Any, pattern: str, text: Any, _schema: Any
) -> Iterator[ValidationError]:
    """By the engine that the worker's models use. Python's own may take forever."""
    if isinstance(text, str) and not _compiled(pattern).isinstance_python(text):
        yield ValidationError("no match")


# Two more that may take forever; the worker finds what is wrong there.
_VALIDATOR = validators.extend(
    Draft202012Validator,
    {"pattern": _check_pattern, "patternProperties": None, "uniqueItems": None},
)
_UNUSABLE = (SchemaError, pydantic_core.SchemaError)


def _explain(error: ValidationError) -> str:
    """Which argument, and what is wrong with it; its value is not repeated."""
    where = ".".join(map(str, error.absolute_path))
    match error.validator:
        case "required":
            present = error.instance if isinstance(error.instance, dict) else {}
            missing = [name for name in error.validator_value if name not in present]
            return f"the argument {'.'.join(filter(None, [where, *missing[:1]]))!r} is missing"
        case "additionalProperties":
            properties = error.schema.get("properties", {})
            surplus = [name for name in error.instance if name not in properties]
            return f"there is no argument {'.'.join(filter(None, [where, *surplus[:1]]))!r}"
        case "type":
            return f"argument {where!r} must be of type {error.validator_value}"
        case _:
            return f"argument {where!r} does not fit {error.validator} of its schema"
