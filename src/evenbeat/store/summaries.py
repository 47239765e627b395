"""At a glance: figures, the next runs, the last outcomes, what needs a person.

Everything here takes milliseconds whatever the size of the tables: it reads kept figures, the
fronts of indexes, or a bounded number of rows.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.job import Job
from evenbeat.errors import InvalidInput
from evenbeat.store.database import Database
from evenbeat.store.lists import MAX_PAGE, check_page

SILENT_AFTER = timedelta(seconds=60)
"""A worker without a sign of life for this long is not counted on; the usual rhythm is 10 s."""

_UNSERVED_AFTER = timedelta(seconds=30)
_LONGEST_RUN = timedelta(hours=6)


class ExecutionTotals(NamedTuple):
    """All executions in figures. The rate is None until a run has succeeded or failed."""

    total: int
    completed: int
    failed: int
    average_duration_ms: float | None
    success_rate: float | None


class HourOutcomes(NamedTuple):
    """What ended in one hour; `lost` runs are among the failed."""

    hour: datetime
    completed: int
    failed: int
    cancelled: int
    lost: int


class TaskOutcomes(NamedTuple):
    """What has ever ended for a task; the sums of milliseconds are of completed runs."""

    task: str
    completed: int
    failed: int
    cancelled: int
    lost: int
    duration_ms: float
    wait_ms: float


class JobCount(NamedTuple):
    """How many jobs of a kind there were at the last count."""

    status: str
    queue: str
    task: str
    schedule_kind: str
    jobs: int


class Overview(NamedTuple):
    """The whole in figures, as of two moments; None where nothing was counted yet."""

    jobs: dict[str, int]
    jobs_as_of: datetime | None
    executions: ExecutionTotals
    failed_24h: int
    lost_24h: int
    hours: list[HourOutcomes]
    executions_as_of: datetime | None
    is_behind: bool


class PastRun(NamedTuple):
    """One mark in a job's strip of outcomes."""

    execution_id: UUID
    status: str
    plan_time: datetime
    started_at: datetime
    duration_ms: float | None
    error_code: str | None


class FailingJob(NamedTuple):
    """A job whose last run went wrong."""

    id: UUID
    name: str | None
    task: str
    queue: str
    status: str
    schedule_kind: str
    current_retry_count: int
    max_retries: int
    error_message: str
    completed_at: datetime
    next_run_at: datetime | None


class WaitingLane(NamedTuple):
    """Jobs of one queue and task that are overdue; `jobs` counts up to 1000 a priority."""

    queue: str
    task: str
    jobs: int
    oldest_due: datetime
    paused_at: datetime | None
    workers: int


class LostRun(NamedTuple):
    """A run whose worker vanished. Name, task and queue are None when the job is gone."""

    id: UUID
    job_id: UUID
    name: str | None
    task: str | None
    queue: str | None
    worker_id: UUID
    plan_time: datetime
    completed_at: datetime
    error_code: str


class Attention(NamedTuple):
    """What a person should look at. `late` has workers and is late all the same; `unserved` has
    no live worker for its queue and task; queues that somebody paused are in neither."""

    failing: list[FailingJob]
    late: list[WaitingLane]
    unserved: list[WaitingLane]
    lost: list[LostRun]
    lost_24h: int


class TimelineRun(NamedTuple):
    """A run as a bar in time. Name, task and queue are None when the job is gone."""

    id: UUID
    job_id: UUID
    name: str | None
    task: str | None
    queue: str | None
    worker_id: UUID
    plan_time: datetime
    started_at: datetime
    completed_at: datetime | None
    status: str
    error_code: str | None


class KnownTask(NamedTuple):
    """A task that a worker has named: what it takes, and how many live workers have it now."""

    name: str
    queue: str
    runner: str
    schema: dict[str, Any]
    doc: str
    defaults: dict[str, Any]
    updated_at: datetime
    workers_now: int


class Summaries:
    """The quick reads of a dashboard; `Reads` is made of them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def overview(self, *, now: datetime | None = None) -> Overview:
        """The whole in kept figures, each with its moment; the 24 hours end with the present."""
        figures = {row[0]: row[1:] for row in self._database.rows("figures", {})}
        hours = self.hourly(now=now)
        jobs, jobs_as_of = figures.get("jobs", ({}, None))
        counting, counted_at = figures.get("counting", ({}, None))
        return Overview(
            jobs,
            jobs_as_of,
            self.counted_totals(),
            sum(hour.failed for hour in hours),
            sum(hour.lost for hour in hours),
            hours,
            counted_at,
            bool(counting.get("behind")),
        )

    def counted_totals(self) -> ExecutionTotals:
        """All executions that the kept sums hold."""
        return _totals(self._database.rows("counted_totals", {})[0])

    def execution_totals(self, *, since: datetime | None = None) -> ExecutionTotals:
        """All executions up to this moment; or the kept ones that were claimed since another."""
        if since is None:
            return _totals(self._database.rows("execution_totals", {})[0])
        return _totals(self._database.rows("execution_totals_since", {"since": since})[0])

    def hourly(
        self, *, hours: int = 24, task: str | None = None, now: datetime | None = None
    ) -> list[HourOutcomes]:
        """What ended in each of the last hours, oldest first, the present hour included."""
        if not 1 <= hours <= 192:
            raise InvalidInput(f"hours must be from 1 to 192, got {hours}.", field="hours")
        params = {"hours": hours, "task": task, "now": now}
        return [HourOutcomes._make(row) for row in self._database.rows("hourly_outcomes", params)]

    def outcomes_by_task(self) -> list[TaskOutcomes]:
        """What has ever ended for each task, as of the last count; the numbers only grow."""
        return [TaskOutcomes._make(row) for row in self._database.rows("outcomes_by_task", {})]

    def job_counts(self) -> tuple[list[JobCount], datetime | None]:
        """Jobs by state, queue, task and kind at the last count, and its moment."""
        figure = self._database.row("kept_figure", {"name": "job_counts"})
        counts = [JobCount._make(row) for row in self._database.rows("kept_counts", {})]
        return counts, figure[1] if figure else None

    def upcoming(self, limit: int = 10, *, after: datetime | None = None) -> list[Job]:
        """The jobs that run next over all queues; overdue ones first, unless `after` is later."""
        check_page(limit, 0)
        rows = self._database.rows("upcoming", {"limit": limit, "after": after})
        return [Job._make(row) for row in rows]

    def last_outcomes(self, job_ids: Sequence[UUID], n: int = 20) -> dict[UUID, list[PastRun]]:
        """The last `n` runs of each job, oldest first; a job that never ran has none."""
        check_page(n, 0)
        strips: dict[UUID, list[PastRun]] = {id_: [] for id_ in job_ids}
        params = {"job_ids": list(strips), "limit": n}
        for job_id, *run in reversed(self._database.rows("last_outcomes", params)):
            strips[job_id].append(PastRun._make(run))
        return strips

    def attention(
        self,
        *,
        late: timedelta = timedelta(minutes=5),
        within: timedelta = timedelta(hours=24),
        limit: int = 20,
        now: datetime | None = None,
    ) -> Attention:
        """What needs a person: jobs that failed last, work that waits, runs that got lost."""
        check_page(limit, 0)
        present = self._database.clock(now)
        bounds = {"limit": limit, "now": now, "within_seconds": within.total_seconds()}
        failing = self._database.rows("failing_jobs", bounds)
        lost = self._database.rows("lost_runs", {"since": present - within, "limit": limit})
        lanes = [
            lane
            for lane in self.waiting_lanes(min(late, _UNSERVED_AFTER), now=now)
            if lane.paused_at is None
        ]
        return Attention(
            [FailingJob._make(row) for row in failing],
            [lane for lane in lanes if lane.workers and lane.oldest_due <= present - late][:limit],
            [lane for lane in lanes if not lane.workers][:limit],
            [LostRun._make(row) for row in lost],
            sum(hour.lost for hour in self.hourly(now=now)),
        )

    def waiting_lanes(
        self, late: timedelta = timedelta(0), *, now: datetime | None = None
    ) -> list[WaitingLane]:
        """Queues and tasks with jobs that have been due for `late`, oldest first."""
        params = {
            "late_seconds": late.total_seconds(),
            "silent_seconds": SILENT_AFTER.total_seconds(),
            "now": now,
        }
        return [WaitingLane._make(row) for row in self._database.rows("waiting_lanes", params)]

    def timeline(
        self, since: datetime, until: datetime, limit: int = MAX_PAGE
    ) -> list[TimelineRun]:
        """The newest runs that overlap the period. A run that began over six hours before it and
        has ended is not looked for."""
        check_page(limit, 0)
        for field, moment in (("since", since), ("until", until)):
            if moment.tzinfo is None:
                raise InvalidInput(
                    f"{field} must carry a timezone, got {moment.isoformat()}; for example "
                    f"{moment.isoformat()}Z.",
                    field=field,
                )
        if since >= until:
            raise InvalidInput(
                f"since must be before until, got {since.isoformat()} and {until.isoformat()}.",
                field="since",
            )
        params = {
            "since": since,
            "until": until,
            "before_seconds": _LONGEST_RUN.total_seconds(),
            "limit": limit,
        }
        return [TimelineRun._make(row) for row in self._database.rows("timeline", params)]

    def tasks(self, *, now: datetime | None = None) -> list[KnownTask]:
        """Every task that a worker has named, with its payload's JSON schema."""
        params = {"silent_seconds": SILENT_AFTER.total_seconds(), "now": now}
        return [KnownTask._make(row) for row in self._database.rows("known_tasks", params)]


def _totals(row: tuple[Any, ...]) -> ExecutionTotals:
    total, done, failed, average = row
    return ExecutionTotals(total, done, failed, average, rate(done, failed))


def rate(done: int, failed: int) -> float | None:
    """The share of successes, None before the first run."""
    return done / (done + failed) if done + failed else None
