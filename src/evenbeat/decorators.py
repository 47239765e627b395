"""What a module of tasks says at import: the decorators that declare tasks, schedules and hooks."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from itertools import chain, count
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

from evenbeat.declared import (
    DeclaredSchedule,
    PeriodicOptions,
    ScheduleOptions,
    ScopeProvider,
    TaskOptions,
    periodic_spec,
)
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.job import DurationLike, JobOptions, JobSpec
from evenbeat.domain.json_values import check_document
from evenbeat.domain.limits import arguments_in
from evenbeat.domain.schedule import AfterCondition, Awaited, Cron, Interval, Schedule
from evenbeat.domain.schedule.slack import slack_between
from evenbeat.errors import InvalidInput
from evenbeat.events import EventBus, EventName, Listener
from evenbeat.job import Application
from evenbeat.task import Task, TaskDecorator, TaskFunction, awaited_jobs, spec_with, with_key
from evenbeat.tasks.context import Context
from evenbeat.tasks.hooks import EnqueueHook, Lifespan, Middleware, check_hook
from evenbeat.tasks.registry import Registry, TaskDefinition, define

P = ParamSpec("P")
R = TypeVar("R")
ListenerT = TypeVar("ListenerT", bound=Listener)
MiddlewareT = TypeVar("MiddlewareT", bound=Middleware)
LifespanT = TypeVar("LifespanT", bound=Lifespan)
EnqueueHookT = TypeVar("EnqueueHookT", bound=EnqueueHook)
AnyTask = TaskFunction[..., Any, ..., Any]

_OF_THE_TASK = TaskOptions.__annotations__.keys() - {*JobOptions.__annotations__, "retry"}


class Decorators:
    """The half of `Evenbeat` that a module of tasks uses."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.events = EventBus()
        self.declared: dict[str, DeclaredSchedule] = {}

    # -- declaring -------------------------------------------------------------------------------

    @overload
    def task(
        self,
        function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]],
        /,
        **options: Unpack[TaskOptions],
    ) -> TaskFunction[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]: ...
    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], R], /, **options: Unpack[TaskOptions]
    ) -> TaskFunction[P, R, Concatenate[Context, P], R]: ...
    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, **options: Unpack[TaskOptions]
    ) -> TaskFunction[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def task(
        self, function: Callable[P, R], /, **options: Unpack[TaskOptions]
    ) -> TaskFunction[P, R, P, R]: ...
    @overload
    def task(self, function: None = None, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a function a task. Async functions run on the event loop, plain ones in threads,
        and with `isolate=True` either runs in a process of its own, which can be killed."""
        if function is not None:
            return self._declare(function, options)
        return lambda wrapped: self._declare(wrapped, options)

    def every(self, interval: DurationLike, **options: Unpack[ScheduleOptions]) -> TaskDecorator:
        """Run a function every so often ("30m", "1h30m", seconds), in a rhythm that late or long
        runs never shift."""
        return self._scheduled(Interval(parse_duration(interval, field="interval")), options)

    def cron(
        self, expression: str, *, timezone: str = "UTC", **options: Unpack[ScheduleOptions]
    ) -> TaskDecorator:
        """Run a function by five cron fields, or a name such as @daily, in a time zone."""
        return self._scheduled(Cron(expression, timezone), options)

    def daily(
        self, *, between: str, timezone: str = "UTC", **options: Unpack[ScheduleOptions]
    ) -> TaskDecorator:
        """Run a function once a day, at the minute between two times ("01:00-05:00") at which its
        runs meet the least load. The same minute every day, by the clock of the time zone."""
        return self._scheduled(Cron(slack_between(between, "* * *"), timezone), options)

    def weekly(
        self,
        *,
        between: str,
        on: str = "mon",
        timezone: str = "UTC",
        **options: Unpack[ScheduleOptions],
    ) -> TaskDecorator:
        """The same on a day of the week, or on several ("mon,thu")."""
        return self._scheduled(Cron(slack_between(between, f"* * {on}"), timezone), options)

    def monthly(
        self,
        *,
        between: str,
        on: int | str = 1,
        timezone: str = "UTC",
        **options: Unpack[ScheduleOptions],
    ) -> TaskDecorator:
        """The same on a day of the month; "L" is the last."""
        return self._scheduled(Cron(slack_between(between, f"{on} * *"), timezone), options)

    def after(
        self,
        *jobs: Task[Any, Any] | str | Awaited,
        on: AfterCondition | str = AfterCondition.SUCCESS,
        **options: Unpack[ScheduleOptions],
    ) -> TaskDecorator:
        """Run a function whenever other scheduled jobs have ended, given by their tasks or names:
        of the same scope, otherwise the global ones. `on` is "success", "failure" or "any"."""
        return self._scheduled(awaited_jobs(jobs, on), options)

    def periodic(
        self,
        name: str,
        *,
        cadence: DurationLike,
        run_timeout: DurationLike,
        stale_timeout: DurationLike,
        heartbeat_interval: DurationLike,
        max_attempts: int = 4,
        retry_backoff: Sequence[DurationLike] = (),
        scopes: ScopeProvider | None = None,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[PeriodicOptions],
    ) -> TaskDecorator:
        """Run a function for plan buckets of `cadence`, with every rule of its lease, catch-up and
        retries spelled out. `ctx.plan_time` is the bucket, `ctx.scope` the shard."""

        def declare(function: Callable[..., Any]) -> AnyTask:
            try:
                task = self._declare(function, {"name": name, **options})
            except InvalidInput as error:
                raise InvalidInput(f"Job {name!r}: {error}", field=error.field) from None
            spans = {
                "cadence": cadence,
                "run_timeout": run_timeout,
                "stale_timeout": stale_timeout,
                "heartbeat_interval": heartbeat_interval,
            }
            spec = periodic_spec(name, task.spec, spans, max_attempts, retry_backoff)
            self._add_schedule(task, spec, name, payload, scopes, periodic=True)
            return task

        return cast("TaskDecorator", declare)

    def on(self, event: EventName) -> Callable[[ListenerT], ListenerT]:
        """Call a function, plain or async, when something happens to a job in this process's
        workers: `@app.on("job:failed")`; "*" means everything."""

        def register(listener: ListenerT) -> ListenerT:
            self.events.on(event, listener)
            return listener

        return register

    # -- hooks -----------------------------------------------------------------------------------

    def around(self, middleware: MiddlewareT) -> MiddlewareT:
        """Put a context manager around every run: a function of the run's `Context` that returns
        one, plain or async. The first one is the outermost; `around=[…]` of a task is inside."""
        self.registry.hooks.around.append(
            check_hook(middleware, "middleware", takes="the run's Context")
        )
        return middleware

    def lifespan(self, lifespan: LifespanT) -> LifespanT:
        """Put a context manager around each worker: a function of the worker's `State`, which runs
        have as `ctx.state`. It is entered and left on the worker's event loop."""
        self.registry.hooks.lifespans.append(
            check_hook(lifespan, "lifespan", takes="the worker's State")
        )
        return lifespan

    def carry(self, *variables: ContextVar[Any]) -> None:
        """Carry context variables from enqueueing to the run, where they are set and JSON."""
        self.registry.hooks.carry(variables)

    def on_enqueue(self, hook: EnqueueHookT) -> EnqueueHookT:
        """Add what a function returns to the metadata of each job that is enqueued. What the caller
        gives as metadata counts more."""
        self.registry.hooks.enqueueing.append(hook)
        return hook

    # --------------------------------------------------------------------------------------------

    def _declare(
        self,
        function: Any,
        options: Mapping[str, Any],
        known: Iterable[str] = TaskOptions.__annotations__,
    ) -> AnyTask:
        if isinstance(function, Task):
            raise InvalidInput(
                f"{function!r} is a task already. Of stacked decorators, only those of schedules "
                "(every, cron, daily, weekly, monthly, after) can stand above another; the "
                "innermost makes the task.",
                field="handler",
            )
        if not callable(function):
            hint = f"Name it so: @app.task(name={function!r})." if isinstance(function, str) else ""
            raise InvalidInput(
                f"A task needs a function, got {function!r}. {hint}".rstrip(), field="handler"
            )
        settings = dict(options)
        name = settings.pop("name", None) or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise InvalidInput(
                f"{function!r} has no name by which workers would know it. Give the task one: "
                'app.task(function, name="sync_prices").',
                field="name",
            )
        isolate, retry = settings.pop("isolate", False), settings.pop("retry", None)
        aliases, around = settings.pop("aliases", ()), settings.pop("around", ())
        spec = spec_with(JobSpec(task=name), settings, retry, "A task", known)
        definition = define(
            function,
            spec,
            isolate=isolate,
            aliases=aliases,
            around=around,
            hooks=self.registry.hooks,
        )
        _check_keys(definition)
        self.registry.add(definition)
        return TaskFunction(cast("Application", self), definition, function)

    def _scheduled(self, schedule: Schedule, options: Mapping[str, Any]) -> TaskDecorator:
        def declare(function: Callable[..., Any]) -> AnyTask:
            own = dict(options)
            name, payload, scopes = (
                own.pop(k, None) for k in ("schedule_name", "payload", "scopes")
            )
            if isinstance(function, TaskFunction):  # a decorator above another
                task: AnyTask = function
                spec = self._spec_over(task, own)
            else:
                task = self._declare(function, own, ScheduleOptions.__annotations__)
                spec = task.spec
            former: tuple[str, ...] = ()
            if name is None:
                others = [s.name for s in self.declared.values() if s.spec.task == task.name]
                numbered = (f"{task.name}-{number}" for number in count(2))
                name = next(n for n in chain([task.name], numbered) if n not in others)
                rest = name.removeprefix(task.name)
                former = tuple(alias + rest for alias in task.definition.aliases)
            spec = replace(spec, schedule=schedule)
            self._add_schedule(task, spec, name, payload, scopes, former_names=former)
            return task

        return cast("TaskDecorator", declare)

    def _spec_over(self, task: AnyTask, options: dict[str, Any]) -> JobSpec:
        """The spec of one more schedule of a task, with settings of its own."""
        if task.name not in self.registry or self.registry.get(task.name) is not task.definition:
            raise InvalidInput(f"{task!r} belongs to another application.", field="handler")
        if of_task := options.keys() & _OF_THE_TASK:
            raise InvalidInput(
                f"The option {min(of_task)!r} belongs to the task: give it to the innermost of its "
                "decorators.",
                field=min(of_task),
            )
        retry = options.pop("retry", None)
        return spec_with(task.spec, options, retry, "A schedule", ScheduleOptions.__annotations__)

    def _add_schedule(
        self,
        task: Task[Any, Any],
        spec: JobSpec,
        name: str,
        payload: Mapping[str, Any] | None,
        scopes: ScopeProvider | None,
        **more: Any,
    ) -> None:
        if (other := self.declared.get(name)) is not None:
            raise InvalidInput(
                f"Two schedules are named {name!r}: one of the task {other.spec.task!r} and one of "
                f"{task.name!r}. Give one of them another schedule_name.",
                field="schedule_name",
            )
        if payload is not None:
            check_document("payload", payload)
        encoded = task.definition.signature.encode((), payload or {})
        spec = with_key(spec, encoded)
        self.declared[name] = DeclaredSchedule(name, spec, encoded, scopes, **more)


def _check_keys(definition: TaskDefinition) -> None:
    """Refuse keys made of an argument that the handler does not take."""
    named = {
        "concurrency_key": arguments_in(definition.spec.concurrency_key or ""),
        "unique_by": definition.spec.unique_by or (),
    }
    if not any(named.values()):
        return
    schema = definition.signature.json_schema()
    taken = schema.get("properties", {})
    for field, names in named.items():
        unknown = [name for name in names if name not in taken]
        if unknown and not schema.get("additionalProperties"):
            raise InvalidInput(
                f"The {field} {getattr(definition.spec, field)!r} is made of the argument "
                f"{unknown[0]!r}, which the task {definition.name!r} does not take. Its arguments "
                f"are: {', '.join(taken) or 'none'}.",
                field=field,
            )
