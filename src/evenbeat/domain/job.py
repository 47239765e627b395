"""A job: what a caller asks for (`JobSpec`, `NewJob`) and what stands in the database (`Job`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from evenbeat.domain.catch_up import CatchUp, CatchUpMode
from evenbeat.domain.limits import Limits, RateLimit, check_running, parse_rate
from evenbeat.domain.moments import EPOCH
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import After, Cron, Interval, Once, Recurring, Schedule
from evenbeat.domain.scope import GLOBAL, Scope
from evenbeat.domain.states import JobStatus
from evenbeat.domain.window import ExecutionWindow, due_at, parse_window
from evenbeat.errors import InvalidInput, InvalidSchedule

MAX_NAME = 200
_Choice = TypeVar("_Choice", bound=StrEnum)


class Placement(StrEnum):
    """Who chooses the phase of an interval: the balancer, the epoch's grid, or the caller."""

    BALANCED = "balanced"
    GRID = "grid"
    PINNED = "pinned"


class OnFailure(StrEnum):
    """What a recurring job does when the retries of an occurrence are used up."""

    CONTINUE = "continue"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What to run, when, and how it may fail; shared by all jobs made from one task."""

    task: str
    queue: str = "default"
    priority: int = 0
    schedule: Schedule = Once()
    placement: Placement = Placement.BALANCED
    schedule_delay: timedelta = timedelta(0)
    window: ExecutionWindow | None = None
    catch_up: CatchUp = CatchUp()
    retry: RetryPolicy = RetryPolicy()
    on_failure: OnFailure = OnFailure.CONTINUE
    timeout: timedelta | None = None
    lease: timedelta | None = None
    heartbeat: timedelta | None = None
    allow_stale_reentry: bool = True
    cost: timedelta | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    rate_limit: RateLimit | None = None

    def __post_init__(self) -> None:
        check_name("task", self.task)
        check_name("queue", self.queue)
        check_priority(self.priority)
        object.__setattr__(self, "placement", _chosen("placement", Placement, self.placement))
        object.__setattr__(self, "on_failure", _chosen("on_failure", OnFailure, self.on_failure))
        _check_positive("timeout", self.timeout)
        _check_positive("lease", self.lease)
        _check_positive("heartbeat", self.heartbeat)
        _check_positive("cost", self.cost)
        if self.schedule_delay < timedelta(0):
            raise InvalidInput(
                f"schedule_delay must not be negative, got {self.schedule_delay}.",
                field="schedule_delay",
            )
        if self.concurrency_key is not None:
            check_name("concurrency_key", self.concurrency_key)
        if self.concurrency_limit is not None:
            check_running(self.concurrency_limit)

    @property
    def limits(self) -> Limits | None:
        """What its jobs share with others of the same key. The key is the task's name unless given,
        and a key alone means one at a time."""
        key, running, rate = self.concurrency_key, self.concurrency_limit, self.rate_limit
        if running is None and rate is None:
            return None if key is None else Limits(key, 1, None)
        return Limits(key or self.task, running, rate)


@dataclass(slots=True)  # to make a frozen one takes three times as long, and a batch has thousands
class NewJob:
    """One job to add. `start` overrides the first run: a moment, or a distance from now. Without
    an id the store gives it one."""

    spec: JobSpec
    payload: Mapping[str, Any] = field(default_factory=dict)
    id: UUID | None = None
    start: datetime | timedelta | None = None
    name: str | None = None
    scope: Scope = GLOBAL
    dedup_key: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_by: str | None = None
    parent_id: UUID | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name("name", self.name)
        if self.dedup_key is not None:
            check_name("dedup_key", self.dedup_key)
        if isinstance(self.start, datetime) and self.start.tzinfo is None:
            raise InvalidInput(
                f"start must carry a timezone, got {self.start.isoformat()}. "
                "For example: datetime.now(UTC) + timedelta(minutes=5).",
                field="start",
            )


class FirstRun(NamedTuple):
    """Where a new or resumed job enters: its state, its first plan and when that is due, and when
    its place was chosen if somebody did."""

    status: JobStatus
    plan_time: datetime | None
    next_run_at: datetime | None
    anchor_at: datetime | None
    placed_at: datetime | None = None


class Job(NamedTuple):
    """A row of `jobs`, field by field. Times are UTC; the helpers below give its policies."""

    id: UUID
    created_at: datetime
    updated_at: datetime
    plan_time: datetime | None
    next_run_at: datetime | None
    lock_token: UUID | None
    locked_by: UUID | None
    lock_acquired_at: datetime | None
    lock_expires_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    paused_at: datetime | None
    cancelled_at: datetime | None
    average_duration_ms: float | None
    run_count: int
    current_retry_count: int
    releases: int
    tick_plans: int
    priority: int
    aged: int
    is_paused: bool
    status: str
    task: str
    queue: str
    payload: dict[str, Any]
    schedule_kind: str
    schedule_version: int
    interval_seconds: int | None
    cron_expression: str | None
    timezone: str
    anchor_at: datetime | None
    schedule_delay_seconds: float
    execution_window: str | None
    placement: str | None
    placed_at: datetime | None
    cost_ms: float | None
    catch_up: str
    catch_up_window_seconds: float | None
    max_plans_per_tick: int
    max_retries: int
    retry_backoff_seconds: float
    retry_cap_seconds: float
    retry_jitter: float
    retry_delays_seconds: list[float] | None
    on_failure: str
    timeout_seconds: float | None
    lease_seconds: float | None
    heartbeat_seconds: float | None
    allow_stale_reentry: bool
    concurrency_key: str | None
    concurrency_limit: int | None
    rate_limit: str | None
    name: str | None
    scope_kind: str
    scope_id: str
    dedup_key: str | None
    parent_id: UUID | None
    error_message: str | None
    metadata: dict[str, Any]
    created_by: str | None


def first_run(spec: JobSpec, start: datetime | timedelta | None, now: datetime) -> FirstRun:
    """The first occurrence of a new job, within one interval from now unless `start` says other."""
    moment = _moment_from(start, now)
    match spec.schedule:
        case Once(run_at=run_at):
            plan = moment or run_at or now
            status = JobStatus.SCHEDULED if plan > now else JobStatus.PENDING
            return _entering(spec, status, plan, None)
        case Interval() as interval:
            anchored = anchored_interval(interval, spec.placement, moment, now)
            return _entering(
                spec, JobStatus.SCHEDULED, moment or anchored.next_after(now), anchored.anchor
            )
        case Cron() as cron:
            return _entering(spec, JobStatus.SCHEDULED, moment or cron.next_after(now), None)
        case After(jobs=awaited):
            if not awaited or moment is not None:
                raise _cannot_wait(moment)
            return FirstRun(JobStatus.PENDING, None, None, None)


def _cannot_wait(start: datetime | None) -> InvalidSchedule:
    if start is None:
        return InvalidSchedule(
            'A job that runs after others needs at least one, for example after=["load-data"].',
            field="after",
        )
    return InvalidSchedule(
        "A job that runs after others starts when they have ended, not at a time. Leave out run_at "
        "and delay; schedule_delay makes it wait a while after them.",
        field="after",
    )


def _moment_from(start: datetime | timedelta | None, now: datetime) -> datetime | None:
    try:
        return now + start if isinstance(start, timedelta) else start
    except OverflowError:
        raise InvalidInput(
            f"start lies {start} from now, outside the years 1 to 9999.", field="start"
        ) from None


def anchored_interval(
    interval: Interval, placement: Placement, start: datetime | None, now: datetime
) -> Interval:
    """The interval with the anchor that fixes its rhythm: given, the epoch's grid, or from now."""
    if interval.anchor is not None:
        return interval
    if placement is Placement.GRID:
        return Interval(interval.every, EPOCH)
    return Interval(interval.every, start or now)


def _entering(
    spec: JobSpec, status: JobStatus, plan: datetime, anchor: datetime | None
) -> FirstRun:
    return FirstRun(status, plan, due_at(plan, spec.schedule_delay, spec.window), anchor)


def schedule_of(job: Job) -> Schedule:
    """The schedule that the row describes."""
    if job.schedule_kind == "interval":
        return Interval(timedelta(seconds=job.interval_seconds or 0), job.anchor_at)
    if job.schedule_kind == "cron":
        return Cron(job.cron_expression or "", job.timezone)
    return After() if job.schedule_kind == "after" else Once()


def recurring_of(job: Job) -> Recurring | None:
    """The schedule if it has a next occurrence, else None."""
    schedule = schedule_of(job)
    return schedule if isinstance(schedule, Interval | Cron) else None


def retry_of(job: Job) -> RetryPolicy:
    """The retry policy that the row describes."""
    return RetryPolicy(
        max_retries=job.max_retries,
        base=timedelta(seconds=job.retry_backoff_seconds),
        cap=timedelta(seconds=job.retry_cap_seconds),
        jitter=job.retry_jitter,
        delays=tuple(timedelta(seconds=s) for s in job.retry_delays_seconds or ()),
    )


def catch_up_of(job: Job) -> CatchUp:
    """The catch-up policy that the row describes."""
    window = _duration(job.catch_up_window_seconds)
    return CatchUp(CatchUpMode(job.catch_up), window, job.max_plans_per_tick)


def window_of(job: Job) -> ExecutionWindow | None:
    """The execution window that the row describes, if any."""
    return None if job.execution_window is None else parse_window(job.execution_window)


def scope_of(job: Job) -> Scope:
    """The scope that the row belongs to."""
    return Scope(job.scope_kind, job.scope_id)


def spec_of(job: Job) -> JobSpec:
    """The spec that the row was made from; an edit starts here."""
    return JobSpec(
        task=job.task,
        queue=job.queue,
        priority=job.priority - job.aged,
        schedule=schedule_of(job),
        placement=Placement(job.placement) if job.placement else Placement.BALANCED,
        schedule_delay=timedelta(seconds=job.schedule_delay_seconds),
        window=window_of(job),
        catch_up=catch_up_of(job),
        retry=retry_of(job),
        on_failure=OnFailure(job.on_failure),
        timeout=_duration(job.timeout_seconds),
        lease=_duration(job.lease_seconds),
        heartbeat=_duration(job.heartbeat_seconds),
        allow_stale_reentry=job.allow_stale_reentry,
        cost=None if job.cost_ms is None else timedelta(milliseconds=job.cost_ms),
        concurrency_key=job.concurrency_key,
        concurrency_limit=job.concurrency_limit,
        rate_limit=None if job.rate_limit is None else parse_rate(job.rate_limit),
    )


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def resumed_run(job: Job, now: datetime) -> FirstRun:
    """Where a paused job enters again: where it waited, or, if a recurring one has missed that,
    at the next plan of its rhythm."""
    schedule = recurring_of(job)
    if job.next_run_at is not None and job.next_run_at > now:
        return FirstRun(JobStatus.SCHEDULED, job.plan_time, job.next_run_at, job.anchor_at)
    if schedule is None:
        return FirstRun(JobStatus.PENDING, job.plan_time, job.next_run_at, job.anchor_at)
    plan = schedule.next_after(now)
    due = due_at(plan, timedelta(seconds=job.schedule_delay_seconds), window_of(job))
    return FirstRun(JobStatus.SCHEDULED, plan, due, job.anchor_at)


def check_name(field_name: str, value: str) -> None:
    """Refuse an empty, overlong or unprintable name with a message that shows what is allowed."""
    if not _is_name(value):
        given = repr(value)
        raise InvalidInput(
            f"{field_name} must be 1 to {MAX_NAME} printable characters without spaces around, "
            f"got {given[:60]}{' …' if len(given) > 60 else ''}. "
            f"For example: {field_name}='nightly-report'.",
            field=field_name,
        )


def _is_name(value: object) -> bool:
    if not isinstance(value, str) or not value.isprintable():
        return False
    return 1 <= len(value) <= MAX_NAME and value == value.strip()


def check_priority(priority: int) -> None:
    """Refuse a priority that is not a whole number from 0 to 100."""
    if type(priority) is not int or not 0 <= priority <= 100:
        raise InvalidInput(
            f"priority must be a whole number from 0 (default) to 100 (first), got {priority!r}.",
            field="priority",
        )


def _check_positive(field_name: str, value: timedelta | None) -> None:
    if value is not None and value <= timedelta(0):
        raise InvalidInput(f"{field_name} must be longer than zero, got {value}.", field=field_name)


def _chosen(field_name: str, kind: type[_Choice], value: str) -> _Choice:
    try:
        return kind(value)
    except ValueError:
        raise InvalidInput(
            f"{field_name} must be one of {', '.join(kind)}, got {value!r}.", field=field_name
        ) from None
