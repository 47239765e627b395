"""Reading: one job or execution, lists with filters and totals, figures."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import LiteralString, NamedTuple
from uuid import UUID

from evenbeat.domain.dependencies import Dependency
from evenbeat.domain.execution import Execution, Outcome
from evenbeat.domain.job import JobRecord
from evenbeat.domain.limits import KeyLimit
from evenbeat.domain.scope import GLOBAL, Scope
from evenbeat.domain.step import Step
from evenbeat.store.database import Database
from evenbeat.store.dependencies import Dependencies
from evenbeat.store.limits import LimitTable
from evenbeat.store.lists import FilterQuery, JobFilter, JobLists, JobPage
from evenbeat.store.part import as_list, check_page
from evenbeat.store.steps import Steps
from evenbeat.store.summaries import SILENT_AFTER, FleetPause, Summaries, rate
from evenbeat.store.upkeep import WorkerRecord

RUNS_EXPLAINED = 20
COUNTED_FROM = 50_000


class ExecutionPage(NamedTuple):
    """Some executions, and how many match in all."""

    executions: list[Execution]
    total: int


class JobStats(NamedTuple):
    """A job's kept history in figures. The rate is None until a run has succeeded or failed."""

    total_executions: int
    successful_runs: int
    failed_runs: int
    average_duration_ms: float | None
    last_execution_at: datetime | None
    next_scheduled_at: datetime | None
    success_rate: float | None


class QueueDepth(NamedTuple):
    """How much waits in a queue, and for how long."""

    name: str
    due: int
    running: int
    oldest_due: datetime | None
    paused_at: datetime | None


class Circumstances(NamedTuple):
    """What decides whether a job runs: its recent runs (newest plan first), how many due jobs of
    its queue (and fair key) go first, the jobs that it runs after, the limits of its concurrency
    key, the runner of its task, if that is known, what its handler sleeps or waits for, and how
    many other fair keys take turns with its own."""

    job: JobRecord
    now: datetime
    queue_paused_at: datetime | None = None
    live_workers: Sequence[WorkerRecord] = ()
    recent: Sequence[Execution] = ()
    ahead: int = 0
    awaited: Sequence[Dependency] = ()
    limit: KeyLimit | None = None
    runner: str | None = None
    fleet_pause: FleetPause | None = None
    put_off: Step | None = None
    fair_keys: int = 0


class Reads(Summaries):
    """Every question that changes nothing; the quick ones of a dashboard are in `Summaries`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._lists = JobLists(database)
        self._dependencies = Dependencies(database)
        self._limits = LimitTable(database)
        self._steps = Steps(database)

    def job(self, job_id: UUID) -> JobRecord:
        """One job, or `NotFound`."""
        return self._get(JobRecord._make, "job", "job", job_id)

    def job_by_name(self, name: str, scope: Scope = GLOBAL) -> JobRecord | None:
        """The job of this name in this scope."""
        params = {"name": name, "scope_kind": scope.kind, "scope_id": scope.id}
        row = self._database.row("job_by_name", params)
        return JobRecord._make(row) if row else None

    def jobs(
        self,
        job_filter: JobFilter = JobFilter(),
        *,
        sort: str = "-created_at",
        limit: int = 50,
        offset: int = 0,
    ) -> JobPage:
        """A page of the jobs that match, and their total. A total that would take long to count is
        that of the last count or an estimate, and says so."""
        return self._lists.page(job_filter, sort, limit, offset)

    def ids(
        self, job_filter: JobFilter, *, after: UUID | None = None, limit: int = 1000
    ) -> list[UUID]:
        """The ids of matching jobs in order, walking on from `after`."""
        query = FilterQuery.of(job_filter, "(%(after)s::uuid IS NULL OR j.id > %(after)s::uuid)")
        text: LiteralString = "SELECT j.id FROM evenbeat.jobs j WHERE "  # values are parameters
        text += query.condition + " ORDER BY j.id LIMIT %(limit)s"
        params = {**query.params, "after": after, "limit": limit}
        return [row[0] for row in self._database.query("jobs_list", text, params)]

    def each(self, job_filter: JobFilter) -> Iterator[JobRecord]:
        """Every job that matches, by creation, without holding them all."""
        after: UUID | None = None
        while ids := self.ids(job_filter, after=after):
            yield from self._all(JobRecord._make, "jobs", {"ids": ids})
            after = ids[-1]

    def execution(self, execution_id: UUID) -> Execution:
        """One execution, or `NotFound`."""
        return self._get(Execution._make, "execution", "execution", execution_id)

    def ended_as(self, outcomes: Mapping[UUID, Outcome]) -> set[UUID]:
        """Which of these executions have just this ending in the database already."""
        rows = self._database.rows("endings", {"ids": list(outcomes)})
        return {
            id_
            for id_, status, error_code in rows
            if (status, error_code) == (outcomes[id_].status.value, outcomes[id_].error_code)
        }

    def executions_of(
        self,
        job_id: UUID,
        *,
        statuses: Sequence[str] | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> ExecutionPage:
        """A page of a job's history, newest plan first, and its total."""
        check_page(limit, offset)
        page = {"limit": limit, "offset": offset}
        params = {**page, "job_id": job_id, "statuses": as_list(statuses)}
        total = self._database.rows("count_executions_of", params)[0][0]
        return ExecutionPage(self._all(Execution._make, "executions_of", params), total)

    def attempts_at(self, job_id: UUID, plan_time: datetime) -> list[Execution]:
        """The runs of one occurrence: the first attempt, the retries, and what was handed back."""
        params = {"job_id": job_id, "plan_time": plan_time, "limit": 1000}
        return self._all(Execution._make, "attempts_at", params)

    def job_stats(self, job_id: UUID) -> JobStats:
        """A job's history in figures, or `NotFound`."""
        job = self.job(job_id)
        total, done, failed, average, last = self._database.rows("job_stats", {"job_id": job_id})[0]
        next_run = job.next_run_at if job.status in ("pending", "scheduled") else None
        return JobStats(total, done, failed, average, last, next_run, rate(done, failed))

    def circumstances(self, job_id: UUID, *, now: datetime | None = None) -> Circumstances:
        """What `observe.explain` needs to know about a job, or `NotFound`."""
        job = self.job(job_id)
        params = {
            "queue": job.queue,
            "task": job.task,
            "priority": job.priority,
            "next_run_at": job.next_run_at,
            "fair_key": job.fair_key,
            "now": now,
        }
        paused_at, ahead, fair_keys, present, runner = self._database.rows("standing_of", params)[0]
        silent = {"silent_seconds": SILENT_AFTER.total_seconds(), "now": now}
        workers = self._all(WorkerRecord._make, "workers", silent)
        runs = self.executions_of(job_id, limit=RUNS_EXPLAINED).executions
        awaited = self._dependencies.awaited_by([job_id])[job_id]
        limit = None if job.concurrency_key is None else self._limits.find(job.concurrency_key)
        known = (job, present, paused_at, workers, runs, ahead, awaited, limit, runner)
        put_off = self._steps.open_waits([job]).get(job_id)
        return Circumstances(*known, self.fleet_pause(now=now), put_off, fair_keys)

    def counts_by_status(self) -> dict[str, int]:
        """Jobs in each state that occurs; where there are many, as of the last count."""
        figure = self._database.row("kept_figure", {"name": "jobs"})
        if figure is not None and sum(figure[0].values()) > COUNTED_FROM:
            counts: dict[str, int] = figure[0]
            return counts
        return dict(self._database.rows("counts_by_status", {}))

    def queues(self, *, now: datetime | None = None) -> list[QueueDepth]:
        """Every queue that has due or running jobs, or was ever paused."""
        return self.due(now=now)[0]

    def due(self, *, now: datetime | None = None) -> tuple[list[QueueDepth], Counter[int]]:
        """The same queues, and how many jobs of each priority are due in all of them."""
        queues, due = [], Counter[int]()
        for *queue, priorities in self._database.rows("queue_depths", {"now": now}):
            queues.append(QueueDepth._make(queue))
            due.update({int(priority): n for priority, n in (priorities or {}).items()})
        return queues, due
