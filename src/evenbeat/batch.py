"""Batches: many jobs added as one, and a job that runs when the last of them has ended.

batch = app.batch((send.job(to=x) for x in people), then=report, on="any")
batch.wait()
batch.callback.result()
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Self
from uuid import UUID

from evenbeat.domain.batch import BatchCounts, BatchRecord, BatchStatus
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.job import JobRecord, NewJob
from evenbeat.domain.schedule import After, AfterCondition, Awaited, Once
from evenbeat.domain.setting_kinds import check_name
from evenbeat.domain.states import CANCEL, PAUSE, RESUME, RETRY, Verb
from evenbeat.domain.unique import is_unique
from evenbeat.errors import Conflict, InvalidInput, NotFound
from evenbeat.job import Application, Job, Timeout
from evenbeat.store.borrowed import on_borrowed
from evenbeat.store.on_loop import async_form, is_on_loop, on_loop, wait_here
from evenbeat.task import Task, check_new

_CHUNK = 2000
"""How many jobs are in memory at once while a batch is added."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0

Then = Task[..., Any] | NewJob
Records = Sequence[BatchRecord]


class Batch:
    """A batch of jobs. Each method has an async form, such as `await batch.wait_async()`."""

    __slots__ = ("_app", "callback", "id", "name")

    def __init__(self, app: Application, record: BatchRecord) -> None:
        self._app = app
        self.id = record.id
        self.name = record.name
        self.callback: Job[Any] | None = None
        """The job that runs when all others have ended."""
        if record.callback_id is not None:
            self.callback = Job(app, record.callback_id)

    def __repr__(self) -> str:
        return f"<Batch {self.name or self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def record(self) -> BatchRecord:
        """Its row; `NotFound` if it is gone."""
        return self._app.store.batches.get(self.id)

    def status(self) -> BatchStatus:
        """Where it stands: "open", "running", "completed", "failed" or "cancelled"."""
        return BatchStatus(self.record().status)

    def counts(self) -> BatchCounts:
        """How many of its jobs are in each state now."""
        return self._app.store.batches.count([self.id])[self.id]

    def add(self, jobs: NewJob | Iterable[NewJob], *, connection: Any = None) -> int:
        """Add jobs to it, all or none, while it is open or any of its jobs has not ended; returns
        how many."""
        jobs = [jobs] if isinstance(jobs, NewJob) else jobs

        def add(own: Any) -> int:
            with self._app.store.database.transaction(own) as open_:
                self._app.store.batches.hold(self.id, open_)
                return add_members(self._app, self.id, jobs, open_)

        return on_borrowed(connection, add)

    def close(self) -> None:
        """No more jobs will come: it ends with the last of those that are there."""
        self._app.store.batches.close(self.id, now=self._app.now())

    def cancel(self) -> int:
        """End it for good: cancel all of its jobs that have not ended, and the one that waits for
        them. Returns how many were cancelled."""
        return self._apply(CANCEL)

    def retry(self) -> int:
        """Run its failed and cancelled jobs again; returns how many."""
        return self._apply(RETRY)

    def pause(self) -> int:
        """Pause those of its jobs that have not ended; returns how many."""
        return self._apply(PAUSE)

    def resume(self) -> int:
        """Let its paused jobs run again; returns how many."""
        return self._apply(RESUME)

    def wait(self, timeout: Timeout = None) -> BatchStatus:
        """Wait until all of its jobs have ended; `TimeoutError` after `timeout`, and it goes on.
        For the job that runs then, wait for `batch.callback`."""
        seconds = None if timeout is None else parse_duration(timeout, field="timeout")
        until = None if seconds is None else time.monotonic() + seconds.total_seconds()
        pause = _FIRST_PAUSE
        while (status := self.status()) in (BatchStatus.OPEN, BatchStatus.RUNNING):
            left = pause if until is None else until - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"{self!r} has not ended within {timeout}. It goes on; when last looked at, it "
                    f"was {status}."
                )
            _sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return status

    def results(self) -> Iterator[Any]:
        """What its completed jobs returned, as the types of their annotations, in the order in
        which they were added. They are read page by page, however many there are."""
        after: UUID | None = None
        while True:
            after, page = self._page_of_results(after)
            yield from page
            if after is None:
                return

    async def results_async(self) -> AsyncIterator[Any]:
        """`results` in async code: `async for result in batch.results_async()`."""
        after: UUID | None = None
        while True:
            after, page = await on_loop(self._page_of_results, after)
            for result in page:
                yield result
            if after is None:
                return

    def _page_of_results(self, after: UUID | None) -> tuple[UUID | None, list[Any]]:
        rows = self._app.store.batches.results(self.id, after=after, limit=_CHUNK)
        last = rows[-1].job_id if len(rows) == _CHUNK else None
        return last, [self._app.registry.result_of(*row) for row in rows]

    def _apply(self, verb: Verb) -> int:
        changes = self._app.store.batches.apply(verb, self.id, now=self._app.now())
        return sum(len(some.changed) for some in changes)

    record_async = async_form(record)
    status_async = async_form(status)
    counts_async = async_form(counts)
    add_async = async_form(add)
    close_async = async_form(close)
    cancel_async = async_form(cancel)
    retry_async = async_form(retry)
    pause_async = async_form(pause)
    resume_async = async_form(resume)
    wait_async = async_form(wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close it; after an error in the block, cancel it."""
        if kind is None:
            self.close()
        else:
            self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await (self.close_async() if error[0] is None else self.cancel_async())


class Batches:
    """The batches of an application's database; each method has an async form."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def get(self, batch: UUID | str | Batch) -> Batch:
        """A batch by its id, or the newest of a name; `NotFound` if there is none."""
        store = self._app.store.batches
        if isinstance(batch, Batch):
            batch = batch.id
        try:
            return Batch(self._app, store.get(UUID(str(batch))))
        except ValueError:
            for record in store.list(name=str(batch), limit=1):
                return Batch(self._app, record)
            raise NotFound("batch", repr(batch), by="name") from None

    def list(
        self,
        *,
        name: str | None = None,
        status: str | Sequence[str] | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> Records:
        """Those that match, newest first."""
        statuses = [status] if isinstance(status, str) else status
        store = self._app.store.batches
        return store.list(name=name, statuses=statuses, limit=limit, offset=offset)

    def of(self, job: JobRecord) -> Batch:
        """The batch after which a job runs, or otherwise the one that it belongs to."""
        record = None
        if job.batch_id is not None or job.schedule_kind == After.kind:
            record = self._app.store.batches.of_job(job.id, job.batch_id)
        if record is None:
            raise InvalidInput(f"The job {job.id} ({job.task}) belongs to no batch.", field="batch")
        return Batch(self._app, record)

    def make(
        self,
        jobs: Iterable[NewJob],
        *,
        then: Then | None,
        on: AfterCondition | str,
        name: str | None,
        within: Batch | None,
        connection: Any,
        stays_open: bool = False,
    ) -> Batch:
        """What `app.batch` and `app.open_batch` do."""
        callback = None if then is None else self._callback(then, on)
        if name is not None:
            check_name("name", name)
        store, now = self._app.store, self._app.now()
        outer = None if within is None else within.id

        def make(own: Any) -> Batch:
            with store.database.transaction(own) as open_:
                id_ = store.batches.open(name, within=outer, connection=open_, now=now)
                added = add_members(self._app, id_, jobs, open_)
                callback_id = None
                if callback is not None:
                    after = After((Awaited(id_, AfterCondition(on)),))
                    spec = replace(callback.spec, schedule=after)
                    job = replace(callback, spec=spec, batch_id=outer)
                    callback_id = store.add(job, connection=open_, now=now).id
                store.batches.begin(
                    id_, added=added, callback_id=callback_id, stays_open=stays_open,
                    connection=open_, now=now,
                )  # fmt: skip
                return Batch(self._app, store.batches.get(id_, open_))

        return on_borrowed(connection, make)

    def _callback(self, then: Then, on: AfterCondition | str) -> NewJob:
        job = then.job() if isinstance(then, Task) else then
        check_new("batch", job)
        if on not in (AfterCondition.SUCCESS, AfterCondition.ANY):
            raise InvalidInput(
                f"on must be 'success' (of all jobs) or 'any' (end of them), got {on!r}.",
                field="on",
            )
        is_other = job.dedup_key is not None or is_unique(job.spec)
        if not isinstance(job.spec.schedule, Once) or job.start or is_other:
            raise InvalidInput(
                "The job that runs after a batch has neither schedule nor delay nor dedup_key, and "
                "is neither unique nor throttled nor debounced: it runs once, when the batch has "
                "ended. schedule_delay makes it wait a while.",
                field="then",
            )
        self._app.registry.check_limits(job.spec)
        return self._app.registry.hooks.enqueued(job)

    get_async = async_form(get)
    list_async = async_form(list)  # noqa: A003 - that of this class


def add_members(app: Application, id_: UUID, jobs: Iterable[NewJob], connection: Any) -> int:
    """Add jobs to a batch that is held, some at a time; returns how many."""
    if isinstance(jobs, NewJob) or not isinstance(jobs, Iterable):
        raise InvalidInput(f"A batch takes a list of jobs, got {jobs!r}.", field="jobs")
    hooks, count, remaining = app.registry.hooks, 0, iter(jobs)
    checked: dict[int, Any] = {}
    while chunk := list(islice(remaining, _CHUNK)):
        for job in chunk:
            check_new("batch", job)
            if id(job.spec) not in checked:
                checked = {} if len(checked) > _CHUNK else checked
                checked[id(job.spec)] = job.spec  # kept, so that its id stays its own
                app.registry.check_limits(job.spec)
                _check_member(job)
        members = [replace(hooks.enqueued(job), batch_id=id_) for job in chunk]
        added = app.store.add_many(members, connection=connection, now=app.now())
        for job, (job_id, is_new) in zip(members, added, strict=True):
            if not is_new:
                shared = f"dedup_key {job.dedup_key!r}" if job.dedup_key else f"name {job.name!r}"
                if is_unique(job.spec):
                    shared = "unique key (unique_for, unique_by or throttle)"
                raise Conflict(
                    f"The job {job_id} has the {shared} of a job of this batch, and is none of it. "
                    "Let it end first, or leave the key out. Nothing was added."
                )
        count += len(members)
    return count


def _check_member(job: NewJob) -> None:
    if not isinstance(job.spec.schedule, Once | After):
        raise InvalidInput(
            f"The job of {job.spec.task!r} recurs, so it would never end. A batch takes jobs that "
            "run once.",
            field="jobs",
        )
    if job.spec.debounce is not None:
        raise InvalidInput(
            f"The job of {job.spec.task!r} is debounced, so that another call could take its "
            "place, which is no part of the batch. Leave debounce out.",
            field="jobs",
        )


def _sleep(seconds: float) -> None:
    if is_on_loop():
        wait_here(asyncio.sleep(seconds))
    else:
        time.sleep(seconds)
