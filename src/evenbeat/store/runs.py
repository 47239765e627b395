"""Runs of all jobs that stay quick at millions: by outcome, task, queue, worker, error and time.

Every run writes its row twice, and the second version stays on its page only while no index holds
what changes (`0001_initial.sql`); so there is no index for these lists. They walk along the ids,
which sort by time, or along the few runs with an error or the running ones, and look at a bounded
number of rows. Where that does not fill a page, the histories of the jobs that are meant are read
instead, if these are few; otherwise the caller learns how far back the list goes and may go on.
"""

# Every piece of SQL here is a LiteralString, which mypy proves; values go in as parameters.
# ruff: noqa: S608

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

from evenbeat.domain.execution import Execution
from evenbeat.domain.ids import uuid7_floor
from evenbeat.domain.moments import BEGIN
from evenbeat.store.database import Database
from evenbeat.store.lists import JobFilter, JobLists
from evenbeat.store.part import StorePart, as_list, check_page, containing

LOOKED_AT = 20_000
"""How many rows one list looks at; reading them with their jobs takes some 100 ms."""

FEW_JOBS = 500

_ENDS_WITH_ERROR = frozenset({"failed", "cancelled"})
_HIGHEST = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Conditions that must all hold; what is None does not matter. A run is of the period in which
    it ended; one that is running ends now."""

    statuses: Sequence[str] | None = None
    tasks: Sequence[str] | None = None
    queues: Sequence[str] | None = None
    error_codes: Sequence[str] | None = None
    tag: str | None = None
    job_id: UUID | None = None
    worker_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    search: str | None = None
    own: bool | None = None
    """Only those of the application's own tasks, not of Evenbeat's."""
    first_id: UUID | None = None
    last_id: UUID | None = None
    before: UUID | None = None
    """Only those claimed before this run."""

    def values(self) -> dict[str, Any]:
        """The conditions that are set."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in values if value is not None}


_CONDITIONS: dict[str, LiteralString] = {
    "statuses": "e.status = ANY (%(statuses)s::text[])",
    "error_codes": "e.error_code = ANY (%(error_codes)s::text[])",
    "job_id": "e.job_id = %(job_id)s",
    "worker_id": "e.worker_id = %(worker_id)s",
    "since": "coalesce(e.completed_at, {now}) >= %(since)s",
    "until": "coalesce(e.completed_at, {now}) < %(until)s",
    "first_id": "e.id >= %(first_id)s",
    "tasks": "j.task = ANY (%(tasks)s::text[])",
    "queues": "j.queue = ANY (%(queues)s::text[])",
    "tag": "j.metadata -> 'tags' ? %(tag)s::text",
    "own": "(j.task IS NULL OR NOT starts_with(j.task, 'evenbeat:'))",
    "search": """(e.error_message ILIKE %(search)s OR j.name COLLATE "default" ILIKE %(search)s
                  OR j.task COLLATE "default" ILIKE %(search)s)""",
}
_JOBS: LiteralString = " LEFT JOIN evenbeat.jobs j ON j.id = ANY (ARRAY[e.job_id])"

# The ways to the rows, each newest first.
_RANGE: LiteralString = " id >= %(from_id)s AND id <= %(to_id)s"
_NEWEST: LiteralString = " ORDER BY id DESC LIMIT %(most)s"
_RUNNING: LiteralString = """
    SELECT x.* FROM evenbeat.jobs r JOIN evenbeat.executions x ON x.id = ANY (ARRAY[r.lock_token])
    WHERE r.status = 'running' AND x.id <= %(to_id)s"""
_OF_JOBS: LiteralString = (
    """
    SELECT * FROM evenbeat.executions
    WHERE job_id = ANY (%(jobs)s::uuid[]) AND"""
    + _RANGE
    + _NEWEST
)


class ListedRun(NamedTuple):
    """A run with what is known of its job; name, task and queue are None when that is gone."""

    execution: Execution
    name: str | None
    task: str | None
    queue: str | None


class RunPage(NamedTuple):
    """Some runs, newest first; where more may match, the id `before` which to go on. `read_back_to`
    is the start of the oldest run that was looked at, where the page was not filled."""

    runs: list[ListedRun]
    further: UUID | None = None
    read_back_to: datetime | None = None


class RunGroup(NamedTuple):
    """Runs of one task that ended with the same error (or with none), and the newest of them."""

    task: str | None
    error_code: str | None
    runs: int
    jobs: int
    since: datetime
    until: datetime
    newest: UUID
    error_message: str | None


class RunSummary(NamedTuple):
    """Matching runs by task and error, most first. If there are `more`, only the newest were
    counted."""

    groups: list[RunGroup]
    more: bool

    @property
    def total(self) -> int:
        return sum(group.runs for group in self.groups)


class RunLists(StorePart):
    """Lists of runs by filter."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._lists = JobLists(database)

    def page(self, run_filter: RunFilter, limit: int, offset: int = 0) -> RunPage:
        """The newest runs that match."""
        check_page(limit, offset)
        params = self._params(run_filter) | {"limit": limit + 1, "offset": offset}
        params["most"] += offset
        runs = self._runs(_source(run_filter), run_filter, params)
        if len(runs) <= limit and (stop := self._stop(run_filter, params)) is not None:
            jobs = self._few_jobs(run_filter)
            if jobs is None:
                return RunPage(runs, *stop)
            params["jobs"] = jobs
            runs = self._runs(_OF_JOBS, run_filter, params)
        more = len(runs) > limit
        return RunPage(runs[:limit], runs[limit - 1].execution.id if more else None)

    def summary(self, run_filter: RunFilter) -> RunSummary:
        """How many match, by task and error."""
        params = self._params(run_filter)
        text: LiteralString = (
            "SELECT g.*, x.error_message FROM ("
            "SELECT j.task, e.error_code, count(*) AS runs, count(DISTINCT e.job_id),"
            " min(coalesce(e.completed_at, e.started_at)),"
            " max(coalesce(e.completed_at, e.started_at)),"
            " (array_agg(e.id ORDER BY e.id DESC))[1] AS newest FROM ("
        )
        text += _source(run_filter) + ") e" + _JOBS + " WHERE " + _condition(run_filter)
        text += """ GROUP BY j.task, e.error_code) g
            JOIN evenbeat.executions x ON x.id = ANY (ARRAY[g.newest])
            ORDER BY g.runs DESC, g.task, g.error_code"""
        groups = [RunGroup._make(row) for row in self._database.query("runs", text, params)]
        return RunSummary(groups, self._stop(run_filter, params) is not None)

    def job_ids(self, run_filter: RunFilter) -> list[UUID]:
        """The jobs of the runs that match, as far as `summary` counts them."""
        text: LiteralString = "SELECT DISTINCT j.id FROM (" + _source(run_filter) + ") e" + _JOBS
        text += " WHERE j.id IS NOT NULL AND " + _condition(run_filter) + " ORDER BY 1"
        rows = self._database.query("runs", text, self._params(run_filter))
        return [row[0] for row in rows]

    def _params(self, run_filter: RunFilter) -> dict[str, Any]:
        params = run_filter.values()
        for name in ("statuses", "tasks", "queues", "error_codes"):
            if name in params:
                params[name] = as_list(params[name])
        if "search" in params:
            params["search"] = containing(params["search"])
        highs = [_HIGHEST, run_filter.last_id]
        if run_filter.before is not None:
            highs.append(UUID(int=run_filter.before.int - 1))
        if run_filter.until is not None:
            highs.append(uuid7_floor(run_filter.until))
        lows = [UUID(int=0), run_filter.first_id]
        if run_filter.since is not None:
            reach = _reach(run_filter)
            lows.append(uuid7_floor(max(run_filter.since, BEGIN + reach) - reach))
        return params | {
            "to_id": min(high for high in highs if high is not None),
            "from_id": max(low for low in lows if low is not None),
            "jobs": [run_filter.job_id],
            "most": LOOKED_AT,
            "now": None,
        }

    def _runs(
        self, source: LiteralString, run_filter: RunFilter, params: dict[str, Any]
    ) -> list[ListedRun]:
        text: LiteralString = "SELECT j.name, j.task, j.queue, {execution} FROM (" + source + ") e"
        text += _JOBS + " WHERE " + _condition(run_filter)
        text += " ORDER BY e.id DESC LIMIT %(limit)s OFFSET %(offset)s"
        rows = self._database.query("runs", text, params)
        return [ListedRun(Execution._make(row[3:]), *row[:3]) for row in rows]

    def _stop(self, run_filter: RunFilter, params: dict[str, Any]) -> tuple[UUID, datetime] | None:
        """Where the walk ended without having seen all of its period."""
        text: LiteralString = "SELECT id, started_at FROM (" + _source(run_filter) + ") e"
        text += " ORDER BY id DESC OFFSET %(most)s - 1 LIMIT 1"
        rows = self._database.query("runs", text, params)
        since = run_filter.since
        if not rows or (since is not None and rows[0][0] < uuid7_floor(since)):
            return None
        return rows[0][0], rows[0][1]

    def _few_jobs(self, run_filter: RunFilter) -> list[UUID] | None:
        """The jobs that are meant, where they are few."""
        rest = JobFilter(queues=run_filter.queues, tasks=run_filter.tasks, tag=run_filter.tag)
        if not rest.values():
            return None
        ids = self._lists.page(rest, "-created_at", FEW_JOBS + 1, 0).jobs
        return [job.id for job in ids] if len(ids) <= FEW_JOBS else None


def _condition(run_filter: RunFilter) -> LiteralString:
    conditions: list[LiteralString] = [
        _CONDITIONS[name] for name in run_filter.values() if name in _CONDITIONS
    ]
    return " AND ".join(conditions) or "true"


def _source(run_filter: RunFilter) -> LiteralString:
    """The rows to look at, as narrow as an index makes them."""
    if run_filter.job_id is not None:
        return _OF_JOBS
    if run_filter.statuses is not None and set(map(str, run_filter.statuses)) == {"running"}:
        return _RUNNING + _NEWEST
    source: LiteralString = "SELECT * FROM evenbeat.executions WHERE"
    if _ends_with_error(run_filter):
        source += " error_code IS NOT NULL AND"
    return source + _RANGE + _NEWEST


def _ends_with_error(run_filter: RunFilter) -> bool:
    """Whether all that match are in the index on errors."""
    states = set(map(str, run_filter.statuses or ()))
    return run_filter.error_codes is not None or (bool(states) and states <= _ENDS_WITH_ERROR)


def _reach(run_filter: RunFilter) -> timedelta:
    """How long before a period its runs may have begun. One that took longer is listed only where
    no period is given."""
    return timedelta(days=1) if _ends_with_error(run_filter) else timedelta(hours=6)
