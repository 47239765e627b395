"""What /api/v1 answers, and how rows become that."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from evenbeat.api.requests import READ_ONLY, AfterEnd, JobEdit, Json
from evenbeat.domain.dependencies import Dependency, Dependent
from evenbeat.domain.execution import Execution
from evenbeat.domain.job import (
    BY_NAME,
    SETTINGS,
    Job,
    JobSpec,
    Setting,
    schedule_of,
    settings_of_row,
)
from evenbeat.domain.schedule import KINDS, Recurring
from evenbeat.observe.explain import describe_schedule
from evenbeat.store.reads import JobStats

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
    aging_bonus: int = Field(description="What waiting has added to the priority.")
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


# -- from rows to answers ------------------------------------------------------------------------

_SAME_NAME = tuple((set(JobDocument.model_fields) & set(Job._fields)) - BY_NAME.keys())
_EXECUTION_FIELDS = tuple(
    set(ExecutionDocument.model_fields) & set(Execution._fields)
    - {"items_crawled", "items_indexed", "metadata", "result"}
)  # fmt: skip


def job_document(
    job: Job,
    *,
    warnings: Sequence[str] = (),
    duplicate: bool = False,
    awaited: Sequence[Dependency] = (),
    dependents: Sequence[Dependent] = (),
) -> JobDocument:
    """A job as answered. Columns go by their names; the rest is worked out here."""
    schedule, tags = schedule_of(job), job.metadata.get("tags")
    extras: dict[str, Any] = {}
    for more in JOB_EXTRAS:
        extras |= more(job)
    return JobDocument(
        **{name: plain(getattr(job, name)) for name in _SAME_NAME},
        **settings_of_row(job),
        **extras,
        url=_text(job.payload.get("url")),
        source_id=_text(job.payload.get("source_id")),
        source_name=_text(job.payload.get("source_name")),
        description=_text(job.metadata.get("description")),
        tags=[tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
        schedule=schedule.text,
        schedule_text=describe_schedule(job, awaited),
        schedule_enabled=isinstance(schedule, Recurring),
        scope=ScopeDocument(kind=job.scope_kind, id=job.scope_id),
        after=[
            AwaitedDocument.model_validate(
                {
                    **one._asdict(),
                    "job": one.id,
                    "on": one.wanted,
                    "scope": None if one.scope == "global/global" else one.scope,
                }
            )
            for one in awaited
        ]
        or None,
        dependents=[
            DependentDocument.model_validate({**one._asdict(), "job": one.id, "on": one.wanted})
            for one in dependents
        ]
        or None,
        duplicate=duplicate or None,
        warnings=list(warnings) or None,
    )


def execution_document(execution: Execution) -> ExecutionDocument:
    """An execution as answered."""
    return ExecutionDocument(
        **{name: plain(getattr(execution, name)) for name in _EXECUTION_FIELDS},
        items_crawled=execution.items_crawled or 0,
        items_indexed=execution.items_indexed or 0,
        result=execution.result,
        metadata=execution.metadata or {},
    )


def stats_document(stats: JobStats) -> JobStatsDocument:
    """A job's history in figures, as answered."""
    return JobStatsDocument(**{name: plain(value) for name, value in stats._asdict().items()})


def plain(value: Any) -> Any:
    """Whole numbers without a fraction, others to the thousandth; all else as it is."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, 3)
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
