"""For tests: time that moves when told to, and a worker that runs what is due and returns.

    def test_reports_go_out(evenbeat_harness):
        harness = evenbeat_harness(app)              # an empty database of its own
        send_report.enqueue(to="a@b.c")
        harness.drain()                              # runs everything that is due
        harness.advance("30d")                       # a month of schedules, each at its time

Everything but the clock is real: the database, the claims, the handlers, the decisions.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self
from uuid import uuid4

import psycopg

from evenbeat import embedded
from evenbeat.app import Evenbeat
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.execution import Execution
from evenbeat.engine.worker import Worker

DEFAULT_START = datetime(2030, 1, 1, tzinfo=UTC)


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
        for runner in self.worker.runners:
            runner.start()

    def drain(self) -> int:
        """Run everything that is due now, and what becomes due by that; returns how many runs."""
        worker, total = self.worker, 0
        while True:
            worker.claimer.run_once()
            if not worker.runs:
                break
            total += len(worker.runs)
            while worker.pipeline.backlog < len(worker.runs):
                time.sleep(0.0002)
            while worker.pipeline.backlog:
                worker.pipeline.run_once()
        self.app.events.deliver_pending()
        return total

    def advance(self, duration: timedelta | float | str) -> int:
        """Let time pass, and run every job at its due time on the way; returns how many runs."""
        target, total = self.clock.now() + parse_duration(duration), 0
        queues, tasks = self.worker.queues, self.app.registry.named()
        while True:
            due, _ = self.app.store.next_due(queues=queues, tasks=tasks, now=self.clock.now())
            if due is None or due > target:
                break
            self.clock.move_to(due)
            ran = self.drain()
            if not ran:
                break  # due, but nothing here may run it
            total += ran
        self.clock.move_to(target)
        return total + self.drain()

    def skip(self, duration: timedelta | float | str) -> None:
        """Let time pass with every worker down: nothing runs, plans are missed."""
        self.clock.move_to(self.clock.now() + parse_duration(duration))

    def executions(self, job_name: str) -> list[Execution]:
        """The history of a named job, oldest plan first."""
        job = self.app.store.read.job_by_name(job_name)
        if job is None:
            return []
        history: list[Execution] = []
        while page := self.app.store.read.executions_of(
            job.id, limit=1000, offset=len(history)
        ).executions:
            history += page
        return history[::-1]

    def close(self) -> None:
        """End the worker's threads and give the database back."""
        self.worker.loop.leave()
        for runner in self.worker.runners:
            runner.close()
        self.worker.loop.close()
        self.app.events.stop()
        self.app.close()
        self.app.clock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
