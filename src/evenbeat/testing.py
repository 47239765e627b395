"""For tests: time that moves when told to, and a worker that runs what is due and returns.

    def test_reports_go_out(evenbeat_harness):
        harness = evenbeat_harness(app)              # an empty database of its own
        send_report.enqueue(to="a@b.c")
        harness.drain()                              # runs everything that is due
        harness.advance("30d")                       # a month of schedules, each at its time
        assert harness.results(send_report) == ["sent"]

Everything but the clock is real: the database, the claims, the handlers, the decisions.
"""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Self, Unpack
from uuid import UUID, uuid4

import psycopg
from anyio import to_thread

from evenbeat import embedded
from evenbeat.app import Evenbeat
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.execution import Execution
from evenbeat.domain.job import DurationLike, JobRecord
from evenbeat.domain.run_log import LogLine
from evenbeat.domain.states import ExecutionStatus, JobStatus
from evenbeat.engine.run import StopReason
from evenbeat.engine.worker import Worker
from evenbeat.errors import InvalidInput, NotDrained
from evenbeat.jobs import JobFilters, JobReference
from evenbeat.store.lists import JobFilter
from evenbeat.task import Task

DEFAULT_START = datetime(2030, 1, 1, tzinfo=UTC)
DRAIN_TIMEOUT = 60.0
"""How long a drain may take, in seconds of real time, unless a test says otherwise."""


class VirtualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start: datetime = DEFAULT_START) -> None:
        self._now = start

    def now(self) -> datetime:
        """The present."""
        return self._now

    def override(self) -> datetime | None:
        """The same, for statements."""
        return self._now

    def observe(self, moment: datetime, *, asked_at: float) -> None:
        """Other clocks do not matter here."""

    def move_to(self, moment: datetime) -> None:
        """Go to a moment; time never runs backwards."""
        self._now = max(self._now, moment)


class Harness:
    """An application on a virtual clock, with a worker that is driven step by step."""

    def __init__(self, app: Evenbeat, start: datetime = DEFAULT_START) -> None:
        self.app = app
        self.clock = VirtualClock(start)
        app.clock = self.clock
        self.worker: Worker = app.worker()
        self.worker.loop.open()
        self.worker.run_logs.catch()
        for runner in self.worker.runners:
            runner.start()

    @property
    def now(self) -> datetime:
        """The time that the test has moved to; handlers see it as `ctx.now`."""
        return self.clock.now()

    def drain(
        self, *, timeout: DurationLike | None = DRAIN_TIMEOUT, most_runs: int | None = None
    ) -> int:
        """Run everything that is due now, and what becomes due by that; returns how many runs.
        Raises `NotDrained`, which says what is left, if that takes longer than `timeout`, in real
        time, or more than `most_runs`: a handler may wait, or enqueue itself, for ever."""
        worker, total = self.worker, 0
        seconds = (
            inf if timeout is None else parse_duration(timeout, field="timeout").total_seconds()
        )
        deadline = time.monotonic() + seconds
        most = inf if most_runs is None else most_runs
        while True:
            worker.claimer.run_once()
            if not worker.runs:
                break
            if total + len(worker.runs) > most:
                raise self._not_drained(f"{total} runs (most_runs is {most_runs})")
            total += len(worker.runs)
            while worker.runs:
                if time.monotonic() > deadline:
                    raise self._not_drained(f"{seconds:g} s and {total} runs")
                if worker.pipeline.backlog < len(worker.runs):
                    time.sleep(0.0002)
                else:
                    worker.pipeline.run_once()
        self.app.events.deliver_pending()
        return total

    async def drain_async(
        self, *, timeout: DurationLike | None = DRAIN_TIMEOUT, most_runs: int | None = None
    ) -> int:
        """`drain` for async tests, under asyncio or trio: their event loop goes on meanwhile."""
        return await to_thread.run_sync(partial(self.drain, timeout=timeout, most_runs=most_runs))

    def advance(
        self, duration: DurationLike, *, timeout: DurationLike | None = DRAIN_TIMEOUT
    ) -> int:
        """Let time pass, and run every job at its due time on the way; returns how many runs. What
        is due at one moment may take as long as `timeout`, in real time."""
        target, total = self.clock.now() + parse_duration(duration), 0
        queues, tasks = self.worker.queues, self.app.registry.named()
        while True:
            due, _ = self.app.store.next_due(queues=queues, tasks=tasks, now=self.clock.now())
            if due is None or due > target:
                break
            self.clock.move_to(due)
            ran = self.drain(timeout=timeout)
            if not ran:
                break  # due, but nothing here may run it
            total += ran
        self.clock.move_to(target)
        return total + self.drain(timeout=timeout)

    async def advance_async(
        self, duration: DurationLike, *, timeout: DurationLike | None = DRAIN_TIMEOUT
    ) -> int:
        """`advance` for async tests, under asyncio or trio."""
        return await to_thread.run_sync(partial(self.advance, duration, timeout=timeout))

    def skip(self, duration: DurationLike) -> None:
        """Let time pass with every worker down: nothing runs, plans are missed."""
        self.clock.move_to(self.clock.now() + parse_duration(duration))

    # -- what has become of the jobs -------------------------------------------------------------

    def jobs(
        self, of: Task[..., Any] | str | None = None, /, **filters: Unpack[JobFilters]
    ) -> list[JobRecord]:
        """The jobs of a task, or all, that match the filters of `app.jobs.list`, in the order in
        which they were added. A name that nothing here has is an error: a typo must not look like
        an empty list."""
        if of is not None:
            filters["task"] = of.name if isinstance(of, Task) else of
        matching: list[JobRecord] = []
        while page := self.app.jobs.list(
            sort="created_at", limit=1000, offset=len(matching), **filters
        ):
            matching += page
        if not matching:
            there, tasks = list(self.app.store.read.each(JobFilter())), list(self.app.registry)
            known: dict[str, Sequence[str]] = {
                "task": [task.name for task in tasks] + [job.task for job in there],
                "queue": [task.spec.queue for task in tasks] + [job.queue for job in there],
                "name": [job.name for job in there if job.name is not None],
            }
            for kind, names in known.items():
                values: Any = filters.get(kind, ())
                value: Any
                for value in [values] if isinstance(values, str | Task) else values:
                    _check_known(kind, value.name if isinstance(value, Task) else value, names)
        return matching

    def executions(self, of: Task[..., Any] | JobReference) -> list[Execution]:
        """The history, oldest plan first, of a job (by its id, its name, or what `enqueue` gave),
        or of all jobs of a task."""
        read = self.app.store.read
        if isinstance(of, Task):
            jobs = self.jobs(of)
        elif not isinstance(of, str):
            job_id = getattr(of, "id", of)
            if not isinstance(job_id, UUID):
                raise InvalidInput(
                    f"This takes a task, or a job by its id, its name or what enqueue gave; got "
                    f"{of!r}.",
                    field="of",
                )
            jobs = [read.job(job_id)]
        elif not (jobs := list(read.each(JobFilter(name=of)))):
            there = list(read.each(JobFilter()))
            names = [job.name for job in there if job.name is not None]
            tasks = [*self.app.registry.named(), *(job.task for job in there)]
            _check_known("name or task", of, [*names, *tasks])
            jobs = self.jobs(of)
        history: list[Execution] = []
        for job in jobs:
            seen = 0
            while page := read.executions_of(job.id, limit=1000, offset=seen).executions:
                history += page
                seen += len(page)
        return sorted(history, key=lambda one: (one.plan_time, one.started_at, one.id))

    def results(self, of: Task[..., Any] | JobReference) -> list[Any]:
        """What the handlers returned in the runs of `executions(of)` that completed, as JSON has
        it."""
        completed = ExecutionStatus.COMPLETED
        return [one.result for one in self.executions(of) if one.status == completed]

    def logs(self, of: Task[..., Any] | JobReference) -> list[LogLine]:
        """What the runs of `executions(of)` logged, as far as it is kept."""
        log = self.app.store.run_logs
        return [line for run in self.executions(of) for line in log.page(run.id).lines]

    def close(self) -> None:
        """End the worker's threads and give the database back."""
        for run in self.worker.runs.all():  # of a drain that was given up
            run.stop(StopReason.SHUTDOWN)
        self.worker.loop.leave()
        for runner in self.worker.runners:
            runner.close()
        self.worker.loop.close()
        self.worker.run_logs.release()
        self.app.events.stop()
        self.app.close()
        self.app.clock = None

    def _not_drained(self, spent: str) -> NotDrained:
        running = Counter(run.task.name for run in self.worker.runs.all())
        due = JobFilter(
            statuses=[JobStatus.PENDING, JobStatus.SCHEDULED],
            tasks=self.app.registry.named(),
            due_before=self.now + timedelta(microseconds=1),
        )
        waiting = Counter(job.task for job in self.app.store.read.each(due))
        what = [
            f"{kind} are jobs of: " + ", ".join(f"{task} ({n})" for task, n in tasks.items())
            for kind, tasks in (("running", running), ("due", waiting))
            if tasks
        ]
        return NotDrained(
            f"After {spent}, there is still something to run: {'; '.join(what)}. Does a handler "
            "wait for something, or enqueue itself at once? If not, give drain() more: timeout=…, "
            "most_runs=…."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_known(kind: str, value: str, known: Sequence[str]) -> None:
    """Refuse what nothing here is called."""
    if value not in (names := sorted(set(known))):
        names = [name for name in names if not name.startswith("evenbeat:")]  # our own tasks
        raise InvalidInput(
            f"No job here has the {kind} {str(value)!r}. There are: {', '.join(names) or 'none'}.",
            field=kind,
        )


@contextmanager
def temporary_server() -> Iterator[str]:
    """The URL of a private PostgreSQL server that is gone afterwards; fast rather than durable."""
    home = Path(tempfile.mkdtemp(prefix="evenbeat-"))
    try:
        with embedded.start(home / "pg") as server:
            with psycopg.connect(server.url, autocommit=True) as connection:
                for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                    connection.execute(f"ALTER SYSTEM SET {setting} = off")
                connection.execute("SELECT pg_reload_conf()")
            yield server.url
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def temporary_schema(url: str) -> Iterator[str]:
    """The name of a schema that nobody uses, dropped afterwards."""
    name = f"test_{uuid4().hex[:12]}"
    try:
        yield name
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
