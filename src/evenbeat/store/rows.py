"""What is written of new jobs and of ended runs: the parameters of their statements."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.domain.decision import RunEnd
from evenbeat.domain.first_run import FirstRun
from evenbeat.domain.job import JobRecord, JobSpec, NewJob, spec_columns
from evenbeat.domain.json_values import culprit, unstorable_text
from evenbeat.domain.schedule import After
from evenbeat.domain.scope import GLOBAL
from evenbeat.domain.states import JobStatus
from evenbeat.errors import InvalidInput, TooLarge
from evenbeat.store.prepared import numbers, texts, times, uuids, words

MAX_JSON_BYTES = 256 * 1024
MAX_RESULT_BYTES = 64 * 1024
"""Of what a handler or a step returns, and of an event."""

_STOPPED = (JobStatus.FAILED, JobStatus.CANCELLED)
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)

DEFAULTS = spec_columns(JobSpec(task="any"))
"""The columns of a spec with no settings; the table has the same defaults."""


@lru_cache(maxsize=500)  # a task enqueues by the same spec again and again
def _own_columns(spec: JobSpec) -> dict[str, Any]:
    columns = spec_columns(spec).items()
    return {name: value for name, value in columns if name == "task" or value != DEFAULTS[name]}


def encode_json(
    field: str, value: Any, limit: int = MAX_JSON_BYTES, *, storable: bool = True
) -> str:
    """The value as JSON text, or an error that names the field and what is wrong with it. Said here
    and not by PostgreSQL, what it cannot store does not end the caller's transaction."""
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        path, part = culprit(value, _encoding_error, field)
        why = f"{path} cannot be stored as JSON: {_encoding_error(part) or error}."
        raise InvalidInput(why, field=field) from error
    if len(text) > limit:
        raise TooLarge(
            f"{field} takes {len(text):,} bytes as JSON; at most {limit:,} are allowed. "
            "Store large data elsewhere and pass a reference.",
            field=field,
        )
    suspicious = storable and ("\\u0000" in text or "\\ud" in text)
    if suspicious and (problem := unstorable_text(value, field)) is not None:
        raise InvalidInput(
            f"The database cannot hold this value: {problem}. Leave it out, or send the bytes in "
            "base64.",
            field=field,
        )
    return text


def _encoding_error(value: Any) -> Exception | None:
    try:
        _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        return error
    return None


def new_job_columns(job_id: UUID, job: NewJob, first: FirstRun, limit: int) -> dict[str, Any]:
    """The columns of a new job that differ from their defaults."""
    columns = {
        "id": job_id,
        "payload": encode_json("payload", job.payload, limit),
        "status": str(first.status),
        **_own_columns(job.spec),
    }
    if not isinstance(job.spec.schedule, After):
        columns |= {"plan_time": first.plan_time, "next_run_at": first.next_run_at}
    if job.metadata:
        columns["metadata"] = encode_json("metadata", job.metadata, limit)
    if job.scope != GLOBAL:
        columns |= {"scope_kind": job.scope.kind, "scope_id": job.scope.id}
    others = {
        "anchor_at": first.anchor_at,
        "placed_at": first.placed_at,
        "name": job.name,
        "dedup_key": job.dedup_key,
        "unique_key": job.unique_key,
        "parent_id": job.parent_id,
        "batch_id": job.batch_id,
        "created_by": job.created_by,
    }
    for name, value in others.items():
        if value is not None:
            columns[name] = value
    return columns


# -- ends of runs ----------------------------------------------------------------------------------


class Frontier:
    """Where a worker's next claim begins to look: at the oldest waiting job.

    What comes before it has been claimed, and has left entries in the index. Those are soon gone,
    unless an open transaction somewhere still sees them: then the way from the front to the first
    waiting job gets longer with every job. A claim that begins at the frontier is spared that, but
    misses a job that is put behind it (added with a time in the past, or handed back). So only
    while looks from the front are slow, and those from the frontier are not, do claims begin there,
    and every now and then one does not.
    """

    PAUSE_SECONDS = 1.0
    MOST_OF_THE_TIME = 0.05
    SLOW_SECONDS = 0.01
    SECONDS_PER_JOB = 0.00005
    MOVE_SECONDS = 0.25
    IN_VAIN, IN_VAIN_SECONDS = 3, 5.0

    def __init__(self) -> None:
        self.since: datetime | None = None
        self.full_look_at = 0.0
        """When to begin at the front again."""
        self._full_seconds = self._move_at = self._try_again_at = 0.0
        self._slow = 0

    def begin(self, now: float) -> None:
        """Decide where the next claim begins."""
        if now >= self.full_look_at:
            self.since = None

    def should_move(self, now: float, seconds: float, claimed: int) -> bool:
        """Whether, after a claim that took so long and got so many jobs, it is worth asking where
        the oldest waiting job is."""
        seconds -= self.SECONDS_PER_JOB * claimed
        if self.since is None:
            self.full_look_at = now + max(self.PAUSE_SECONDS, seconds / self.MOST_OF_THE_TIME)
            self._full_seconds = seconds
            if seconds < self.SLOW_SECONDS or now < self._try_again_at:
                return False
        else:
            self._slow = self._slow + 1 if seconds > self._full_seconds * 0.8 else 0
            if self._slow == self.IN_VAIN:  # something else is slow, such as the network
                self.since, self._slow, self._try_again_at = None, 0, now + self.IN_VAIN_SECONDS
                return False
            if now < self._move_at:
                return False
        self._move_at = now + self.MOVE_SECONDS
        return True


REFUSED = "payload_refused"
"""The error code of a run that was handed back because its payload does not fit the handler."""

SNOOZED = "snoozed"
ASLEEP, AWAITING = WAITING = ("asleep", "waiting_for_event")
"""The error codes of runs that were put off by their handlers."""


class Release(NamedTuple):
    """A claim to give back: as it was, or moved on to another plan that is due later, with a reason
    of its own or that of all."""

    job: JobRecord
    plan_time: datetime | None = None
    next_run_at: datetime | None = None
    error_message: str | None = None


def finish_params(ends: Sequence[RunEnd]) -> dict[str, Any]:
    """Parameters of the `finish` statement: one array for each column."""
    decided = [
        (job, kind, outcome, decision)
        for job, kind, outcome, decision in ends
        if outcome is not None and decision is not None
    ]
    jobs, kinds, outcomes, decisions = zip(*decided, strict=True)
    return {
        "job_ids": uuids(job.id for job in jobs),
        "tokens": uuids(job.lock_token for job in jobs),
        "kinds": words(kinds),
        "outcomes": words(o.status for o in outcomes),
        "statuses": words(d.status for d in decisions),
        "plan_times": times([d.plan_time for d in decisions]),
        "next_runs": times([d.next_run_at for d in decisions]),
        "retry_counts": numbers([d.retry_count for d in decisions]),
        "burst_counts": numbers([d.burst_count for d in decisions]),
        # None where the schedule has no say: the job stops, or tries the same plan again.
        "schedule_versions": numbers([
            None
            if d.status in _STOPPED or (d.retry_count and d.status is JobStatus.SCHEDULED)
            else job.schedule_version
            for job, d in zip(jobs, decisions, strict=True)
        ]),
        "durations_ms": numbers([o.duration_ms for o in outcomes]),
        # How long a run waited in its worker. One that counts against a limit began with its claim.
        "queued_ms": numbers([
            o.queued_ms if job.concurrency_key is None else 0.0
            for job, o in zip(jobs, outcomes, strict=True)
        ]),
        "cpu_times_ms": numbers([o.cpu_time_ms for o in outcomes]),
        "memory_peaks_mb": numbers([o.memory_peak_mb for o in outcomes]),
        "items_crawled": numbers([o.items_crawled for o in outcomes]),
        "items_indexed": numbers([o.items_indexed for o in outcomes]),
        "rows_affected": numbers([o.rows_affected for o in outcomes]),
        "error_codes": texts([_storable(o.error_code) for o in outcomes]),
        "error_messages": texts([_storable(o.error_message) for o in outcomes]),
        "stack_traces": texts([_storable(o.stack_trace) for o in outcomes]),
        "results": texts([o.result for o in outcomes]),
        "figures": texts([o.figures for o in outcomes]),
    }  # fmt: skip


def _storable(text: str | None) -> str | None:
    """Error texts come from anywhere; what PostgreSQL cannot hold must not cost the outcome."""
    if text is None or (text.isascii() and "\x00" not in text):
        return text
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def claim_keys(jobs: Iterable[JobRecord]) -> dict[str, list[UUID | None]]:
    """The ids and tokens of claims, as two arrays."""
    held = list(jobs)
    return {"job_ids": [job.id for job in held], "tokens": [job.lock_token for job in held]}
