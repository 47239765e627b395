"""Which jobs are meant: a filter, and the WHERE clause it becomes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from evenbeat.errors import InvalidInput


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
    # The first half is for the planner: only jobs with tags are in the index on them.
    "tag": "(j.metadata ? 'tags' AND j.metadata -> 'tags' @> %(tag)s::jsonb)",
}

# What `job_counts` can answer for: these conditions name only columns that it has.
COUNTED_FIELDS = frozenset({"statuses", "queues", "tasks", "kinds"})

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


def where(job_filter: JobFilter, extra: LiteralString | None = None) -> LiteralString:
    """The filter's WHERE clause, empty when everything is meant."""
    conditions = [
        text for name, text in _CONDITIONS.items() if getattr(job_filter, name) is not None
    ]
    if extra is not None:
        conditions.append(extra)
    return "WHERE " + " AND ".join(conditions) if conditions else ""


def fields_of(job_filter: JobFilter) -> frozenset[str]:
    """The fields of the filter that are set."""
    return frozenset(name for name in _CONDITIONS if getattr(job_filter, name) is not None)


def where_params(job_filter: JobFilter) -> dict[str, Any]:
    """The parameters of that clause."""
    params = {name: getattr(job_filter, name) for name in _CONDITIONS}
    for name in ("statuses", "queues", "tasks", "kinds"):
        if params[name] is not None:
            params[name] = [str(item) for item in params[name]]
    if job_filter.search is not None:
        params["search"] = containing(job_filter.search)
    if job_filter.metadata is not None:
        params["metadata"] = Jsonb(job_filter.metadata)
    if job_filter.tag is not None:
        params["tag"] = Jsonb(str(job_filter.tag))
    return params


def containing(text: str) -> str:
    """The LIKE pattern for what contains this text, with LIKE's own signs taken literally."""
    literal = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{literal}%"


def order_by(sort: str) -> LiteralString:
    """The ORDER BY clause for `field` or `-field` (descending); ties go by creation."""
    field, descending = sort.removeprefix("-"), sort.startswith("-")
    column = _ORDERS.get(field)
    if column is None:
        raise InvalidInput(
            f"Cannot sort by {sort!r}. Sort by one of: {', '.join(SORT_FIELDS)}; "
            "with a minus before it for descending, such as '-created_at'.",
            field="sort",
        )
    direction: LiteralString = " DESC NULLS LAST" if descending else " ASC NULLS LAST"
    if column == "j.id":
        return "ORDER BY j.id DESC" if descending else "ORDER BY j.id"
    return "ORDER BY " + column + direction + ", j.id"
