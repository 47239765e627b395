"""A job as its caller sees it: a handle to ask how it stands and to wait for what it gives."""

import asyncio
import time
from collections.abc import Generator
from concurrent.futures import Future
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast
from uuid import UUID

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.execution import Execution
from evenbeat.domain.job import DurationLike, JobRecord, NewJob
from evenbeat.domain.schedule import After, Once
from evenbeat.domain.states import FINISHED, JobStatus
from evenbeat.domain.step import Step
from evenbeat.engine.ends import EndWatch
from evenbeat.errors import InvalidInput, JobCancelled, JobFailed
from evenbeat.store.bulk import Added
from evenbeat.store.on_loop import async_form, is_on_loop, wait_here
from evenbeat.store.store import Store
from evenbeat.tasks.registry import Registry, Signature

R_co = TypeVar("R_co", covariant=True)
Timeout = DurationLike | None


class Application(Protocol):
    """What handles and tasks need of the application that they belong to."""

    registry: Registry

    if TYPE_CHECKING:

        @property
        def store(self) -> Store: ...
        @property
        def ends(self) -> EndWatch: ...

    def add(self, job: NewJob, connection: Any = None) -> "Added | Job[Any]":
        """Add one job; a handle of its own in eager mode (`eager.py`)."""

    def now(self) -> datetime | None:
        """The time of its own that a test gave it; None means the database's."""


class Job(Generic[R_co]):
    """A job that was added, by its id. `created` is false where a live job with the same
    `dedup_key` stands for it. Each method has an async form: `await job.status_async()`; `await
    job` is `await job.result_async()`."""

    __slots__ = ("_app", "_signature", "created", "id")

    def __init__(
        self,
        app: Application,
        id_: UUID,
        created: bool = False,
        *,
        signature: Signature | None = None,
    ) -> None:
        self._app = app
        self._signature = signature
        self.id = id_
        self.created = created

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def record(self) -> JobRecord:
        """The job's row: its settings, its schedule and its times; `NotFound` if it is gone."""
        return self._app.store.read.job(self.id)

    def status(self) -> JobStatus:
        """Where it stands: "pending", "scheduled", "running", "paused", "completed", "failed" or
        "cancelled"."""
        return JobStatus(self.record().status)

    def executions(self, *, limit: int = 50) -> list[Execution]:
        """Its runs, newest plan first."""
        return self._app.store.read.executions_of(self.id, limit=limit).executions

    def progress(self) -> dict[str, Any] | None:
        """What its latest run has reported by `ctx.progress`, if anything."""
        runs = self.executions(limit=1)
        return runs[0].progress if runs else None

    def steps(self) -> list[Step]:
        """What its runs have done for good, and sleep or wait for, in this order."""
        return self._app.store.steps.of(self.id)

    def send_event(self, name: str, payload: Any = None) -> bool:
        """Give an event to the run that waits for it by `ctx.wait_event`, or keep it for one that
        will; whether one waited."""
        return self._app.store.steps.send_event(self.id, name, payload, now=self._app.now())

    def cancel(self) -> None:
        """End it for good. A run in progress is stopped, and its result thrown away."""
        self._app.store.control.cancel([self.id], now=self._app.now()).only()

    def wait(self, timeout: Timeout = None) -> JobStatus:
        """Wait until it has ended, however it did; `TimeoutError` after `timeout`, and the job goes
        on. Only a job that runs once ends."""
        return self._ended(timeout)[0]

    def result(self, timeout: Timeout = None) -> R_co:
        """Wait until it has completed, and return what the handler returned, as the type of its
        annotation. `JobFailed` and `JobCancelled` say how else it ended."""
        status, job = self._ended(timeout)
        if status is JobStatus.CANCELLED:
            raise JobCancelled(self.id, job.task, "cancelled", "It was cancelled.")
        runs = self.executions(limit=1)
        last = runs[0] if runs else None
        if status is JobStatus.FAILED:
            code, message, trace = last[17:20] if last else (None, None, None)
            raise JobFailed(self.id, job.task, code, message, trace)
        value = None if last is None else last.result
        registry = self._app.registry
        return cast("R_co", registry.result_of(self.id, job.task, value, self._signature))

    def _ended(self, timeout: Timeout) -> tuple[JobStatus, JobRecord]:
        seconds = None if timeout is None else _seconds(timeout)
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            job = self.record()
            status = JobStatus(job.status)
            if status in FINISHED:
                return status, job
            if job.schedule_kind not in (Once.kind, After.kind):
                raise InvalidInput(
                    f"The job {self.id} ({job.task}) recurs, so it has no end to wait for. Its "
                    "runs are in job.executions().",
                    field="job",
                )
            left = None if until is None else until - time.monotonic()
            watch = self._app.ends
            future = watch.watch(self.id)
            try:
                _wait(future, left)
            except TimeoutError:
                raise TimeoutError(
                    f"The job {self.id} ({job.task}) has not ended within {seconds:g} s. It goes "
                    f"on; when last looked at, it was {status}."
                ) from None
            finally:
                watch.forget(self.id, future)

    record_async = async_form(record)
    status_async = async_form(status)
    executions_async = async_form(executions)
    progress_async = async_form(progress)
    steps_async = async_form(steps)
    send_event_async = async_form(send_event)
    cancel_async = async_form(cancel)
    wait_async = async_form(wait)
    result_async = async_form(result)

    def __await__(self) -> Generator[Any, Any, R_co]:
        return self.result_async().__await__()


def _seconds(timeout: DurationLike) -> float:
    if timeout == 0:
        return 0.0
    return parse_duration(timeout, field="timeout").total_seconds()


def _wait(future: Future[None], seconds: float | None) -> None:
    if is_on_loop():
        wait_here(asyncio.wait_for(asyncio.wrap_future(future), seconds))
    else:
        future.result(seconds)
