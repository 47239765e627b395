"""A job: what a caller asks for (`JobSpec`, `NewJob`), and its row in the database (`JobRecord`).

`SETTINGS` is the one declaration of a job's settings. The columns, the API's requests and answers,
`options()` and the decorators, the options of the command line, the dashboard's form, exported
files and the reference table in the documentation all derive from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

from evenbeat.domain import setting_kinds as kinds
from evenbeat.domain.catch_up import CatchUp, CatchUpMode
from evenbeat.domain.clock_time import ClockTime
from evenbeat.domain.json_values import check_document
from evenbeat.domain.limits import MAX_RUNNING, Limits, RateLimit
from evenbeat.domain.moments import EPOCH, as_utc
from evenbeat.domain.retry import LONGEST_CAP, RetryPolicy
from evenbeat.domain.schedule import (
    KINDS,
    Interval,
    Once,
    Recurring,
    Schedule,
    schedule_columns,
    schedule_from_row,
)
from evenbeat.domain.scope import GLOBAL, Scope, check_scope
from evenbeat.domain.setting_kinds import SettingKind, check_name
from evenbeat.domain.unique import check_unique
from evenbeat.domain.window import ExecutionWindow, parse_window


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
    expires: timedelta | None = None
    retry: RetryPolicy = RetryPolicy()
    retry_on: tuple[str, ...] | None = None
    never_retry: tuple[str, ...] | None = None
    on_failure: OnFailure = OnFailure.CONTINUE
    timeout: timedelta | None = None
    memory_limit: int | None = None
    cpu_limit: timedelta | None = None
    lease: timedelta | None = None
    heartbeat: timedelta | None = None
    allow_stale_reentry: bool = True
    retention: timedelta | None = None
    must_start_within: timedelta | None = None
    must_finish_by: ClockTime | None = None
    must_succeed_every: timedelta | None = None
    cost: timedelta | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    rate_limit: RateLimit | None = None
    unique_for: timedelta | None = None
    unique_by: tuple[str, ...] | None = None
    throttle: timedelta | None = None
    debounce: timedelta | None = None
    debounce_max: timedelta | None = None

    def __post_init__(self) -> None:
        check_name("task", self.task)
        for setting in SETTINGS:
            value = setting.of(self)
            if value is not None or setting.name not in _OPTIONAL:
                parsed = setting.kind.parse(setting.name, value)
                if not setting.path:
                    object.__setattr__(self, setting.name, parsed)
        check_unique(self)

    @property
    def limits(self) -> Limits | None:
        """What its jobs share with others of the same key. The key is the task's name unless given,
        and a key alone means one at a time."""
        key, running, rate = self.concurrency_key, self.concurrency_limit, self.rate_limit
        if running is None and rate is None:
            return None if key is None else Limits(key, 1, None)
        return Limits(key or self.task, running, rate)


# -- settings --------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """One setting of a job, under the same name wherever it appears.

    `path` leads to its value from a JobSpec, `column` is where a row has it; both are the name
    unless they say otherwise.
    """

    name: str
    kind: SettingKind
    group: str
    help: str
    path: str = ""
    column_name: str = ""

    @property
    def column(self) -> str:
        """The column of `jobs` that holds it."""
        return self.column_name or self.name + self.kind.column_suffix

    def of(self, spec: JobSpec) -> Any:
        """Its value in a spec."""
        value: Any = spec
        for attribute in (self.path or self.name).split("."):
            value = getattr(value, attribute)
        return value


WHEN, HOW, DEADLINES, RETRIES, LIMITS = "When", "How", "Deadlines", "Retries", "Limits"
DUPLICATES = "Duplicates"

SETTINGS = (
    Setting("placement", kinds.Choice(Placement), WHEN,
            "Who chooses an interval's phase: the balancer, the clock's grid, or you (pinned)."),
    Setting("schedule_delay", kinds.Duration(least=timedelta(0)), WHEN,
            "How long after its plan a run becomes due."),
    Setting("window", kinds.Window(), WHEN,
            "The hours in which a run may start, such as Mon-Fri 22:00-06:00 Europe/Berlin, or "
            "off_peak: those with the least load.",
            column_name="execution_window"),
    Setting("catch_up", kinds.Choice(CatchUpMode), WHEN,
            "What happens to plans missed during downtime.", path="catch_up.mode"),
    Setting("catch_up_window", kinds.Duration(), WHEN,
            "How old a missed plan may be and still run.", path="catch_up.window"),
    Setting("max_plans_per_tick", kinds.Count(1, 1000), WHEN,
            "How many missed plans run in a row, with catch_up=every_plan.",
            path="catch_up.max_plans_per_tick"),
    Setting("expires", kinds.Duration(), WHEN,
            "How long after it is due a one-off job may still start; later it is cancelled. For "
            "recurring jobs there is catch_up_window."),
    Setting("queue", kinds.Name(), HOW, "The queue that its jobs wait in."),
    Setting("priority", kinds.Count(0, 100), HOW, "0 to 100; higher runs first."),
    Setting("timeout", kinds.Duration(), HOW, "When a run is stopped as failed."),
    Setting("memory_limit", kinds.Size(), HOW,
            "How much memory a run's processes may take together; for isolate=True, shell, crawl."),
    Setting("cpu_limit", kinds.Duration(), HOW,
            "How much CPU time a run's processes may use together; for isolate=True, shell, "
            "crawl."),
    Setting("cost", kinds.Duration(column_unit=1000), HOW,
            "How long a run is expected to take, until its runs have shown it.",
            column_name="cost_ms"),
    Setting("lease", kinds.Duration(), HOW, "How long a claim holds without renewal."),
    Setting("heartbeat", kinds.Duration(), HOW, "How often a claim is renewed."),
    Setting("allow_stale_reentry", kinds.Flag(), HOW,
            "Whether a run whose worker was lost may start again by itself."),
    Setting("retention", kinds.Duration(), HOW,
            "How long its runs, and a finished one-off job, are kept."),
    Setting("must_start_within", kinds.Duration(), DEADLINES,
            "How long after it is due a run must have started."),
    Setting("must_finish_by", kinds.TimeOfDay(), DEADLINES,
            "The time of day by which its last plan must have succeeded, such as "
            "08:00 Europe/Berlin."),
    Setting("must_succeed_every", kinds.Duration(), DEADLINES,
            "How much time may lie between two successes."),
    Setting("max_retries", kinds.Count(0, 10_000), RETRIES,
            "How many tries follow the first.", path="retry.max_retries"),
    Setting("retry_backoff", kinds.Duration(least=timedelta(0), most=LONGEST_CAP), RETRIES,
            "The wait before the first retry; it doubles from there.", path="retry.backoff"),
    Setting("retry_cap", kinds.Duration(least=timedelta(0), most=LONGEST_CAP), RETRIES,
            "The longest wait before a retry, jitter included, at most 24h.", path="retry.cap"),
    Setting("retry_jitter", kinds.Share(), RETRIES,
            "How far a wait may vary; 0.2 means by a fifth either way.", path="retry.jitter"),
    Setting("retry_delays", kinds.Durations(), RETRIES,
            "The wait before each retry, in place of doubling; the last one repeats.",
            path="retry.delays"),
    Setting("retry_on", kinds.ErrorNames(), RETRIES,
            "The errors that are tried again, by the names of exceptions; any, unless given."),
    Setting("never_retry", kinds.ErrorNames(), RETRIES,
            "Errors that make a run fail for good, by the names of exceptions or error codes."),
    Setting("on_failure", kinds.Choice(OnFailure), RETRIES,
            "What a recurring job does when its retries are used up."),
    Setting("concurrency_key", kinds.Name(), LIMITS,
            "What shares the limits below; the task's name unless given."),
    Setting("concurrency_limit", kinds.Count(1, MAX_RUNNING), LIMITS,
            "How many jobs with the key run at once; 1 for a key without a rate."),
    Setting("rate_limit", kinds.Rate(), LIMITS,
            "How often a job with the key may start, such as 10/s."),
    Setting("unique_for", kinds.Duration(), DUPLICATES,
            "How long, from when a job was added, another call with the same arguments is answered "
            "with it."),
    Setting("unique_by", kinds.ArgumentNames(), DUPLICATES,
            "The arguments by which calls are the same. Alone: for as long as the first job has "
            "not ended."),
    Setting("throttle", kinds.Duration(), DUPLICATES,
            "How long, from when a job was added, other calls of the task are answered with it."),
    Setting("debounce", kinds.Duration(), DUPLICATES,
            "How long a job waits for another call of the task, which then takes its place."),
    Setting("debounce_max", kinds.Duration(), DUPLICATES,
            "The longest that other calls may put it off."),
)  # fmt: skip
BY_NAME = {setting.name: setting for setting in SETTINGS}
_OPTIONAL = {one.name for one in fields(JobSpec) if one.default is None} | {"catch_up_window"}

_ONLY_ONCE = [BY_NAME["expires"].column, *(s.column for s in SETTINGS if s.group == DUPLICATES)]
"""What a recurring job has no use for."""

DurationLike = timedelta | float | str


class CommonOptions(TypedDict, total=False):
    """The settings that every kind of job takes, as Python code gives them, for type checkers."""

    placement: Placement | str
    schedule_delay: DurationLike
    window: ExecutionWindow | str | None
    catch_up: CatchUpMode | str
    catch_up_window: DurationLike | None
    max_plans_per_tick: int
    queue: str
    priority: int
    memory_limit: int | str | None
    cpu_limit: DurationLike | None
    cost: DurationLike | None
    allow_stale_reentry: bool
    retention: DurationLike | None
    must_start_within: DurationLike | None
    must_finish_by: ClockTime | str | None
    must_succeed_every: DurationLike | None
    retry_on: Sequence[type[BaseException] | str] | None
    never_retry: Sequence[type[BaseException] | str] | None
    on_failure: OnFailure | str
    concurrency_key: str | None
    concurrency_limit: int | None
    rate_limit: RateLimit | str | None


class JobOptions(CommonOptions, total=False):
    """All settings; a test holds it to `SETTINGS`. A periodic job gives these in its own words."""

    expires: DurationLike | None
    timeout: DurationLike | None
    lease: DurationLike | None
    heartbeat: DurationLike | None
    max_retries: int
    retry_backoff: DurationLike
    retry_cap: DurationLike
    retry_jitter: float
    retry_delays: Sequence[DurationLike]
    unique_for: DurationLike | None
    unique_by: Sequence[str] | None
    throttle: DurationLike | None
    debounce: DurationLike | None
    debounce_max: DurationLike | None


def with_settings(spec: JobSpec, changes: Mapping[str, Any]) -> JobSpec:
    """The spec with these settings, written in any way that their kinds read; None takes an
    optional one away. The same object when nothing changes."""
    parsed = {
        name: None if value is None else BY_NAME[name].kind.parse(name, value)
        for name, value in changes.items()
    }
    if "retry_backoff" in parsed and "retry_cap" not in parsed:
        parsed["retry_cap"] = max(spec.retry.cap, parsed["retry_backoff"] or timedelta(0))
    return _with_values(spec, parsed)


def _with_values(spec: JobSpec, values: Mapping[str, Any]) -> JobSpec:
    parts: dict[str, dict[str, Any]] = {"": {}}
    for name, value in values.items():
        part, _, attribute = (BY_NAME[name].path or name).rpartition(".")
        parts.setdefault(part, {})[attribute] = value
    own = parts.pop("")
    policies = {part: replace(getattr(spec, part), **changes) for part, changes in parts.items()}
    return replace(spec, **own, **policies) if own or policies else spec


def settings_of(spec: JobSpec) -> dict[str, Any]:
    """Every setting of a spec as documents write it; `with_settings` reads it back."""
    values = {setting.name: setting.of(spec) for setting in SETTINGS}
    return {
        name: None if value is None else BY_NAME[name].kind.to_json(value)
        for name, value in values.items()
    }


def spec_from_settings(task: str, queue: str, settings: Mapping[str, Any]) -> JobSpec:
    """The spec of a task that another process described by `settings_of`; settings that only its
    version knows are left out."""
    known = {name: value for name, value in settings.items() if name in BY_NAME}
    return with_settings(JobSpec(task), known | {"queue": queue})


def settings_of_row(job: "JobRecord") -> dict[str, Any]:
    """Every setting of a job as documents write it."""
    values = {s.name: s.kind.column_to_json(getattr(job, s.column)) for s in SETTINGS}
    return values | {"priority": job.priority - job.aging_bonus}


def spec_columns(spec: JobSpec) -> dict[str, Any]:
    """The columns of a job that its spec fixes."""
    columns: dict[str, Any] = {"task": spec.task, **schedule_columns(spec.schedule)}
    for setting in SETTINGS:
        value = setting.of(spec)
        columns[setting.column] = None if value is None else setting.kind.to_column(value)
    if not spec.schedule.is_placed:
        columns["placement"] = None
    if isinstance(spec.schedule, Recurring):
        columns |= dict.fromkeys(_ONLY_ONCE)
    else:
        columns["catch_up_window_seconds"] = None
    if (limits := spec.limits) is not None:
        columns |= {"concurrency_key": limits.key, "concurrency_limit": limits.max_running}
    return columns


# -- jobs ------------------------------------------------------------------------------------------


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
    batch_id: UUID | None = None
    unique_key: str | None = None
    """By which other calls find it; the store makes it (see `identified`)."""

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name("name", self.name)
        if self.dedup_key is not None:
            check_name("dedup_key", self.dedup_key)
        if isinstance(self.start, datetime):
            as_utc(self.start, field="start")
        if self.scope is not GLOBAL:
            check_scope(self.scope)
        if self.metadata or not isinstance(self.metadata, dict):
            check_document("metadata", self.metadata)


class JobRecord(NamedTuple):
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
    release_count: int
    burst_count: int
    priority: int
    aging_bonus: int
    is_paused: bool
    status: str
    task: str
    queue: str
    payload: dict[str, Any]
    predecessor_plan_time: datetime | None
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
    retry_on: list[str] | None
    never_retry: list[str] | None
    expires_seconds: float | None
    on_failure: str
    timeout_seconds: float | None
    memory_limit: int | None
    cpu_limit_seconds: float | None
    lease_seconds: float | None
    heartbeat_seconds: float | None
    allow_stale_reentry: bool
    retention_seconds: float | None
    must_start_within_seconds: float | None
    must_finish_by: str | None
    must_succeed_every_seconds: float | None
    concurrency_key: str | None
    concurrency_limit: int | None
    rate_limit: str | None
    unique_for_seconds: float | None
    unique_by: list[str] | None
    throttle_seconds: float | None
    debounce_seconds: float | None
    debounce_max_seconds: float | None
    name: str | None
    scope_kind: str
    scope_id: str
    dedup_key: str | None
    parent_id: UUID | None
    batch_id: UUID | None
    error_message: str | None
    metadata: dict[str, Any]
    created_by: str | None


def recurring_of(job: JobRecord) -> Recurring | None:
    """The schedule if it has plans of its own, otherwise None."""
    kind = KINDS[job.schedule_kind]
    return kind.from_row(job) if issubclass(kind, Recurring) else None


def retry_of(job: JobRecord) -> RetryPolicy:
    """The retry policy that the row describes."""
    return RetryPolicy(
        max_retries=job.max_retries,
        backoff=timedelta(seconds=job.retry_backoff_seconds),
        cap=timedelta(seconds=job.retry_cap_seconds),
        jitter=job.retry_jitter,
        delays=tuple(timedelta(seconds=s) for s in job.retry_delays_seconds or ()),
    )


def catch_up_of(job: JobRecord) -> CatchUp:
    """The catch-up policy that the row describes."""
    seconds = job.catch_up_window_seconds
    window = None if seconds is None else timedelta(seconds=seconds)
    return CatchUp(CatchUpMode(job.catch_up), window, job.max_plans_per_tick)


def window_of(job: JobRecord) -> ExecutionWindow | None:
    """The execution window that the row describes, if any."""
    return None if job.execution_window is None else parse_window(job.execution_window)


def dues_of(job: JobRecord) -> Interval | None:
    """When the plans of a balanced interval are due, after their delay; None for other jobs."""
    if job.placement != Placement.BALANCED or job.interval_seconds is None:
        return None
    delay = timedelta(seconds=job.schedule_delay_seconds)
    return Interval(timedelta(seconds=job.interval_seconds), (job.anchor_at or EPOCH) + delay)


def due_of(job: JobRecord) -> datetime | None:
    """Since when, or from when on, it waits to start; None for one that is not waiting."""
    return job.next_run_at if job.status in ("pending", "scheduled") else None


def scope_of(job: JobRecord) -> Scope:
    """The scope that the row belongs to."""
    return Scope(job.scope_kind, job.scope_id)


def spec_of(job: JobRecord) -> JobSpec:
    """The spec that the row was made from; an edit starts here."""
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        stored = getattr(job, setting.column)
        if stored is not None:
            values[setting.name] = setting.kind.from_column(stored)
    values["priority"] = job.priority - job.aging_bonus
    return _with_values(JobSpec(job.task, schedule=schedule_from_row(job)), values)
