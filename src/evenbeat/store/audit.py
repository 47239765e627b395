"""The audit log: who changed what, when and from where, with what was there before and after.

An entry is written for what somebody asks for over HTTP, which the dashboard and the command line
do too; a change of jobs and its entry are one transaction.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

from pydantic_core import to_jsonable_python

from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import JobRecord, settings_of_row
from evenbeat.domain.schedule import schedule_from_row
from evenbeat.store.database import Connection
from evenbeat.store.part import BATCH, Between, StorePart, containing, go_on
from evenbeat.store.rows import encode_json

Action = Literal[
    "job.add",
    "job.edit",
    "job.pause",
    "job.resume",
    "job.cancel",
    "job.retry",
    "job.run",
    "job.delete",
    "job.undo",
    "job.event",
    "job.event_link",
    "job.backfill",
    "batch.pause",
    "batch.resume",
    "batch.retry",
    "batch.cancel",
    "batch.close",
    "execution.cancel",
    "fleet.pause",
    "fleet.resume",
    "queue.pause",
    "queue.resume",
    "worker.drain",
    "limit.set",
    "limit.reset",
    "rebalance.apply",
    "rebalance.undo",
    "template.save",
    "template.delete",
    "webhook.add",
    "webhook.edit",
    "webhook.rotate",
    "webhook.delete",
    "webhook.test",
    "webhook.redeliver",
    "token.create",
    "token.revoke",
    "document.delete",
]
ACTIONS: tuple[str, ...] = get_args(Action)

MOST_BYTES = 64 * 1024
"""How large what was before or after may be; of anything larger, the log says only that."""

_LEFT_OUT = {"id", "key", "secret", "url", "created_at", "updated_at", "running", "waiting"}

Values = Mapping[str, Any]


class Actor(NamedTuple):
    """Who asks for a change, and from where."""

    name: str
    role: str
    via: str
    """The API, the dashboard, or the command line."""
    address: str | None


actor: ContextVar[Actor | None] = ContextVar("actor", default=None)
"""Who asks for what is changed here and now; None in an application's own code."""


class AuditEntry(NamedTuple):
    """One change. `changed` objects were, whose ids are listed where they have any."""

    id: UUID
    created_at: datetime
    actor: str
    role: str
    via: str
    address: str | None
    action: str
    ids: list[UUID]
    name: str | None
    changed: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class AuditLog(StorePart):
    """The entries: written by the parts of the store that change something, and read."""

    def add(
        self,
        action: Action,
        *,
        ids: Sequence[UUID] = (),
        name: str | None = None,
        count: int = 1,
        before: Values | None = None,
        after: Values | None = None,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> None:
        """Write one, if the change was asked for by somebody who is known here."""
        if (who := actor.get()) is None:
            return
        entry = {
            **who._asdict(),
            "actor": who.name,
            "id": uuid7(None if now is None else now.timestamp()),
            "action": action,
            "ids": list(ids),
            "name": name,
            "changed": count,
            "before": _written(before),
            "after": _written(after),
            "now": now,
        }
        self._database.rows("add_audit_entry", entry, connection)

    def add_jobs(
        self,
        action: Action,
        before: Sequence[JobRecord],
        after: Sequence[JobRecord] | None,
        connection: Connection,
        *,
        now: datetime | None = None,
    ) -> None:
        """Write what became of jobs (None: they are gone): of one, all that has changed; of many,
        their states."""
        jobs = before if after is None else after
        if actor.get() is None or not jobs:
            return
        changed = {job.id for job in jobs}
        old, new = _of_jobs([job for job in before if job.id in changed]), _of_jobs(after or ())
        if len(jobs) == 1:
            old, new = _differing(old, new)
        name = jobs[0].name or jobs[0].task if len(jobs) == 1 else None
        values: dict[str, Any] = {"before": old, "after": new, "connection": connection}
        ids = [job.id for job in jobs]
        self.add(action, ids=ids, name=name, count=len(jobs), now=now, **values)

    def add_row(
        self,
        action: Action,
        before: Any,
        after: Any,
        *,
        name: str,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> None:
        """Write what became of a row, a NamedTuple, that may have been made or removed. A secret in
        it stays one."""
        if actor.get() is not None:
            old, new = _differing(_of_row(before), _of_row(after))
            ids = [row.id for row in (after or before,) if hasattr(row, "id")]
            values: dict[str, Any] = {"before": old, "after": new, "connection": connection}
            self.add(action, ids=ids, name=name, now=now, **values)

    def page(
        self,
        *,
        actor: str | None = None,
        actions: Sequence[str] | None = None,
        object_id: UUID | None = None,
        search: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> tuple[list[AuditEntry], int]:
        """Entries, newest first, and how many there are; `actions` are whole (`job.pause`) or the
        part before the dot."""
        params = {
            "actor": actor,
            "actions": None if actions is None else list(actions),
            "object_id": object_id,
            "search": containing(search) if search else None,
            "since": since,
            "until": until,
        }
        total: int = self._database.rows("count_audit_entries", params)[0][0]
        paging = {"limit": limit, "offset": offset}
        return self._all(AuditEntry._make, "audit_entries", params | paging), total

    def prune(self, *, older_than: datetime, between: Between = go_on) -> int:
        """Forget entries from before the moment; returns how many."""
        return self._prune("prune_audit_entries", older_than, BATCH, between)


def _of_jobs(jobs: Sequence[JobRecord]) -> dict[str, Any] | None:
    if len(jobs) != 1:
        return {"status": Counter(map(_status, jobs))} if jobs else None
    (job,) = jobs
    return {
        "status": _status(job),
        "name": job.name,
        "task": job.task,
        "schedule": schedule_from_row(job).text or job.schedule_kind,
        "next_run_at": None if job.next_run_at is None else job.next_run_at.isoformat(),
        "payload": job.payload,
        "metadata": job.metadata,
        "created_by": job.created_by,
        **settings_of_row(job),
    }


def _of_row(row: Any) -> dict[str, Any] | None:
    if row is None:
        return None
    fields: dict[str, Any] = to_jsonable_python(row._asdict())
    return {name: value for name, value in fields.items() if name not in _LEFT_OUT}


def _differing(
    before: dict[str, Any] | None, after: dict[str, Any] | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """What of both is not the same; of what was made or removed, all that it has."""
    if before is None or after is None:
        return _filled(before), _filled(after)
    keys = [key for key in before | after if before.get(key) != after.get(key)]
    return {key: before.get(key) for key in keys}, {key: after.get(key) for key in keys}


def _filled(values: dict[str, Any] | None) -> dict[str, Any] | None:
    return values and {name: value for name, value in values.items() if value is not None}


def _status(job: JobRecord) -> str:
    return "paused" if job.is_paused else str(job.status)


def _written(values: Values | None) -> str | None:
    if values is None:
        return None
    text = encode_json("values", values, 2**31)
    return text if len(text) <= MOST_BYTES else encode_json("values", {"bytes": len(text)})
