"""A task as its author sees it: still callable, and able to enqueue itself."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.job import Job, JobSpec, NewJob, check_priority
from evenbeat.domain.limits import RateLimit, arguments_in, filled_key, parse_rate
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import After, AfterCondition, after_jobs
from evenbeat.domain.scope import GLOBAL, Scope
from evenbeat.domain.window import parse_window
from evenbeat.errors import InvalidInput
from evenbeat.store.bulk import Added
from evenbeat.tasks.registry import TaskDefinition

P = ParamSpec("P")
R = TypeVar("R")

Duration = timedelta | float | str


class Enqueuer(Protocol):
    """Who puts jobs into the database."""

    def add(self, job: NewJob, connection: Any = None) -> Added:
        """Add one job, in the caller's transaction when a connection is given."""


@dataclass(frozen=True, slots=True)
class _Options:
    """What `options()` set for jobs to come."""

    start: datetime | timedelta | None = None
    name: str | None = None
    scope: Scope = GLOBAL
    dedup_key: str | None = None
    metadata: Mapping[str, Any] | None = None
    created_by: str | None = None
    connection: Any = None


class Task(Generic[P, R]):
    """What a task decorator leaves in place of the function.

    Calling it calls the function. `enqueue(...)` takes the same arguments, checks them now, and
    lets a worker call the function later.
    """

    def __init__(
        self,
        enqueuer: Enqueuer,
        definition: TaskDefinition,
        function: Callable[P, R],
        *,
        spec: JobSpec | None = None,
        options: _Options | None = None,
    ) -> None:
        self.definition = definition
        self.name = definition.name
        self.spec = spec or definition.spec
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", definition.name)
        self.__qualname__ = getattr(function, "__qualname__", definition.name)
        self.__module__ = function.__module__
        self._enqueuer = enqueuer
        self._function = function
        self._options = options or _Options()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def enqueue(self, *args: Any, **kwargs: Any) -> Added:
        """Add a job; its arguments are checked here and now. Returns its id."""
        return self._enqueuer.add(self.job(*args, **kwargs), self._options.connection)

    async def enqueue_async(self, *args: Any, **kwargs: Any) -> Added:
        """`enqueue` without holding up the event loop."""
        job = self.job(*args, **kwargs)
        return await asyncio.to_thread(self._enqueuer.add, job, self._options.connection)

    def job(self, *args: Any, **kwargs: Any) -> NewJob:
        """The job that `enqueue` would add, for `app.enqueue_many`."""
        chosen = self._options
        payload = self.definition.signature.encode(args, kwargs)
        return NewJob(
            with_key(self.spec, payload),
            payload,
            start=chosen.start,
            name=chosen.name,
            scope=chosen.scope,
            dedup_key=chosen.dedup_key,
            metadata=chosen.metadata or {},
            created_by=chosen.created_by,
        )

    def options(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        dedup_key: str | None = None,
        name: str | None = None,
        scope: Scope | None = None,
        timeout: Duration | None = None,
        max_retries: int | None = None,
        retry: RetryPolicy | None = None,
        window: str | None = None,
        concurrency_key: str | None = None,
        concurrency_limit: int | None = None,
        rate_limit: RateLimit | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        created_by: str | None = None,
        after: Any = None,
        after_on: AfterCondition | str | None = None,
        connection: Any = None,
    ) -> "Task[P, R]":
        """The same task with other settings for the jobs it enqueues; the task itself is unchanged.

        With `after`, jobs run whenever those have ended that it names: one or a list of what
        `enqueue` gave, ids, names, or `Awaited`; successfully, unless `after_on` says other.
        With `connection` (psycopg 3, SQLAlchemy or Django) a job takes part in the transaction that
        is open on it.
        """
        awaited = _after(after, after_on)
        if delay is not None and run_at is not None:
            raise InvalidInput("Give either delay or run_at, not both.", field="delay")
        start = parse_duration(delay, field="delay") if delay is not None else run_at
        new: dict[str, Any] = {
            "start": start,
            "name": name,
            "scope": scope,
            "dedup_key": dedup_key,
            "metadata": metadata,
            "created_by": created_by,
            "connection": connection,
        }
        given = {key: value for key, value in new.items() if value is not None}
        spec = override(
            self.spec, queue=queue, priority=priority, timeout=timeout, window=window,
            retry=retry_policy(self.spec.retry, max_retries=max_retries, retry=retry),
            concurrency_key=concurrency_key, concurrency_limit=concurrency_limit,
            rate_limit=rate_limit,
        )  # fmt: skip
        if awaited is not None:
            spec = replace(spec, schedule=awaited)
        return Task(
            self._enqueuer,
            self.definition,
            self._function,
            spec=spec,
            options=replace(self._options, **given),
        )


def awaited_jobs(jobs: Any, on: AfterCondition | str | None = None) -> After:
    """The schedule of a job that waits for these: tasks (by their names), jobs, what `enqueue`
    gave, ids, names or `Awaited`; one of them or several."""
    several = jobs if isinstance(jobs, list | tuple | set | frozenset) else [jobs]
    several = [jobs] if isinstance(jobs, Added | Job) else several
    return after_jobs(map(_reference, several), on or AfterCondition.SUCCESS)


def _reference(job: Any) -> Any:
    if isinstance(job, Task):
        return job.name
    return job.id if isinstance(job, Added | Job) else job


def _after(jobs: Any, on: AfterCondition | str | None) -> After | None:
    if jobs is not None:
        return awaited_jobs(jobs, on)
    if on is not None:
        raise InvalidInput("after_on says how jobs must end; name them by after.", field="after_on")
    return None


def override(
    spec: JobSpec,
    *,
    queue: str | None = None,
    priority: int | None = None,
    timeout: Duration | None = None,
    window: str | None = None,
    retry: RetryPolicy | None = None,
    concurrency_key: str | None = None,
    concurrency_limit: int | None = None,
    rate_limit: RateLimit | str | None = None,
) -> JobSpec:
    """The spec with what is given in place of what it had; the same object when nothing is."""
    changes: dict[str, Any] = {}
    if concurrency_key is not None:
        arguments_in(concurrency_key)
        changes["concurrency_key"] = concurrency_key
    if concurrency_limit is not None:
        changes["concurrency_limit"] = concurrency_limit
    if rate_limit is not None:
        changes["rate_limit"] = parse_rate(rate_limit)
    if queue is not None:
        changes["queue"] = queue
    if priority is not None:
        check_priority(priority)
        changes["priority"] = priority
    if timeout is not None:
        changes["timeout"] = parse_duration(timeout, field="timeout")
    if window is not None:
        changes["window"] = parse_window(window)
    if retry is not None and retry != spec.retry:
        changes["retry"] = retry
    return replace(spec, **changes) if changes else spec


def with_key(spec: JobSpec, payload: Mapping[str, Any]) -> JobSpec:
    """The spec for a job with these arguments: a concurrency key made of them is filled in."""
    if spec.concurrency_key is None:
        return spec
    key = filled_key(spec.concurrency_key, payload)
    return spec if key == spec.concurrency_key else replace(spec, concurrency_key=key)


def retry_policy(
    base: RetryPolicy,
    *,
    max_retries: int | None = None,
    retry: RetryPolicy | None = None,
    backoff: Any = None,
) -> RetryPolicy:
    """The policy that a decorator's or `options()`'s arguments describe. A `backoff` that is one
    duration doubles; a list gives each delay, the last one repeated."""
    policy = retry or base
    if isinstance(backoff, list | tuple):
        policy = replace(policy, delays=tuple(parse_duration(d, field="backoff") for d in backoff))
    elif backoff is not None:
        first = parse_duration(backoff, field="backoff")
        policy = replace(policy, base=first, cap=max(policy.cap, first), delays=())
    return policy if max_retries is None else replace(policy, max_retries=max_retries)
