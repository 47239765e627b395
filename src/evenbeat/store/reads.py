"""Reading: one job or execution, lists with filters and totals, figures."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from evenbeat.domain.execution import Execution, Outcome
from evenbeat.domain.job import Job
from evenbeat.domain.scope import GLOBAL, Scope
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.store.database import Database
from evenbeat.store.filters import JobFilter, order_by, where, where_params

MAX_PAGE = 1000


class JobPage(NamedTuple):
    """Some jobs, and how many match in all."""

    jobs: list[Job]
    total: int


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


class ExecutionTotals(NamedTuple):
    """All kept executions in figures."""

    total: int
    completed: int
    failed: int
    average_duration_ms: float | None
    success_rate: float | None


class QueueDepth(NamedTuple):
    """How much waits in a queue, and for how long."""

    name: str
    due: int
    running: int
    oldest_due: datetime | None
    paused_at: datetime | None


class LoadEntry(NamedTuple):
    """What placement needs to know of a recurring job; `cost_ms` is expected, None if unknown."""

    id: UUID
    schedule_kind: str
    interval_seconds: int | None
    cron_expression: str | None
    timezone: str
    anchor_at: datetime | None
    plan_time: datetime | None
    next_run_at: datetime | None
    status: str
    placement: str | None
    placed_at: datetime | None
    cost_ms: float | None


class Reads:
    """Every question that changes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def job(self, job_id: UUID) -> Job:
        """One job, or `NotFound`."""
        row = self._database.row("job", {"id": job_id})
        if row is None:
            raise NotFound("job", job_id)
        return Job._make(row)

    def job_by_name(self, name: str, scope: Scope = GLOBAL) -> Job | None:
        """The job of this name in this scope."""
        params = {"name": name, "scope_kind": scope.kind, "scope_id": scope.id}
        row = self._database.row("job_by_name", params)
        return Job._make(row) if row else None

    def jobs(
        self,
        chosen: JobFilter = JobFilter(),
        *,
        sort: str = "-created_at",
        limit: int = 50,
        offset: int = 0,
    ) -> JobPage:
        """A page of the jobs that match, and their total."""
        _check_page(limit, offset)
        page: LiteralString = " LIMIT %(limit)s OFFSET %(offset)s"
        rows = self._list(_JOBS, chosen, order_by(sort) + page, limit=limit, offset=offset)
        total = self._list("SELECT count(*) FROM evenbeat.jobs j ", chosen)[0][0]
        return JobPage([Job._make(row) for row in rows], total)

    def ids(self, chosen: JobFilter, *, after: UUID | None = None, limit: int = 1000) -> list[UUID]:
        """The ids of matching jobs in order, walking on from `after`."""
        rows = self._list(
            "SELECT j.id FROM evenbeat.jobs j ",
            chosen,
            "ORDER BY j.id LIMIT %(limit)s",
            extra="(%(after)s::uuid IS NULL OR j.id > %(after)s::uuid)",
            after=after,
            limit=limit,
        )
        return [row[0] for row in rows]

    def each(self, chosen: JobFilter, *, chunk: int = 1000) -> Iterator[Job]:
        """Every job that matches, by creation, without holding them all."""
        after: UUID | None = None
        while ids := self.ids(chosen, after=after, limit=chunk):
            yield from map(Job._make, self._database.rows("jobs", {"ids": ids}))
            after = ids[-1]

    def execution(self, execution_id: UUID) -> Execution:
        """One execution, or `NotFound`."""
        row = self._database.row("execution", {"id": execution_id})
        if row is None:
            raise NotFound("execution", execution_id)
        return Execution._make(row)

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
        _check_page(limit, offset)
        params = {"job_id": job_id, "statuses": _texts(statuses), "limit": limit, "offset": offset}
        rows = self._database.rows("executions_of", params)
        total = self._database.rows("count_executions_of", params)[0][0]
        return ExecutionPage([Execution._make(row) for row in rows], total)

    def recent_executions(
        self,
        *,
        statuses: Sequence[str] | None = None,
        since: datetime | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[Execution]:
        """The newest executions of all jobs."""
        _check_page(limit, offset)
        params = {"statuses": _texts(statuses), "since": since, "limit": limit, "offset": offset}
        return [Execution._make(row) for row in self._database.rows("recent_executions", params)]

    def job_stats(self, job_id: UUID) -> JobStats:
        """A job's history in figures, or `NotFound`."""
        job = self.job(job_id)
        total, done, failed, average, last = self._database.rows("job_stats", {"job_id": job_id})[0]
        next_run = job.next_run_at if job.status in ("pending", "scheduled") else None
        return JobStats(total, done, failed, average, last, next_run, _rate(done, failed))

    def counts_by_status(self) -> dict[str, int]:
        """Jobs in each state that occurs."""
        return dict(self._database.rows("counts_by_status", {}))

    def execution_totals(self, *, since: datetime | None = None) -> ExecutionTotals:
        """All kept executions in figures, or those claimed since a moment."""
        total, done, failed, average = self._database.rows("execution_totals", {"since": since})[0]
        return ExecutionTotals(total, done, failed, average, _rate(done, failed))

    def queues(self, *, now: datetime | None = None) -> list[QueueDepth]:
        """Every queue that has due or running jobs, or was ever paused."""
        return [QueueDepth._make(row) for row in self._database.rows("queue_depths", {"now": now})]

    def load_snapshot(self) -> list[LoadEntry]:
        """Every recurring job that will run again, for placement."""
        return [LoadEntry._make(row) for row in self._database.rows("load_snapshot", {})]

    def _list(
        self,
        select: LiteralString,
        chosen: JobFilter,
        rest: LiteralString = "",
        *,
        extra: LiteralString | None = None,
        **params: Any,
    ) -> list[tuple[Any, ...]]:
        text: LiteralString = select + where(chosen, extra) + " " + rest
        values = where_params(chosen) | params
        if chosen.metadata is not None:
            values["metadata"] = Jsonb(chosen.metadata)
        return self._database.query("jobs_list", text, values)


_JOBS: LiteralString = "SELECT {job} FROM evenbeat.jobs j "


def _check_page(limit: int, offset: int) -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(f"limit must be from 1 to {MAX_PAGE}, got {limit}.", field="limit")
    if not 0 <= offset < 2**31:
        raise InvalidInput(f"offset must be from 0 to {2**31 - 1}, got {offset}.", field="offset")


def _texts(values: Sequence[str] | None) -> list[str] | None:
    return None if values is None else [str(value) for value in values]


def _rate(done: int, failed: int) -> float | None:
    return done / (done + failed) if done + failed else None
