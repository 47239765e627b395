"""Adding many jobs in one stream, as lines of COPY's text format."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice, repeat
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.first_run import FirstRun
from evenbeat.domain.ids import uuid7_many
from evenbeat.domain.job import NewJob, spec_columns
from evenbeat.errors import Conflict
from evenbeat.store.database import Connection, Database
from evenbeat.store.rows import DEFAULTS, encode_json

_JOB_COLUMNS = (
    "id", "created_at", "updated_at", "payload", "metadata",
    "name", "dedup_key", "unique_key", "parent_id", "batch_id",
    "created_by", "scope_kind", "scope_id", *FirstRun._fields,
)  # fmt: skip
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
    """Add jobs with these ids and first runs in the transaction that is open on `connection`.
    `limit` is the most bytes that a payload may have."""
    columns, lines = copy_lines(ids, jobs, runs, now=now, limit=limit)

    def copy(schema: str, table: str) -> None:
        chunks = iter(lambda: "".join(islice(lines, _LINES_PER_WRITE)), "")
        database.copy(connection, schema, table, columns, chunks)

    uniques = [job.unique_key for job in jobs if job.unique_key is not None]
    if not uniques and not any(job.dedup_key is not None or job.name is not None for job in jobs):
        copy(database.schema, "jobs")
        return list(map(Added, ids, repeat(True)))
    # Rows go beside the table first, so that those whose keys or names are taken can be left out.
    database.rows("drop_stage", {}, connection)
    database.rows("create_stage", {}, connection)
    copy("pg_temp", "evenbeat_stage")
    if uniques:
        database.rows("free_unique_keys", {"keys": uniques, "now": now}, connection)
    inserted = {row[0] for row in database.rows("add_from_stage", {}, connection)}
    pairs = list(zip(ids, jobs, strict=True))
    keys = [j.dedup_key for id_, j in pairs if j.dedup_key is not None and id_ not in inserted]
    taken = database.rows("live_by_dedup_key", {"keys": keys}, connection)
    live: dict[str | None, UUID] = dict(taken)
    standing = database.rows("by_unique_key", {"keys": uniques}, connection) if uniques else []
    unique: dict[str | None, UUID] = dict(standing)
    added = []
    for id_, job in pairs:
        existing = None
        if id_ not in inserted:
            existing = unique.get(job.unique_key) or live.get(job.dedup_key)
            existing = existing or named(database, job, connection)
            if existing is None:
                key = job.name or job.dedup_key or job.unique_key
                raise Conflict(f"The job {key!r} was taken and freed meanwhile.")
        added.append(Added(existing or id_, created=existing is None))
    return added


def named(database: Database, job: NewJob, connection: Connection | None) -> UUID | None:
    """The job that has the name of this one."""
    params = {"name": job.name, "scope_kind": job.scope.kind, "scope_id": job.scope.id}
    row = database.row("id_by_name", params, connection)
    return row[0] if row else None


def copy_lines(
    ids: Sequence[UUID],
    jobs: Sequence[NewJob],
    runs: Iterable[FirstRun],
    *,
    now: datetime,
    limit: int,
) -> tuple[tuple[str, ...], Iterator[str]]:
    """The columns that are written, and a line for each job.

    A setting that every job of the batch leaves at its default is the table's default as well."""
    distinct = {id(job.spec): job.spec for job in jobs}
    columns = {key: spec_columns(spec) for key, spec in distinct.items()}
    settings = [
        name
        for name, default in DEFAULTS.items()
        if name == "task" or any(values[name] != default for values in columns.values())
    ]
    specs = {key: _line(values[name] for name in settings) for key, values in columns.items()}

    def lines() -> Iterator[str]:
        # The jobs of a batch are mostly alike: what one shares with the one before is written once.
        moment, previous, rest = now.isoformat(), None, ""
        for job_id, job, run in zip(ids, jobs, runs, strict=True):
            spec, scope = job.spec, job.scope
            who = (
                job.name, job.dedup_key, job.unique_key,
                job.parent_id, job.batch_id, job.created_by,
            )  # fmt: skip
            own = (*who, scope, run, spec)
            if own != previous:
                previous = own
                rest = f"{_line((*who, scope.kind, scope.id, *run))}\t{specs[id(spec)]}\n"
            payload = _text(encode_json("payload", job.payload, limit))
            metadata = _text(encode_json("metadata", job.metadata, limit)) if job.metadata else "{}"
            yield f"{job_id.hex}\t{moment}\t{moment}\t{payload}\t{metadata}\t{rest}"

    return (*_JOB_COLUMNS, *settings), lines()


def _line(values: Iterable[Any]) -> str:
    return "\t".join(map(_text, values))


def _text(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace("\t", "\\t")
        return text.replace("\n", "\\n").replace("\r", "\\r")
    if isinstance(value, list):
        items = (f'"{one}"' if isinstance(one, str) else str(one) for one in value)
        return "{" + ",".join(items) + "}"
    return value.isoformat() if isinstance(value, datetime) else str(value)
