"""Adding many jobs in one stream."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice, repeat
from typing import NamedTuple
from uuid import UUID

import psycopg

from evenbeat.domain.first_run import FirstRun
from evenbeat.domain.ids import uuid7_many
from evenbeat.domain.job import NewJob
from evenbeat.errors import Conflict
from evenbeat.store.copying import CopyRows, copy_rows
from evenbeat.store.database import Connection, Database

_LINES_PER_WRITE = 500


class Added(NamedTuple):
    """The job that stands for the request; not `created` when a live one was there already."""

    id: UUID
    created: bool


def with_ids(jobs: Sequence[NewJob]) -> list[UUID]:
    """The id of each: its own, or a new one."""
    return [job.id or new for job, new in zip(jobs, uuid7_many(len(jobs)), strict=True)]


def add_in_bulk(
    database: Database,
    connection: Connection,
    ids: Sequence[UUID],
    jobs: Sequence[NewJob],
    *,
    runs: Iterable[FirstRun],
    now: datetime,
    limit: int,
) -> list[Added]:
    """Add jobs with these ids and first runs in the transaction that is open on `connection`."""
    rows = copy_rows(ids, jobs, runs, now=now, limit=limit)
    if not any(job.dedup_key is not None or job.name is not None for job in jobs):
        _copy(connection, f'"{database.schema}".jobs', rows)
        return list(map(Added, ids, repeat(True)))
    # Rows go beside the table first, so that those whose keys or names are taken can be left out.
    connection.execute("DROP TABLE IF EXISTS pg_temp.evenbeat_stage", prepare=False)
    connection.execute(
        f'CREATE TEMPORARY TABLE evenbeat_stage (LIKE "{database.schema}".jobs INCLUDING DEFAULTS) '
        "ON COMMIT DROP",
        prepare=False,
    )
    _copy(connection, "pg_temp.evenbeat_stage", rows)
    inserted = {row[0] for row in database.rows("add_from_stage", {}, connection)}
    pairs = list(zip(ids, jobs, strict=True))
    keys = [j.dedup_key for id_, j in pairs if j.dedup_key is not None and id_ not in inserted]
    live: dict[str | None, UUID] = dict(
        database.rows("live_by_dedup_key", {"keys": keys}, connection)
    )
    added = []
    for id_, job in pairs:
        existing = None
        if id_ not in inserted:
            existing = live.get(job.dedup_key) or named(database, job, connection)
            if existing is None:
                raise Conflict(
                    f"The job {job.name or job.dedup_key!r} was taken and freed meanwhile."
                )
        added.append(Added(existing or id_, created=existing is None))
    return added


def named(database: Database, job: NewJob, connection: Connection | None) -> UUID | None:
    """The job that has the name of this one."""
    params = {"name": job.name, "scope_kind": job.scope.kind, "scope_id": job.scope.id}
    row = database.row("id_by_name", params, connection)
    return row[0] if row else None


def _copy(connection: Connection, table: str, rows: CopyRows) -> None:
    statement = f"/* evenbeat:add_many */ COPY {table} ({', '.join(rows.columns)}) FROM STDIN"
    with psycopg.Cursor(connection) as cursor, cursor.copy(statement) as copy:
        while chunk := "".join(islice(rows.lines, _LINES_PER_WRITE)):
            copy.write(chunk)
