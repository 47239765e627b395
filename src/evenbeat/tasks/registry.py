"""Tasks: the handlers that a process knows by name, and what each takes: its arguments as JSON,
checked against its signature on both sides."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticSchemaGenerationError,
    ValidationError,
    create_model,
)

from evenbeat.domain.job import JobSpec
from evenbeat.errors import InvalidInput, TaskUnknown, validation_message
from evenbeat.tasks.context import Context

Handler = Callable[..., Any]


class RunnerKind(StrEnum):
    """Where a handler runs."""

    ON_LOOP = "async"
    IN_THREAD = "thread"
    ISOLATED = "process"


class Signature:
    """What a handler takes. Arguments become JSON when a job is enqueued, so that a wrong one fails
    in the caller, and become typed values again before the handler runs."""

    def __init__(self, task: str, handler: Callable[..., Any]) -> None:
        self.task = task
        signature = inspect.signature(handler)
        try:
            hints = get_type_hints(handler, include_extras=True)
        except (NameError, TypeError):
            # Annotations under TYPE_CHECKING cannot be read; such arguments go unchecked.
            hints = {}
        self.context_name: str | None = None
        for name in signature.parameters:
            hint = hints.get(name, Context if name == "ctx" else None)
            if isinstance(hint, type) and issubclass(hint, Context):
                self.context_name = name
                break
        arguments = [p for name, p in signature.parameters.items() if name != self.context_name]
        self._signature = signature.replace(parameters=arguments)
        self._model = _argument_model(task, arguments, hints)
        self._check = self._model.__pydantic_validator__.validate_python
        self._dump = self._model.__pydantic_serializer__.to_python
        self._takes_nothing = not arguments
        self._positional = [p.name for p in arguments if p.kind is p.POSITIONAL_OR_KEYWORD]
        self._names = {
            field: info.alias or field for field, info in self._model.model_fields.items()
        }

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as a JSON object; raises `InvalidInput` that names the wrong one."""
        if self._takes_nothing and not args and not kwargs:
            return {}
        values = self._bind(args, kwargs)
        try:
            checked = self._check(values)
            payload: dict[str, Any] = self._dump(checked, mode="json", by_alias=True)
        except ValidationError as error:
            raise InvalidInput(self._explain(error), field="payload") from None
        except ValueError as error:
            raise InvalidInput(f"{self.task}: {error}", field="payload") from None
        if len(payload) == len(values):
            return payload
        return {name: payload[name] for name in payload if name in values}

    def decode(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The payload as keyword arguments of the handler."""
        if self._takes_nothing and not payload:
            return {}
        try:
            checked = self._check(payload)
        except ValidationError as error:
            raise InvalidInput(self._explain(error), field="payload") from None
        fields, values = checked.model_fields_set, checked.__dict__
        named = {name: values[field] for field, name in self._names.items() if field in fields}
        return named | checked.model_extra if checked.model_extra else named

    def json_schema(self) -> dict[str, Any]:
        """The payload's JSON schema, for documentation and forms."""
        return self._model.model_json_schema()

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        values = {**dict(zip(self._positional, args, strict=False)), **kwargs}
        if len(values) < len(args) + len(kwargs):  # too many, or one twice: `inspect` knows which
            try:
                self._signature.bind_partial(*args, **kwargs)
            except TypeError as error:
                raise InvalidInput(f"{self.task}: {error}. {self._usage()}") from None
        return values

    def _explain(self, error: ValidationError) -> str:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "payload"
        message = validation_message(first).rstrip(".")
        problem = {
            "missing": f"the argument {where!r} is missing",
            "extra_forbidden": f"there is no argument {where!r}",
        }.get(first["type"], f"argument {where!r}: {message[0].lower()}{message[1:]}")
        return f"{self.task}: {problem}. {self._usage()}"

    def _usage(self) -> str:
        parameters = [
            # Without the rules that `Annotated` adds.
            parameter.replace(annotation=get_args(parameter.annotation)[0])
            if get_origin(parameter.annotation) is Annotated
            else parameter
            for parameter in self._signature.parameters.values()
        ]
        return f"It takes {inspect.Signature(parameters)}."


def _argument_model(
    task: str, arguments: Iterable[inspect.Parameter], hints: Mapping[str, Any]
) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    extra: str = "forbid"
    for number, argument in enumerate(arguments):
        name = argument.name
        if argument.kind is argument.VAR_KEYWORD:
            extra = "allow"
        elif argument.kind in (argument.VAR_POSITIONAL, argument.POSITIONAL_ONLY):
            raise InvalidInput(
                f"The task {task!r} takes {argument}, but a payload is made of named arguments. "
                f"Give the parameter {name!r} a name that can be used as a keyword.",
                field="payload",
            )
        else:
            default = ... if argument.default is argument.empty else argument.default
            # Numbered fields with aliases: an argument may be called anything, even `copy`.
            fields[f"argument_{number}"] = (hints.get(name, Any), Field(default, alias=name))
    config = ConfigDict(extra=extra, arbitrary_types_allowed=False)  # type: ignore[typeddict-item]
    try:
        return create_model(f"{task} payload", __config__=config, **fields)
    except PydanticSchemaGenerationError as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(
            f"The task {task!r} takes an argument that cannot be carried as JSON: {reason}",
            field="payload",
        ) from None


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A handler, the spec of the jobs made for it, and where it runs."""

    name: str
    handler: Handler
    spec: JobSpec
    signature: Signature
    runs: RunnerKind
    never_retry: tuple[type[BaseException], ...] = ()
    description: str = ""

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the handler outside an event loop, to its end: an async function under a plain
        decorator gives something to await, which would otherwise never run."""
        value = self.handler(**arguments)
        return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def define(
    handler: Handler,
    spec: JobSpec,
    *,
    isolate: bool = False,
    never_retry: tuple[type[BaseException], ...] = (),
) -> TaskDefinition:
    """Look at a handler once, when it is declared, so that mistakes show at import."""
    if not callable(handler):
        raise InvalidInput(f"A task needs a function, got {handler!r}.", field="handler")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise InvalidInput(
            f"The task {spec.task!r} is a generator, of which a call runs nothing. Let it do its "
            "work and return a value.",
            field="handler",
        )
    is_async = any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__)))
    runs = RunnerKind.ON_LOOP if is_async else RunnerKind.IN_THREAD
    return TaskDefinition(
        name=spec.task,
        handler=handler,
        spec=spec,
        signature=Signature(spec.task, handler),
        runs=RunnerKind.ISOLATED if isolate else runs,
        never_retry=never_retry,
        description=inspect.getdoc(handler) or "",
    )


class Registry:
    """Every task of an application, by its name."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskDefinition] = {}

    def add(self, task: TaskDefinition) -> None:
        """Register a task; two handlers of one name are refused."""
        known = self._tasks.get(task.name)
        if known is not None and known.handler is not task.handler:
            raise InvalidInput(
                f"Two handlers are named {task.name!r}: {_where(known.handler)} and "
                f"{_where(task.handler)}. Give one of them another name: @app.task(name=...).",
                field="name",
            )
        self._tasks[task.name] = task

    def get(self, name: str) -> TaskDefinition:
        """The task of this name, or `TaskUnknown`."""
        try:
            return self._tasks[name]
        except KeyError:
            known = ", ".join(sorted(self._tasks)) or "none"
            raise TaskUnknown(f"There is no task {name!r} here; known are: {known}.") from None

    def named(self, *runs: RunnerKind) -> list[str]:
        """The names of the tasks that run there; of all tasks when no place is given."""
        return sorted(t.name for t in self._tasks.values() if not runs or t.runs in runs)

    def __iter__(self) -> Iterator[TaskDefinition]:
        return iter(self._tasks.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tasks


def _where(handler: Handler) -> str:
    return f"{getattr(handler, '__module__', '?')}.{getattr(handler, '__qualname__', handler)}"
