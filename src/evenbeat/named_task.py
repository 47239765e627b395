"""What is known of a task by its name: its settings, its arguments, and whether a worker has it.

This process may have the handler itself. Otherwise it goes by what the workers have recorded in the
database: the settings of the task and the JSON schema of its payload.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import pydantic_core
from jsonschema import Draft202012Validator, ValidationError, validators
from jsonschema.exceptions import SchemaError
from pydantic_core import SchemaValidator, core_schema

from evenbeat.domain.job import JobSpec, spec_from_settings
from evenbeat.domain.json_values import changed
from evenbeat.errors import InvalidInput, TaskUnknown
from evenbeat.store.rows import encode_json
from evenbeat.store.store import Store
from evenbeat.store.upkeep import KnownTask
from evenbeat.tasks.registry import Registry, RunnerKind, Signature, TaskDefinition


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


def resolved_task(
    name: str, registry: Registry, store: Store, now: datetime | None
) -> ResolvedTask:
    """What is known of the task of this name, here or by the workers."""
    if name in registry:
        return ResolvedTask(name, definition=registry.get(name))
    recorded = store.read.tasks(now=now)
    return ResolvedTask(name, recorded=next((task for task in recorded if task.name == name), None))


def recorded_definition(name: str, store: Store, now: datetime | None) -> TaskDefinition:
    """A task that workers elsewhere have, to enqueue jobs for; `TaskUnknown` if none has."""
    recorded = {task.name: task for task in store.read.tasks(now=now)}
    if name not in recorded:
        near = get_close_matches(name, recorded, n=1)
        there = f"There are: {', '.join(sorted(recorded)) or 'none yet'}."
        hint = f"Did you mean {near[0]!r}?" if near else there
        raise TaskUnknown(
            f"No worker has registered a task {name!r} yet, so its arguments are unknown. Start a "
            f"worker that has it, or import its code. {hint}"
        )
    task = ResolvedTask(name, recorded=recorded[name])
    return TaskDefinition(
        name=name,
        handler=_Elsewhere(name),
        spec=task.spec,
        signature=_RecordedSignature(task),
        runs=RunnerKind(recorded[name].runner),
        description=recorded[name].doc,
    )


class _RecordedSignature(Signature):
    """The arguments of a task by its JSON schema."""

    def __init__(self, task: ResolvedTask) -> None:
        self.task = task.name
        self.context_name = None
        self._resolved = task

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if args:
            raise InvalidInput(
                f"{self.task}: give the arguments by their names; this process knows the task by "
                "its name only.",
                field="payload",
            )
        payload = self._resolved.checked(kwargs)
        for name, value in payload.items():
            arriving = json.loads(encode_json(name, value, storable=False))
            if (change := changed(value, arriving, name)) is not None:
                raise InvalidInput(f"{self.task}: argument {change}.", field="payload")
        return payload

    def result(self, value: Any) -> Any:
        return value

    def json_schema(self) -> dict[str, Any]:
        return dict(self._resolved.recorded.schema) if self._resolved.recorded else {}


class _Elsewhere:
    """Stands for a handler that this process has not."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise TaskUnknown(
            f"The handler of {self.__name__!r} is not in this process, which knows the task by its "
            "name only. Enqueue it, or import its code."
        )


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
