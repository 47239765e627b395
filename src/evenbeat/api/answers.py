"""What the answers of /api/v1 look like."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from evenbeat.api.schemas import READ_ONLY, AfterEnd, JobEdit, Json
from evenbeat.domain.job import SETTINGS, Job, JobSpec, Setting
from evenbeat.domain.schedule import KINDS

JobState = Literal["pending", "scheduled", "running", "paused", "completed", "failed", "cancelled"]
ExecutionState = Literal["running", "completed", "failed", "cancelled"]
ScheduleKind = Annotated[str, WithJsonSchema({"type": "string", "enum": list(KINDS)})]
Number = Annotated[int | float, WithJsonSchema({"type": "number"})]


def _only_when_any(description: str) -> Any:
    """A field that is left out of the answer where it has nothing to say."""
    return Field(None, description=description, exclude_if=lambda value: value is None)


class ScopeDocument(BaseModel):
    """What one copy of a job stands for."""

    kind: str
    id: str


class AwaitedDocument(BaseModel):
    """A job that is waited for. Without a status it was deleted."""

    job: UUID
    name: str | None
    on: AfterEnd
    satisfied: bool
    status: JobState | None
    scope: str | None = _only_when_any("Its scope, where that is not the global one.")


class DependentDocument(BaseModel):
    """A job that waits for this one."""

    job: UUID
    name: str | None
    on: AfterEnd
    status: JobState


def _setting_field(setting: Setting) -> Any:
    optional = setting.of(JobSpec(task="any")) is None or setting.name == "placement"
    schema = setting.kind.json_schema
    if "anyOf" in schema:  # durations are answered in seconds
        schema = {"type": "number", "description": setting.help}
    kind = Annotated[Any, WithJsonSchema(schema)]
    return (kind | None if optional else kind, Field(description=setting.help))


class _Identity(BaseModel):
    id: UUID
    name: str | None
    description: str | None
    task: str
    payload: Json


if TYPE_CHECKING:
    _SettingFields = _Identity
else:
    _SettingFields = create_model(
        "_SettingFields",
        __base__=_Identity,
        **{setting.name: _setting_field(setting) for setting in SETTINGS},
    )


class JobDocument(_SettingFields):
    """A job as it stands."""

    model_config = ConfigDict(extra="allow")  # the fields of `JOB_EXTRAS`

    url: str | None
    source_id: str | None
    source_name: str | None
    aged: int = Field(description="What waiting has added to the priority.")
    status: JobState
    schedule: str | None
    schedule_kind: ScheduleKind
    schedule_text: str
    schedule_enabled: bool
    interval_seconds: int | None
    cron_expression: str | None
    timezone: str
    anchor_at: datetime | None
    next_run_at: datetime | None
    plan_time: datetime | None
    placed_at: datetime | None
    is_paused: bool
    paused_at: datetime | None
    cancelled_at: datetime | None
    current_retry_count: int
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
    after: list[AwaitedDocument] | None = _only_when_any("The jobs that it runs after.")
    dependents: list[DependentDocument] | None = _only_when_any(
        "The first 100 jobs that run after this one; only where one job is asked for."
    )
    duplicate: bool | None = _only_when_any("True: a live job had the dedup key.")
    warnings: list[str] | None = _only_when_any("What may need attention.")


READ_ONLY.update(JobDocument.model_fields.keys() - JobEdit.model_fields.keys())

JOB_EXTRAS: list[Callable[[Job], dict[str, Any]]] = []
"""More fields of a job's answer, in other ways to write the same."""


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
