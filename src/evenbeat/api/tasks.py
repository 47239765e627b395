"""What is known of a task where a request names it: its settings, its arguments, who can run it.

This process may have the handler itself. Where it has not, it goes by what the workers have noted
in the database: the settings of the task and the JSON schema of its payload.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import SchemaError

from evenbeat.api.dependencies import Service
from evenbeat.domain.defaults import spec_from
from evenbeat.domain.job import JobSpec
from evenbeat.errors import InvalidInput
from evenbeat.store.summaries import KnownTask
from evenbeat.tasks.registry import TaskDefinition


@dataclass(frozen=True, slots=True)
class ResolvedTask:
    """A task by its name, as this process has it (`definition`) or the workers do (`noted`)."""

    name: str
    definition: TaskDefinition | None = None
    noted: KnownTask | None = None

    @property
    def spec(self) -> JobSpec:
        """What jobs of this task start from."""
        if self.definition is not None:
            return self.definition.spec
        if self.noted is not None:
            return spec_from(self.name, self.noted.queue, self.noted.defaults)
        return JobSpec(task=self.name)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What whoever adds a job for it should know."""
        if self.definition is not None or (self.noted is not None and self.noted.workers_now):
            return ()
        yet = "yet" if self.noted is None else "now"
        warning = (
            f"No worker has the task {self.name!r} {yet}. The job waits until one that does is "
            "started; GET /api/v1/tasks lists what there is."
        )
        return (warning,)

    def checked(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The payload as it is stored, or `InvalidInput` that names the wrong argument."""
        if self.definition is not None:
            return self.definition.signature.encode((), payload)
        if self.noted is not None:
            _check_by_schema(self.name, self.noted.schema, payload)
        return dict(payload)


def known_task(service: Service, name: str) -> ResolvedTask:
    """What is known of the task of this name, here or by the workers."""
    if name in service.app.registry:
        return ResolvedTask(name, definition=service.app.registry.get(name))
    noted = service.app.store.read.tasks(now=service.now)
    return ResolvedTask(name, noted=next((task for task in noted if task.name == name), None))


def _check_by_schema(task: str, schema: Mapping[str, Any], payload: Mapping[str, Any]) -> None:
    for error in _errors(schema, payload):
        raise InvalidInput(f"{task}: {_explained(error)}.", field="payload")


def _errors(schema: Mapping[str, Any], payload: Mapping[str, Any]) -> Iterator[ValidationError]:
    """What is wrong by the schema; one that is itself unusable finds nothing: the worker will."""
    try:
        yield from Draft202012Validator(dict(schema)).iter_errors(dict(payload))
    except (SchemaError, LookupError, RecursionError, TypeError, ValueError):
        return


def _explained(error: ValidationError) -> str:
    """Which argument, and what is wrong with it; its value is not repeated."""
    where = ".".join(map(str, error.absolute_path))
    match error.validator:
        case "required":
            given = error.instance if isinstance(error.instance, dict) else {}
            missing = [name for name in error.validator_value if name not in given]
            return f"the argument {'.'.join(filter(None, [where, *missing[:1]]))!r} is missing"
        case "additionalProperties":
            known = error.schema.get("properties", {})
            surplus = [name for name in error.instance if name not in known]
            return f"there is no argument {'.'.join(filter(None, [where, *surplus[:1]]))!r}"
        case "type":
            return f"argument {where!r} must be of type {error.validator_value}"
        case _:
            return f"argument {where!r} does not fit {error.validator} of its schema"
