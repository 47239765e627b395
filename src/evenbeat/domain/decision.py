"""How a run ended and what becomes of its job: the rule between `run` and `finish`."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from evenbeat.domain.catch_up import SKIP_GRACE, CatchUpMode, upcoming
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import (
    BY_NAME,
    JobRecord,
    OnFailure,
    catch_up_of,
    dues_of,
    recurring_of,
    retry_of,
    window_of,
)
from evenbeat.domain.retry import FailuresAlike
from evenbeat.domain.schedule import LONGEST_INTERVAL
from evenbeat.domain.states import LIVE, ExecutionStatus, JobStatus
from evenbeat.domain.window import due_at
from evenbeat.humanize import duration

TICK = timedelta(seconds=5)
"""The pause between two bursts of missed plans, each of `max_plans_per_tick`."""

MOST_REFUSALS = 120
"""How often a payload is handed on to workers whose handler may take it; that takes an hour."""
LONGEST_REFUSAL_SECONDS = 30


class EndKind(StrEnum):
    """The ways in which a run can end. Webhooks are called `job.` and this word."""

    COMPLETED = "completed"
    RETRYING = "retrying"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    RELEASED = "released"


class Decision(NamedTuple):
    """The job's next state and occurrence; `skipped` plans will never run."""

    status: JobStatus
    plan_time: datetime | None = None
    next_run_at: datetime | None = None
    retry_count: int = 0
    burst_count: int = 0
    skipped: int = 0


class RunEnd(NamedTuple):
    """The end of a run: what the statement `finish`, webhooks, events, metrics and logs read.

    A run that its worker gave up (lost, released, or cancelled by a person) has neither an outcome
    nor a decision: others decide about its job. One that was released because its payload does not
    fit, or because it sleeps, has both: why, and when it may be tried or goes on.
    """

    job: JobRecord
    kind: EndKind
    outcome: Outcome | None = None
    decision: Decision | None = None

    @property
    def wait_seconds(self) -> float | None:
        """From due to start, as the execution's `wait_ms`."""
        job = self.job
        if self.outcome is None or job.next_run_at is None or job.started_at is None:
            return None
        return (job.started_at - job.next_run_at).total_seconds() + self.outcome.queued_ms / 1000


_DONE = Decision(JobStatus.COMPLETED)

# Of a job that runs after others. Only the statement `finish` can see whether one of those may end
# again; if none may, it gives the job the state of this run's end.
_AWAITING = Decision(JobStatus.PENDING)


def decide(
    job: JobRecord,
    outcome: Outcome,
    now: datetime,
    spread: float = 0.0,
    refusals: int | None = None,
    *,
    failures: FailuresAlike | None = None,
) -> RunEnd:
    """How a run ended and what its job does next. This is the only place that classifies an end.
    `spread` in [-1, 1] is the caller's random draw for the retry jitter. `refusals` says of an
    unfit payload how often it was refused before, if a live worker is left that has not. `failures`
    are those of the same worker."""
    if refusals is not None and refusals < MOST_REFUSALS:
        due = now + timedelta(seconds=min(2**refusals, LONGEST_REFUSAL_SECONDS))
        return RunEnd(job, EndKind.RELEASED, outcome, _same_again(job, due))
    if outcome.resume_at is not None:
        return RunEnd(job, EndKind.RELEASED, outcome, _same_again(job, outcome.resume_at))
    if outcome.status is ExecutionStatus.COMPLETED:
        decision = _DONE if job.schedule_kind == "once" else _next_occurrence(job, now)
        return RunEnd(job, EndKind.COMPLETED, outcome, decision)
    if outcome.status is ExecutionStatus.CANCELLED:
        return RunEnd(job, EndKind.CANCELLED, outcome, Decision(JobStatus.CANCELLED))
    attempt = job.current_retry_count + 1
    policy = retry_of(job)
    if policy.allows(attempt) and not outcome.final and not outcome.needs_person:
        wait = outcome.retry_after
        if wait is None:
            wait = policy.delay(attempt, spread)
        else:  # a handler's own wait, within what a date can hold
            wait = min(max(wait, timedelta(0)), LONGEST_INTERVAL)
        if failures is not None:
            wait += failures.extra_wait(outcome.error_code or "", wait, now)
        due = _inside(job, now + wait)
        if outcome.keeps_turn and job.next_run_at is not None:
            due = job.next_run_at
        again = Decision(JobStatus.SCHEDULED, job.plan_time, due, attempt, job.burst_count)
        return RunEnd(job, EndKind.RETRYING, outcome, again)
    goes_on = job.on_failure == OnFailure.CONTINUE and job.schedule_kind != "once"
    tried = job.current_retry_count  # a failed job shows it until a person takes it up again
    decision = Decision(JobStatus.FAILED, retry_count=tried)
    if goes_on and not outcome.needs_person:
        waits = job.schedule_kind == "after"
        decision = _AWAITING._replace(retry_count=tried) if waits else _next_occurrence(job, now)
    return RunEnd(job, EndKind.FAILED, outcome, decision)


def stopped_run(job: JobRecord, now: datetime) -> RunEnd:
    """How a run ends that a person stops: a recurring job goes on with its next plan."""
    since = job.started_at or job.lock_acquired_at or now
    lived = max(0.0, (now - since).total_seconds() * 1000)
    outcome = Outcome(ExecutionStatus.CANCELLED, duration_ms=lived, error_code="cancelled")
    once = job.schedule_kind == "once"
    decision = Decision(JobStatus.CANCELLED) if once else _next_occurrence(job, now)
    return RunEnd(job, EndKind.CANCELLED, outcome, decision)


def _same_again(job: JobRecord, due: datetime) -> Decision:
    """The same attempt, later."""
    plan, retries, burst = job.plan_time, job.current_retry_count, job.burst_count
    return Decision(JobStatus.SCHEDULED, plan, due, retries, burst)


def lost_lease(job: JobRecord) -> Outcome:
    """The outcome of a run whose worker vanished: a failed attempt, or one that needs a person."""
    if job.allow_stale_reentry:
        return Outcome(
            ExecutionStatus.FAILED,
            error_code="lease_expired",
            error_message="The worker stopped renewing its lease; the run was given up.",
            # At once the first time, before what came later: the worker most likely died of
            # something else. A job whose workers die again and again waits ever longer, so that it
            # does not take all of them.
            keeps_turn=not job.current_retry_count,
        )
    return Outcome(
        ExecutionStatus.FAILED,
        error_code="stale_timeout",
        error_message="The worker stopped renewing its lease, and this job must not be re-entered "
        "by itself. Check what the run left behind, then retry it.",
        needs_person=True,
    )


def expired(job: JobRecord, now: datetime) -> Outcome | None:
    """The outcome of a one-off job that is claimed too late to start."""
    late = now - due_time(job, job.plan_time or job.created_at)
    if job.expires_seconds is None or late <= timedelta(seconds=job.expires_seconds):
        return None
    return Outcome(
        ExecutionStatus.CANCELLED,
        error_code="expired",
        error_message=f"It was due {duration(late)} ago and expires after "
        f"{duration(job.expires_seconds)}, so it was not run.",
    )


def beyond_limit(job: JobRecord, limit: str, cpu_seconds: float, memory_bytes: int) -> str:
    """What a run is told that was ended for its `memory_limit` or `cpu_limit`."""
    took = f"took {memory_bytes / 2**20:,.0f} MB of memory"
    if limit == "cpu_limit":
        took = f"used {cpu_seconds:,.2f} s of CPU time"
    setting = BY_NAME[limit]
    allowed = setting.kind.to_text(setting.kind.from_column(getattr(job, setting.column)))
    return (
        f"The run's processes {took}, more than its {limit} of {allowed} allows, and were ended. "
        f"Raise the limit, or let a run do less at once."
    )


class Revision(NamedTuple):
    """Another plan for a claimed run, or another time to start it; `skipped` plans never run."""

    plan_time: datetime
    start_at: datetime
    skipped: int = 0


def revise(job: JobRecord, now: datetime) -> Revision | None:
    """What a claimed job should do instead of starting its stored plan now; None: just start.

    A `start_at` in the future means: start nothing now, wait until then.
    """
    plan, skipped = job.plan_time, 0
    if plan is None:
        return None
    schedule = recurring_of(job)
    if schedule is not None and not job.current_retry_count and not job.release_count:
        policy = catch_up_of(job)
        # A plan that was held back by its execution window is late by its due time only.
        is_late = now - (job.next_run_at or plan) > (policy.window or SKIP_GRACE)
        if is_late or schedule.next_after(plan) <= now:
            revised = upcoming(schedule, policy, plan, now - _delay(job))
            if is_late or due_time(job, revised.plan_time) <= now:
                plan, skipped = revised
    start = _start_time(job, plan, now)
    if plan == job.plan_time and start <= now:
        return None
    return Revision(plan, start, skipped)


class OwnPlans(NamedTuple):
    """Past plans that a job runs by itself: single ones, and all from `onward` on."""

    single: frozenset[datetime] = frozenset()
    onward: datetime | None = None

    def has(self, plan: datetime) -> bool:
        """Whether this plan is the job's own business."""
        return plan in self.single or (self.onward is not None and plan >= self.onward)


def own_plans(job: JobRecord, now: datetime) -> OwnPlans:
    """The past plans that a job will still run by itself if its catch-up policy decides now."""
    schedule, plan = recurring_of(job), job.plan_time
    if schedule is None or plan is None or JobStatus(job.status) not in LIVE:
        return OwnPlans()
    if job.status == JobStatus.PAUSED:
        waits = job.next_run_at is not None and job.next_run_at > now
        return OwnPlans(frozenset({plan} if waits else ()))
    if job.status == JobStatus.RUNNING:
        after = upcoming(schedule, catch_up_of(job), schedule.next_after(plan), now - _delay(job))
        single, onward = {plan, after.plan_time}, after.plan_time
    else:
        revision = revise(job, now)
        onward = plan if revision is None else revision.plan_time
        single = {onward}
    return OwnPlans(frozenset(single), onward if job.catch_up == CatchUpMode.EVERY_PLAN else None)


def due_time(job: JobRecord, plan_time: datetime) -> datetime:
    """When a plan of this job is due: after its delay, inside its window."""
    return _inside(job, plan_time + _delay(job))


def _next_occurrence(job: JobRecord, now: datetime) -> Decision:
    schedule = recurring_of(job)
    if job.schedule_kind == "after":
        return _AWAITING
    if schedule is None or job.plan_time is None:
        return _DONE
    policy = catch_up_of(job)
    plan, skipped = schedule.next_after(job.plan_time), 0
    if plan <= now and due_time(job, plan) <= now:
        plan, skipped = upcoming(schedule, policy, plan, now - _delay(job))
    due = _start_time(job, plan, now)
    behind = policy.mode is CatchUpMode.EVERY_PLAN and due <= now
    burst = job.burst_count + 1 if behind else 0
    if burst >= policy.max_plans_per_tick:
        due, burst = _inside(job, now + TICK), 0
    return Decision(JobStatus.SCHEDULED, plan, due, 0, burst, skipped)


def _start_time(job: JobRecord, plan_time: datetime, now: datetime) -> datetime:
    """When a plan may start: when it is due, or after a window that it has missed opens again."""
    window = window_of(job)
    if window is None:
        return plan_time + _delay(job)
    due = due_time(job, plan_time)
    return due if due > now or window.contains(now) else _inside(job, now)


def _inside(job: JobRecord, moment: datetime) -> datetime:
    return due_at(moment, timedelta(0), window_of(job), dues_of(job))


def _delay(job: JobRecord) -> timedelta:
    return timedelta(seconds=job.schedule_delay_seconds)
