"""What requests to /api/v1 may contain."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from evenbeat.api.fields import (
    MAX_DESCRIPTION,
    MAX_TAGS,
    ConcurrencyKey,
    DedupKey,
    Duration,
    JobName,
    JobReference,
    Moment,
    QueueName,
    RateText,
    ScheduleText,
    Source,
    Tag,
    TaskName,
    Timezone,
    Url,
    Window,
    check_json,
)
from evenbeat.domain.limits import MAX_RUNNING
from evenbeat.domain.schedule import LONGEST_INTERVAL, MOST_AWAITED
from evenbeat.domain.scope import LONGEST_PART

MAX_BULK = 1000
Json = dict[str, Any]
AfterEnd = Literal["success", "failure", "any"]
IntervalType = Literal["minutes", "hours", "days"]
PlacementMode = Literal["balanced", "grid", "pinned"]

_LONGEST_SECONDS = int(LONGEST_INTERVAL.total_seconds())


def _uuid(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    if not isinstance(value, str) or len(value) not in (32, 36):
        raise ValueError("it is not an id")
    return UUID(value)


Id = Annotated[UUID, BeforeValidator(_uuid)]


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


class AwaitedFields(Request):
    """A job to wait for, and how it must end."""

    job: JobReference = Field(description="Its id, or its name in the same scope or globally.")
    on: AfterEnd | None = Field(None, description="How it must end; as after_on unless given.")


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
    after: (
        JobReference
        | Annotated[
            list[JobReference | AwaitedFields], Field(min_length=1, max_length=MOST_AWAITED)
        ]
        | None
    ) = Field(
        None,
        description="Run whenever these jobs have ended, by id or name: one, or a list.",
        examples=["load-data", ["load-data", {"job": "check-data", "on": "any"}]],
    )
    after_on: AfterEnd | None = Field(
        None, description="How the jobs of `after` must end that do not say; success unless given."
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
    concurrency_key: ConcurrencyKey | None = Field(
        None, description="What shares the limits below; the task's name unless given."
    )
    concurrency_limit: Annotated[int, Field(ge=1, le=MAX_RUNNING)] | None = Field(
        None, description="How many jobs with the key run at once; 1 for a key without a rate."
    )
    rate_limit: RateText | None = Field(None, description="How often one with the key may start.")


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
