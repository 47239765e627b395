"""Pages of jobs that stay quick at a million: the way to the rows, and what is said of their total.

An index over all jobs by queue and task would cost every run (`0001_initial.sql`). A list is
therefore read in one of three ways, whichever the planner finds cheapest:

- plainly, newest first along the primary key: right when much matches;
- from the partial indexes, each of which holds the jobs of some states by queue and task, put
  together again: right when little matches;
- by the next run, lane by lane as the claim does, and merged.
"""

# Every piece of SQL here is a LiteralString, which mypy proves; values go in as parameters.
# ruff: noqa: S608

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, LiteralString, NamedTuple

from evenbeat.domain.job import Job
from evenbeat.errors import InvalidInput
from evenbeat.store.database import Database
from evenbeat.store.filters import (
    COUNTED_FIELDS,
    JobFilter,
    containing,
    fields_of,
    order_by,
    where,
    where_params,
)

MAX_PAGE = 1000
MAX_OFFSET = 100_000

# In the planner's units; 1,000 are roughly 2 to 4 ms. Below the first, the plain way is good
# enough; above the second, a total is taken from the kept counts or estimated.
CHEAP = 5_000
DEAR = 20_000

EXACT_ROWS = 10_000
FEW = 5_000
NEAR = 10_000
MOST_NAMES = 1000
FARTHEST_LANE_ROW = 1000
_BY_CREATION = ("created_at", "-created_at")

# What the planner takes for rare, though it may be common: look among the first rows before.
_UNFORESEEN = frozenset({"tag", "metadata"})
_WAITING = frozenset({"pending", "scheduled"})

# Every job is in just one of these, each of which is the predicate of a partial index.
_PARTS: dict[LiteralString, frozenset[str]] = {
    "concurrency_key IS NULL AND {waiting}": _WAITING,
    "concurrency_key IS NOT NULL AND {waiting}": _WAITING,
    "status = 'pending' AND next_run_at IS NULL": frozenset({"pending"}),
    "status = 'running'": frozenset({"running"}),
    "is_paused AND status = 'paused'": frozenset({"paused"}),
    "status IN ('completed', 'failed', 'cancelled')": frozenset(
        {"completed", "failed", "cancelled"}
    ),
}

_PLAIN: LiteralString = "evenbeat.jobs j "
_PAGE: LiteralString = " LIMIT %(limit)s OFFSET %(offset)s"

_LANES: LiteralString = """
WITH RECURSIVE lanes AS ({free_lanes_by lanes}), limited_lanes AS ({limited_lanes_by limited_lanes})
"""
_LANE_ROWS: LiteralString = """
    AND {waiting j}
    AND j.queue = lanes.queue AND j.task = lanes.task AND j.priority = lanes.priority
    ORDER BY j.next_run_at LIMIT %(reach)s"""


class JobPage(NamedTuple):
    """Some jobs, and how many match in all. An estimated total is that of the moment `as_of`, or
    the planner's guess when there is none."""

    jobs: list[Job]
    total: int
    total_is_estimate: bool = False
    as_of: datetime | None = None


class _Total(NamedTuple):
    number: int
    is_estimate: bool = False
    as_of: datetime | None = None


class _Filtered(NamedTuple):
    """A filter as SQL."""

    job_filter: JobFilter
    condition: LiteralString
    params: Mapping[str, Any]


class JobLists:
    """Lists of jobs by filter."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, job_filter: JobFilter, sort: str, limit: int, offset: int) -> JobPage:
        """A page of the jobs that match, and their total."""
        check_page(limit, offset, MAX_OFFSET)
        order = order_by(sort)
        query = self._filtered(job_filter)
        rows = self._rows(query, sort, order, limit, offset)
        jobs = [Job._make(row) for row in rows]
        if len(jobs) < limit and (jobs or offset == 0):
            return JobPage(jobs, offset + len(jobs))
        total = self._total(query)
        at_least = offset + len(jobs) if jobs else 0
        return JobPage(jobs, max(total.number, at_least), total.is_estimate, total.as_of)

    # -- the rows --------------------------------------------------------------------------------

    def _rows(
        self, query: _Filtered, sort: str, order: LiteralString, limit: int, offset: int
    ) -> list[tuple[Any, ...]]:
        page = {**query.params, "limit": limit, "offset": offset, "reach": limit + offset}
        page["near"] = NEAR
        rest: LiteralString = query.condition + " " + order + _PAGE
        plain: LiteralString = "SELECT {job} FROM " + _PLAIN + rest
        unforeseen = bool(fields_of(query.job_filter) & _UNFORESEEN)
        condition: LiteralString = "" if unforeseen else query.condition
        all_of_it, _ = self._cost("SELECT 1 FROM " + _PLAIN + condition, page)
        if all_of_it <= CHEAP:
            return self._query(plain, page)
        if sort == "next_run_at" and limit + offset <= FARTHEST_LANE_ROW:
            rows = self._in_order(_by_next_run(query.condition, order), page)
            statuses = query.job_filter.statuses
            if len(rows) == limit or (statuses is not None and _WAITING.issuperset(statuses)):
                return rows
        if sort in ("name", "-name"):
            named: LiteralString = _and(query.condition) + "j.name IS NOT NULL " + order
            rows = self._in_order("SELECT {job} FROM " + _PLAIN + named + _PAGE, page)
            if len(rows) == limit:
                return rows
        if sort in _BY_CREATION and unforeseen:
            near: LiteralString = "(SELECT * FROM " + _PLAIN + order + " LIMIT %(near)s) j "
            rows = self._in_order("SELECT {job} FROM " + near + rest, page)
            if len(rows) == limit:
                return rows
        parts: LiteralString = "SELECT {job} FROM " + _parts(query.job_filter) + rest
        if self._are_few(query.job_filter) or self._cost(parts, page) < self._cost(plain, page):
            return self._query(parts, page)
        return self._query(plain, page)

    def _are_few(self, job_filter: JobFilter) -> bool:
        """Whether the kept counts know that little matches. The planner takes states, queues and
        tasks for independent of each other, which they seldom are."""
        indexed = JobFilter(job_filter.statuses, job_filter.queues, job_filter.tasks)
        if indexed == JobFilter():
            return False
        counted = self._counted_total(_Filtered(indexed, where(indexed), where_params(indexed)))
        return counted is not None and counted.number <= FEW

    def _in_order(self, text: LiteralString, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Read along the order of an index. A planner that underestimates a lane would rather
        fetch all of it and sort."""
        with self._database.transaction() as connection:
            connection.execute("SET LOCAL enable_bitmapscan = off", prepare=False)
            return self._database.query("jobs_list", text, params, connection)

    # -- the total -------------------------------------------------------------------------------

    def _total(self, query: _Filtered) -> _Total:
        sources = (_PLAIN, _parts(query.job_filter))
        texts: list[LiteralString] = ["SELECT 1 FROM " + s + query.condition for s in sources]
        costs = [self._cost(text, query.params) for text in texts]
        (cost, rows), text = min(zip(costs, texts, strict=True))
        if cost <= DEAR and rows <= EXACT_ROWS:
            some: LiteralString = text + " LIMIT %(most)s"
            count: LiteralString = "SELECT count(*) FROM (" + some + ") matches"
            rows = self._query(count, {**query.params, "most": EXACT_ROWS + 1})[0][0]
            if rows <= EXACT_ROWS:
                return _Total(rows)
        return self._counted_total(query) or _Total(max(rows, costs[0][1]), True)

    def _counted_total(self, query: _Filtered) -> _Total | None:
        figure = self._database.row("kept_figure", {"name": "job_counts"})
        if figure is None or not fields_of(query.job_filter) <= COUNTED_FIELDS:
            return None
        text: LiteralString = (
            "SELECT coalesce(sum(j.jobs), 0)::bigint FROM evenbeat.job_counts j " + query.condition
        )
        return _Total(self._query(text, query.params)[0][0], True, figure[1])

    # -- the filter ------------------------------------------------------------------------------

    def _filtered(self, job_filter: JobFilter) -> _Filtered:
        query = _Filtered(job_filter, where(job_filter), where_params(job_filter))
        if not job_filter.search:
            return query
        cost, _ = self._cost("SELECT 1 FROM " + _PLAIN + query.condition, query.params)
        return query if cost <= DEAR else self._looked_up(query)

    def _looked_up(self, query: _Filtered) -> _Filtered:
        """Search the index of names and the few tasks instead of every row. Names without number
        need no help: then a walk over the rows soon has a page together."""
        search = {"search": containing(query.job_filter.search or ""), "limit": MOST_NAMES + 1}
        names = [row[0] for row in self._database.rows("names_like", search)]
        tasks = [row[0] for row in self._database.rows("tasks_like", search)]
        if len(names) > MOST_NAMES:
            return query
        rest = replace(query.job_filter, search=None)
        if not names:
            both = tasks if rest.tasks is None else sorted(set(tasks) & set(map(str, rest.tasks)))
            only = replace(rest, tasks=both)
            return _Filtered(only, where(only), where_params(only))
        matches: LiteralString = "j.name = ANY (%(matching_names)s::text[])"
        if tasks:
            matches = "(" + matches + " OR j.task = ANY (%(matching_tasks)s::text[]))"
        params = {**where_params(rest), "matching_names": names, "matching_tasks": tasks}
        # The search stays in the filter, so that nobody takes the kept counts for its total.
        return _Filtered(query.job_filter, where(rest, matches), params)

    # --------------------------------------------------------------------------------------------

    def _cost(self, text: LiteralString, params: Mapping[str, Any]) -> tuple[float, int]:
        """What the planner expects of a query: its cost and its rows."""
        ((plan,),) = self._query("EXPLAIN (FORMAT JSON) " + text, params)
        top = plan[0]["Plan"]
        return float(top["Total Cost"]), int(top["Plan Rows"])

    def _query(self, text: LiteralString, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self._database.query("jobs_list", text, params)


def check_page(limit: int, offset: int, farthest: int = 2**31 - 1) -> None:
    """Refuse a page that is too large or too far away to be had quickly."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(f"limit must be from 1 to {MAX_PAGE}, got {limit}.", field="limit")
    if not 0 <= offset <= farthest:
        raise InvalidInput(
            f"offset must be from 0 to {farthest}, got {offset}. "
            "To get further, narrow the list by a filter or sort it the other way round.",
            field="offset",
        )


def _parts(job_filter: JobFilter) -> LiteralString:
    """The table, put together from the partial indexes whose states are fields_of for."""
    states = None if job_filter.statuses is None else set(map(str, job_filter.statuses))
    parts: list[LiteralString] = [
        "SELECT * FROM evenbeat.jobs WHERE " + predicate
        for predicate, holds in _PARTS.items()
        if states is None or states & holds
    ]
    if not parts:
        return _PLAIN
    return "(" + " UNION ALL ".join(parts) + ") j "


def _by_next_run(condition: LiteralString, order: LiteralString) -> LiteralString:
    """The jobs with the earliest next runs: the first of every lane, and those that run, are paused
    or wait for other jobs, of which there are few."""
    free: LiteralString = _and(condition) + "j.concurrency_key IS NULL" + _LANE_ROWS
    limited: LiteralString = _and(condition) + "j.concurrency_key IS NOT NULL" + _LANE_ROWS
    few: LiteralString = _and(condition) + "j.status = "
    return (
        _LANES
        + "SELECT {job} FROM (SELECT first.* FROM lanes CROSS JOIN LATERAL ("
        + "SELECT j.* FROM evenbeat.jobs j " + free + ") first"
        + " UNION ALL SELECT first.* FROM limited_lanes lanes CROSS JOIN LATERAL ("
        + "SELECT j.* FROM evenbeat.jobs j " + limited + ") first"
        + " UNION ALL SELECT j.* FROM evenbeat.jobs j " + few + "'running'"
        + " UNION ALL SELECT j.* FROM evenbeat.jobs j " + few + "'paused' AND j.is_paused"
        + " UNION ALL SELECT j.* FROM evenbeat.jobs j " + few
        + "'pending' AND j.next_run_at IS NULL) j "
        + order + _PAGE
    )  # fmt: skip


def _and(condition: LiteralString) -> LiteralString:
    return condition + " AND " if condition else "WHERE "
