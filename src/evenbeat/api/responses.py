"""What /api/v1 answers about jobs and executions, and how rows become that."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from evenbeat.api.fields import EstimatedPage, Json, Rounded, RowDocument, fields_of, only_if_any
from evenbeat.api.requests import READ_ONLY, AfterEnd, JobEdit
from evenbeat.domain.dependencies import Dependency
from evenbeat.domain.execution import Execution
from evenbeat.domain.job import (
    BY_NAME,
    SETTINGS,
    JobRecord,
    JobSpec,
    Setting,
    settings_of_row,
)
from evenbeat.domain.schedule import KINDS, Recurring, schedule_from_row
from evenbeat.observe.explain import describe_schedule
from evenbeat.store.reads import JobStats

JobState = Literal["pending", "scheduled", "running", "paused", "completed", "failed", "cancelled"]
ExecutionState = Literal["running", "completed", "failed", "cancelled"]
ScheduleKind = Annotated[str, WithJsonSchema({"type": "string", "enum": list(KINDS)})]
Count = Annotated[int, BeforeValidator(lambda count: count or 0)]


class ScopeDocument(BaseModel):
    """What one copy of a job stands for."""

    kind: str
    id: str


class AwaitedDocument(BaseModel):
    """A job, or a batch, that is waited for. Without a status it was deleted."""

    job: UUID = Field(validation_alias="id")
    name: str | None
    on: AfterEnd = Field(validation_alias="wanted")
    satisfied: bool
    status: JobState | Literal["open"] | None
    batch: Annotated[bool | None, BeforeValidator(lambda is_batch: is_batch or None)] = Field(
        None,
        validation_alias="is_batch",
        description="True: it is a batch.",
        exclude_if=lambda value: value is None,
    )
    scope: Annotated[
        str | None, BeforeValidator(lambda scope: None if scope == "global/global" else scope)
    ] = only_if_any("Its scope, where that is not the global one.")


class DependentDocument(BaseModel):
    """A job that waits for this one."""

    job: UUID = Field(validation_alias="id")
    name: str | None
    on: AfterEnd = Field(validation_alias="wanted")
    status: JobState


def _setting_field(setting: Setting) -> Any:
    optional = setting.of(JobSpec(task="any")) is None or setting.name == "placement"
    schema = setting.kind.json_schema
    if "anyOf" in schema:  # durations are answered in seconds
        schema = {"type": "number", "description": setting.help}
    kind = Annotated[Any, WithJsonSchema(schema)]
    return (kind | None if optional else kind, Field(description=setting.help))


class _Identity(BaseModel):
    model_config = ConfigDict(extra="allow")  # the fields of `JOB_EXTRAS`

    id: UUID
    name: str | None
    description: str | None
    task: str
    payload: Json


_INTERNAL = {
    "lock_token", "release_count", "burst_count", "schedule_version", "scope_kind", "scope_id",
}  # fmt: skip


@fields_of(
    JobRecord,
    omit=_INTERNAL | {setting.column for setting in SETTINGS},
    more={setting.name: _setting_field(setting) for setting in SETTINGS},
)
class JobDocument(_Identity):
    """A job as it stands."""

    url: str | None
    source_id: str | None
    source_name: str | None
    aging_bonus: int = Field(description="What waiting has added to the priority.")
    status: JobState
    schedule: str | None
    schedule_kind: ScheduleKind
    schedule_text: str
    schedule_enabled: bool
    scope: ScopeDocument
    average_duration_ms: Rounded | None
    tags: list[str]
    after: list[AwaitedDocument] | None = only_if_any("The jobs that it runs after.")
    dependents: list[DependentDocument] | None = only_if_any(
        "The first 100 jobs that run after this one; only where one job is asked for."
    )
    duplicate: bool | None = only_if_any(
        "True: nothing was added, as a job stood for this call: by its dedup_key, or as one "
        "that is unique, throttled or debounced."
    )
    warnings: list[str] | None = only_if_any("What may need attention.")


READ_ONLY.update(JobDocument.model_fields.keys() - JobEdit.model_fields.keys())
_SAME_NAME = tuple((set(JobDocument.model_fields) & set(JobRecord._fields)) - BY_NAME.keys())

JOB_EXTRAS: list[Callable[[JobRecord], Json]] = []
"""More fields of a job's response, in other ways to write the same."""


class JobList(EstimatedPage):
    jobs: list[JobDocument]


def job_document(
    job: JobRecord,
    *,
    warnings: Sequence[str] = (),
    duplicate: bool = False,
    awaited: Sequence[Dependency] = (),
    dependents: Sequence[Dependency] = (),
) -> JobDocument:
    """A job as answered. Columns go by their names; the rest is worked out here."""
    schedule, tags = schedule_from_row(job), job.metadata.get("tags")
    fields: Json = {name: getattr(job, name) for name in _SAME_NAME} | settings_of_row(job)
    for more in JOB_EXTRAS:
        fields |= more(job)
    fields |= {name: _text(job.payload.get(name)) for name in ("url", "source_id", "source_name")}
    fields |= {
        "description": _text(job.metadata.get("description")),
        "tags": [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
        "schedule": schedule.text,
        "schedule_text": describe_schedule(job, awaited),
        "schedule_enabled": isinstance(schedule, Recurring) and not job.is_paused,
        "scope": {"kind": job.scope_kind, "id": job.scope_id},
        "after": awaited or None,
        "dependents": dependents or None,
        "duplicate": duplicate or None,
        "warnings": warnings or None,
    }
    return JobDocument.model_validate(fields, from_attributes=True)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


@fields_of(Execution, omit=["release_count"])
class ExecutionDocument(RowDocument):
    """One attempt at one occurrence."""

    status: ExecutionState
    duration_ms: Rounded | None
    wait_ms: Rounded | None
    items_crawled: Count
    items_indexed: Count
    cpu_time_ms: Rounded | None
    memory_peak_mb: Rounded | None
    metadata: Annotated[Json, BeforeValidator(lambda metadata: metadata or {})]


class ExecutionList(EstimatedPage):
    executions: list[ExecutionDocument]


class RunDocument(ExecutionDocument):
    """An execution with what is known of its job; null when that was deleted."""

    job_name: str | None
    task: str | None
    queue: str | None


class RunList(EstimatedPage):
    executions: list[RunDocument]
    further: UUID | None = only_if_any("More may match: ask again with `before` set to this.")
    read_back_to: datetime | None = only_if_any(
        "Where a filter matches few of many runs: the start of the oldest that was looked at."
    )


class RunGroupDocument(RowDocument):
    """Runs of a task that ended with the same error."""

    task: str | None
    error_code: str | None
    runs: int
    jobs: int = Field(description="How many jobs they are of.")
    since: datetime = Field(description="When the first of them ended.")
    until: datetime = Field(description="When the newest ended.")
    newest: UUID = Field(description="The newest execution.")
    error_message: str | None = Field(description="Its error.")


class RunGroups(BaseModel):
    """Runs by task and error, most first. With `more`, only the newest 20,000 were looked at."""

    groups: list[RunGroupDocument]
    total: int
    more: bool


@fields_of(JobStats)
class JobStatsDocument(RowDocument):
    """A job's kept history in figures."""

    average_duration_ms: Rounded | None
    success_rate: Rounded | None
