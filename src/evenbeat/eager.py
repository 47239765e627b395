"""Eager mode, for tests without a database: to enqueue a job is to run it.

    with app.eager():
        job = send_receipt.enqueue(order_id=7)       # has run when this returns
        assert job.result() == "sent"

Arguments and results take the way of a worker: to JSON text, and through the handler's signature.
There is nothing else of a worker in it; `testing.py` has one on a real database.
"""

import asyncio
import inspect
import json
import logging
import math
import time
from collections.abc import Awaitable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context as Variables
from contextvars import ContextVar, copy_context
from copy import copy
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from threading import Thread
from typing import Any
from uuid import UUID

from evenbeat.domain.execution import Execution, Outcome
from evenbeat.domain.first_run import first_run
from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import JobRecord, NewJob, spec_columns
from evenbeat.domain.schedule import Once
from evenbeat.domain.states import FINISHED, LIVE, TRANSITIONS, ExecutionStatus, JobStatus
from evenbeat.domain.step import Step, StepKind
from evenbeat.domain.unique import holds_key, identified
from evenbeat.engine.outcome import completed, encode_progress, failed
from evenbeat.engine.run import Run
from evenbeat.errors import IllegalTransition, InvalidInput
from evenbeat.job import Application, Job, Timeout
from evenbeat.store.on_loop import aside
from evenbeat.store.rows import encode_json
from evenbeat.tasks.context import Context
from evenbeat.tasks.hooks import await_inside, call_inside
from evenbeat.tasks.steps import Suspended

MOST_NESTED = 50
"""How deep jobs may enqueue jobs: a handler that enqueues itself would never come to an end."""

NOBODY = UUID(int=0)
"""The worker of runs in eager mode."""

_depth: ContextVar[int] = ContextVar("evenbeat_eager_depth", default=0)
"""How many runs are around the present code."""

OUTCOME_FIELDS = {field.name for field in fields(Outcome)}


class EagerJob(Job[Any]):
    """What `enqueue` gives in eager mode. It has all that the handle of a job has, and `raised`:
    what its handler raised."""

    __slots__ = ("_executions", "_record", "raised")

    def __init__(self, app: Application, record: JobRecord) -> None:
        super().__init__(app, record.id, created=True)
        self._record = record
        self._executions: list[Execution] = []
        self.raised: Exception | None = None

    def record(self) -> JobRecord:
        """The row that the job would be."""
        return self._record

    def executions(self, *, limit: int = 50) -> list[Execution]:
        """Its only run; none where it is not for eager mode to run it."""
        return self._executions[:limit]

    def cancel(self) -> None:
        """What has run cannot be cancelled."""
        if (status := self.status()) in FINISHED:
            allowed = TRANSITIONS[status]
            raise IllegalTransition(
                status, JobStatus.CANCELLED, allowed, verb="cancelled", sources=LIVE
            )
        self._record = self._record._replace(status=JobStatus.CANCELLED)

    def _has_run(self, run: Run, outcome: Outcome, now: datetime, progress: Any) -> None:
        """Remember how its run has ended."""
        values: dict[str, Any] = dict.fromkeys(Execution._fields)
        values |= {name: getattr(outcome, name) for name in values.keys() & OUTCOME_FIELDS}
        values |= {
            "id": run.token,
            "job_id": self.id,
            "plan_time": run.context.plan_time,
            "started_at": run.job.started_at,
            "completed_at": now,
            "worker_id": NOBODY,
            "execution_number": 1,
            "retry_attempt": 0,
            "release_count": 0,
            "status": str(outcome.status),
            "progress": progress,
            "result": None if outcome.result is None else json.loads(outcome.result),
        }
        self._executions = [Execution(**values)]
        status = JobStatus(outcome.status.value)
        if outcome.resume_at is not None:  # snoozed, and nobody runs it again
            status = JobStatus.SCHEDULED
        message = outcome.error_message
        self._record = run.job._replace(status=status, completed_at=now, error_message=message)

    def _ended(self, timeout: Timeout) -> tuple[JobStatus, JobRecord]:  # noqa: ARG002 - it has run
        if (status := self.status()) not in FINISHED:
            raise InvalidInput(
                f"The job {self.id} of the task {self._record.task!r} has not run: in eager mode, "
                "jobs that recur or wait for others never do.",
                field="job",
            )
        return status, self._record

    # There is nothing to wait for, so these are for any event loop.

    async def record_async(self) -> JobRecord:
        return self.record()

    async def executions_async(self, *, limit: int = 50) -> list[Execution]:
        return self.executions(limit=limit)

    async def cancel_async(self) -> None:
        self.cancel()

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from ()
        return self.result()


class Eager:
    """What enqueued jobs come to while eager mode is on. `jobs` has all of them, in the order in
    which they were enqueued."""

    def __init__(
        self,
        app: Application,
        *,
        raise_errors: bool,
        max_json_bytes: int,
    ) -> None:
        self.jobs: list[EagerJob] = []
        self._app = self.application = app
        self.log_level = math.inf
        self._raise_errors = raise_errors
        self._limit = max_json_bytes
        self._progress: dict[UUID | None, Any] = {}
        self._unique: dict[str | None, EagerJob] = {}

    def find(self, job_id: UUID) -> EagerJob | None:
        """The job of this id, if it was enqueued here."""
        return next((job for job in self.jobs if job.id == job_id), None)

    def add(self, job: NewJob) -> EagerJob:
        """Run the job, unless it has a schedule or waits for others."""
        task, job = self._app.registry.get(job.spec.task), identified(job)
        standing = self._unique.get(job.unique_key)
        if standing is not None and holds_key(standing.record(), self.now()):
            same = copy(standing)
            same.created = False
            return same
        added = EagerJob(self._app, self._record(job))
        if job.unique_key is not None:
            self._unique[job.unique_key] = added
        self.jobs.append(added)
        if not isinstance(job.spec.schedule, Once):
            return added
        if (depth := _depth.get()) >= MOST_NESTED:
            raise InvalidInput(
                f"In eager mode, jobs have enqueued jobs {MOST_NESTED} deep, the last one of the "
                f"task {job.spec.task!r}. Does it enqueue itself for ever? Test it in a harness, "
                "where every job runs at its time."
            )
        row = added.record()._replace(status=JobStatus.RUNNING, run_count=1)
        run = Run(row, task, Context(row, self))
        run.started_at = time.monotonic()
        variables = Variables()
        variables.run(_depth.set, depth + 1)
        try:
            outcome = completed(run, aside(lambda: variables.run(_call, run))) or Outcome()
        except (Exception, Suspended) as error:
            added.raised = error if isinstance(error, Exception) else None
            outcome = failed(run, error) or Outcome(
                ExecutionStatus.FAILED, error_message=str(error)
            )
        added._has_run(run, outcome, self.now(), self._progress.pop(run.token, None))
        if outcome.resume_at is not None:
            added.raised = None
        if added.raised is not None and self._raise_errors:
            raise added.raised
        return added

    def _record(self, job: NewJob) -> JobRecord:
        """The row that the job would be, with its payload as a worker would read it."""
        now = self.now()
        first = first_run(job.spec, job.start, now)
        columns: dict[str, Any] = dict.fromkeys(JobRecord._fields) | spec_columns(job.spec)
        for field in ("run_count", "current_retry_count", "release_count", "burst_count"):
            columns[field] = 0
        columns |= first._asdict() | {
            "id": job.id or uuid7(),
            "created_at": now,
            "updated_at": now,
            "started_at": now,
            "plan_time": first.plan_time or now,
            "lock_token": uuid7(),
            "aging_bonus": 0,
            "is_paused": False,
            "schedule_version": 0,
            "status": str(first.status),
            "payload": json.loads(encode_json("payload", job.payload, self._limit)),
            "metadata": json.loads(encode_json("metadata", job.metadata, self._limit)),
            "name": job.name,
            "scope_kind": job.scope.kind,
            "scope_id": job.scope.id,
            "dedup_key": job.dedup_key,
            "parent_id": job.parent_id,
            "batch_id": job.batch_id,
            "created_by": job.created_by,
        }
        return JobRecord(**columns)

    # -- what a run's context asks for -----------------------------------------------------------

    def now(self) -> datetime:
        """The application's own time if it has one, otherwise this machine's."""
        return self._app.now() or datetime.now(UTC)

    def report_progress(self, job: JobRecord, progress: dict[str, Any]) -> None:
        """Remember it."""
        self._progress[job.lock_token] = json.loads(encode_progress(progress))

    def keep_record(self, job: JobRecord, record: logging.LogRecord) -> None:
        """Never asked for: the test itself sees what is logged."""

    def renew(self, _job: JobRecord) -> bool:
        """Nobody else can take it."""
        return True

    def steps(self, _job: JobRecord) -> list[Step]:
        """Nothing is done yet."""
        return []

    def keep_step(self, _job: JobRecord, step: Step) -> Step:
        """There is one run, and sleeps are over at once."""
        if step.kind == StepKind.EVENT:
            raise InvalidInput(
                f"In eager mode nobody can send the event {step.name!r}. Test it in a harness.",
                field="name",
            )
        return step._replace(completed_at=step.completed_at or step.until)


def _call(run: Run) -> Any:
    """Call the handler inside its middleware: here, so that it sees the caller's transaction."""
    handler, middleware, arguments = run.task.handler, run.task.middleware, run.arguments()
    if any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__))):
        return _await(await_inside(middleware, run.context, partial(handler, **arguments)))

    def call() -> Any:
        value = handler(**arguments)
        return _await(value) if inspect.isawaitable(value) else value

    if not middleware:
        return call()
    with _event_loop() as loop:
        return call_inside(middleware, run.context, call, lambda: loop)


def _await(value: Awaitable[Any]) -> Any:
    """In a thread, since an event loop that the caller has is busy with the caller."""

    async def wait() -> Any:
        return await value

    with ThreadPoolExecutor(1, "evenbeat-eager") as thread:
        return thread.submit(copy_context().run, asyncio.run, wait()).result()


@contextmanager
def _event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """For async middleware of a plain handler."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="evenbeat-eager")
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
