"""Jobs that run after others: who waits for whom, and starting those whose wait is over.

The end of a job marks the rows that wait for it, within the statement that ends it. Starting is a
transaction of its own, which may be repeated at any time: a worker that is killed between both
loses nothing, the next one that looks starts what is marked.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import psycopg

from evenbeat.domain.decision import due_time
from evenbeat.domain.dependencies import Dependency, circle
from evenbeat.domain.job import JobRecord, NewJob, scope_of
from evenbeat.domain.schedule import After
from evenbeat.domain.scope import Scope
from evenbeat.errors import InvalidSchedule, StoreError
from evenbeat.humanize import listing
from evenbeat.store.database import Connection, Database
from evenbeat.store.part import StorePart

logger = logging.getLogger(__name__)

BATCH = 500
DEPENDENTS_SHOWN = 100

THOROUGH_SECONDS = 60.0
"""How often all rows are looked at whose job may have ended while a long transaction made them."""


class _Tie(NamedTuple):
    """One job that waits for another: for which end, and as which of those that it names."""

    job_id: UUID
    predecessor_id: UUID
    on: str
    position: int


class PredecessorMissing(InvalidSchedule):
    """There is no such job to wait for."""

    def __init__(self, job: str, message: str) -> None:
        super().__init__(message, field="after")
        self.job = job


class Dependencies(StorePart):
    """Who waits for whom."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._thorough_at = 0.0

    # -- making them -----------------------------------------------------------------------------

    def tie(
        self, jobs: Mapping[UUID, NewJob], connection: Connection, *, now: datetime | None = None
    ) -> None:
        """Let new jobs wait for what their schedules name, and start those that need not wait.
        They may name each other; a circle is refused."""
        waiting = {
            id_: (job.spec.schedule, job.scope)
            for id_, job in jobs.items()
            if isinstance(job.spec.schedule, After)
        }
        if not waiting:
            return
        ties = self._looked_up(waiting, connection)
        # Nobody else can wait for jobs that are new: only these may close a circle.
        self._refuse_circle([tie[:2] for tie in ties], waiting, connection)
        self._write(ties, connection, now)
        self.start(only=list(waiting), connection=connection, now=now)

    def tie_again(
        self,
        job: JobRecord,
        schedule: After,
        connection: Connection,
        *,
        now: datetime | None = None,
    ) -> None:
        """Let a job wait for these and no others. `lock` comes before."""
        ties = self._looked_up({job.id: (schedule, scope_of(job))}, connection)
        awaited = [tie.predecessor_id for tie in ties]
        upstream = self._database.rows("upstream_of", {"ids": awaited}, connection)
        edges = [(a, b) for a, b in upstream if a != job.id] + [tie[:2] for tie in ties]
        self._refuse_circle(edges, [job.id], connection)
        self._database.rows("untie", {"job_id": job.id, "kept": awaited}, connection)
        self._write(ties, connection, now)

    def lock(self, connection: Connection) -> None:
        """Let nobody else change who waits for whom until the transaction ends."""
        name = f"{self._database.schema}:dependencies"
        self._database.rows("lock_dependencies", {"name": name}, connection)

    # -- starting --------------------------------------------------------------------------------

    def start(
        self,
        *,
        only: Sequence[UUID] | None = None,
        awaiting: Sequence[UUID] | None = None,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> int:
        """Start idle jobs for which all is marked; returns how many. With `only`, of these; with
        `awaiting`, of those that wait for these. Safe from many processes at once."""
        rows = self._database.rows
        selection = {
            "only": None if only is None else list(only),
            "awaiting": None if awaiting is None else list(awaiting),
            "limit": BATCH,
        }

        def work(open_: Connection) -> tuple[int, int]:
            idle = self._all(JobRecord._make, "startable_dependents", selection, open_)
            if not idle:
                return 0, 0
            # Read after the jobs are locked, so that what another has just used is not used again.
            ids = [job.id for job in idle]
            ready = {row[0] for row in rows("ready_among", {"ids": ids}, open_)}
            moment = self._database.clock(now, open_)
            # Of ended jobs with one dedup key only one can live; the others come after it.
            starting = {job.dedup_key or job.id: job for job in idle if job.id in ready}.values()
            due = [due_time(job, moment) for job in starting]
            started = {
                "ids": [job.id for job in starting],
                "plan_time": moment,
                "next_runs": due,
                "statuses": ["scheduled" if when > moment else "pending" for when in due],
                "channel": self._database.channel,
                "now": now,
            }
            return len(idle), len(rows("start_dependents", started, open_))

        if connection is not None:
            return work(connection)[1]
        total, seen, started = 0, BATCH, 1
        while seen == BATCH and started:
            seen, started = self._database.atomically(work)
            total += started
        return total

    def start_if_possible(
        self, *, only: Sequence[UUID] | None = None, awaiting: Sequence[UUID] | None = None,
        now: datetime | None = None,
    ) -> int:  # fmt: skip
        """Like `start`; what cannot be done now is done by the next check, within seconds."""
        try:
            return self.start(only=only, awaiting=awaiting, now=now)
        except (StoreError, psycopg.Error) as error:
            logger.warning("jobs that run after others are started later: %s", error)
            return 0

    def catch_up(self, *, now: datetime | None = None) -> int:
        """Start whatever should have been started: a worker was killed before it came to it, or
        a job ended at the very moment in which another began to wait for it."""
        thoroughly = time.monotonic() >= self._thorough_at
        try:
            self._database.rows("notice_missed_ends", {"thoroughly": thoroughly, "now": now})
            if thoroughly:
                self._thorough_at = time.monotonic() + THOROUGH_SECONDS
            return self.start(now=now)
        except psycopg.Error:
            logger.exception("starting jobs that run after others failed, going on")
            return 0

    # -- reading ---------------------------------------------------------------------------------

    def awaited_by(
        self, ids: Sequence[UUID], connection: Connection | None = None
    ) -> dict[UUID, list[Dependency]]:
        """What these jobs wait for."""
        awaited: dict[UUID, list[Dependency]] = {id_: [] for id_ in ids}
        for row in self._database.rows("awaited_by", {"ids": list(ids)}, connection):
            awaited[row[0]].append(Dependency._make(row[1:]))
        return awaited

    def dependents_of(self, job_id: UUID) -> list[Dependency]:
        """Who waits for this job."""
        params = {"id": job_id, "limit": DEPENDENTS_SHOWN}
        return [Dependency(*row) for row in self._database.rows("dependents_of", params)]

    def still_awaited(
        self, ids: Sequence[UUID], connection: Connection
    ) -> dict[UUID, tuple[str, ...]]:
        """Which of these jobs others still wait for, with what those are called. The jobs are
        locked, so that nobody begins to wait for them meanwhile."""
        params = {"ids": list(ids)}
        self._database.rows("jobs_to_delete", params, connection)
        rows = self._database.rows("still_awaited", params, connection)
        return {id_: tuple(names) for id_, names in rows}

    # --------------------------------------------------------------------------------------------

    def _looked_up(
        self, waiting: Mapping[UUID, tuple[After, Scope]], connection: Connection
    ) -> list[_Tie]:
        """Who waits for whom, names looked up; each of them is there and stays there."""
        ids: dict[Scope, dict[UUID | str, UUID]] = {}
        for scope in dict.fromkeys(scope for _, scope in waiting.values()):
            named = {a.job for after, of in waiting.values() if of == scope for a in after.jobs}
            params = {
                "ids": [one for one in named if isinstance(one, UUID)],
                "names": [one for one in named if isinstance(one, str)],
                "scope_kind": scope.kind,
                "scope_id": scope.id,
            }
            known = ids[scope] = {}
            for id_, name, is_own in self._database.rows("find_awaited", params, connection):
                known[id_] = id_
                if is_own or name not in known:
                    known[name] = id_
            if others := [a for a in named if isinstance(a, UUID) and a not in known]:
                batches = self._database.rows("hold_batches", {"ids": others}, connection)
                known |= {id_: id_ for (id_,) in batches}
            for missing in sorted(map(str, named - known.keys())):
                raise PredecessorMissing(
                    missing,
                    f"There is no job {missing!r} to wait for, neither in the scope {scope} nor "
                    "globally. Add it first, or in the same request.",
                )
        ties = [
            _Tie(job_id, ids[scope][awaited.job], str(awaited.on), position)
            for job_id, (after, scope) in waiting.items()
            for position, awaited in enumerate(after.jobs, 1)
        ]
        if len({tie[:2] for tie in ties}) < len(ties):
            raise InvalidSchedule(
                "A job is waited for twice, by its name and by its id. Name it once.", field="after"
            )
        return ties

    def _refuse_circle(
        self, edges: Sequence[tuple[UUID, UUID]], through: Iterable[UUID], connection: Connection
    ) -> None:
        way = circle(edges, through)
        if way is None:
            return
        called: dict[UUID, str] = dict(self._database.rows("labels_of", {"ids": way}, connection))
        steps = " → ".join(called.get(id_, str(id_)) for id_ in way)
        raise InvalidSchedule(
            f"These jobs would wait for each other forever: {steps}. Take one of the steps out.",
            field="after",
        )

    def _write(self, ties: Sequence[_Tie], connection: Connection, now: datetime | None) -> None:
        params = {
            "job_ids": [tie.job_id for tie in ties],
            "predecessor_ids": [tie.predecessor_id for tie in ties],
            "wanted": [tie.on for tie in ties],
            "positions": [tie.position for tie in ties],
            "now": now,
        }
        self._database.rows("tie", params, connection)


def refusal_to_delete(names: Sequence[str]) -> str:
    """Why a job that others wait for stays."""
    return (
        f"It is waited for by {listing(names)}. Delete that too, let it wait for others, or "
        "delete by force: it will then wait until a person runs it."
    )
