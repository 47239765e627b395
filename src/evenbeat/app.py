"""The application: tasks, schedules and enqueueing; where the parts are put together."""

import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace as copied
from datetime import datetime, timedelta
from itertools import chain, count
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from uuid import UUID

from evenbeat import __version__
from evenbeat.declared import (
    DEFAULT_NAME,
    DeclaredSchedule,
    PeriodicOptions,
    ScheduleOptions,
    ScheduleSync,
    ScopeProvider,
    SyncReport,
    TaskOptions,
    check_version,
    fingerprint,
    periodic_spec,
)
from evenbeat.domain.caller import Caller
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.job import DurationLike, JobOptions, JobSpec, NewJob
from evenbeat.domain.limits import arguments_in
from evenbeat.domain.schedule import AfterCondition, Awaited, Cron, Interval, Schedule
from evenbeat.engine.clock import Clock
from evenbeat.engine.ends import EndWatch
from evenbeat.engine.maintenance import Chore, SimpleChore
from evenbeat.engine.worker import Worker
from evenbeat.errors import InvalidInput
from evenbeat.events import EventBus, EventName, Listener
from evenbeat.job import Job
from evenbeat.jobs import Jobs, Schedules, schedule_from
from evenbeat.observe.readiness import Readiness
from evenbeat.observe.telemetry import Telemetry
from evenbeat.plugins import DatabaseServer, provided
from evenbeat.settings import Settings, load_settings
from evenbeat.store.borrowed import on_borrowed
from evenbeat.store.bulk import Added
from evenbeat.store.on_loop import aside, async_form, is_on_loop
from evenbeat.store.placement import PlacedAside
from evenbeat.store.store import Store
from evenbeat.store.upkeep import ApplicationCode
from evenbeat.task import (
    Task,
    TaskDecorator,
    TaskFunction,
    awaited_jobs,
    spec_with,
    with_key,
)
from evenbeat.tasks.context import Context
from evenbeat.tasks.hooks import EnqueueHook, Lifespan, Middleware, check_hook
from evenbeat.tasks.registry import Registry, TaskDefinition, define

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from evenbeat.balance.balancer import Balancer
    from evenbeat.eager import Eager
    from evenbeat.observe.metrics import Metrics

    SignIn = Callable[[Request], Caller | Awaitable[Caller | None] | None]

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
_OF_THE_TASK = TaskOptions.__annotations__.keys() - {*JobOptions.__annotations__, "retry"}
ListenerT = TypeVar("ListenerT", bound=Listener)
MiddlewareT = TypeVar("MiddlewareT", bound=Middleware)
LifespanT = TypeVar("LifespanT", bound=Lifespan)
EnqueueHookT = TypeVar("EnqueueHookT", bound=EnqueueHook)
AnyTask = TaskFunction[..., Any, ..., Any]


class _MadeOnce(Generic[R]):
    """A property that is made on first use, and never twice by two threads. `cached_property` would
    have done, but in Python 3.11 its lock is shared by all applications of a process."""

    def __init__(self, make: Callable[["Evenbeat"], R]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __get__(self, app: "Evenbeat", _owner: object = None) -> R:
        value: R | None = app.__dict__.get(self._make.__name__)
        return aside(lambda: self._made(app)) if value is None else value

    def _made(self, app: "Evenbeat") -> R:
        with app._opening:
            if (value := app.__dict__.get(self._make.__name__)) is None:
                value = app.__dict__[self._make.__name__] = self._make(app)
        return value


class Evenbeat:
    """A scheduler: declare tasks and schedules on it, enqueue jobs, run workers.

    Nothing connects until it is needed. Without a database URL (argument, EVENBEAT_DATABASE_URL or
    evenbeat.toml) a private PostgreSQL server is started in the data directory.
    """

    def __init__(
        self,
        database_url: str | None = None,
        *,
        name: str = DEFAULT_NAME,
        version: str | None = None,
        **settings: Any,
    ) -> None:
        """`name` says whose schedules are whose where applications share a database; `version`,
        which grows with each release, lets the older of two releases leave them to the newer."""
        self.name = name
        self.version = check_version(version)
        self.registry = Registry()
        self.events = EventBus()
        self.counters = Telemetry()
        self.readiness = Readiness(lambda: self.store, self.counters)
        self.declared: dict[str, DeclaredSchedule] = {}
        self.jobs = Jobs(self)
        self.schedules = Schedules(self)
        self.clock: Clock | None = None
        self._started_at: datetime | None = None
        self._workers: list[UUID] = []
        self._overrides = settings | {"database_url": database_url}
        self._settings: Settings | None = None
        self._server: DatabaseServer | None = None
        self._eager: Eager | None = None
        self._opening = threading.RLock()

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

    def include_builtins(self) -> list[str]:
        """Offer the built-in tasks too (`docs/builtin-tasks.md`), as `evenbeat serve` and `evenbeat
        worker` do; the names of those added. A task of yours with such a name takes its place."""
        from evenbeat.tasks import builtin  # noqa: PLC0415 - only those who ask pay for it

        return builtin.register(
            self.registry, self.settings, [make(self) for make in provided("task")]
        )

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

    # -- enqueueing ------------------------------------------------------------------------------

    def add(self, job: NewJob, connection: Any = None) -> Added | Job[Any]:
        """Add one job; with a connection, as part of the transaction that is open on it."""
        _check_new("add", job)
        if job.spec.memory_limit or job.spec.cpu_limit:
            self.registry.check_limits(job.spec)
        job = self.registry.hooks.enqueued(job)
        if self._eager is not None:
            return self._eager.add(job)
        if connection is None:
            return self.store.add(job, now=self.now())
        return on_borrowed(
            connection, lambda own: self.store.add(job, connection=own, now=self.now())
        )

    def enqueue_many(self, jobs: Iterable[NewJob], *, connection: Any = None) -> list[Job[Any]]:
        """Add many jobs, all or none: `app.enqueue_many(send.job(to=x) for x in people)`."""
        if isinstance(jobs, NewJob) or not isinstance(jobs, Iterable):
            raise InvalidInput(f"enqueue_many takes a list of jobs, got {jobs!r}.", field="jobs")
        jobs = list(jobs)
        for job in jobs:
            _check_new("enqueue_many", job)
        for spec in {id(job.spec): job.spec for job in jobs}.values():
            self.registry.check_limits(spec)
        jobs = [self.registry.hooks.enqueued(job) for job in jobs]
        if self._eager is not None:
            return [self._eager.add(job) for job in jobs]
        added = on_borrowed(
            connection, lambda own: self.store.add_many(jobs, connection=own, now=self.now())
        )
        return [Job(self, one.id, created=one.created) for one in added]

    def job(self, job_id: UUID | str) -> Job[Any]:
        """A handle for the job of this id, whoever added it."""
        try:
            id_ = UUID(str(job_id))
            return (self._eager and self._eager.find(id_)) or Job(self, id_)
        except ValueError:
            raise InvalidInput(f"A job's id is a UUID, got {job_id!r}.", field="job_id") from None

    enqueue_many_async = async_form(enqueue_many)

    def schedule(
        self,
        task: Task[..., Any] | NewJob | str,
        /,
        *,
        every: DurationLike | None = None,
        cron: str | None = None,
        at: datetime | None = None,
        after: Any = None,
        on: AfterCondition | str | None = None,
        timezone: str | None = None,
        name: str | None = None,
        replace: bool = False,
        connection: Any = None,
        **arguments: Any,
    ) -> Job[Any]:
        """Add a schedule at run time: `app.schedule(sync, every="30m", name="sync-7", shop=7)`. A
        task takes any number of them; `task.options(...)` gives it other settings, and a job made
        by `task.job(...)` may stand for task and arguments. A `name` that is taken is an error,
        or with `replace` that schedule becomes this one."""
        if isinstance(task, str):
            task = self.task_named(task)
        job: Any = task.job(**arguments) if isinstance(task, Task) else task
        schedule = schedule_from(
            every=every, cron=cron, at=at, after=after, on=on, timezone=timezone
        )
        if schedule is None:
            raise InvalidInput(
                'Say when to run: every="30m", cron="0 9 * * *", at=datetime(...) or after=other.',
                field="every",
            )
        if not isinstance(job, NewJob) or (job is task and arguments):
            raise InvalidInput(
                "schedule takes a task and its arguments, or a job made by task.job(...), which "
                f"has its arguments already; got {task!r}.",
                field="task",
            )
        job = copied(job, spec=copied(job.spec, schedule=schedule), name=name or job.name)
        standing = None
        if replace:
            if job.name is None:
                raise InvalidInput("Only a schedule with a name can be replaced.", field="name")
            standing = self.store.read.job_by_name(job.name, job.scope)
        if standing is None:
            added = self.add(job, connection)
            return added if isinstance(added, Job) else Job(self, added.id, created=added.created)
        self.registry.check_limits(job.spec)
        self.store.control.update(
            standing.id,
            lambda _: job.spec,
            payload=job.payload,
            metadata=job.metadata,
            rewiring=after is not None,
            now=self.now(),
        )
        return Job(self, standing.id)

    schedule_async = async_form(schedule)

    def task_named(self, name: str) -> Task[..., Any]:
        """The task of this name, to enqueue jobs without its code: what workers have registered of
        it gives its settings, and the schema by which arguments are checked."""
        if name in self.registry:
            definition = self.registry.get(name)
        else:
            from evenbeat.named_task import recorded_definition  # noqa: PLC0415 - loads jsonschema

            definition = recorded_definition(name, self.store, self.now())
        return Task(self, definition, definition.handler)

    task_named_async = async_form(task_named)

    @contextmanager
    def eager(self, *, raise_errors: bool = True) -> "Iterator[Eager]":
        """For tests without a database: while the block lasts, `enqueue` runs the handler at once,
        in this process, and gives a job whose `result()` can be read. What the handler raises comes
        out of `enqueue`, or with `raise_errors=False` out of `result()`. Schedules, delays, retries
        and limits are those of a worker: for them, there is the harness."""
        from evenbeat.eager import Eager  # noqa: PLC0415 - for tests only

        before, limit = self._eager, self.settings.max_payload_bytes
        self._eager = Eager(self, raise_errors=raise_errors, max_json_bytes=limit)
        try:
            yield self._eager
        finally:
            self._eager = before

    # -- running ---------------------------------------------------------------------------------

    def worker(
        self, *, queues: Sequence[str] | None = None, concurrency: int | None = None
    ) -> Worker:
        """A worker for this application's tasks; schedules are synchronised first."""
        if isinstance(queues, str):
            raise InvalidInput(
                f"queues must be a list of names: queues=[{queues!r}].", field="queues"
            )
        settings = self.settings
        if concurrency is not None:
            settings = load_settings(**(self._overrides | {"concurrency": concurrency}))
        self.sync_schedules()
        # Every worker delivers webhooks, whatever else it can do.
        from evenbeat.tasks.builtin import webhook  # noqa: PLC0415 - only workers need it

        webhook.register(self.registry, lambda: self.settings, lambda: self.store, self.now)
        # The balancer is made when it is first needed: it loads NumPy.
        watch = SimpleChore("balance", timedelta(minutes=5), lambda: self.balancer.watch())  # noqa: PLW0108
        chores: list[Chore] = [watch]
        code = self._code()
        if self.declared:
            # Scopes come and go, and so do other releases, each of which has its own turn.
            turn, sync = f"schedule_sync:{code.name}:{code.schedules}", self.sync_schedules
            minute = timedelta(minutes=1)
            chores.insert(0, SimpleChore(turn, minute, lambda: sync().changed))
        chores += filter(None, (make(self) for make in provided("chore")))
        worker = Worker(
            self.store,
            self.registry,
            settings,
            queues=queues,
            events=self.events,
            clock=self.clock,
            chores=chores,
            telemetry=self.counters,
            application=code,
            beside_start=lambda: self.balancer.rebuild(),  # noqa: PLW0108 - NumPy, loaded aside
        )
        self._workers.append(worker.identity.id)
        return worker

    def asgi(self, *, auth: "bool | SignIn" = True) -> "ASGIApp":
        """API and dashboard, to mount in an ASGI application of yours:
        `site.mount("/evenbeat", app.asgi())`. Your own sign-in lets people in with a function
        `auth(request)`, plain or async, that returns their `Caller`, or None. With `auth=False`,
        whoever reaches it over a loopback address is admin. No worker runs in it; see `worker`."""
        from evenbeat.asgi import LazyService  # noqa: PLC0415 - those who never serve never load it

        return LazyService(self, auth=auth)

    def sync_schedules(self, *, disable_removed: bool = False) -> SyncReport:
        """Bring the database in line with the schedules that this code declares."""
        if disable_removed and self.name == DEFAULT_NAME:
            raise InvalidInput(
                "Schedules that the code no longer declares are only stopped for an application "
                'with a name of its own: Evenbeat(name="shop"). Without one, this would also stop '
                "the schedules of other applications without a name. Its schedules keep their "
                "rhythm when it gets one.",
                field="name",
            )
        if self._started_at is None:
            self._started_at = self.store.clock(self.now())
        sync = ScheduleSync(
            self.store,
            self._code(),
            started_at=self._started_at,
            own_workers=self._workers,
            now=self.now(),
        )
        return sync.run_once(self.declared.values(), disable_removed=disable_removed)

    def _code(self) -> ApplicationCode:
        return ApplicationCode(self.name, self.version, fingerprint(self.declared.values()))

    def now(self) -> datetime | None:
        """The time of its own that a test gave it; None means the database's."""
        return None if self.clock is None else self.clock.override()

    def configure(self, **settings: Any) -> None:
        """Change settings, before or between uses: `app.configure(database_url=...)`. An open
        database is closed; the next use opens the one that is meant now."""
        self.close()
        self._overrides = self._overrides | settings
        self._settings = None

    @property
    def settings(self) -> Settings:
        """The settings in force, read on first use."""
        if self._settings is None:
            self._settings = load_settings(**self._overrides)
        return self._settings

    @_MadeOnce
    def store(self) -> Store:
        """The store, opened and migrated on first use."""
        settings = self.settings
        if settings.database_url is not None:
            url = settings.database_url.get_secret_value()
        else:
            (start,) = provided("server")
            self._server = server = start(settings.server_dir)
            url = server.url
            if any(self.registry):  # commands, which have no tasks, need not say it each time
                logger.warning(
                    "No database is named, so jobs are kept by a private PostgreSQL server in %s, "
                    "which other machines do not see. Set EVENBEAT_DATABASE_URL in production; "
                    "with EVENBEAT_EMBEDDED=off a missing one is an error.",
                    settings.server_dir,
                )
        store = Store(
            url,
            schema=settings.db_schema,
            pool_size=settings.pool_size,
            timeout=settings.database_timeout_seconds,
            answer_seconds=min(10.0, settings.lease_seconds / 2),
            pooling=settings.pooling,
            listen_url=settings.listen_url and settings.listen_url.get_secret_value(),
            read_url=settings.read_url and settings.read_url.get_secret_value(),
            max_json_bytes=settings.max_payload_bytes,
            placer=lambda: PlacedAside(self.balancer) if is_on_loop() else self.balancer,
        )
        store.migrate(only_check=not settings.migrate)
        return store

    @_MadeOnce
    def ends(self) -> EndWatch:
        """Who waits for the ends of jobs, for `job.result()`."""
        return EndWatch(self.store)

    @_MadeOnce
    def metrics(self) -> "Metrics":
        """This application's metrics, in a registry of its own; made on first use."""
        from evenbeat.observe.metrics import Metrics  # noqa: PLC0415 - takes longer than Evenbeat

        return Metrics(
            self.counters,
            store=lambda: self.store,
            tasks=self.registry.named,
            now=self.now,
            database=lambda: self.store.database if "store" in self.__dict__ else None,
            balancer=lambda: self.balancer,
            silent_seconds=max(30.0, 3 * self.settings.renew_seconds),
            version=__version__,
        )

    @_MadeOnce
    def balancer(self) -> "Balancer":
        """Who places recurring jobs, tells how even the schedule is, and rebalances it."""
        from evenbeat.balance.balancer import Balancer  # noqa: PLC0415 - NumPy, for those who need it

        balancer = Balancer(self.store, self.settings, override=self.now, events=self.events)
        balancer.on_placement.append(self.counters.placed)
        return balancer

    def close(self) -> None:
        """Give connections back and leave the embedded server."""
        self.__dict__.pop("balancer", None)
        if (ends := self.__dict__.pop("ends", None)) is not None:
            ends.close()
        if (store := self.__dict__.pop("store", None)) is not None:
            store.close()
        self.stop_server()

    def stop_server(self) -> None:
        """Leave the embedded server, if this process uses one."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def __enter__(self) -> "Evenbeat":
        return self

    def __exit__(self, *_: object) -> None:
        """Close, unless a worker of this process needs the database."""
        if not self.counters.status():
            self.close()

    # --------------------------------------------------------------------------------------------

    def _declare(
        self,
        function: Callable[..., Any],
        options: Mapping[str, Any],
        known: Iterable[str] = TaskOptions.__annotations__,
    ) -> AnyTask:
        if isinstance(function, Task):
            raise InvalidInput(
                f"{function!r} is a task already. Of stacked decorators, only every, cron and "
                "after can stand above another; the innermost makes the task.",
                field="handler",
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
        _check_key(definition)
        self.registry.add(definition)
        return TaskFunction(self, definition, function)

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
            spec = copied(spec, schedule=schedule)
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
        encoded = task.definition.signature.encode((), payload or {})
        spec = with_key(spec, encoded)
        self.declared[name] = DeclaredSchedule(name, spec, encoded, scopes, **more)


def _check_new(taker: str, job: Any) -> None:
    """Refuse what is no job that could be added, such as a task, or what `enqueue` gave."""
    if not isinstance(job, NewJob):
        raise InvalidInput(
            f"{taker} takes jobs that are yet to be added, got {job!r}. Make them by "
            f"{job.name if isinstance(job, Task) else 'task'}.job(...), which takes the same "
            "arguments as enqueue(...).",
            field="jobs",
        )


def _check_key(definition: TaskDefinition) -> None:
    """Refuse a concurrency key made of an argument that the handler does not take."""
    named = arguments_in(definition.spec.concurrency_key or "")
    if not named:
        return
    schema = definition.signature.json_schema()
    taken = schema.get("properties", {})
    unknown = [name for name in named if name not in taken]
    if unknown and not schema.get("additionalProperties"):
        raise InvalidInput(
            f"The concurrency_key {definition.spec.concurrency_key!r} is made of the argument "
            f"{unknown[0]!r}, which the task {definition.name!r} does not take. Its arguments are: "
            f"{', '.join(taken) or 'none'}.",
            field="concurrency_key",
        )
