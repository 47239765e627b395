"""New jobs as lines of COPY's text format, which is how many of them get into the table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.first_run import FirstRun
from evenbeat.domain.job import NewJob, spec_columns
from evenbeat.store.rows import DEFAULTS, encode_json

NULL = "\\N"

_JOB_COLUMNS = (
    "id", "created_at", "updated_at", "payload", "metadata",
    "name", "dedup_key", "parent_id", "created_by", "scope_kind", "scope_id", *FirstRun._fields,
)  # fmt: skip


class CopyRows(NamedTuple):
    """The columns that are written, and a line for each job."""

    columns: tuple[str, ...]
    lines: Iterator[str]


def copy_rows(
    ids: Sequence[UUID],
    jobs: Sequence[NewJob],
    runs: Iterable[FirstRun],
    *,
    now: datetime,
    limit: int,
) -> CopyRows:
    """What to copy for these jobs. `limit` is the most bytes that a payload may have.

    A policy that every job of the batch leaves at its default is the table's default as well."""
    distinct = {id(job.spec): job.spec for job in jobs}
    specs = {key: spec_columns(spec) for key, spec in distinct.items()}
    policies = [
        column
        for column, default in DEFAULTS.items()
        if column == "task" or any(values[column] != default for values in specs.values())
    ]
    texts = {key: _line(values[column] for column in policies) for key, values in specs.items()}
    planned = zip(ids, jobs, runs, strict=True)
    return CopyRows((*_JOB_COLUMNS, *policies), _lines(planned, texts, now.isoformat(), limit))


def _lines(
    planned: Iterable[tuple[UUID, NewJob, FirstRun]],
    specs: Mapping[int, str],
    now: str,
    limit: int,
) -> Iterator[str]:
    """The jobs of a batch are mostly alike: what one shares with the job before is written once."""
    previous, rest = None, ""
    for job_id, job, run in planned:
        spec, scope = job.spec, job.scope
        own = (job.name, job.dedup_key, job.parent_id, job.created_by, scope, run, spec)
        if own != previous:
            previous = own
            rest = f"{_line((*own[:4], scope.kind, scope.id, *run))}\t{specs[id(spec)]}\n"
        payload = _escape(encode_json("payload", job.payload, limit))
        metadata = _escape(encode_json("metadata", job.metadata, limit)) if job.metadata else "{}"
        yield f"{job_id.hex}\t{now}\t{now}\t{payload}\t{metadata}\t{rest}"


def _line(values: Iterable[Any]) -> str:
    return "\t".join(map(_text, values))


def _text(value: Any) -> str:
    if value is None:
        return NULL
    if isinstance(value, str):
        return _escape(value)
    if isinstance(value, list):
        return "{" + ",".join(map(str, value)) + "}"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _escape(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\t" in text or "\n" in text or "\r" in text:
        text = text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return text
