"""Batches: making them, ending them once their jobs have ended, and the verbs over a whole one.

A batch ends in a transaction of its own, after the one that ends its last job. It may be tried at
any time, by anybody: a worker that is killed between both loses nothing, the next look ends it.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, cast
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from evenbeat.domain.batch import BatchCounts, BatchRecord, BatchStatus
from evenbeat.domain.ids import uuid7
from evenbeat.domain.states import CANCEL, RETRY, JobStatus, Verb
from evenbeat.errors import Conflict, NotFound, StoreError
from evenbeat.store.audit import Action, AuditLog
from evenbeat.store.control import Changes, Control
from evenbeat.store.database import Connection, Database
from evenbeat.store.dependencies import Dependencies
from evenbeat.store.part import BATCH, Between, StorePart, as_list, check_page, go_on, one_of

logger = logging.getLogger(__name__)

COUNTED_EXACTLY = 20_000
"""Up to how many jobs a batch is counted for whoever looks at it; a larger one shows its last
count, which a chore repeats."""

COUNT_SECONDS = 60.0
_PAGE = 1000
Records = Sequence[BatchRecord]


class MemberResult(NamedTuple):
    """What a job of a batch returned."""

    job_id: UUID
    task: str
    result: Any


class BatchTable(StorePart):
    """Batches, and what is done to a whole one."""

    def __init__(self, database: Database, dependencies: Dependencies, control: Control) -> None:
        super().__init__(database)
        self._dependencies = dependencies
        self._control = control
        control.on_ended.append(self.end_if_over)

    # -- making them -----------------------------------------------------------------------------

    def open(
        self,
        name: str | None,
        *,
        within: UUID | None = None,
        created_by: str | None = None,
        connection: Connection,
        now: datetime | None = None,
    ) -> UUID:
        """Make a batch without jobs yet, in the open transaction; `within` is a batch that it is a
        part of, which must not be over."""
        if within is not None:
            self.hold(within, connection)
        params = {"name": name, "parent_id": within, "created_by": created_by, "now": now}
        id_ = uuid7()
        self._database.rows("add_batch", {"id": id_, **params}, connection)
        return id_

    def begin(
        self, id_: UUID, *, added: int, callback_id: UUID | None, stays_open: bool,
        connection: Connection, now: datetime | None = None,
    ) -> None:  # fmt: skip
        """Let a new batch begin, in the transaction that made it. One without jobs is over."""
        status = BatchStatus.OPEN if stays_open else BatchStatus.RUNNING
        params = {"id": id_, "added": added, "callback_id": callback_id, "status": str(status)}
        self._database.rows("begin_batch", params, connection)
        if not added and not stays_open:
            self._end([id_], now, connection)

    def hold(self, id_: UUID, connection: Connection) -> None:
        """Keep a batch from ending until the transaction does; one that is over is refused."""
        row = self._database.row("hold_batch", {"id": id_}, connection)
        if row is None:
            raise NotFound("batch", id_)
        if row[0] not in (BatchStatus.OPEN, BatchStatus.RUNNING):
            raise Conflict(
                f"The batch {id_} is {row[0]}, so nothing can be added to it. Keep a batch open "
                "with app.open_batch(...) while jobs may come, or make another one."
            )

    def close(self, id_: UUID, *, now: datetime | None = None) -> None:
        """Let an open batch end as soon as its jobs have; one that is closed stays so."""
        record = self.get(id_)
        self._database.rows("close_batch", {"id": id_})
        AuditLog(self._database).add("batch.close", ids=[id_], name=record.name, now=now)
        self.end_if_over([id_], now=now)

    # -- ending them -----------------------------------------------------------------------------

    def end_if_over(self, ids: Iterable[UUID], *, now: datetime | None = None) -> None:
        """End those of these batches whose jobs have all ended, and start what runs after them.
        What cannot be done now is done by the next look, within seconds."""
        looked_at = list(ids)
        try:
            while over := self._ids("batches_over", {"ids": looked_at}):
                end = partial(self._end, over, now)
                looked_at = self._database.atomically(end, hot=True)
        except (StoreError, psycopg.Error) as error:
            logger.warning("batches are ended later: %s", error)

    def _end(self, ids: Sequence[UUID], now: datetime | None, connection: Connection) -> list[UUID]:
        """End these, if they are over; returns the batches that they are a part of."""
        locked = [row[0] for row in self._database.rows("lock_batches", {"ids": ids}, connection)]
        ended = self._database.rows("end_batches", {"ids": locked, "now": now}, connection)
        if ended:
            awaiting = [row[0] for row in ended]
            self._dependencies.start(awaiting=awaiting, connection=connection, now=now)
        return [parent_id for _, parent_id in ended if parent_id is not None]

    def look(self, between: Between = go_on, *, now: datetime | None = None) -> int:
        """End what is over, and count what has not been counted for a while; returns how many
        batches it looked at."""
        seen, after = 0, None
        while True:
            between()
            params = {"after": after, "limit": _PAGE, "count_seconds": COUNT_SECONDS, "now": now}
            rows = self._database.rows("batches_at_work", params)
            self.end_if_over([id_ for id_, is_live, _ in rows if is_live], now=now)
            for id_ in (id_ for id_, _, is_due in rows if is_due):
                moment = self._database.clock(now)
                counts = {**self.count([id_])[id_]._asdict()}
                noted = {"id": id_, "counts": Jsonb(counts), "counted_at": moment}
                self._database.rows("note_counts", noted)
            seen += len(rows)
            if len(rows) < _PAGE:
                return seen
            after = rows[-1][0]

    def prune(self, *, older_than: datetime, between: Between = go_on) -> int:
        """Strike batches that ended before the moment and whose jobs are gone."""
        return self._prune("prune_batches", older_than, BATCH, between)

    # -- verbs -----------------------------------------------------------------------------------

    def apply(self, verb: Verb, id_: UUID, *, now: datetime | None = None) -> Iterator[Changes]:
        """Do to all jobs of a batch, and of those that are a part of it, what a verb does to one,
        some at a time. Those in a state that the verb is not for are left alone."""
        action = cast(Action, f"batch.{verb.name}")
        AuditLog(self._database).add(action, ids=[id_], name=self.get(id_).name, now=now)
        family = {row[0]: row[1] for row in self._database.rows("batches_within", {"id": id_})}
        if verb is CANCEL:
            self._database.rows("cancel_batches", {"id": id_, "now": now})
            callbacks = [callback for callback in family.values() if callback is not None]
            waiting = self._control.cancel(callbacks, now=now) if callbacks else Changes([], [])
            yield Changes(waiting.changed, [])
        elif verb is RETRY:  # before the jobs: what was to run after a batch must not run with it
            self._database.rows("await_batches_again", {"ids": list(family), "now": now})
        for member in family:
            yield from self._apply_to(verb, member, now)
        if verb is RETRY:  # a batch that was cancelled may have nothing to retry
            self._database.rows("reopen_batches", {"ids": list(family)})
            self.end_if_over(family, now=now)
        self._dependencies.start_if_possible(awaiting=list(family), now=now)

    def _apply_to(self, verb: Verb, id_: UUID, now: datetime | None) -> Iterator[Changes]:
        changed = True
        while changed:  # until none is left: a job may go from one state to another meanwhile
            changed = False
            for status in sorted(verb.sources):
                for ids in self._members(id_, status):
                    done = self._control.apply(verb, ids, now=now)
                    changed = changed or bool(done.changed)
                    yield Changes(done.changed, [])
            changed = changed and verb is CANCEL

    def _members(self, id_: UUID, status: JobStatus) -> Iterator[list[UUID]]:
        after: UUID | None = None
        while True:
            params = {"id": id_, "status": str(status), "after": after, "limit": _PAGE}
            ids = self._ids("batch_members", params)
            if ids:
                yield ids
            if len(ids) < _PAGE:
                return
            after = ids[-1]

    # -- reading ---------------------------------------------------------------------------------

    def get(self, id_: UUID, connection: Connection | None = None) -> BatchRecord:
        """One batch, or `NotFound`; in an open transaction with the counts that it began with."""
        record = self._get(_record, "batch", "batch", id_, connection=connection)
        return record if connection is not None else self._counted([record])[0]

    def of_job(self, job_id: UUID, batch_id: UUID | None) -> BatchRecord | None:
        """The batch after which a job runs, or otherwise the one that it belongs to."""
        params = {"job_id": job_id, "batch_id": batch_id}
        row = self._database.row("batch_of_job", params)
        return _record(row) if row else None

    def list(
        self,
        *,
        name: str | None = None,
        statuses: Sequence[str] | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> Records:
        """A page of the batches, newest first."""
        check_page(limit, offset)
        one_of("status", statuses, tuple(BatchStatus))
        params = {"name": name, "statuses": as_list(statuses), "limit": limit, "offset": offset}
        return self._counted(self._all(_record, "batches", params))

    def total(self, *, name: str | None = None, statuses: Sequence[str] | None = None) -> int:
        """How many match."""
        params = {"name": name, "statuses": as_list(statuses)}
        matching: int = self._database.rows("number_of_batches", params)[0][0]
        return matching

    def count(self, ids: Sequence[UUID]) -> dict[UUID, BatchCounts]:
        """How many jobs of these batches are in each state, counted now."""
        counts: dict[UUID, dict[str, int]] = {id_: {} for id_ in ids}
        for id_, status, jobs in self._database.rows("count_batches", {"ids": [*ids]}):
            counts[id_][status] = jobs
        return {id_: BatchCounts(**states) for id_, states in counts.items()}

    def results(
        self, id_: UUID, *, after: UUID | None = None, limit: int = _PAGE
    ) -> Sequence[MemberResult]:
        """What completed jobs of a batch returned, in the order of their ids, a page at a time."""
        params = {"id": id_, "after": after, "limit": limit}
        return self._all(MemberResult._make, "batch_results", params)

    def _counted(self, records: Sequence[BatchRecord]) -> Records:
        """The records with counts of now, except where they would take long or are final."""

        def is_old(record: BatchRecord) -> bool:
            if record.ended_at is not None:
                return record.counted_at is None
            return record.counts.total <= COUNTED_EXACTLY

        old = [record.id for record in records if is_old(record)]
        counts = self.count(old) if old else {}
        return [
            record._replace(counts=counts[record.id], counted_at=None)
            if record.id in counts
            else record
            for record in records
        ]


def _record(row: Iterable[Any]) -> BatchRecord:
    record = BatchRecord._make(row)
    counts: Any = record.counts
    if isinstance(counts, str):  # on a borrowed connection of asyncpg, which leaves JSON as text
        counts = json.loads(counts)
    return record._replace(counts=BatchCounts(**counts))
