"""What requests to /api/v1 may contain, and what its answers look like."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator

from evenbeat.api.fields import (
    MAX_DESCRIPTION,
    MAX_TAGS,
    DedupKey,
    Duration,
    JobName,
    Moment,
    QueueName,
    ScheduleText,
    Source,
    Tag,
    TaskName,
    Timezone,
    Url,
    Window,
    check_json,
)
from evenbeat.domain.schedule import LONGEST_INTERVAL
from evenbeat.domain.scope import LONGEST_PART

MAX_BULK = 1000
Json = dict[str, Any]
JobState = Literal["pending", "scheduled", "running", "paused", "completed", "failed", "cancelled"]
ExecutionState = Literal["running", "completed", "failed", "cancelled"]
ScheduleKind = Literal["once", "interval", "cron", "after"]
IntervalType = Literal["minutes", "hours", "days"]
PlacementMode = Literal["balanced", "grid", "pinned"]
Number = Annotated[int | float, WithJsonSchema({"type": "number"})]

_LONGEST_SECONDS = int(LONGEST_INTERVAL.total_seconds())


def _uuid(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    if not isinstance(value, str) or len(value) not in (32, 36):
        raise ValueError("it is not an id")
    return UUID(value)


Id = Annotated[UUID, BeforeValidator(_uuid)]


# -- requests ------------------------------------------------------------------------------------


class Request(BaseModel):
    """Ground of every body: unknown fields are refused, and nothing that cannot be stored."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _can_be_stored(cls, value: Any) -> Any:
        return check_json(value)


class ScopeFields(Request):
    """What one copy of a job stands for."""

    kind: Annotated[str, Field(min_length=1, max_length=LONGEST_PART)] = "global"
    id: Annotated[str, Field(min_length=1, max_length=LONGEST_PART)] = "global"


class ScheduleFields(Request):
    """When to run. Give one of `schedule`, `interval_seconds`, or `interval_minutes` with
    `interval_type`; without any of them, once."""

    schedule: ScheduleText | None = Field(
        None, description="A cron expression, a name such as @daily, or @every and a duration."
    )
    timezone: Timezone | None = Field(
        None, description="The IANA time zone that cron is read in.", examples=["Europe/Berlin"]
    )
    interval_minutes: Annotated[int, Field(ge=1, le=_LONGEST_SECONDS // 60)] | None = Field(
        None, description="How many minutes (or hours, or days: see interval_type)."
    )
    interval_type: IntervalType | None = Field(
        None, description="The unit of interval_minutes; minutes unless given."
    )
    interval_seconds: Annotated[int, Field(ge=1, le=_LONGEST_SECONDS)] | None = None
    window: Window | None = Field(None, description="The hours in which a run may start.")


class JobEdit(ScheduleFields):
    """Changes to a job: only the fields that are given change, and null restores a default."""

    task: TaskName | None = Field(None, description="The handler to run.")
    payload: Json | None = Field(None, description="The handler's arguments.")
    url: Url | None = Field(None, description="Kept in the payload. Without a task: crawl it.")
    source_id: Source | None = Field(None, description="Kept in the payload.")
    source_name: Source | None = Field(None, description="Kept in the payload.")
    name: JobName | None = Field(None, description="Unique within the job's scope.")
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION)] | None = None
    tags: Annotated[list[Tag], Field(max_length=MAX_TAGS)] | None = None
    metadata: Json | None = None
    queue: QueueName | None = None
    priority: Annotated[int, Field(ge=0, le=100)] | None = Field(
        None, description="0 to 100; higher runs first."
    )
    schedule_time: ScheduleText | None = Field(
        None, description="The older name of schedule; an interval goes before it."
    )
    schedule_enabled: bool | None = Field(
        None, description="false: run once, now, whatever the schedule fields say."
    )
    run_at: Moment | None = Field(None, description="The first run. The past means now.")
    delay: Duration | None = Field(None, description="The first run, from now.")
    anchor_at: Moment | None = Field(
        None, description="A moment that the rhythm of an interval goes through."
    )
    placement: PlacementMode | None = Field(
        None, description="Who chooses an interval's phase: we, the clock's grid, or you."
    )
    schedule_delay: Duration | None = Field(
        None, description="How long after its plan a run becomes due."
    )
    catch_up: Literal["skip", "latest_only", "every_plan"] | None = Field(
        None, description="What happens to plans missed during downtime."
    )
    catch_up_window: Duration | None = Field(None, description="How old a missed plan may be.")
    max_plans_per_tick: Annotated[int, Field(ge=1, le=1000)] | None = None
    max_retries: Annotated[int, Field(ge=0, le=10_000)] | None = None
    retry_backoff_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = (
        Field(None, description="The wait before the first retry; it doubles from there.")
    )
    retry_cap_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = Field(
        None, description="The longest wait that doubling leads to."
    )
    retry_jitter: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    retry_delays: Annotated[list[Duration], Field(max_length=100)] | None = Field(
        None, description="The wait before each retry, in place of doubling; the last repeats."
    )
    on_failure: Literal["continue", "stop"] | None = Field(
        None, description="What a recurring job does when the retries are used up."
    )
    timeout: Duration | None = Field(None, description="When a run is stopped as failed.")
    lease: Duration | None = Field(None, description="How long a claim holds without renewal.")
    heartbeat: Duration | None = Field(None, description="How often a claim is renewed.")
    cost: Duration | None = Field(None, description="How long a run is expected to take.")
    allow_stale_reentry: bool | None = Field(
        None, description="Whether a run whose worker was lost may start again by itself."
    )


class JobCreate(JobEdit):
    """A job to add. It needs a `task`, or a `url` to crawl."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"task": "send_report", "payload": {"to": "a@b.c"}, "schedule": "@daily"},
                {"url": "https://example.com", "interval_minutes": 30, "interval_type": "minutes"},
            ]
        }
    )

    scope: ScopeFields | None = None
    dedup_key: DedupKey | None = Field(
        None, description="While a live job has this key, that job is answered instead."
    )
    paused: bool | None = Field(None, description="Whether it waits to be resumed first.")


class BulkCreate(Request):
    """Jobs to add, all or none."""

    jobs: Annotated[list[JobCreate], Field(min_length=1, max_length=MAX_BULK)]


class BackfillRequest(Request):
    """The plans to run: from `from` on, and before `to`, which is not in the future."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    from_: Moment = Field(alias="from")
    to: Moment
    limit: Annotated[int, Field(ge=1, le=10_000)] | None = None
    include_completed: bool = False


class PreviewRequest(ScheduleFields):
    """A schedule to try out."""

    count: Annotated[int, Field(ge=1, le=100)] = 5
    after: Moment | None = Field(None, description="Where to start; now unless given.")


# -- answers -------------------------------------------------------------------------------------


def _only_when_any(description: str) -> Any:
    """A field that is left out of the answer where it has nothing to say."""
    return Field(None, description=description, exclude_if=lambda value: value is None)


class ScopeDocument(BaseModel):
    """What one copy of a job stands for."""

    kind: str
    id: str


class JobDocument(BaseModel):
    """A job as it stands."""

    id: UUID
    name: str | None
    description: str | None
    task: str
    payload: Json
    url: str | None
    source_id: str | None
    source_name: str | None
    queue: str
    priority: int
    aged: int
    status: JobState
    schedule: str | None
    schedule_kind: ScheduleKind
    schedule_text: str
    schedule_enabled: bool
    interval_minutes: int | None
    interval_type: IntervalType | None
    interval_seconds: int | None
    cron_expression: str | None
    timezone: str
    anchor_at: datetime | None
    next_run_at: datetime | None
    plan_time: datetime | None
    placement: PlacementMode | None
    placed_at: datetime | None
    schedule_delay_seconds: Number
    window: str | None
    catch_up: str
    catch_up_window_seconds: Number | None
    max_plans_per_tick: int
    is_paused: bool
    paused_at: datetime | None
    cancelled_at: datetime | None
    max_retries: int
    retry_backoff_seconds: Number
    retry_cap_seconds: Number
    retry_jitter: Number
    retry_delays_seconds: list[Number] | None
    current_retry_count: int
    on_failure: str
    timeout_seconds: Number | None
    lease_seconds: Number | None
    heartbeat_seconds: Number | None
    cost_ms: Number | None
    allow_stale_reentry: bool
    scope: ScopeDocument
    dedup_key: str | None
    parent_id: UUID | None
    run_count: int
    average_duration_ms: Number | None
    started_at: datetime | None
    completed_at: datetime | None
    locked_by: UUID | None
    lock_acquired_at: datetime | None
    lock_expires_at: datetime | None
    error_message: str | None
    metadata: Json
    tags: list[str]
    created_at: datetime
    updated_at: datetime
    created_by: str | None
    duplicate: bool | None = _only_when_any("True: a live job had the dedup key.")
    warnings: list[str] | None = _only_when_any("What may need attention.")


class JobList(BaseModel):
    """A page of jobs."""

    jobs: list[JobDocument]
    total: int
    total_is_estimate: bool
    limit: int
    offset: int


class AddedDocument(BaseModel):
    """A job of a bulk request; not created when a live one stood there already."""

    id: UUID
    created: bool


class BulkCreated(BaseModel):
    """What became of a bulk request, in its order."""

    jobs: list[AddedDocument]
    created: int
    warnings: list[str] | None = _only_when_any("What may need attention.")


class RefusedDocument(BaseModel):
    """A job that was left alone."""

    id: UUID
    reason: str


class BulkChanged(BaseModel):
    """What a verb did to many jobs; the first 100 refusals are listed."""

    changed: int
    refused: list[RefusedDocument]
    refused_count: int


class ExecutionDocument(BaseModel):
    """One attempt at one occurrence."""

    id: UUID
    job_id: UUID
    execution_number: int
    status: ExecutionState
    plan_time: datetime
    started_at: datetime
    completed_at: datetime | None
    duration_ms: Number | None
    wait_ms: Number | None
    items_crawled: int
    items_indexed: int
    rows_affected: int | None
    error_code: str | None
    error_message: str | None
    stack_trace: str | None
    cpu_time_ms: Number | None
    memory_peak_mb: Number | None
    retry_attempt: int
    worker_id: UUID
    progress: Json | None
    result: Any
    metadata: Json


class ExecutionList(BaseModel):
    """A page of executions."""

    executions: list[ExecutionDocument]
    total: int
    total_is_estimate: bool
    limit: int
    offset: int


class JobStatsDocument(BaseModel):
    """A job's kept history in figures."""

    total_executions: int
    successful_runs: int
    failed_runs: int
    average_duration_ms: Number | None
    last_execution_at: datetime | None
    next_scheduled_at: datetime | None
    success_rate: Number | None


class PlansDocument(BaseModel):
    """The next plans of a job."""

    plans: list[datetime]
    schedule_text: str


class BackfilledDocument(BaseModel):
    """What a backfill made; the first 100 plans are listed."""

    created: int
    existing: int
    plans: list[datetime]


class PlacedDocument(BaseModel):
    """Where a new job would be placed, and the load it would meet there."""

    at: datetime
    load: Number | None


class PreviewDocument(BaseModel):
    """A schedule in words and in times."""

    schedule: str
    explanation: str
    plans: list[datetime]
    placement: PlacedDocument | None = _only_when_any("Where a new job would come to run.")
