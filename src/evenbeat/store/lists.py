"""Pages of jobs that stay quick at a million: the filter, the way to the rows, and their total.

An index over all jobs by queue and task would cost every run (`0001_initial.sql`). A list is
therefore read plainly, newest first along the primary key, when much matches; and from the partial
indexes, each of which holds the jobs of some states by queue and task, when little does. Before
that, names are looked for along their index, and common tags among the first rows.
"""

# Every piece of SQL here is a LiteralString, which mypy proves; values go in as parameters.
# ruff: noqa: S608

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from evenbeat.domain.job import JobRecord
from evenbeat.errors import InvalidInput
from evenbeat.store.part import StorePart, as_list, check_page, containing

MAX_OFFSET = 100_000

# In the planner's units; 1,000 are roughly 2 to 4 ms. Below the first, the plain way is good
# enough; above the second, a total is taken from the kept counts or estimated.
CHEAP = 5_000
DEAR = 20_000

EXACT_ROWS = 10_000
FEW = 5_000
NEAR = 10_000
MOST_NAMES = 1000


# ---------------------------------------------------------------- which jobs, in which order


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Conditions that must all hold; what is None does not matter."""

    statuses: Sequence[str] | None = None
    queues: Sequence[str] | None = None
    tasks: Sequence[str] | None = None
    kinds: Sequence[str] | None = None
    name: str | None = None
    scope_kind: str | None = None
    scope_id: str | None = None
    search: str | None = None
    parent_id: UUID | None = None
    first_id: UUID | None = None
    last_id: UUID | None = None
    is_paused: bool | None = None
    due_before: datetime | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    metadata: dict[str, Any] | None = None
    created_by: str | None = None
    tag: str | None = None
    batch: UUID | None = None

    def values(self) -> dict[str, Any]:
        """The conditions that are set."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in values if value is not None}


_CONDITIONS: dict[str, LiteralString] = {
    "statuses": "j.status = ANY (%(statuses)s::text[])",
    "queues": "j.queue = ANY (%(queues)s::text[])",
    "tasks": "j.task = ANY (%(tasks)s::text[])",
    "kinds": "j.schedule_kind = ANY (%(kinds)s::text[])",
    "name": "j.name = %(name)s",
    "scope_kind": "j.scope_kind = %(scope_kind)s",
    "scope_id": "j.scope_id = %(scope_id)s",
    # The columns sort by bytes, which knows no case beyond ASCII; the database's own locale may.
    "search": """(j.name COLLATE "default" ILIKE %(search)s
                  OR j.task COLLATE "default" ILIKE %(search)s)""",
    "parent_id": "j.parent_id = %(parent_id)s",
    "first_id": "j.id >= %(first_id)s",
    "last_id": "j.id <= %(last_id)s",
    "is_paused": "j.is_paused = %(is_paused)s",
    "due_before": "j.next_run_at < %(due_before)s",
    "created_after": "j.created_at >= %(created_after)s",
    "created_before": "j.created_at < %(created_before)s",
    "metadata": "j.metadata @> %(metadata)s::jsonb",
    "created_by": "j.created_by = %(created_by)s",
    "batch": "j.batch_id = %(batch)s",
    # The first half is for the planner: only jobs with tags are in the index on them.
    "tag": "(j.metadata ? 'tags' AND j.metadata -> 'tags' @> %(tag)s::jsonb)",
}

# What `job_counts` can answer for: these conditions name only columns that it has.
_COUNTED_FIELDS = frozenset({"statuses", "queues", "tasks", "kinds"})

# What the planner takes for rare, though it may be common: look among the first rows before.
_UNFORESEEN = frozenset({"tag", "metadata"})

# Ids sort by creation, so the newest-first list walks the primary key.
_ORDERS: dict[str, LiteralString] = {
    "created_at": "j.id",
    "updated_at": "j.updated_at",
    "next_run_at": "j.next_run_at",
    "completed_at": "j.completed_at",
    "priority": "j.priority",
    "status": "j.status",
    "queue": "j.queue",
    "task": "j.task",
    "name": "j.name",
}

SORT_FIELDS = tuple(_ORDERS)


class FilterQuery(NamedTuple):
    """A filter as SQL: its condition, and the parameters of that."""

    job_filter: JobFilter
    condition: LiteralString
    params: Mapping[str, Any]

    @classmethod
    def of(cls, job_filter: JobFilter, extra: LiteralString = "true") -> "FilterQuery":
        params = job_filter.values()
        condition: LiteralString = " AND ".join([*(_CONDITIONS[name] for name in params), extra])
        for name in _COUNTED_FIELDS & params.keys():
            params[name] = as_list(params[name])
        if "search" in params:
            params["search"] = containing(params["search"])
        for name in _UNFORESEEN & params.keys():
            params[name] = Jsonb(params[name] if name == "metadata" else str(params[name]))
        return cls(job_filter, condition, params)


def order_by(sort: str) -> LiteralString:
    """The ORDER BY clause for `field` or `-field` (descending); ties go by creation."""
    column = _ORDERS.get(sort.removeprefix("-"))
    if column is None:
        raise InvalidInput(
            f"Cannot sort by {sort!r}. Sort by one of: {', '.join(SORT_FIELDS)}; "
            "with a minus before it for descending, such as '-created_at'.",
            field="sort",
        )
    direction: LiteralString = " DESC" if sort.startswith("-") else " ASC"
    if column == "j.id":
        return " ORDER BY j.id" + direction
    return " ORDER BY " + column + direction + " NULLS LAST, j.id"


# ---------------------------------------------------------------- the ways to the rows

_WAITING = frozenset({"pending", "scheduled"})

# Every job is in just one of these, each of which is the predicate of a partial index.
_PARTS: dict[LiteralString, frozenset[str]] = {
    "{free} AND {waiting}": _WAITING,
    "{limited} AND {waiting}": _WAITING,
    "{fair} AND {waiting}": _WAITING,
    "status = 'pending' AND next_run_at IS NULL": frozenset({"pending"}),
    "status = 'running'": frozenset({"running"}),
    "is_paused AND status = 'paused'": frozenset({"paused"}),
    "status IN ('completed', 'failed', 'cancelled')": frozenset(
        {"completed", "failed", "cancelled"}
    ),
}

_JOBS: LiteralString = "evenbeat.jobs j"
_PAGE: LiteralString = " LIMIT %(limit)s OFFSET %(offset)s"


class JobPage(NamedTuple):
    """Some jobs, and how many match in all. An estimated total is that of the moment `as_of`, or
    the planner's guess when there is none."""

    jobs: list[JobRecord]
    total: int
    total_is_estimate: bool = False
    as_of: datetime | None = None


class JobLists(StorePart):
    """Lists of jobs by filter."""

    def page(self, job_filter: JobFilter, sort: str, limit: int, offset: int) -> JobPage:
        """A page of the jobs that match, and their total."""
        check_page(limit, offset, MAX_OFFSET)
        order = order_by(sort)
        query = self._searched(FilterQuery.of(job_filter))
        jobs = [JobRecord._make(row) for row in self._rows(query, sort, order, limit, offset)]
        if len(jobs) < limit and (jobs or offset == 0):
            return JobPage(jobs, offset + len(jobs))
        page = self._total(query)
        at_least = offset + len(jobs) if jobs else 0
        return page._replace(jobs=jobs, total=max(page.total, at_least))

    def _rows(
        self, query: FilterQuery, sort: str, order: LiteralString, limit: int, offset: int
    ) -> list[tuple[Any, ...]]:
        params = {**query.params, "limit": limit, "offset": offset, "near": NEAR}
        plain = _page_of(_JOBS, query, order)
        unforeseen = not _UNFORESEEN.isdisjoint(query.job_filter.values())
        everything: LiteralString = "SELECT 1 FROM " + _JOBS
        if not unforeseen:
            everything += " WHERE " + query.condition
        if self._cost(everything, params)[0] <= CHEAP:
            return self._query(plain, params)
        # Rows along the order of an index; they are the right ones only if they fill the page.
        front: LiteralString = ""
        if sort in ("name", "-name"):
            front = _page_of(_JOBS, query, order, " AND j.name IS NOT NULL")
        elif unforeseen and sort in ("created_at", "-created_at"):
            near: LiteralString = "(SELECT * FROM " + _JOBS + order + " LIMIT %(near)s) j"
            front = _page_of(near, query, order)
        if front:
            # A planner that underestimates what is there would rather fetch all of it and sort.
            with self._database.transaction() as connection:
                connection.execute("SET LOCAL enable_bitmapscan = off", prepare=False)
                rows = self._database.query("jobs_list", front, params, connection)
            if len(rows) == limit:
                return rows
        parts = _page_of(_parts(query.job_filter), query, order)
        few = self._are_few(query.job_filter)
        if few or self._cost(parts, params) < self._cost(plain, params):
            return self._query(parts, params)
        return self._query(plain, params)

    def _are_few(self, job_filter: JobFilter) -> bool:
        """Whether the kept counts know that little matches. The planner takes states, queues and
        tasks for independent of each other, which they seldom are."""
        indexed = JobFilter(job_filter.statuses, job_filter.queues, job_filter.tasks)
        counted = self._counted_total(FilterQuery.of(indexed)) if indexed.values() else None
        return counted is not None and counted.total <= FEW

    def _total(self, query: FilterQuery) -> JobPage:
        sources = (_JOBS, _parts(query.job_filter))
        on: list[LiteralString] = [f + " WHERE " + query.condition for f in sources]
        costs = [self._cost("SELECT 1 FROM " + source, query.params) for source in on]
        (cost, rows), source = min(zip(costs, on, strict=True))
        if cost <= DEAR and rows <= EXACT_ROWS:
            some: LiteralString = "(SELECT 1 FROM " + source + " LIMIT %(most)s) matches"
            params = {**query.params, "most": EXACT_ROWS + 1}
            rows = self._query("SELECT count(*) FROM " + some, params)[0][0]
            if rows <= EXACT_ROWS:
                return JobPage([], rows)
        return self._counted_total(query) or JobPage([], max(rows, costs[0][1]), True)

    def _counted_total(self, query: FilterQuery) -> JobPage | None:
        figure = self._database.row("kept_figure", {"name": "job_counts"})
        if figure is None or not query.job_filter.values().keys() <= _COUNTED_FIELDS:
            return None
        text: LiteralString = "SELECT coalesce(sum(j.jobs), 0)::bigint FROM evenbeat.job_counts j"
        total = self._query(text + " WHERE " + query.condition, query.params)[0][0]
        return JobPage([], total, True, figure[1])

    def _searched(self, query: FilterQuery) -> FilterQuery:
        """Search the index of names and the few tasks instead of every row. Names without number
        need no help: then a walk over the rows soon has a page together."""
        if not query.job_filter.search:
            return query
        plain: LiteralString = "SELECT 1 FROM " + _JOBS + " WHERE " + query.condition
        if self._cost(plain, query.params)[0] <= DEAR:
            return query
        search = {"search": query.params["search"], "limit": MOST_NAMES + 1}
        names, tasks = self._ids("names_like", search), self._ids("tasks_like", search)
        if len(names) > MOST_NAMES:
            return query
        rest = replace(query.job_filter, search=None)
        if not names:
            both = tasks if rest.tasks is None else sorted(set(tasks) & set(map(str, rest.tasks)))
            return FilterQuery.of(replace(rest, tasks=both))
        matches: LiteralString = "j.name = ANY (%(matching_names)s::text[])"
        if tasks:
            matches = "(" + matches + " OR j.task = ANY (%(matching_tasks)s::text[]))"
        both_params = {"matching_names": names, "matching_tasks": tasks}
        searched = FilterQuery.of(rest, matches)
        # The search stays in the filter, so that nobody takes the kept counts for its total.
        return searched._replace(
            job_filter=query.job_filter, params={**searched.params, **both_params}
        )

    def _cost(self, text: LiteralString, params: Mapping[str, Any]) -> tuple[float, int]:
        """What the planner expects of a query: its cost and its rows."""
        ((plan,),) = self._query("EXPLAIN (FORMAT JSON) " + text, params)
        top = plan[0]["Plan"]
        return float(top["Total Cost"]), int(top["Plan Rows"])

    def _query(self, text: LiteralString, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self._database.query("jobs_list", text, params)


def _page_of(
    source: LiteralString, query: FilterQuery, order: LiteralString, extra: LiteralString = ""
) -> LiteralString:
    return "SELECT {job} FROM " + source + " WHERE " + query.condition + extra + order + _PAGE


def _parts(job_filter: JobFilter) -> LiteralString:
    """The table, put together from the partial indexes of the states that are asked for."""
    states = None if job_filter.statuses is None else set(map(str, job_filter.statuses))
    parts: list[LiteralString] = [
        "SELECT * FROM evenbeat.jobs WHERE " + predicate
        for predicate, holds in _PARTS.items()
        if states is None or states & holds
    ]
    return "(" + " UNION ALL ".join(parts) + ") j" if parts else _JOBS
