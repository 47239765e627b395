"""A task as its author sees it: still callable, and able to enqueue itself."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.job import JobSpec, NewJob, check_priority
from evenbeat.domain.retry import RetryPolicy
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
        return NewJob(
            self.spec,
            self.definition.signature.encode(args, kwargs),
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
        metadata: Mapping[str, Any] | None = None,
        created_by: str | None = None,
        connection: Any = None,
    ) -> "Task[P, R]":
        """The same task with other settings for the jobs it enqueues; the task itself is unchanged.

        With `connection` (psycopg 3, SQLAlchemy or Django) a job takes part in the transaction that
        is open on it.
        """
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
        )  # fmt: skip
        return Task(
            self._enqueuer,
            self.definition,
            self._function,
            spec=spec,
            options=replace(self._options, **given),
        )


def override(
    spec: JobSpec,
    *,
    queue: str | None = None,
    priority: int | None = None,
    timeout: Duration | None = None,
    window: str | None = None,
    retry: RetryPolicy | None = None,
) -> JobSpec:
    """The spec with what is given in place of what it had; the same object when nothing is."""
    changes: dict[str, Any] = {}
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
