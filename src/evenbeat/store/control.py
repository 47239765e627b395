"""What operators do to jobs, one or many: pause, resume, cancel, retry, edit, delete …"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from evenbeat.domain.first_run import (
    FirstRun,
    first_run,
    in_its_place,
    resumed_run,
    schedule_changed,
    status_after_edit,
    unanchored,
    with_its_rhythm,
)
from evenbeat.domain.job import (
    BY_NAME,
    JobRecord,
    JobSpec,
    dues_of,
    scope_of,
    spec_columns,
    spec_of,
)
from evenbeat.domain.schedule import After, Once
from evenbeat.domain.setting_kinds import Count, check_name
from evenbeat.domain.states import (
    CANCEL,
    DELETE,
    FINISHED,
    PAUSE,
    RESUME,
    RETRY,
    RUN,
    TRANSITIONS,
    JobStatus,
    Verb,
)
from evenbeat.errors import Conflict, IllegalTransition, InvalidInput, NameTaken, NotFound
from evenbeat.store.audit import Action, AuditLog, actor
from evenbeat.store.database import Connection, Database
from evenbeat.store.dependencies import Dependencies, refusal_to_delete
from evenbeat.store.limits import LimitTable
from evenbeat.store.lists import JobFilter
from evenbeat.store.part import StorePart
from evenbeat.store.placement import (
    NoPlacer,
    PlacerFactory,
    asks_load,
    placed_run,
    placement_request,
    places_for,
    rescheduled,
    resume_request,
    with_load,
)
from evenbeat.store.reads import Reads
from evenbeat.store.rows import MAX_JSON_BYTES, encode_json
from evenbeat.store.steps import Steps
from evenbeat.store.summaries import FleetPause

_CHUNK = 1000
MAX_REASON = 500


class RefusedJob(NamedTuple):
    """A job that a verb left alone, with the state that forbade it; no state: no such job.
    `replaced_by` is a live job that has its dedup key by now, `awaited_by` are those that wait
    for it."""

    id: UUID
    status: JobStatus | None
    verb: Verb
    replaced_by: UUID | None = None
    awaited_by: tuple[str, ...] = ()

    def error(self) -> NotFound | Conflict:
        """The refusal as the exception that a single verb raises."""
        if self.awaited_by:
            return Conflict(f"The job {self.id} stays. {refusal_to_delete(self.awaited_by)}")
        if self.status is None:
            return NotFound("job", self.id)
        if self.replaced_by is not None:
            return Conflict(
                f"The live job {self.replaced_by} has the dedup key of the {self.status} job "
                f"{self.id} by now. Let it end or cancel it first."
            )
        return IllegalTransition(
            self.status,
            self.verb.leads_to or "gone",
            TRANSITIONS[self.status],
            verb=self.verb.participle,
            sources=self.verb.sources,
        )


class Changes(NamedTuple):
    """What a verb did to the jobs it was given."""

    changed: list[JobRecord]
    refused: list[RefusedJob]

    def only(self) -> JobRecord:
        """The one job that was meant, or the error that explains why it was left alone."""
        if self.refused:
            raise self.refused[0].error()
        return self.changed[0]


# An edited job in these states waits for a verb, which finds it a place then.
_AT_REST = (FINISHED - {JobStatus.COMPLETED}) | {JobStatus.PAUSED}


class Control(StorePart):
    """Verbs over jobs by their ids; `everywhere` applies any of them to all that match a filter."""

    def __init__(
        self,
        database: Database,
        *,
        max_json_bytes: int = MAX_JSON_BYTES,
        placer: PlacerFactory = NoPlacer,
    ) -> None:
        super().__init__(database, max_json_bytes=max_json_bytes)
        self._reads = Reads(database)
        self._dependencies = Dependencies(database)
        self._limits = LimitTable(database)
        self._audit = AuditLog(database)
        self._steps = Steps(database)
        self._placer = placer
        self.on_ended: list[Callable[[Iterable[UUID]], None]] = []
        """Whom to tell which batches had jobs that have ended."""

    def apply(self, verb: Verb, ids: Sequence[UUID], *, now: datetime | None = None) -> Changes:
        """Do what a verb of the table says; the methods below say what that is."""
        act: Callable[..., Changes] = getattr(self, "run_now" if verb is RUN else verb.name)
        return act(ids, now=now)

    def pause(
        self,
        ids: Sequence[UUID],
        *,
        now: datetime | None = None,
        connection: Connection | None = None,
    ) -> Changes:
        """Keep jobs from running; a run in progress is finished first."""
        return self._step("pause", ids, PAUSE, now, connection)

    def resume(self, ids: Sequence[UUID], *, now: datetime | None = None) -> Changes:
        """Let paused jobs run again, recurring ones at the next plan of their rhythm. An interval
        that has not been placed yet is placed now."""

        def work(connection: Connection | None) -> list[JobRecord]:
            paused = self._all(JobRecord._make, "paused_for_update", {"ids": list(ids)}, connection)
            moment = self._database.clock(now, connection)
            # One that has begun goes on where it was: it must not come to stand at another plan.
            begun = self._steps.begun([job.id for job in paused], connection)
            requests = [resume_request(job, moment) for job in paused if job.id not in begun]
            wishes = [request for request in requests if request is not None]
            places = places_for(self._placer, wishes, moment)
            runs = [
                resumed_run(job, moment, job.id in begun)._replace(placed_at=job.placed_at)
                if places.get(job.id) is None
                else placed_run(unanchored(spec_of(job)), places[job.id], moment)
                for job in paused
            ]
            params = {
                "ids": [job.id for job in paused],
                "statuses": [str(run.status) for run in runs],
                "plan_times": [run.plan_time for run in runs],
                "next_runs": [run.next_run_at for run in runs],
                "anchors": [run.anchor_at for run in runs],
                "placed": [run.placed_at for run in runs],
                "now": now,
            }
            return self._with_hint("resume", params, connection)

        def recorded(connection: Connection) -> list[JobRecord]:
            return self._recorded("job.resume", ids, work, now, connection)

        # Before a transaction is open: the placer must not wait for a connection that waits for it.
        self._placer().refresh(now)
        changed = self._database.atomically(recorded)
        self._confirm(changed)
        waiting = [job.id for job in changed if job.schedule_kind == After.kind]
        if waiting:
            self._dependencies.start_if_possible(only=waiting, now=now)
            changed = self._all(JobRecord._make, "jobs", {"ids": [job.id for job in changed]})
        return self._with_refused(ids, changed, RESUME)

    def cancel(self, ids: Sequence[UUID], *, now: datetime | None = None) -> Changes:
        """End jobs for good; a run in progress is stopped and its result thrown away."""
        done = self._step("cancel", ids, CANCEL, now)
        if done.changed:
            ended = [job.id for job in done.changed]
            self._dependencies.start_if_possible(awaiting=ended, now=now)
        self._limits.freed(done.changed, now=now)
        self._tell_batches(done.changed)
        return done

    def retry(self, ids: Sequence[UUID], *, now: datetime | None = None) -> Changes:
        """Run failed or cancelled jobs again, now, with their retries back at 0."""
        return self._step("run_again", ids, RETRY, now)

    def run_now(self, ids: Sequence[UUID], *, now: datetime | None = None) -> Changes:
        """Run jobs now, besides their schedule: waiting ones, or finished ones once more."""
        return self._step("run_again", ids, RUN, now)

    def set_priority(
        self, ids: Sequence[UUID], priority: int, *, now: datetime | None = None
    ) -> Changes:
        """Set the priority, 0 to 100."""
        BY_NAME["priority"].kind.parse("priority", priority)
        return self._edit_many("set_priority", ids, {"priority": priority}, now)

    def boost(self, ids: Sequence[UUID], by: int, *, now: datetime | None = None) -> Changes:
        """Raise the priority by `by`, at most to 100."""
        Count(1, 100).parse("boost", by)
        return self._edit_many("boost", ids, {"by": by}, now)

    def delete(
        self, ids: Sequence[UUID], *, force: bool = False, now: datetime | None = None
    ) -> Changes:
        """Remove jobs with their history, whatever their state. One that others, who stay, still
        wait for is left alone; with `force` it goes, and they wait until a person helps them."""

        def work(connection: Connection) -> tuple[dict[UUID, tuple[str, ...]], list[JobRecord]]:
            awaited = {} if force else self._dependencies.still_awaited(ids, connection)
            going = {"ids": [id_ for id_ in ids if id_ not in awaited]}
            gone = self._all(JobRecord._make, "delete", going, connection)
            self._audit.add_jobs("job.delete", gone, None, connection, now=now)
            return awaited, gone

        awaited, gone = self._database.atomically(work)
        self._limits.freed(gone, now=now)
        self._tell_batches(gone)
        done = self._with_refused([id_ for id_ in ids if id_ not in awaited], gone, DELETE)
        stay = [RefusedJob(id_, JobStatus.PENDING, DELETE, None, by) for id_, by in awaited.items()]
        return Changes(gone, [*done.refused, *stay])

    def update(
        self,
        job_id: UUID,
        edit: Callable[[JobSpec], JobSpec] = lambda spec: spec,
        *,
        payload: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        name: str | None = None,
        rewiring: bool = False,
        now: datetime | None = None,
    ) -> JobRecord:
        """Edit a job in one transaction. An unchanged schedule keeps its plan; a changed one is
        planned again, and a run in progress ends under the old definition. `rewiring` announces an
        edit that changes for which jobs it waits: of these there is one at a time."""
        if name is not None:
            check_name("name", name)
        documents = {
            field: None if value is None else encode_json(field, value, self._max_json_bytes)
            for field, value in (("payload", payload), ("metadata", metadata))
        }

        def work(connection: Connection) -> JobRecord:
            if rewiring:
                self._dependencies.lock(connection)
            job = self._get(JobRecord._make, "job_for_update", "job", job_id, connection=connection)
            moment, spec = self._database.clock(now, connection), edit(spec_of(job))
            if asks_load(spec):
                (spec,) = with_load(self._placer, [(job.name, in_its_place(job, spec))], moment)
            plan = self._replanned(job, spec, moment)
            columns = {**spec_columns(spec), **plan, "id": job_id, "name": name or job.name}
            try:
                params = {**documents, **columns, "now": now}
                (edited,) = self._with_hint("update_job", params, connection)
                self._audit.add_jobs("job.edit", [job], [edited], connection, now=now)
            except psycopg.errors.UniqueViolation as error:
                if error.diag.constraint_name != "jobs_name":
                    raise _stands_already(error) from error
                other = self._reads.job_by_name(columns["name"], scope_of(job))
                taken_by = other.id if other else job.id
                raise NameTaken(columns["name"], str(scope_of(job)), taken_by) from error
            if job.plan_time and job.schedule_kind == edited.schedule_kind == Once.kind:
                move = {"job_id": job_id, "from": job.plan_time, "to": edited.plan_time}
                self._database.rows("carry_steps", move, connection)
            # Let it wait for what its schedule names now; one that names nothing waits as before.
            awaited = spec.schedule if isinstance(spec.schedule, After) else After()
            is_unchanged = awaited is spec.schedule or job.schedule_kind != After.kind
            if is_unchanged and not awaited.jobs:
                return edited
            self._dependencies.tie_again(edited, awaited, connection, now=now)
            self._dependencies.start(only=[job_id], connection=connection, now=now)
            return self._all(JobRecord._make, "jobs", {"ids": [job_id]}, connection)[0]

        # Before a transaction is open: the placer must not wait for a connection that waits for it.
        self._placer().refresh(now)
        edited = self._database.atomically(work)
        self._confirm([edited])
        if (limits := spec_of(edited).limits) is not None:
            self._limits.note([limits], now=now)
        return edited

    def set_owner(self, job_id: UUID, owner: str) -> None:
        """Note who declares a job in code."""
        self._database.rows("set_owner", {"id": job_id, "owner": owner})

    def everywhere(
        self, job_filter: JobFilter, act: Callable[[Sequence[UUID]], Changes]
    ) -> tuple[int, int]:
        """Apply a verb to all that match, in chunks: `everywhere(failed, control.retry)`. Returns
        how many jobs were changed and how many were left alone."""
        changed = refused = 0
        after: UUID | None = None
        while ids := self._reads.ids(job_filter, after=after, limit=_CHUNK):
            done = act(ids)
            changed += len(done.changed)
            refused += len(done.refused)
            after = ids[-1]
        return changed, refused

    def pause_everything(
        self,
        reason: str = "",
        *,
        by: str = "code",
        until: datetime | None = None,
        now: datetime | None = None,
    ) -> FleetPause:
        """Let no worker start anything more, until somebody resumes or the moment has come. What
        runs goes on. Jobs and queues are not touched: each keeps its rhythm, and what was paused
        before stays paused after."""
        if len(reason) > MAX_REASON or "\0" in reason:
            raise InvalidInput(f"reason: up to {MAX_REASON} characters.", field="reason")
        if until is not None and until <= self._database.clock(now):
            raise InvalidInput(f"The pause would end in the past: {until}.", field="until")
        params = {"reason": reason, "paused_by": by, "ends_at": until, "now": now}
        paused = FleetPause._make(self._database.rows("pause_everything", params)[0])
        about = {"reason": reason, "until": until and until.isoformat()}
        self._audit.add("fleet.pause", name=reason or None, after=about, now=now)
        return paused

    def resume_everything(self, *, now: datetime | None = None) -> FleetPause | None:
        """Let workers start jobs again, exactly those that could before; returns what is over."""
        row = self._database.row(
            "resume_everything", {"channel": self._database.channel, "now": now}
        )
        if row is None or row[4]:
            return None
        self._audit.add("fleet.resume", name=row[0] or None, now=now)
        return FleetPause._make(row[:4])

    def pause_queue(self, name: str, *, paused: bool = True, now: datetime | None = None) -> None:
        """Claim nothing more from this queue; what runs goes on."""
        check_name("queue", name)
        params = {"name": name, "paused": paused, "channel": self._database.channel, "now": now}
        self._database.rows("set_queue_paused", params)
        self._audit.add("queue.pause" if paused else "queue.resume", name=name, now=now)

    def resume_queue(self, name: str, *, now: datetime | None = None) -> None:
        """Claim from this queue again."""
        self.pause_queue(name, paused=False, now=now)

    # --------------------------------------------------------------------------------------------

    def _step(
        self,
        statement: str,
        ids: Sequence[UUID],
        verb: Verb,
        now: datetime | None,
        connection: Connection | None = None,
    ) -> Changes:
        selection = {"ids": list(ids), "sources": sorted(verb.sources)}
        params = {**selection, "channel": self._database.channel, "now": now}
        try:
            changed = self._recorded(
                f"job.{verb.name}",  # type: ignore[arg-type]
                ids,
                lambda own: self._all(JobRecord._make, statement, params, own),
                now,
                connection,
            )
        except psycopg.errors.UniqueViolation as error:
            raise _stands_already(error) from error
        return self._with_refused(ids, changed, verb)

    def _edit_many(
        self, statement: str, ids: Sequence[UUID], values: Mapping[str, int], now: datetime | None
    ) -> Changes:
        params = {**values, "ids": list(ids), "now": now}
        changed = self._recorded(
            "job.edit", ids, lambda own: self._all(JobRecord._make, statement, params, own), now
        )
        return self._with_refused(ids, changed, DELETE)

    def _recorded(
        self,
        action: Action,
        ids: Sequence[UUID],
        work: Callable[[Connection | None], list[JobRecord]],
        now: datetime | None,
        connection: Connection | None = None,
    ) -> list[JobRecord]:
        """Change jobs; where it is known who asks for it, with an entry in the audit log."""
        if actor.get() is None:
            return work(connection)

        def with_entry(own: Connection) -> list[JobRecord]:
            before = self._all(JobRecord._make, "jobs_before_change", {"ids": list(ids)}, own)
            after = work(own)
            self._audit.add_jobs(action, before, after, own, now=now)
            return after

        if connection is not None:
            return with_entry(connection)
        return self._database.atomically(with_entry)

    def _with_hint(
        self, statement: str, params: Mapping[str, Any], connection: Connection | None
    ) -> list[JobRecord]:
        """Change jobs; idle workers look when they are due, and need not wait for a poll."""
        jobs = self._all(JobRecord._make, statement, params, connection)
        waiting = (JobStatus.PENDING, JobStatus.SCHEDULED)
        self._notify({f"due:{job.queue}" for job in jobs if job.status in waiting}, connection)
        return jobs

    def _with_refused(self, ids: Sequence[UUID], changed: list[JobRecord], verb: Verb) -> Changes:
        done = {job.id for job in changed}
        rest = [id_ for id_ in dict.fromkeys(ids) if id_ not in done]
        if not rest:
            return Changes(changed, [])
        states = {row[0]: row for row in self._database.rows("states_of", {"ids": rest})}
        refused = []
        for id_ in rest:
            _, status, is_paused, replaced_by = states.get(id_, (id_, None, False, None))
            # A running job that is to be paused after its run counts as paused.
            state = JobStatus.PAUSED if is_paused else status and JobStatus(status)
            live = replaced_by if state in verb.sources else None
            refused.append(RefusedJob(id_, state, verb, live))
        return Changes(changed, refused)

    def _replanned(self, job: JobRecord, spec: JobSpec, now: datetime) -> dict[str, Any]:
        """Status, plan and version after an edit. A changed schedule begins where the edit says, in
        its old rhythm if it has that still, or where there is room."""
        if not schedule_changed(job, spec):
            return {name: getattr(job, name) for name in (*FirstRun._fields, "schedule_version")}
        # A one-off keeps its moment unless the edit names another.
        start = job.plan_time if spec.schedule == spec_of(job).schedule == Once() else None
        spec = with_its_rhythm(job, spec)
        request = placement_request(job.id, spec, start)
        if request is None or job.status in _AT_REST:
            run = first_run(spec, start, now)
            run = run._replace(placed_at=job.placed_at if run.anchor_at == job.anchor_at else None)
        else:
            after = now
            if (dues := dues_of(job)) and dues.every == request.every and job.next_run_at:
                # Only its hours have changed: it runs there as near to its present time as it can.
                after = max(now, job.next_run_at - request.every / 2)
            places = places_for(self._placer, [rescheduled(job, request)], after)
            run = placed_run(spec, places.get(job.id), now)
        run = run._replace(status=status_after_edit(JobStatus(job.status), run.status, spec))
        if run.status in FINISHED:
            run = FirstRun(run.status, None, None, run.anchor_at)
        return {**run._asdict(), "schedule_version": job.schedule_version + 1}

    def _tell_batches(self, jobs: Sequence[JobRecord]) -> None:
        batches = {job.batch_id for job in jobs if job.batch_id is not None}
        for tell in self.on_ended if batches else ():
            tell(batches)

    def _confirm(self, jobs: Sequence[JobRecord]) -> None:
        self._placer().confirm([job.id for job in jobs if job.placed_at is not None])


def _stands_already(error: psycopg.errors.UniqueViolation) -> Conflict:
    detail = error.diag.message_detail
    return Conflict(f"Another job stands where this one would come to stand. {detail}")
