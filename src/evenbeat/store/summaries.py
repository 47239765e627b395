"""At a glance: figures, the next runs, the last outcomes, what needs a person, what happens now.

Everything here takes milliseconds whatever the size of the tables: it reads kept figures, the
fronts of indexes, or a bounded number of rows.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.job import JobRecord
from evenbeat.humanize import timestamp
from evenbeat.store.part import MAX_PAGE, StorePart, check_page, check_period
from evenbeat.store.upkeep import KnownTask

SILENT_AFTER = timedelta(seconds=60)
"""A worker without a sign of life for this long is not counted on; the usual rhythm is 10 s."""

MOST_ROWS = 1000
"""How many executions live events look at."""

COUNTED_LANE = 1000
"""Up to how many waiting jobs of one queue, task and priority are counted."""

_EACH_JOB = 5
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


class JobCount(NamedTuple):
    """How many jobs of a kind there were at the last count."""

    status: str
    queue: str
    task: str
    schedule_kind: str
    jobs: int


class PastRun(NamedTuple):
    """One mark in a job's strip of outcomes."""

    execution_id: UUID
    status: str
    plan_time: datetime
    started_at: datetime
    duration_ms: float | None
    error_code: str | None


class WaitingLane(NamedTuple):
    """Jobs of one queue and task that are overdue; `jobs` counts up to 1000 a priority. `busy` of
    the workers have no slot for them: of the task's `runner`, or, without one, none at all."""

    queue: str
    task: str
    jobs: int
    oldest_due: datetime
    paused_at: datetime | None
    workers: int
    busy: int = 0
    runner: str | None = None
    slots: int | None = None


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


class FleetPause(NamedTuple):
    """Everything is paused: why, by whom, since when, and until when if it ends by itself."""

    reason: str
    paused_by: str
    since: datetime
    ends_at: datetime | None

    @property
    def text(self) -> str:
        """All of it in a sentence."""
        until = f" until {timestamp(self.ends_at)}" if self.ends_at else ""
        why = f": {self.reason.rstrip('.')}" if self.reason else ""
        return (
            f"Everything is paused{until}, by {self.paused_by}, since {timestamp(self.since)}{why}."
        )


class FailingJobs(NamedTuple):
    """Jobs of one task whose last run failed with the same error, with the newest of them."""

    task: str
    error_code: str | None
    jobs: int
    retrying: int
    failed_at: datetime
    job_id: UUID
    name: str | None
    error_message: str


class Standstill(NamedTuple):
    """What could keep everything from running; see the statement of this name."""

    workers: int
    oldest_start: datetime | None
    last_heartbeat: datetime | None
    jobs_wait: bool
    free: int
    held_back: int
    counted_at: datetime | None


class Summaries(StorePart):
    """The quick reads of a dashboard; `Reads` is made of them."""

    def execution_totals(self, *, counted_only: bool = False) -> ExecutionTotals:
        """All executions up to this moment, or only those that the kept sums hold."""
        statement = "counted_totals" if counted_only else "execution_totals"
        total, done, failed, average = self._database.rows(statement, {})[0]
        return ExecutionTotals(total, done, failed, average, rate(done, failed))

    def hourly(self, *, hours: int = 24, now: datetime | None = None) -> list[HourOutcomes]:
        """What ended in each of the last hours, oldest first, the present hour included."""
        return self._all(HourOutcomes._make, "hourly_outcomes", {"hours": hours, "now": now})

    def job_counts(self) -> tuple[list[JobCount], datetime | None]:
        """Jobs by state, queue, task and kind at the last count, and its moment."""
        figure = self._database.row("kept_figure", {"name": "job_counts"})
        return self._all(JobCount._make, "kept_counts"), figure[1] if figure else None

    def upcoming(self, limit: int = 10, *, after: datetime | None = None) -> list[JobRecord]:
        """The jobs that run next over all queues; overdue ones first, unless `after` is later."""
        check_page(limit, 0)
        return self._all(JobRecord._make, "upcoming", {"limit": limit, "after": after})

    def last_outcomes(self, job_ids: Sequence[UUID], n: int = 20) -> dict[UUID, list[PastRun]]:
        """The last `n` runs of each job, oldest first; a job that never ran has none."""
        check_page(n, 0)
        strips: dict[UUID, list[PastRun]] = {id_: [] for id_ in job_ids}
        params = {"job_ids": list(strips), "limit": n}
        for job_id, *run in reversed(self._database.rows("last_outcomes", params)):
            strips[job_id].append(PastRun._make(run))
        return strips

    def failing_jobs(self, *, now: datetime | None = None) -> list[FailingJobs]:
        """Jobs that failed last, within a day, by task and error."""
        since = self._database.clock(now) - timedelta(hours=24)
        return self._all(FailingJobs._make, "failing_jobs", {"since": since})

    def standstill(self, *, now: datetime | None = None) -> Standstill:
        """What could keep everything from running."""
        params = {"silent_seconds": SILENT_AFTER.total_seconds(), "now": now}
        return self._all(Standstill._make, "standstill", params)[0]

    def waiting_lanes(
        self, late: timedelta = timedelta(0), *, now: datetime | None = None
    ) -> list[WaitingLane]:
        """Queues and tasks with jobs that have been due for `late`, oldest first."""
        return self._all(WaitingLane._make, "waiting_lanes", waiting_params(late, now))

    def timeline(
        self, since: datetime, until: datetime, limit: int = MAX_PAGE
    ) -> list[TimelineRun]:
        """The newest runs that overlap the period. A run that began over six hours before it and
        has ended is not looked for."""
        check_page(limit, 0)
        check_period(since, until, ("since", "until"))
        params = {
            "since": since,
            "until": until,
            "before_seconds": _LONGEST_RUN.total_seconds(),
            "limit": limit,
        }
        return self._all(TimelineRun._make, "timeline", params)

    def fleet_pause(self, *, now: datetime | None = None) -> FleetPause | None:
        """The pause of everything, if it is on."""
        row = self._database.row("fleet_pause", {"now": now})
        return FleetPause._make(row) if row else None

    def tasks(self, *, now: datetime | None = None) -> list[KnownTask]:
        """Every task that a worker has named, with its payload's JSON schema."""
        params = {"silent_seconds": SILENT_AFTER.total_seconds(), "now": now}
        return self._all(KnownTask._make, "known_tasks", params)


def waiting_params(late: timedelta, now: datetime | None) -> dict[str, Any]:
    """Parameters of the statement `waiting_lanes`."""
    silent = SILENT_AFTER.total_seconds()
    return {"late_seconds": late.total_seconds(), "silent_seconds": silent, "now": now}


def rate(done: int, failed: int) -> float | None:
    """The share of successes, None before the first run."""
    return done / (done + failed) if done + failed else None


class LiveExecution(NamedTuple):
    """An execution as live events show it; task, name and queue are None when its job is gone."""

    execution_id: UUID
    job_id: UUID
    task: str | None
    name: str | None
    queue: str | None
    status: str
    execution_number: int
    retry_attempt: int
    plan_time: datetime
    started_at: datetime
    completed_at: datetime | None
    duration_ms: float | None
    error_code: str | None
    error_message: str | None
    progress: dict[str, Any] | None


class LiveExecutions(StorePart):
    """Executions that have just begun, progressed or ended: the queries of a poll, once a second;
    none reads many more than a thousand rows."""

    def since(self, moment: datetime) -> list[LiveExecution]:
        """Executions claimed since the moment, oldest first; at most `MOST_ROWS` and one more."""
        return self._all(
            LiveExecution._make, "feed_since", {"since": moment, "limit": MOST_ROWS + 1}
        )

    def among(self, ids: Sequence[UUID]) -> list[LiveExecution]:
        """Of these executions, those that have ended or made progress."""
        return self._all(LiveExecution._make, "feed_among", {"ids": list(ids)}) if ids else []

    def of_jobs(self, job_ids: Sequence[UUID]) -> list[LiveExecution]:
        """The newest executions of these jobs."""
        params = {"job_ids": list(job_ids), "each": _EACH_JOB}
        return self._all(LiveExecution._make, "feed_of_jobs", params) if job_ids else []

    def running(self) -> list[UUID]:
        """The executions under way."""
        return self._ids("feed_running", {"limit": MOST_ROWS})
