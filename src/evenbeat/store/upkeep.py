"""Maintenance: aging, retention, the registry of workers, and the leases of chores."""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from evenbeat.domain import alerts
from evenbeat.domain.job import JobRecord
from evenbeat.domain.runner_load import RunnerLoad
from evenbeat.errors import InvalidInput
from evenbeat.store.audit import AuditLog
from evenbeat.store.database import Connection, Database
from evenbeat.store.part import BATCH, Between, StorePart, as_list, go_on
from evenbeat.store.rows import encode_json

MAX_DOC = 10_000
WAITING_SCHEDULES = "waiting_schedules:"
"""Begins the figures that say which schedules of an application wait for a job that is missing."""
CHORE_LEASE = timedelta(minutes=5)
_JUDGEMENT = {
    "success_rate": alerts.RULES["success_rate"].number,
    "slower": alerts.RULES["slower"].number,
    "slower_by_ms": alerts.SLOWER_BY_MS,
    "runs": alerts.JUDGED_RUNS,
    "least_runs": alerts.LEAST_JUDGED,
    "recent": alerts.RECENT_RUNS,
    "least_earlier": alerts.LEAST_EARLIER,
    "most_judged": 5000,  # others come with their next run
}


class WorkerRecord(NamedTuple):
    """A worker as the registry knows it. Host, pid and the process's start name one process; None
    for queues or tasks means all."""

    id: UUID
    host: str
    pid: int
    process_started_at: float
    version: str
    queues: list[str] | None
    tasks: list[str] | None
    concurrency: int
    running: int
    status: str
    started_at: datetime
    heartbeat_at: datetime
    checked_at: datetime
    runners: Sequence[Mapping[str, Any]] = ()

    @property
    def loads(self) -> list[RunnerLoad]:
        """How full each of its runners is."""
        return [RunnerLoad.of(one) for one in self.runners]

    @property
    def held(self) -> int:
        """How many slots belong to runs that are over."""
        return sum(len(load.held) for load in self.loads)

    def is_busy(self, runner: str | None) -> bool:
        """Whether it has no slot for a task of this runner."""
        full = {load.runner for load in self.loads if load.is_full}
        return self.running >= self.concurrency or runner in full

    @property
    def label(self) -> str:
        """How people find it."""
        return f"{self.host.split('/')[0]} (pid {self.pid})"

    def serves_queue(self, job: JobRecord) -> bool:
        """Whether it takes from the job's queue."""
        return self.queues is None or job.queue in self.queues

    def knows_task(self, job: JobRecord) -> bool:
        """Whether it has the job's handler."""
        return self.tasks is None or job.task in self.tasks


class ApplicationCode(NamedTuple):
    """The code of an application that a worker runs; `schedules` is a fingerprint of those that it
    declares."""

    name: str
    version: str | None
    schedules: str


class RunningCode(NamedTuple):
    """The code of a live worker, and the tasks that it has."""

    worker_id: UUID
    version: str | None
    schedules: str
    started_at: datetime
    tasks: list[str] | None


class NewWorker(NamedTuple):
    """What a worker says of itself when it starts."""

    id: UUID
    host: str
    pid: int
    process_started_at: float
    version: str
    concurrency: int
    queues: Sequence[str] | None = None
    tasks: Sequence[str] | None = None
    application: ApplicationCode | None = None
    runners: Sequence[RunnerLoad] = ()


class KnownTask(NamedTuple):
    """What a worker says of a task that it can run; `schema` is its payload's JSON schema. As it is
    read, with how many live workers have it now."""

    name: str
    queue: str
    runner: str
    schema: Mapping[str, Any]
    doc: str = ""
    defaults: Mapping[str, Any] = MappingProxyType({})
    workers_now: int = 0


class Figure(NamedTuple):
    """A kept figure and its age."""

    value: Any
    updated_at: datetime


class Upkeep(StorePart):
    """What keeps the tables small, the waiting fair and the workers known."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._doors: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def age(
        self,
        *,
        waited: timedelta = timedelta(hours=1),
        by: int = 10,
        limit: int = BATCH,
        now: datetime | None = None,
    ) -> int:
        """Raise by `by`, at most to 100, the priority of every job that has been due for `waited`.
        The claim takes the raises back. Returns how many jobs."""
        params = {"waited_seconds": waited.total_seconds(), "by": by, "limit": limit, "now": now}
        return len(self._database.rows("age", params))

    def prune_executions(
        self,
        *,
        older_than: datetime,
        keep: int = 100,
        batch: int = BATCH,
        between: Between = go_on,
        now: datetime | None = None,
    ) -> int:
        """Remove history that is neither younger than the moment, or than its job's own retention,
        nor among its job's `keep` newest runs. Returns how many rows went."""
        removed = 0
        for statement, limit in (("prune_executions", batch), ("prune_own_history", 100)):
            params: dict[str, Any] = {"older_than": older_than, "keep": keep, "now": now}
            after, seen = None, limit
            while seen == limit:
                between()
                walk = params | {"after": after, "limit": limit}
                seen, gone, after = self._database.rows(statement, walk)[0]
                removed += gone
        return removed

    def prune_jobs(
        self,
        *,
        older_than: datetime,
        own_rule: bool = False,
        batch: int = BATCH,
        between: Between = go_on,
        now: datetime | None = None,
    ) -> int:
        """Remove one-off jobs that ended before the moment; by their `own_rule`, those that ended
        before that by their own retention. Runs are left for `prune_executions`, which takes them
        in the order in which they lie on disk: one by one for each job, every run would be a page
        to read."""
        rows = self._database.rows
        old: dict[str, Any] = {"older_than": older_than, "batch": batch, "batches": 20}
        old |= {"own_rule": own_rule, "now": now}

        def prune(ids: str, connection: Connection) -> int:
            """Lock, then look again: a job that others wait for must not go."""
            ((locked,),) = rows("lock_old_jobs", old | {"ids": ids}, connection)
            return int(rows("prune_jobs", old | {"ids": locked}, connection)[0][0])

        removed, after = 0, None
        while True:
            between()
            batches = rows("old_jobs", old | {"after": after})
            for ids, _ in batches:
                between()
                removed += self._database.atomically(partial(prune, ids))
            if len(batches) < old["batches"]:
                return removed
            after = batches[-1][1]

    def register_worker(self, worker: NewWorker, *, now: datetime | None = None) -> None:
        """Make a worker known."""
        code = worker.application and Jsonb(worker.application._asdict())
        lanes = {"queues": as_list(worker.queues), "tasks": as_list(worker.tasks)}
        params = worker._asdict() | lanes | {"application": code, "now": now}
        params["runners"] = _loads_document(worker.runners)
        self._database.rows("register_worker", params)

    def beat(
        self,
        worker_id: UUID,
        *,
        running: int,
        runners: Sequence[RunnerLoad] = (),
        claim_age: float = 0.0,
        draining: bool = False,
        now: datetime | None = None,
    ) -> str | None:
        """A sign of life, and how many seconds ago the worker looked for due jobs. Returns its
        status as others want it, None if forgotten."""
        status = "draining" if draining else "active"
        params = {"id": worker_id, "running": running, "status": status, "now": now}
        params["runners"] = _loads_document(runners)
        row = self._database.row("beat", params | {"claim_age": claim_age})
        return row[0] if row else None

    def drain_worker(self, worker_id: UUID) -> bool:
        """Ask a worker to take no more jobs; False if it is not known."""
        known = bool(self._database.rows("drain_worker", {"id": worker_id}))
        if known:
            AuditLog(self._database).add("worker.drain", ids=[worker_id])
        return known

    def forget_workers(self, worker_ids: Sequence[UUID]) -> int:
        """Strike workers from the registry."""
        return len(self._database.rows("forget_workers", {"ids": list(worker_ids)}))

    def workers(self) -> list[WorkerRecord]:
        """Every known worker."""
        return self._all(WorkerRecord._make, "workers", {"silent_seconds": None, "now": None})

    def code_at_work(
        self, application: str, *, silent: timedelta, now: datetime | None = None
    ) -> list[RunningCode]:
        """What live workers of an application run."""
        params = {
            "application": application,
            "silent_seconds": silent.total_seconds(),
            "now": now,
        }
        return self._all(RunningCode._make, "code_at_work", params)

    def silent_workers(self, silent: timedelta, *, now: datetime | None = None) -> list[UUID]:
        """Workers without a sign of life for this long."""
        return self._ids("silent_workers", {"silent_seconds": silent.total_seconds(), "now": now})

    def save_figure(self, name: str, value: Any, *, now: datetime | None = None) -> None:
        """Keep a figure for those who read it often."""
        self._database.rows("save_figure", {"name": name, "value": Jsonb(value), "now": now})

    def add_to_counter(self, name: str, amount: int, *, now: datetime | None = None) -> int:
        """Add to a counter of all processes; returns its new value."""
        params = {"name": name, "amount": amount, "now": now}
        return int(self._database.rows("add_to_counter", params)[0][0])

    def figures(self) -> dict[str, Figure]:
        """Everything that is kept, by name."""
        return {row[0]: Figure(*row[1:]) for row in self._database.rows("figures", {})}

    def count_outcomes(self, *, batch: int = 50_000, now: datetime | None = None) -> int:
        """Add up what has ended since the last count, at most `batch` newly begun runs of it, and
        judge recurring jobs that ran meanwhile. Returns how many such runs it passed; a full batch
        means that there are more."""
        rows = self._database.rows
        until = rows("counting_horizon", {"now": now})[0][0]

        def work(connection: Connection) -> int:
            ((after,),) = rows("counted_after", {"now": until}, connection)
            params = {"after": after, "until": until, "limit": batch, **_JUDGEMENT}
            ((seen, last, run_again),) = rows("count_outcomes", params, connection)
            if run_again:
                rows("judge_jobs", {"ids": run_again, **_JUDGEMENT}, connection)
            mark = {"after": str(last or after) if last or after else None, "behind": seen == batch}
            figure = {"name": "counting", "value": Jsonb(mark), "now": until}
            rows("save_figure", figure, connection)
            return int(seen)

        return self._database.atomically(work)

    def fold_outcomes(self, *, older_than: datetime) -> int:
        """Keep only the sums of hours before the moment; returns for how many tasks."""
        return len(self._database.rows("fold_outcomes", {"older_than": older_than}))

    def count_jobs(self, *, now: datetime | None = None) -> dict[str, int]:
        """Count all jobs by state, queue, task and kind, and keep the counts; returns those by
        state. Reads the whole table."""
        begun = time.monotonic()
        counts: dict[str, int] = dict(self._database.rows("count_jobs", {}))
        took = {"total": sum(counts.values()), "took_ms": (time.monotonic() - begun) * 1000}
        self.save_figure("job_counts", took, now=now)
        self.save_figure("jobs", counts, now=now)
        return counts

    def know_tasks(self, tasks: Sequence[KnownTask], *, now: datetime | None = None) -> None:
        """Note what a worker can run, for processes that do not have the handlers."""
        params = {
            "names": [task.name for task in tasks],
            "queues": [task.queue for task in tasks],
            "runners": [task.runner for task in tasks],
            "schemas": [_schema_text(task) for task in tasks],
            "defaults": [json.dumps(dict(task.defaults)) for task in tasks],
            "docs": [task.doc.replace("\0", "")[:MAX_DOC] for task in tasks],
            "now": now,
        }
        self._database.rows("know_task", params)

    def forget_tasks(self, *, older_than: datetime) -> int:
        """Strike tasks that no worker has named since the moment and no job is for."""
        return len(self._database.rows("forget_tasks", {"older_than": older_than}))

    def forget_alerts(self) -> int:
        """Strike what is said of jobs that are gone."""
        return len(self._database.rows("forget_alerts", {}))

    def forget_chores(self, *, older_than: datetime) -> int:
        """Strike chores that nobody has done since the moment."""
        return len(self._database.rows("forget_chores", {"older_than": older_than}))

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Let no other thread or process into the block of this name while we are in it. Threads
        queue up outside of the database: each that waits in it would have a connection of the pool,
        and the one in the block needs another."""
        with self._doors[name], self._database.transaction() as connection:
            lock = {"name": f"{self._database.schema}:{name}"}
            self._database.rows("lock_until_commit", lock, connection)
            yield

    @contextmanager
    def chore(
        self,
        name: str,
        holder: UUID,
        *,
        every: timedelta,
        lease: timedelta = CHORE_LEASE,
        now: datetime | None = None,
    ) -> Iterator[bool]:
        """Hold a chore for the length of the block. Gives False when it is not due or someone
        else has it; a block that raises leaves it due."""
        params = {
            "name": name,
            "holder": holder,
            "every_seconds": every.total_seconds(),
            "lease_seconds": lease.total_seconds(),
            "now": now,
        }
        if not self._database.rows("begin_chore", params):
            yield False
            return
        done = False
        try:
            yield True
            done = True
        finally:
            end = {"name": name, "holder": holder, "done": done, "now": now}
            self._database.rows("end_chore", end)

    def renew_chore(
        self,
        name: str,
        holder: UUID,
        *,
        lease: timedelta = CHORE_LEASE,
        now: datetime | None = None,
    ) -> bool:
        """Keep a chore for longer; False if somebody else has it by now."""
        seconds = lease.total_seconds()
        params = {"name": name, "holder": holder, "lease_seconds": seconds, "now": now}
        return bool(self._database.rows("renew_chore", params))


def _loads_document(loads: Sequence[RunnerLoad]) -> Jsonb:
    documents = [one._asdict() | {"held": [run._asdict() for run in one.held]} for one in loads]
    return Jsonb(documents, dumps=partial(json.dumps, default=str))  # ids and moments as texts


def _schema_text(task: KnownTask) -> str:
    """A schema that JSON cannot hold must not keep a worker from starting."""
    try:
        return encode_json("schema", task.schema)
    except InvalidInput:
        return '{"type":"object"}'
