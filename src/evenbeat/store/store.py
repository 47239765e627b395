"""The store: a job's journey through the database, verb by verb, and the doors to the rest."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from evenbeat.domain.decision import EndKind, RunEnd, stopped_run
from evenbeat.domain.first_run import FirstRun, first_run
from evenbeat.domain.ids import uuid7
from evenbeat.domain.job import JobRecord, NewJob
from evenbeat.domain.limits import Limits
from evenbeat.domain.schedule import After, Once
from evenbeat.domain.states import JobStatus
from evenbeat.domain.unique import identified, is_unique
from evenbeat.errors import Conflict, NameTaken, StoreError
from evenbeat.store.api_tables import AccessTables, IdempotencyKeys, Templates
from evenbeat.store.audit import AuditLog
from evenbeat.store.backfill import Backfill
from evenbeat.store.batches import BatchTable
from evenbeat.store.bulk import Added, add_in_bulk, named, with_ids
from evenbeat.store.control import Control
from evenbeat.store.database import Connection, Database
from evenbeat.store.deadlines import Deadlines
from evenbeat.store.dependencies import Dependencies
from evenbeat.store.fair import FairClaims
from evenbeat.store.limits import KeyedClaims, LimitTable, commits_at_once
from evenbeat.store.listener import Listener
from evenbeat.store.migrate import migrate
from evenbeat.store.part import as_list
from evenbeat.store.placement import (
    NoPlacer,
    PlacementRequest,
    Placements,
    PlacerFactory,
    asks_load,
    placed_run,
    placement_request,
    places_for,
    with_load,
)
from evenbeat.store.pool import OUTAGES
from evenbeat.store.reads import Reads
from evenbeat.store.rows import (
    MAX_JSON_BYTES,
    REFUSED,
    SNOOZED,
    WAITING,
    Release,
    claim_keys,
    finish_params,
    new_job_columns,
)
from evenbeat.store.run_logs import RunLogs
from evenbeat.store.runs import RunLists
from evenbeat.store.steps import Steps
from evenbeat.store.summaries import SILENT_AFTER
from evenbeat.store.undo import Undo
from evenbeat.store.upkeep import Upkeep
from evenbeat.store.webhooks import Webhooks

logger = logging.getLogger(__name__)

_NOW = FirstRun(JobStatus.PENDING, None, None, None)


class Store:
    """Everything durable. The verbs below are one job's way, from left to right; `control` is for
    operators, `read` for lists and figures, `upkeep` for maintenance, `placement` for the load.

    With a `placer`, balanced intervals begin where it advises; without one, an interval from now.
    Every verb takes an optional `now` in place of the database's clock. A verb that takes a
    `connection` runs in the transaction that is open on it, and takes effect when that commits.
    """

    def __init__(
        self,
        url: str,
        *,
        max_json_bytes: int = MAX_JSON_BYTES,
        placer: PlacerFactory = NoPlacer,
        **connecting: Any,
    ) -> None:
        """For `connecting`, see `Database`."""
        self.database = Database(url, **connecting)
        self.dependencies = Dependencies(self.database)
        self.templates = Templates(self.database, max_json_bytes=max_json_bytes)
        self.control = Control(self.database, max_json_bytes=max_json_bytes, placer=placer)
        self.undo = Undo(self.database)
        self.batches = BatchTable(self.database, self.dependencies, self.control)
        self.read = Reads(self.database)
        self.runs = RunLists(self.database)
        self.upkeep = Upkeep(self.database)
        self.backfill = Backfill(self.database, max_json_bytes=max_json_bytes)
        self.placement = Placements(self.database)
        self._placer = placer
        self.access = AccessTables(self.database)
        self.idempotency = IdempotencyKeys(self.database)
        self.limits = LimitTable(self.database)
        self._keyed = KeyedClaims(self.database, self.limits)
        self._fair = FairClaims(self.database)
        self.webhooks = Webhooks(self.database)
        self.audit = AuditLog(self.database)
        self.steps = Steps(self.database)
        self.run_logs = RunLogs(self.database)
        self.deadlines = Deadlines(self.database)
        self._max_json_bytes = max_json_bytes

    def migrate(self, *, only_check: bool = False) -> list[int]:
        """Bring the schema up to date, safely from many processes at once; says what it applied. Or
        only check that this Evenbeat can use it."""
        return migrate(self.database.url, self.database.schema, only_check=only_check)

    def close(self) -> None:
        """Give the connections back."""
        self.database.close()

    def clock(self, now: datetime | None = None) -> datetime:
        """The database's time."""
        return self.database.clock(now)

    # -- enqueue ---------------------------------------------------------------------------------

    def add(
        self, job: NewJob, *, connection: Connection | None = None, now: datetime | None = None
    ) -> Added:
        """Add one job. One that has the same dedup key, or stands for the same call, is returned
        instead; a name that is taken in its scope raises `NameTaken`."""
        if is_unique(job.spec):
            job = identified(job)
        if connection is None and isinstance(job.spec.schedule, After):
            return self.database.atomically(lambda own: self.add(job, connection=own, now=now))
        if asks_load(job.spec):
            (job,) = self._with_load([job], now)
        job_id = job.id or uuid7()
        if (limits := job.spec.limits) is not None:
            self._note_limits([limits], now)
        if job.spec.fair_key is not None:
            self._fair.look_again()
        first = self._first_run(job_id, job, now, connection)
        columns = new_job_columns(job_id, job, first, self._max_json_bytes)
        params = {"now": now, "channel": self.database.channel}
        debounced = job.unique_key is not None and job.spec.debounce is not None
        statement = "add_debounced" if debounced else "add"
        for _ in range(3):
            if rows := self.database.insert(statement, columns, params, connection):
                if rows[0][0] != job_id:
                    return Added(rows[0][0], created=False)
                if connection is not None and isinstance(job.spec.schedule, After):
                    self.dependencies.tie({job_id: job}, connection, now=now)
                if first.placed_at is not None:
                    self._placer().confirm([job_id], committed=connection is None)
                return Added(job_id, created=True)
            if first.placed_at is not None:
                self._placer().confirm((), [job_id])
            live = self._standing_in(job, connection, now)
            if live is not None:
                return Added(live, created=False)
        raise Conflict(
            f"The job with the key {job.dedup_key or job.unique_key!r} kept starting and ending "
            "while this one was added. Try again."
        )

    def add_many(
        self,
        jobs: Sequence[NewJob],
        *,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> list[Added]:
        """Add many jobs, all or none, in one stream. Keys and names that are taken, before or
        within the batch, are answered with the job that has them."""
        if not jobs:
            return []
        specs = {id(job.spec): job.spec for job in jobs}.values()  # of many jobs, few differ here
        if any(map(is_unique, specs)):
            jobs = [identified(job) for job in jobs]
        if any(spec.debounce is not None for spec in specs):
            waiting = [n for n, job in enumerate(jobs) if job.spec.debounce is not None]
            with self.database.transaction(connection) as own:
                # One by one, as a second call changes the job of the first; in the order of their
                # keys, so that two callers do not wait for each other.
                waiting.sort(key=lambda n: jobs[n].unique_key or "")
                done = {n: self.add(jobs[n], connection=own, now=now) for n in waiting}
                rest = [job for n, job in enumerate(jobs) if n not in done]
                others = iter(self.add_many(rest, connection=own, now=now))
                return [done.get(n) or next(others) for n in range(len(jobs))]
        jobs = self._with_load(jobs, now)
        specs = {id(job.spec): job.spec for job in jobs}.values()
        if any_limits := [limits for spec in specs if (limits := spec.limits) is not None]:
            self._note_limits(any_limits, now)
        if any(spec.fair_key is not None for spec in specs):
            self._fair.look_again()
        ids = with_ids(jobs)
        wishes = (
            placement_request(id_, job.spec, job.start) for id_, job in zip(ids, jobs, strict=True)
        )
        requests = [wish for wish in wishes if wish is not None]
        places = self._places(requests, now, connection)
        with self.database.transaction(connection) as own:
            moment = self.database.clock(now, own)
            runs = _first_runs(ids, jobs, places, moment)
            limit = self._max_json_bytes
            added = add_in_bulk(self.database, own, ids, jobs, runs=runs, now=moment, limit=limit)
            if any(isinstance(spec.schedule, After) for spec in specs):
                pairs = zip(added, jobs, strict=True)
                self.dependencies.tie({a.id: job for a, job in pairs if a.created}, own, now=now)
            self.notify(*sorted({f"due:{spec.queue}" for spec in specs}), connection=own)
        if requests:
            requested = {request.job_id for request in requests}
            new = {done.id for done in added if done.created}
            self._placer().confirm(requested & new, requested - new, committed=connection is None)
        return added

    # -- claim → run -----------------------------------------------------------------------------

    def claim(
        self,
        worker_id: UUID,
        limit: int,
        *,
        queues: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
        lease: timedelta = timedelta(seconds=30),
        since: datetime | None = None,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> list[JobRecord]:
        """Take up to `limit` due jobs, most urgent first; each is this worker's until its lease
        runs out. None for `queues` or `tasks` means all. A `connection` of one's own (see
        `listen`) spares the pool. While jobs with a concurrency key wait, they get half of the
        room; those with a fair key get half of what is left. With `since`, jobs that were due
        before may be left out (see `Frontier`)."""
        params = {
            "worker_id": worker_id,
            "lease_seconds": lease.total_seconds(),
            "queues": as_list(queues),
            "tasks": as_list(tasks),
            "now": now,
        }
        # Each step adds to `jobs`: what one has claimed stays claimed if another fails.
        jobs: list[JobRecord] = []
        stays = connection is None or commits_at_once(connection)
        try:
            view = self._keyed.claim_share(jobs, params, limit, connection)
            memory = self._fair.claim_share(jobs, params, limit - len(jobs), connection)
            if (room := limit - len(jobs)) > 0:
                free = {**params, "limit": room, "since": since}
                jobs += map(JobRecord._make, self.database.rows("claim", free, connection))
            if len(jobs) < limit:
                self._keyed.claim_remaining(jobs, view, params, limit, connection)
            if memory.wants_room and (room := limit - len(jobs)) > 0:
                self._fair.fill(jobs, memory, params, room, connection)
        except psycopg.errors.UniqueViolation:
            # Cannot happen by any verb of ours; if it ever does, one row must not stop all claims.
            stuck = self.database.rows("set_aside_doubled", {"now": now})
            logger.critical("set aside jobs whose occurrence has run before: %s", stuck)
            return jobs if stays else []
        except (*OUTAGES, StoreError) as error:
            known = error if isinstance(error, StoreError) else self.database.unavailable(error)
            if not (jobs and stays):
                raise known from (None if known is error else error)
            # These are ours already, and nobody else would run them before their leases end.
            logger.warning("claimed %d jobs, then no more: %s", len(jobs), error)
        return jobs

    def next_due(
        self,
        *,
        queues: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
        since: datetime | None = None,
        now: datetime | None = None,
    ) -> tuple[datetime | None, datetime]:
        """When the earliest waiting job is (or was) due, and what time it is now. With `since`,
        jobs that were due before may be left out (see `Frontier`)."""
        params = {"queues": as_list(queues), "tasks": as_list(tasks), "since": since, "now": now}
        due, present, limited, fair = self.database.rows("next_due", params)[0]
        if limited is not None:
            look = self._keyed.next_look(params, limited, present)
            due = look if due is None or (look is not None and look < due) else due
        if fair is not None:
            due = fair if due is None else min(due, fair)
            if fair <= present:
                self._fair.look_again()
        return due, present

    def renew(
        self, jobs: Iterable[JobRecord], *, lease: timedelta = timedelta(seconds=30),
        now: datetime | None = None,
    ) -> dict[UUID, bool]:  # fmt: skip
        """Extend the leases of these claims; returns the tokens that still hold, and whether they
        were renewed: a job that somebody else has locked is left for the next time."""
        params = {**claim_keys(jobs), "lease_seconds": lease.total_seconds(), "now": now}
        return dict(self.database.rows("renew", params))

    def unknown_leases(
        self,
        worker_id: UUID,
        known: Iterable[UUID],
        *,
        older_than: timedelta = timedelta(0),
        now: datetime | None = None,
    ) -> list[JobRecord]:
        """Jobs that this worker has claimed without having heard of it."""
        params = {
            "worker_id": worker_id,
            "known": list(known),
            "older_than_seconds": older_than.total_seconds(),
            "now": now,
        }
        return [JobRecord._make(row) for row in self.database.rows("unknown_leases", params)]

    def unlocked(self, jobs: Iterable[JobRecord]) -> set[UUID]:
        """The ids of those of these jobs that no other transaction has locked right now."""
        return self._tokens("unlocked", {"job_ids": [job.id for job in jobs]})

    def progress(self, reports: Sequence[tuple[UUID, str]]) -> set[UUID]:
        """Write progress (token, JSON text) of runs; returns the tokens that still run."""
        params = {"tokens": [r[0] for r in reports], "progress": [r[1] for r in reports]}
        return self._tokens("progress", params)

    def revise(self, plans: Sequence[tuple[JobRecord, datetime]]) -> set[UUID]:
        """Give claimed runs that have not started another plan time (catch-up)."""
        keys = claim_keys(job for job, _ in plans)
        return self._tokens("revise", {**keys, "plan_times": [plan for _, plan in plans]})

    # -- decide → finish -------------------------------------------------------------------------

    def finish(
        self, ends: Sequence[RunEnd], *, expired_only: bool = False, now: datetime | None = None
    ) -> set[UUID]:
        """Write how runs ended; returns the tokens that still held their lease. For the others
        nothing was written: those runs are lost. The reaper passes `expired_only`."""
        if not ends:
            return set()
        params = {**finish_params(ends), "expired_only": expired_only, "now": now}
        rows = self.database.rows("finish", params)
        waiting = list(set(rows[0][1] or ())) if rows else []
        if "pending" in params["statuses"]:
            # Jobs that run after others may have been asked for again while they ran.
            waiting += [end.job.id for end in ends if end.job.schedule_kind == After.kind]
        if waiting:
            self.dependencies.start_if_possible(only=waiting, now=now)
        over = {end.job.batch_id for end in ends if end.kind is not EndKind.RETRYING}
        if batches := [batch_id for batch_id in over if batch_id is not None]:
            self.batches.end_if_over(batches, now=now)
        keyed = [end.job for end in ends if end.job.concurrency_key is not None]
        if keyed:
            self._keyed.runs_ended(self.limits.freed(keyed, now=now))
        return {row[0] for row in rows}

    def stop_run(self, execution_id: UUID, *, now: datetime | None = None) -> JobRecord:
        """End one run at once and throw its result away; its job goes on with its next plan, if it
        has one. Its worker hears of it, or finds its lease gone."""
        run = self.read.execution(execution_id)
        job = self.read.job(run.job_id)
        end = stopped_run(job, self.clock(now))
        if job.lock_token != execution_id or not self.finish([end], now=now):
            ended = self.read.execution(execution_id).status
            state = "is being handed on" if ended == "running" else f"is {ended}"
            raise Conflict(f"Only a run in progress can be stopped, and this one {state}.")
        self.notify(f"cancel:{execution_id}", f"due:{job.queue}")
        after = self.read.job(job.id)
        self.audit.add(
            "execution.cancel",
            ids=[job.id, execution_id],
            name=job.name or job.task,
            before={"status": job.status},
            after={"status": after.status},
            now=now,
        )
        return after

    def release(
        self,
        releases: Sequence[Release],
        *,
        error_code: str = "released",
        error_message: str = "The worker stopped; the run was handed back.",
        now: datetime | None = None,
    ) -> set[UUID]:
        """Hand claims back without costing an attempt; returns the tokens that still held."""
        params = {
            **claim_keys(release.job for release in releases),
            "plan_times": [release.plan_time for release in releases],
            "next_runs": [release.next_run_at for release in releases],
            "error_messages": [release.error_message or error_message for release in releases],
            "error_code": error_code,
            "is_refused": error_code == REFUSED,
            "is_waiting": (is_waiting := error_code in WAITING),
            "has_run": is_waiting or error_code == SNOOZED,
            "channel": self.database.channel,
            "now": now,
        }
        if is_waiting:
            # An event that comes at this moment either finds the job put off, or is found by it.
            with self.database.transaction(hot=True) as own:
                self.database.rows("lock_claims", params, own)
                held = {row[0] for row in self.database.rows("release", params, own)}
        else:
            held = self._tokens("release", params)
        self.limits.freed((release.job for release in releases), now=now)
        return held

    def refusals(
        self, jobs: Iterable[JobRecord], *, now: datetime | None = None
    ) -> dict[UUID, int]:
        """Of these claims, whose payloads do not fit: those that a live worker may yet take, and
        how often each was refused before."""
        params = {
            "tokens": [job.lock_token for job in jobs],
            "refused": REFUSED,
            "silent_seconds": SILENT_AFTER.total_seconds(),
            "now": now,
        }
        return dict(self.database.rows("refusals", params))

    def expired(self, limit: int = 500, *, now: datetime | None = None) -> list[JobRecord]:
        """Running jobs whose lease has run out, for the reaper to decide on."""
        rows = self.database.rows("expired", {"limit": limit, "now": now})
        return [JobRecord._make(row) for row in rows]

    def expire_leases_of(self, worker_ids: Sequence[UUID], *, now: datetime | None = None) -> int:
        """End the leases of workers known to be gone; returns how many."""
        params = {"worker_ids": list(worker_ids), "now": now}
        return len(self.database.rows("expire_leases_of", params))

    # -- signals ---------------------------------------------------------------------------------

    def notify(self, *signals: str, connection: Connection | None = None) -> None:
        """Send hints such as `due:default`; they may get lost, nothing may depend on them."""
        params = {"channel": self.database.channel, "signals": list(signals)}
        self.database.rows("notify", params, connection)

    def notify_ended(self, job_ids: Sequence[str]) -> None:
        """Tell those who wait for these jobs that they have ended."""
        if not job_ids:
            return
        signals = [f"ended:{id_}" for id_ in job_ids]
        params = {"channel": self.database.ends_channel, "signals": signals}
        self.database.rows("notify", params)

    def unended(self, job_ids: Iterable[UUID]) -> set[UUID]:
        """Those of these jobs that will or may still run."""
        return self._tokens("unended", {"ids": list(job_ids)})

    def listen(self, *, ends: bool = False) -> Listener:
        """Hear the hints of all processes, on a connection of its own: those for workers, or
        those about `ends` of jobs."""
        return Listener(self.database, ends=ends)

    # --------------------------------------------------------------------------------------------

    def _with_load(self, jobs: Sequence[NewJob], now: datetime | None) -> Sequence[NewJob]:
        """The jobs with what the load decides about them. Before a transaction is open."""
        specs = {id(job.spec): job.spec for job in jobs}.values()  # of many jobs, few differ here
        if not any(asks_load(spec) for spec in specs):
            return jobs
        self._placer().refresh(now)
        named, moment = [(job.name, job.spec) for job in jobs], self.database.clock(now)
        decided = with_load(self._placer, named, moment)
        return [replace(job, spec=spec) for job, spec in zip(jobs, decided, strict=True)]

    def _first_run(
        self, job_id: UUID, job: NewJob, now: datetime | None, connection: Connection | None
    ) -> FirstRun:
        """Plan the first run; a job that is due at once leaves the clock to its statement."""
        spec = job.spec
        waits = spec.window is not None or spec.schedule_delay
        if job.start is None and spec.schedule == Once() and not waits:
            return _NOW
        moment = self.database.clock(now, connection)
        request = placement_request(job_id, job.spec, job.start)
        if request is None:
            return first_run(job.spec, job.start, moment)
        return placed_run(job.spec, self._places([request], moment)[job_id], moment)

    def _places(
        self,
        requests: Sequence[PlacementRequest],
        now: datetime | None,
        connection: Connection | None = None,
    ) -> dict[UUID, datetime | None]:
        """Where these jobs should begin. Asked for before a transaction is open: the placer may
        have to read, and must not wait for a connection that waits for the placer."""
        if not requests:
            return {}
        self._placer().refresh(now)
        return places_for(self._placer, requests, self.database.clock(now, connection))

    def _note_limits(self, limits: Sequence[Limits], now: datetime | None) -> None:
        self.limits.note(limits, now=now)
        self._keyed.job_added()

    def _standing_in(
        self, job: NewJob, connection: Connection | None, now: datetime | None
    ) -> UUID | None:
        """The job because of which `job` was not inserted."""
        if job.unique_key is not None:
            keys = {"keys": [job.unique_key]}
            self.database.rows("free_unique_keys", {**keys, "now": now}, connection)
            if row := self.database.row("by_unique_key", keys, connection):
                same: UUID = row[1]
                return same
        if job.dedup_key is not None:
            row = self.database.row("live_by_dedup_key", {"keys": [job.dedup_key]}, connection)
            if row:
                live: UUID = row[1]
                return live
        taken = named(self.database, job, connection)
        if taken is not None:
            raise NameTaken(job.name or "", str(job.scope), taken)
        return None

    def _tokens(self, statement: str, params: Mapping[str, object]) -> set[UUID]:
        return {row[0] for row in self.database.rows(statement, params)}


def _first_runs(
    ids: Sequence[UUID],
    jobs: Sequence[NewJob],
    places: Mapping[UUID, datetime | None],
    now: datetime,
) -> Iterator[FirstRun]:
    once: dict[int, FirstRun] = {}  # one-off jobs of one spec enter alike
    for id_, job in zip(ids, jobs, strict=True):
        if id_ in places:
            yield placed_run(job.spec, places[id_], now)
        elif job.start is None and isinstance(job.spec.schedule, Once):
            if id(job.spec) not in once:
                once[id(job.spec)] = first_run(job.spec, None, now)
            yield once[id(job.spec)]
        else:
            yield first_run(job.spec, job.start, now)
