"""The application: tasks, schedules and enqueueing; where the parts are put together."""

import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace as copied
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    TypeVar,
)
from uuid import UUID

from evenbeat import __version__
from evenbeat.batch import Batch, Batches
from evenbeat.declared import (
    DEFAULT_NAME,
    ScheduleSync,
    SyncReport,
    check_version,
    fingerprint,
)
from evenbeat.decorators import Decorators
from evenbeat.domain.caller import Caller
from evenbeat.domain.job import DurationLike, NewJob
from evenbeat.domain.schedule import AfterCondition
from evenbeat.domain.setting_kinds import check_name
from evenbeat.engine.clock import Clock
from evenbeat.engine.ends import EndWatch
from evenbeat.engine.maintenance import Chore, SimpleChore
from evenbeat.engine.worker import Worker
from evenbeat.errors import InvalidInput, NameTaken
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
from evenbeat.task import Task, check_new

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from evenbeat.balance.balancer import Balancer
    from evenbeat.eager import Eager
    from evenbeat.observe.metrics import Metrics

    SignIn = Callable[[Request], Caller | Awaitable[Caller | None] | None]

logger = logging.getLogger(__name__)

R = TypeVar("R")


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


class Evenbeat(Decorators):
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
        super().__init__()
        self.name = name
        self.version = check_version(version)
        self.counters = Telemetry()
        self.readiness = Readiness(lambda: self.store, self.counters)
        self.jobs = Jobs(self)
        self.schedules = Schedules(self)
        self.batches = Batches(self)
        self.registry.hooks.application = self
        self.clock: Clock | None = None
        self._started_at: datetime | None = None
        self._workers: list[UUID] = []
        self._warned: dict[str, str] = {}
        self._overrides = settings | {"database_url": database_url}
        self._settings: Settings | None = None
        self._server: DatabaseServer | None = None
        self._eager: Eager | None = None
        self._opening = threading.RLock()

    def include_builtins(self) -> list[str]:
        """Offer the built-in tasks too (`docs/builtin-tasks.md`), as `evenbeat serve` and `evenbeat
        worker` do; the names of those added. A task of yours with such a name takes its place."""
        from evenbeat.tasks import builtin  # noqa: PLC0415 - only those who ask pay for it

        return builtin.register(
            self.registry, self.settings, [make(self) for make in provided("task")]
        )

    # -- enqueueing ------------------------------------------------------------------------------

    def add(
        self, job: NewJob, connection: Any = None, *, is_schedule: bool = False
    ) -> Added | Job[Any]:
        """Add one job; with a connection, as part of the transaction that is open on it. A schedule
        is no request of the moment: the hooks of enqueueing leave it alone."""
        check_new("add", job)
        if job.spec.memory_limit or job.spec.cpu_limit:
            self.registry.check_limits(job.spec)
        if not is_schedule:
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
            got = "one alone: pass [job]" if type(jobs) is NewJob else repr(jobs)
            raise InvalidInput(f"enqueue_many takes a list of jobs, got {got}.", field="jobs")
        jobs = list(jobs)
        for job in jobs:
            check_new("enqueue_many", job)
        for spec in {id(job.spec): job.spec for job in jobs}.values():
            self.registry.check_limits(spec)
        if self.registry.hooks.enqueueing:
            jobs = [self.registry.hooks.enqueued(job) for job in jobs]
        if self._eager is not None:
            return [self._eager.add(job) for job in jobs]
        added = on_borrowed(
            connection, lambda own: self.store.add_many(jobs, connection=own, now=self.now())
        )
        return [Job(self, id_, created) for id_, created in added]

    def job(self, job_id: UUID | str) -> Job[Any]:
        """A handle for the job of this id, whoever added it."""
        try:
            id_ = UUID(str(job_id))
            return (self._eager and self._eager.find(id_)) or Job(self, id_)
        except ValueError:
            raise InvalidInput(f"A job's id is a UUID, got {job_id!r}.", field="job_id") from None

    enqueue_many_async = async_form(enqueue_many)

    def batch(
        self,
        jobs: Iterable[NewJob],
        *,
        then: Task[..., Any] | NewJob | None = None,
        on: AfterCondition | str = AfterCondition.SUCCESS,
        name: str | None = None,
        within: Batch | None = None,
        connection: Any = None,
    ) -> Batch:
        """Add jobs as one, all or none, from none to a million: they are taken one by one. When the
        last of them has ended, retries included, `then` runs, once: if all have succeeded, or
        `on="any"` however they did. `within` makes it a part of another batch. See `docs/flow.md`.
        """
        self._refuse_eager()
        return self.batches.make(
            jobs, then=then, on=on, name=name, within=within, connection=connection
        )

    def open_batch(
        self,
        *,
        then: Task[..., Any] | NewJob | None = None,
        on: AfterCondition | str = AfterCondition.SUCCESS,
        name: str | None = None,
        within: Batch | None = None,
        connection: Any = None,
    ) -> Batch:
        """A batch that does not end before it is closed, to add jobs to as they turn up:
        `with app.open_batch(then=report) as batch: batch.add(...)`."""
        self._refuse_eager()
        return self.batches.make(
            (), then=then, on=on, name=name, within=within, stays_open=True, connection=connection
        )

    batch_async = async_form(batch)
    open_batch_async = async_form(open_batch)

    def _refuse_eager(self) -> None:
        if self._eager is not None:
            raise InvalidInput(
                "A batch lives in the database, which eager mode does without. Test it in a "
                "harness: evenbeat_harness(app).",
                field="jobs",
            )

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
        if replace and job.name is None:
            raise InvalidInput("Only a schedule with a name can be replaced.", field="name")
        if replace and connection is not None:
            raise InvalidInput(
                "A schedule is replaced in a transaction of its own, whatever becomes of yours. "
                "Leave out connection or replace.",
                field="connection",
            )
        try:
            added = self.add(job, connection, is_schedule=True)
            return added if isinstance(added, Job) else Job(self, added.id, created=added.created)
        except NameTaken as taken:
            if not replace:
                raise
            standing = taken.job_id
        self.store.control.update(
            standing,
            lambda _: job.spec,
            payload=job.payload,
            metadata=job.metadata,
            rewiring=after is not None,
            now=self.now(),
        )
        return Job(self, standing)

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
        if queues is not None and not queues:
            raise InvalidInput(
                "queues is an empty list: the worker would run nothing. Leave it out to serve all "
                "queues.",
                field="queues",
            )
        for queue in queues or ():
            check_name("queue", queue)
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
            warned=self._warned,
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

    @property
    def database_url(self) -> str:
        """Where the jobs are, on the embedded server too: for an engine or a connection of yours,
        in whose transactions jobs can take part."""
        return self.store.database.url

    @_MadeOnce
    def ends(self) -> EndWatch:
        """Notices when jobs have ended, for `job.result()`."""
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
        """Places recurring jobs, measures how even the schedule is, and rebalances it."""
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
