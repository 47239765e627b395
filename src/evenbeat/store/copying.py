"""New jobs as lines of COPY's text format, which is how many of them get into the table.

Nearly all jobs of a batch are alike: what they share is written once, and what the table has by
default is left out altogether where no job of the batch says other.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.job import FirstRun, JobSpec, NewJob
from evenbeat.domain.scope import GLOBAL
from evenbeat.store.rows import encode_json, known_columns, spec_columns

Planned = tuple[UUID, NewJob, FirstRun]

NULL = "\\N"

_PLAIN = (
    "id", "created_at", "updated_at", "plan_time", "next_run_at", "status", "payload",
    "task", "queue", "priority",
)  # fmt: skip
_OWN = (
    "id", "created_at", "updated_at", "plan_time", "next_run_at", "status", "payload", "anchor_at",
    "placed_at", "name", "scope_kind", "scope_id", "dedup_key", "parent_id", "metadata",
    "created_by",
)  # fmt: skip
_ALL = (*_OWN, *spec_columns(JobSpec(task="any")))


class Sheet(NamedTuple):
    """The columns that are written, and a line for each job."""

    columns: Sequence[str]
    lines: Iterator[str]


def sheet(
    ids: Sequence[UUID],
    jobs: Sequence[NewJob],
    runs: Iterable[FirstRun],
    *,
    now: datetime,
    limit: int,
) -> Sheet:
    """What to copy for these jobs. `limit` is the most bytes that a payload may have."""
    planned = zip(ids, jobs, runs, strict=True)
    if _are_plain(jobs):
        return Sheet(_PLAIN, _plain_lines(planned, now, limit))
    return Sheet(_ALL, _whole_lines(planned, now, limit))


def _are_plain(jobs: Sequence[NewJob]) -> bool:
    specs = {id(job.spec): job.spec for job in jobs}
    return all(known_columns(spec).are_defaults for spec in specs.values()) and all(
        job.name is None
        and job.dedup_key is None
        and job.parent_id is None
        and job.created_by is None
        and not job.metadata
        and job.scope == GLOBAL
        for job in jobs
    )


def _plain_lines(planned: Iterable[Planned], now: datetime, limit: int) -> Iterator[str]:
    stamp = now.isoformat()
    tails: dict[int, str] = {}
    entered, entry = None, ""
    for job_id, job, first in planned:
        spec = job.spec
        tail = tails.get(id(spec))
        if tail is None:
            tail = f"\t{_escape(spec.task)}\t{_escape(spec.queue)}\t{spec.priority}\n"
            tails[id(spec)] = tail
        if first is not entered:
            entered, entry = first, f"\t{stamp}\t{stamp}\t{_entry(first)}\t"
        payload = encode_json("payload", job.payload, limit)
        yield f"{job_id.hex}{entry}{_escape(payload)}{tail}"


def _whole_lines(planned: Iterable[Planned], now: datetime, limit: int) -> Iterator[str]:
    stamp = now.isoformat()
    tails: dict[int, str] = {}
    for job_id, job, first in planned:
        spec = job.spec
        tail = tails.get(id(spec))
        if tail is None:
            tail = tails[id(spec)] = "\t".join(map(_text, spec_columns(spec).values())) + "\n"
        payload = encode_json("payload", job.payload, limit)
        metadata = encode_json("metadata", job.metadata, limit) if job.metadata else "{}"
        yield (
            f"{job_id.hex}\t{stamp}\t{stamp}\t{_entry(first)}\t{_escape(payload)}"
            f"\t{_time(first.anchor_at)}\t{_time(first.placed_at)}\t{_text(job.name)}"
            f"\t{_escape(job.scope.kind)}\t{_escape(job.scope.id)}\t{_text(job.dedup_key)}"
            f"\t{job.parent_id or NULL}\t{_escape(metadata)}\t{_text(job.created_by)}\t{tail}"
        )


def _entry(first: FirstRun) -> str:
    return f"{_time(first.plan_time)}\t{_time(first.next_run_at)}\t{first.status}"


def _time(moment: datetime | None) -> str:
    return NULL if moment is None else moment.isoformat()


def _text(value: Any) -> str:
    if value is None:
        return NULL
    if isinstance(value, list):
        return "{" + ",".join(map(str, value)) + "}"
    return _escape(value) if isinstance(value, str) else str(value)


def _escape(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\t" in text or "\n" in text or "\r" in text:
        text = text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return text
