"""Tasks: the handlers that a process knows by name, and what each takes: its arguments as JSON,
checked against its signature on both sides."""

import asyncio
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from uuid import UUID

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic_core import to_jsonable_python

from evenbeat.domain.execution import why_not_kept
from evenbeat.domain.job import JobRecord, JobSpec
from evenbeat.domain.json_values import changed, culprit
from evenbeat.domain.setting_kinds import check_name, error_names
from evenbeat.errors import (
    Fail,
    InvalidInput,
    ResultNotKept,
    Retry,
    TaskUnknown,
    validation_message,
)
from evenbeat.tasks.context import Context
from evenbeat.tasks.hooks import NO_HOOKS, Hooks, Middleware, check_hook, where
from evenbeat.tasks.steps import fitted

logger = logging.getLogger(__name__)

Handler = Callable[..., Any]

_PLAIN = (str, int, bool)
"""Annotations by which nothing else can arrive than what was sent."""


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
        hints = _readable_hints(task, handler)
        self._returns = hints.get("return", Any)
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
        self._is_plain = all(
            hints.get(p.name) in _PLAIN and p.kind is not p.VAR_KEYWORD for p in arguments
        )
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
        except ValueError:
            raise InvalidInput(self._unserialisable(values), field="payload") from None
        if len(payload) != len(values):
            payload = {name: payload[name] for name in payload if name in values}
        if not self._is_plain:
            self._check_arrival(checked, payload)
        return payload

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

    def result(self, value: Any) -> Any:
        """What a run returned, made of JSON again by the annotation of what the handler returns."""
        return fitted(
            value,
            self._returns,
            f"{self.task}: what the run returned",
            "the annotation of what the handler returns",
        )

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

    def _check_arrival(self, checked: BaseModel, payload: Mapping[str, Any]) -> None:
        """Refuse what a worker would read from the payload as something else than was meant."""
        try:
            arriving = self._check(payload)
        except ValidationError as error:
            problem = self._explain(error).removeprefix(f"{self.task}: ")
            raise InvalidInput(
                f"{self.task}: what its JSON says would be refused by the worker: {problem}",
                field="payload",
            ) from None
        with suppress(Exception):  # an array's comparison, for example, says nothing
            if (checked.__dict__, checked.model_extra) == (arriving.__dict__, arriving.model_extra):
                return
        pairs = [
            (name, getattr(checked, field), getattr(arriving, field))
            for field, name in self._names.items()
            if field in checked.model_fields_set
        ]
        extra = arriving.model_extra or {}
        pairs += [(name, one, extra[name]) for name, one in (checked.model_extra or {}).items()]
        for name, value, arrived in pairs:
            if (change := changed(value, arrived, name)) is not None:
                raise InvalidInput(
                    f"{self.task}: argument {change}. {self._usage()}", field="payload"
                )

    def _unserialisable(self, values: Mapping[str, Any]) -> str:
        """Which argument JSON cannot carry, and why."""
        path, value = culprit(values, _serialisation_error)
        hint = "Pass what the handler can load it by, such as an id or a path, or plain JSON"
        if isinstance(value, bytes):
            hint = (
                "Pass base64.b64encode(...) of it, to a parameter annotated pydantic.Base64Bytes, "
                "where it arrives decoded"
            )
        elif isinstance(value, Mapping | list | tuple | set | frozenset):
            hint = "Pass plain JSON, without circles"
        return (
            f"{self.task}: argument {path!r} is of the type {type(value).__name__}, which JSON "
            f"cannot carry ({_serialisation_error(value)}). {hint}. {self._usage()}"
        )

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


def _readable_hints(task: str, handler: Callable[..., Any]) -> dict[str, Any]:
    """The handler's annotations, read one by one where some cannot be: what is imported for type
    checkers only is unknown when the program runs, and goes unchecked."""
    try:
        return get_type_hints(handler, include_extras=True)
    except (NameError, TypeError, AttributeError):
        pass
    hints: dict[str, Any] = {}
    function = inspect.unwrap(handler)
    for name, annotation in getattr(function, "__annotations__", {}).items():
        holder = type("", (), {"__annotations__": {name: annotation}})
        namespace = getattr(function, "__globals__", {})
        try:
            hints |= get_type_hints(holder, namespace, include_extras=True)
        except (NameError, TypeError, AttributeError):
            if str(annotation).rpartition(".")[2] == Context.__name__ or name == "ctx":
                hints[name] = Context
            elif name != "return":
                logger.warning(
                    "The annotation %r of the argument %r of the task %r cannot be read, so this "
                    "argument is not checked. Import what it names also outside TYPE_CHECKING.",
                    annotation,
                    name,
                    task,
                )
    return hints


def _serialisation_error(value: Any) -> str | None:
    try:
        to_jsonable_python(value)
    except ValueError as error:
        return str(error)
    return None


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
    config = ConfigDict(extra=extra, arbitrary_types_allowed=False, allow_inf_nan=False)  # type: ignore[typeddict-item]
    try:
        model: type[BaseModel] = create_model(f"{task} payload", __config__=config, **fields)
        model.model_rebuild()  # a type that is not known yet is only noticed here
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation) as error:
        for hint, field in fields.values():
            try:
                TypeAdapter(hint).rebuild(raise_errors=True)
            except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation):
                wrong = field.alias
                break
        problem = "Take what the handler can load it by, such as an id or a path"
        if isinstance(error, PydanticUndefinedAnnotation):
            problem = (
                f"{error.name!r} in it is not known when the program runs: import it also outside "
                "TYPE_CHECKING"
            )
        raise InvalidInput(
            f"The task {task!r} takes an argument that cannot be carried as JSON, {wrong!r}: "
            f"{inspect.formatannotation(hint)}. {problem}.",
            field="payload",
        ) from None
    return model


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A handler, the spec of the jobs made for it, and where it runs."""

    name: str
    handler: Handler
    spec: JobSpec
    signature: Signature
    runs: RunnerKind
    aliases: tuple[str, ...] = ()
    """Former names: jobs under one of them are its jobs too."""
    description: str = ""
    supervised: bool = False
    """Whether it only waits for a command, which a supervisor holds to the job's limits."""
    around: tuple[Middleware, ...] = ()
    hooks: Hooks = NO_HOOKS
    """Those of its application."""

    @property
    def middleware(self) -> Sequence[Middleware]:
        """What runs around its handler, from the outside to the inside."""
        return [*self.hooks.around, *self.around] if self.hooks.around else self.around

    @property
    def cannot_limit(self) -> str | None:
        """Why runs cannot be held to `memory_limit` and `cpu_limit` where this handler runs."""
        if self.supervised or self.runs is RunnerKind.ISOLATED:
            return None
        place = "in a thread" if self.runs is RunnerKind.IN_THREAD else "on the event loop"
        return (
            f"The task {self.name!r} runs {place} of its worker, where neither memory_limit nor "
            "cpu_limit can be kept: that takes a process of its own. Declare the task with "
            "isolate=True, or leave the limits out."
        )

    def check_limits(self, spec: JobSpec) -> None:
        """Refuse limits that cannot be kept."""
        limits = {"memory_limit": spec.memory_limit, "cpu_limit": spec.cpu_limit}
        limited = [name for name, limit in limits.items() if limit is not None]
        if limited and (reason := self.cannot_limit):
            raise InvalidInput(reason, field=limited[0])

    def check_run(self) -> None:
        """Fail a run that has limits if they cannot be kept, rather than run it without."""
        reason = self.cannot_limit
        if sys.platform != "linux":
            reason = "memory_limit and cpu_limit can be kept on Linux only; leave them out."
        if reason is not None:
            raise Fail(reason, code="limit_not_kept")

    def is_final(self, job: JobRecord, error: BaseException) -> bool:
        """Whether a run of this job that raised this error is not tried again, whatever retries
        are left."""
        if isinstance(error, Retry):
            return False
        is_unfit = isinstance(error, InvalidInput) and error.field == "payload"
        kind = type(error)
        gives_up = self.gives_up(job, kind.__name__, error_names(kind))
        return is_unfit or isinstance(error, Fail) or gives_up

    def gives_up(self, job: JobRecord, code: str | None, raised: Collection[str]) -> bool:
        """Whether `never_retry` or `retry_on` keep a run that ended with this error code, and with
        an exception of these names, from being tried again."""
        # A job that says nothing goes by its task, as it is in this process.
        never = self.spec.never_retry if job.never_retry is None else job.never_retry
        only = self.spec.retry_on if job.retry_on is None else job.retry_on
        names = {code, *raised}
        left_out = only is not None and bool(raised) and names.isdisjoint(only)
        return left_out or not names.isdisjoint(never or ())

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
    aliases: Sequence[str] = (),
    supervised: bool = False,
    around: Sequence[Middleware] = (),
    hooks: Hooks = NO_HOOKS,
) -> TaskDefinition:
    """Look at a handler once, when it is declared, so that mistakes show at import."""
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise InvalidInput(
            f"The task {spec.task!r} is a generator: calling it runs nothing of it. Return a "
            "value instead of yielding.",
            field="handler",
        )
    qualname = getattr(handler, "__qualname__", "")
    if next(iter(inspect.signature(handler).parameters), None) == "self" and "." in qualname:
        raise InvalidInput(
            f"The task {spec.task!r} is a method, {qualname}, whose 'self' no worker knows. Make "
            "it a function, or make a task of an object's method: app.task(thing.method).",
            field="handler",
        )
    if isolate and ("<" in qualname or not inspect.isfunction(handler)):
        raise InvalidInput(
            f"The task {spec.task!r} has isolate=True, so a child process must find it by its "
            f"name in its module, which {qualname or handler!r} has not. Make it a function that "
            "is defined (def) at the top level of a module.",
            field="handler",
        )
    if isinstance(aliases, str):
        raise InvalidInput(f"aliases must be a list of names: [{aliases!r}].", field="aliases")
    if not isinstance(around, list | tuple):
        raise InvalidInput(
            f"around must be a list of functions: around=[{around!r}].", field="around"
        )
    for alias in aliases:
        check_name("aliases", alias)
    is_async = any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__)))
    runs = RunnerKind.ON_LOOP if is_async else RunnerKind.IN_THREAD
    task = TaskDefinition(
        name=spec.task,
        handler=handler,
        spec=spec,
        signature=Signature(spec.task, handler),
        runs=RunnerKind.ISOLATED if isolate else runs,
        aliases=tuple(aliases),
        description=inspect.getdoc(handler) or "",
        supervised=supervised,
        around=tuple(check_hook(one, "middleware", takes="the run's Context") for one in around),
        hooks=hooks,
    )
    task.check_limits(spec)
    return task


class Registry:
    """Every task of an application, by its name."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskDefinition] = {}
        self.hooks = Hooks()

    def add(self, task: TaskDefinition) -> None:
        """Register a task; two handlers of one name are refused."""
        names = (task.name, *task.aliases)
        for name in names:
            known = self._tasks.get(name)
            if known is not None and known.handler is not task.handler:
                raise InvalidInput(
                    f"Two handlers are named {name!r}: {where(known.handler)} and "
                    f"{where(task.handler)}. Give one of them another name: @app.task(name=...).",
                    field="name",
                )
        self._tasks |= dict.fromkeys(names, task)

    def get(self, name: str) -> TaskDefinition:
        """The task of this name, or `TaskUnknown`."""
        try:
            return self._tasks[name]
        except KeyError:
            known = ", ".join(sorted(self._tasks)) or "none"
            raise TaskUnknown(f"There is no task {name!r} here; known are: {known}.") from None

    def result_of(
        self, job_id: UUID, name: str, value: Any, signature: Signature | None = None
    ) -> Any:
        """What a job of this task returned, made of JSON again by the task's annotation; of a task
        that is not known here, as JSON has it."""
        if (reason := why_not_kept(value)) is not None:
            raise ResultNotKept(
                f"The job {job_id} ({name}) has completed, but its result was not kept: {reason}"
            )
        if signature is None and name in self._tasks:
            signature = self._tasks[name].signature
        return value if signature is None else signature.result(value)

    def check_limits(self, spec: JobSpec) -> None:
        """Refuse limits that cannot be kept, if the task is known here."""
        if (task := self._tasks.get(spec.task)) is not None:
            task.check_limits(spec)

    def named(self, *runs: RunnerKind) -> list[str]:
        """The names, former ones too, of the tasks that run there; of all tasks when no place is
        given."""
        return sorted(n for n, task in self._tasks.items() if not runs or task.runs in runs)

    def __iter__(self) -> Iterator[TaskDefinition]:
        return (task for name, task in self._tasks.items() if name == task.name)

    def __contains__(self, name: object) -> bool:
        return name in self._tasks
