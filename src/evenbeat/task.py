"""A task as its author sees it: still callable, and able to enqueue itself."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache, update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import (
    BY_NAME,
    DurationLike,
    JobOptions,
    JobSpec,
    NewJob,
    with_settings,
)
from evenbeat.domain.limits import KEYS, arguments_in, filled_key
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import After, AfterCondition, Awaited, Once, after_jobs
from evenbeat.domain.scope import Scope
from evenbeat.errors import InvalidInput
from evenbeat.job import Application, Job
from evenbeat.store.on_loop import async_form
from evenbeat.tasks.context import Context
from evenbeat.tasks.registry import TaskDefinition

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")


class Task(Generic[P, R_co]):
    """A handler that a worker calls later: with the parameters P, and a result of the type R.

    `enqueue(...)` takes what the handler takes, but for its context, and checks it now.
    """

    def __init__(
        self,
        app: Application,
        definition: TaskDefinition,
        function: Callable[..., Any],
        *,
        spec: JobSpec | None = None,
        connection: Any = None,
        job_fields: Mapping[str, Any] | None = None,
    ) -> None:
        self.definition = definition
        self.name = definition.name
        self.spec = spec or definition.spec
        update_wrapper(cast("Any", self), function, updated=())
        self._app = app
        self._function = function
        self._connection = connection
        self._job_fields = job_fields or {}

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Add a job; its arguments are checked here and now. Returns a handle with its id."""
        added = self._app.add(self.job(*args, **kwargs), self._connection)
        if isinstance(added, Job):
            return added
        return Job(self._app, added.id, created=added.created, signature=self.definition.signature)

    enqueue_async = async_form(enqueue)

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The job that `enqueue` would add, for `app.enqueue_many`."""
        payload = self.definition.signature.encode(args, kwargs)
        return NewJob(with_key(self.spec, payload), payload, **self._job_fields)

    def options(
        self,
        *,
        delay: DurationLike | None = None,
        run_at: datetime | None = None,
        after: Any = None,
        after_on: AfterCondition | str | None = None,
        dedup_key: str | None = None,
        name: str | None = None,
        scope: Scope | None = None,
        metadata: Mapping[str, Any] | None = None,
        created_by: str | None = None,
        connection: Any = None,
        retry: RetryPolicy | None = None,
        **settings: Unpack[JobOptions],
    ) -> "Task[P, R_co]":
        """The same task with other settings for the jobs it enqueues; the task itself is unchanged.

        With `after`, jobs run whenever the jobs that it names have ended: one or a list of what
        `enqueue` returned, ids, names, or `Awaited`; successfully, unless `after_on` says
        otherwise. With `connection` (psycopg 3, SQLAlchemy or Django) a job takes part in the
        transaction that is open on it.
        """
        if delay is not None and run_at is not None:
            raise InvalidInput("Give either delay or run_at, not both.", field="delay")
        if run_at is not None:
            aware(run_at, "run_at")
        fields: dict[str, Any] = {
            "start": parse_duration(delay, field="delay") if delay is not None else run_at,
            "name": name,
            "scope": scope,
            "dedup_key": dedup_key,
            "metadata": metadata,
            "created_by": created_by,
        }
        spec = spec_with(self.spec, settings, retry, "options()", Task.options.__kwdefaults__ or ())
        if after is not None:
            spec = replace(spec, schedule=awaited_jobs(after, after_on))
        elif after_on is not None:
            raise InvalidInput(
                "after_on says how jobs must end; name them by after.", field="after_on"
            )
        return Task(
            self._app,
            self.definition,
            self._function,
            spec=spec,
            connection=self._connection if connection is None else connection,
            job_fields={
                **self._job_fields,
                **{field: value for field, value in fields.items() if value is not None},
            },
        )


class TaskFunction(Task[P, R_co], Generic[P, R_co, Q, S]):
    """What a decorator leaves in place of the function: calling it calls the function, which has
    the parameters Q and returns S: those of the task, but for its context and for what an async
    function returns at first."""

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> S:
        value: S = self._function(*args, **kwargs)
        return value


class TaskDecorator(Protocol):
    """Makes a function a task. A leading context, which the worker gives, is no argument of it."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> TaskFunction[P, R, Concatenate[Context, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R, P, R]: ...


def awaited_jobs(jobs: Any, on: AfterCondition | str | None = None) -> After:
    """The schedule of a job that waits for these: tasks (by their names), jobs, batches, what
    `enqueue` gave, ids, names or `Awaited`; one of them or several."""
    one = hasattr(jobs, "id") or not isinstance(jobs, list | tuple | set | frozenset)
    references = [
        job.name if isinstance(job, Task) else getattr(job, "id", job)
        for job in ([jobs] if one else jobs)
    ]
    return after_jobs(references, on or AfterCondition.SUCCESS)


def chain(*steps: NewJob | Iterable[NewJob]) -> list[NewJob]:
    """Jobs of which each runs when the one before has succeeded, for `app.enqueue_many` and
    `app.batch`: `chain(extract.job(), [load.job(), index.job()], report.job())`. The jobs of a list
    run side by side, and the step after it waits for all of them. A job that waits for others
    already, such as one of another chain, is left as it is."""
    jobs: list[NewJob] = []
    before: tuple[Awaited, ...] = ()
    for step in steps:
        members: list[NewJob] = []
        for job in step if isinstance(step, Iterable) else [step]:
            check_new("chain", job)
            spec, waits = job.spec, isinstance(job.spec.schedule, After)
            if not waits and spec.schedule != Once():
                raise InvalidInput(
                    f"A chain takes jobs that run once; that of {spec.task!r} has a schedule.",
                    field="jobs",
                )
            if before and not waits:
                spec = replace(spec, schedule=After(before))
            members.append(replace(job, id=job.id or uuid7(), spec=spec))
        jobs += members
        before = tuple(Awaited(job.id) for job in members if job.id is not None) or before
    return jobs


def aware(moment: Any, field: str) -> datetime:
    """A moment that a caller gives, if it is one."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidInput(
            f"{field} must be a datetime with a time zone, such as datetime(2030, 1, 31, 9, "
            f"tzinfo=ZoneInfo('Europe/Berlin')); got {moment!r}.",
            field=field,
        )
    return moment


def spec_with(
    spec: JobSpec,
    settings: Mapping[str, Any],
    retry: RetryPolicy | None,
    taker: str,
    options: Iterable[str],
) -> JobSpec:
    """The spec with the settings that Python code gives; None leaves one as it is. `options` are
    what the taker takes besides settings, to be listed when one is misspelt."""
    if unknown := settings.keys() - BY_NAME.keys():
        wrong, known = min(unknown), sorted({*BY_NAME, *options})
        near = get_close_matches(wrong, known, n=1) or [n for n in known if n.endswith(wrong)]
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise TypeError(f"{taker} has no option {wrong!r}. {hint}There are: {', '.join(known)}.")
    changes = {name: value for name, value in settings.items() if value is not None}
    for key in KEYS & changes.keys():
        arguments_in(changes[key], key)
    return with_settings(spec if retry is None else replace(spec, retry=retry), changes)


def with_key(spec: JobSpec, payload: Mapping[str, Any]) -> JobSpec:
    """The spec for a job with these arguments: a key made of them is filled in."""
    for setting in KEYS:
        template: str | None = getattr(spec, setting)
        if template is not None and (key := filled_key(template, payload, setting)) != template:
            return _with_filled(spec, setting, key)
    return spec


@lru_cache(maxsize=1000)
def _with_filled(spec: JobSpec, setting: str, key: str) -> JobSpec:
    """One spec for all jobs of a key: to check one takes longer than to add a job."""
    return with_settings(spec, {setting: key})


def check_new(taker: str, job: Any) -> None:
    """Refuse what is no job that could be added, such as a task, or what `enqueue` gave."""
    if not isinstance(job, NewJob):
        raise InvalidInput(
            f"{taker} takes jobs that are yet to be added, got {job!r}. Make them by "
            f"{job.name if isinstance(job, Task) else 'task'}.job(...), which takes the same "
            "arguments as enqueue(...).",
            field="jobs",
        )
