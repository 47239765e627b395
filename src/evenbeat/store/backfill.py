"""Backfill: past plans of a recurring job, each run once as a job of its own.

The children are one-off jobs, due at once, so that workers run them side by side and the parent's
rhythm is untouched. Each keeps the plan it was made for (`ctx.plan_time`), and the database allows
one child for a plan. Left out are plans that have a child, that the parent has completed (unless
`include_completed`), that it runs now, or that it will run itself: the one that its catch-up policy
chooses after an outage, or every one.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.decision import own_plans
from evenbeat.domain.first_run import FirstRun
from evenbeat.domain.job import JobRecord, NewJob, recurring_of, scope_of, spec_of, window_of
from evenbeat.domain.moments import BEGIN
from evenbeat.domain.schedule import Once
from evenbeat.domain.states import ExecutionStatus, JobStatus
from evenbeat.domain.window import due_at
from evenbeat.errors import InvalidInput
from evenbeat.store.audit import AuditLog
from evenbeat.store.bulk import add_in_bulk, with_ids
from evenbeat.store.database import Connection
from evenbeat.store.part import StorePart, check_period

MOST_PLANS = 10_000
_MICROSECOND = timedelta(microseconds=1)


class Backfilled(NamedTuple):
    """What a backfill did: plans that got a child now (with the children's ids, in order), and
    how many of the period were left out because they have one or need none."""

    created: int
    existing: int
    plans: list[datetime]
    ids: list[UUID]


class Backfill(StorePart):
    """Makes children for the plans of a period."""

    def add(
        self,
        job_id: UUID,
        start: datetime,
        end: datetime,
        *,
        limit: int = 1000,
        include_completed: bool = False,
        created_by: str | None = None,
        dry_run: bool = False,
        now: datetime | None = None,
    ) -> Backfilled:
        """Run every plan in [start, end) that has not run; asking again adds nothing. With
        `dry_run` nothing is added, and there are no ids."""
        check_period(start, end, ("from", "to"))
        if not 1 <= limit <= MOST_PLANS:
            raise InvalidInput(
                f"limit must be from 1 to {MOST_PLANS:,}, got {limit}.", field="limit"
            )

        def work(connection: Connection) -> Backfilled:
            present = self._database.clock(now, connection)
            # Held, so that two backfills of a job come one after the other.
            job = self._get(JobRecord._make, "job_for_update", "job", job_id, connection=connection)
            plans = plans_between(job, start, end, limit, present)
            taken = self._taken(job, plans, include_completed, connection)
            own = own_plans(job, present)
            missing = [plan for plan in plans if plan not in taken and not own.has(plan)]
            ids = []
            if missing and not dry_run:
                ids = self._add(job, missing, created_by, present, connection)
                period = {"from": start.isoformat(), "to": end.isoformat(), "runs": len(ids)}
                AuditLog(self._database).add(
                    "job.backfill",
                    ids=[job.id],
                    name=job.name or job.task,
                    after=period,
                    connection=connection,
                    now=now,
                )
            return Backfilled(len(missing), len(plans) - len(missing), missing, ids)

        return self._database.atomically(work)

    def _taken(
        self, job: JobRecord, plans: list[datetime], include_completed: bool, connection: Connection
    ) -> set[datetime]:
        """The plans that have a child, that run now or, unless these count, that have run."""
        if not plans:
            return set()
        params = {
            "id": job.id,
            "plans": plans,
            "after": plans[0] - min(slack(job), plans[0] - BEGIN),
            "until": plans[-1],
        }
        taken = {row[0] for row in self._database.rows("plans_with_child", params, connection)}
        rows = self._database.rows("plans_run", params, connection)
        taken |= {plan for plan, status in rows if status == ExecutionStatus.RUNNING}
        if not include_completed:
            taken |= completed_of(job, plans, sorted({plan for plan, _ in rows}))
        return taken

    def _add(
        self,
        job: JobRecord,
        plans: Sequence[datetime],
        created_by: str | None,
        now: datetime,
        connection: Connection,
    ) -> list[UUID]:
        child = NewJob(
            replace(spec_of(job), schedule=Once(), schedule_delay=timedelta(0)),
            job.payload,
            scope=scope_of(job),
            metadata=job.metadata,
            created_by=created_by or job.created_by,
            parent_id=job.id,
        )
        due = due_at(now, timedelta(0), window_of(job))
        status = JobStatus.SCHEDULED if due > now else JobStatus.PENDING
        runs = [FirstRun(status, plan, due, None) for plan in plans]
        children, limit = [child] * len(plans), self._max_json_bytes
        ids = with_ids(children)
        add_in_bulk(self._database, connection, ids, children, runs=runs, now=now, limit=limit)
        self._notify([f"due:{job.queue}"], connection)
        return ids


def plans_between(
    job: JobRecord, start: datetime, end: datetime, limit: int, now: datetime
) -> list[datetime]:
    """The plans of a job in [start, end), at most `limit`, none of them in the future."""
    schedule = recurring_of(job)
    if schedule is None:
        raise InvalidInput(
            f"Only a recurring job can be backfilled; the job {job.id} runs once. "
            "Run it again instead.",
            field="job_id",
        )
    if end > now:
        raise InvalidInput(
            f"to must not be in the future, got {end.isoformat()}; it is {now.isoformat()}. "
            "The job runs the plans to come by itself.",
            field="to",
        )
    after, until = max(start, BEGIN) - _MICROSECOND, max(end, BEGIN) - _MICROSECOND
    count = schedule.count(after, until)
    if count > limit:
        raise InvalidInput(
            f"There are {count:,} plans between {start.isoformat()} and {end.isoformat()}, but at "
            f"most {limit:,} are run at once. Choose a shorter period, or raise the limit (up to "
            f"{MOST_PLANS:,}).",
            field="from",
        )
    return schedule.preview(after, count)


def slack(job: JobRecord) -> timedelta:
    """How long before a plan of today's rhythm the same occurrence may have run in an older one:
    an interval, if the job has been placed."""
    if job.placed_at is None or job.interval_seconds is None:
        return timedelta(0)
    return timedelta(seconds=job.interval_seconds)


def completed_of(
    job: JobRecord, plans: Sequence[datetime], ran: Sequence[datetime]
) -> set[datetime]:
    """Which of these plans are among those that ran (both sorted). What ran before the job was
    placed where it is now ran at other times: it stands for the next plan of today's rhythm."""
    done, exactly, before = set(), set(ran), slack(job)
    for plan in plans:
        moved = job.placed_at is not None and plan <= job.placed_at
        last = bisect_right(ran, plan) - 1
        if plan in exactly or (moved and last >= 0 and plan - ran[last] < before):
            done.add(plan)
    return done
