"""What requests to /api/v1 may contain, and which job the fields of one describe.

A new job starts from its task's own settings, an edited one from what it is; either way only the
fields that were given count, and null puts a setting back to the task's.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from evenbeat.api.fields import (
    MAX_DESCRIPTION,
    DedupKey,
    Duration,
    JobName,
    JobReference,
    Json,
    Moment,
    ScheduleText,
    Several,
    SourceText,
    Tag,
    TaskName,
    Timezone,
    Url,
    Window,
    check_json,
    one_given,
)
from evenbeat.domain.job import BY_NAME, SETTINGS, JobSpec, NewJob, Setting, with_settings
from evenbeat.domain.limits import filled_key, key_after_edit
from evenbeat.domain.schedule import (
    LONGEST_INTERVAL,
    MOST_AWAITED,
    Once,
    Schedule,
    schedule_from_fields,
)
from evenbeat.domain.scope import GLOBAL, LONGEST_PART, Scope
from evenbeat.errors import InvalidInput

CRAWL = "crawl"
MAX_BULK = 1000
AfterEnd = Literal["success", "failure", "any"]

_SOURCE_FIELDS = ("url", "source_id", "source_name")
_SCHEDULE_FIELDS = frozenset({
    "schedule", "timezone", "interval_seconds", "anchor_at", "after", "after_on",
})  # fmt: skip

DIALECTS: list[Callable[[Json], Json]] = []
"""Other ways to write a request, each translated into ours before it is checked."""

DEDUP_KEYS: list[Callable[[NewJob], str | None]] = []
"""Which dedup key a new job gets whose request says nothing of one."""

WORDING = "wording"
"""Where in a job's metadata a dialect remembers how the schedule was written."""

READ_ONLY: set[str] = set()
"""What the response of a job has and a request has not; `responses.py` fills it in."""


class Request(BaseModel):
    """Ground of every body: unknown fields are refused, and nothing that cannot be stored."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _can_be_stored(cls, value: Any) -> Any:
        if isinstance(value, float) and value.is_integer():
            return int(value)  # to JSON, 5.0 is an integer
        return check_json(value)


ScopePart = Annotated[
    str, Field(min_length=1, max_length=LONGEST_PART, json_schema_extra={"format": "scope"})
]


class ScopeFields(Request):
    """What one copy of a job stands for."""

    kind: ScopePart = "global"
    id: ScopePart = "global"


class ScheduleFields(Request):
    """When to run: `schedule` or `interval_seconds`; without either, once."""

    schedule: ScheduleText | None = Field(
        None, description="A cron expression, a name such as @daily, or @every and a duration."
    )
    timezone: Timezone | None = Field(
        None, description="The IANA time zone that cron is read in.", examples=["Europe/Berlin"]
    )
    interval_seconds: (
        Annotated[int, Field(ge=1, le=int(LONGEST_INTERVAL.total_seconds()))] | None
    ) = None

    wording: SkipJsonSchema[Json | None] = Field(None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _translate(cls, document: Any) -> Any:
        for translate in DIALECTS:
            document = translate(document) if isinstance(document, dict) else document
        return document

    def schedule_fields(self) -> Json:
        """The fields that say when to run, as far as they were given."""
        return self.model_dump(include=self.model_fields_set & _SCHEDULE_FIELDS)


class AwaitedFields(Request):
    """A job to wait for, and how it must end."""

    job: JobReference = Field(description="Its id, or its name in the same scope or globally.")
    on: AfterEnd | None = Field(None, description="How it must end; as after_on unless given.")

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_responses_add(cls, document: Any) -> Any:
        if isinstance(document, dict):
            added = {"name", "satisfied", "status", "scope", "batch"}
            return {name: value for name, value in document.items() if name not in added}
        return document


def _setting_field(setting: Setting) -> Any:
    """A setting as a field of a request."""

    def read(value: Any) -> Any:
        return setting.kind.parse(setting.name, value)

    kind = Annotated[Any, BeforeValidator(read), WithJsonSchema(setting.kind.json_schema)]
    return (kind | None, Field(None, description=setting.help))


if TYPE_CHECKING:
    SettingFields = Request
else:
    SettingFields = create_model(
        "SettingFields",
        __base__=Request,
        **{setting.name: _setting_field(setting) for setting in SETTINGS},
    )


class JobEdit(ScheduleFields, SettingFields):
    """Changes to a job: only the fields that are given change, and null restores a default. A
    response to GET may be sent back: with the job's id in it, fields that cannot be changed are
    ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)

    task: TaskName | None = Field(None, description="The handler to run.")
    payload: Json | None = Field(None, description="The handler's arguments.")
    url: Url | None = Field(
        None, description="Stored in the payload. Without a task: the page to crawl."
    )
    source_id: SourceText | None = Field(None, description="Stored in the payload.")
    source_name: SourceText | None = Field(None, description="Stored in the payload.")
    name: JobName | None = Field(None, description="Unique within the job's scope.")
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION)] | None = None
    tags: Several[Tag] | None = None
    metadata: Json | None = None
    schedule_enabled: bool | None = Field(
        None,
        description="For a new job, false: run once, now, whatever the schedule fields say. For "
        "one with a schedule: false pauses it, true resumes it.",
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
        None,
        description="How the jobs of `after` must end that do not say so; success unless given.",
    )
    run_at: Moment | None = Field(None, description="The first run. The past means now.")
    delay: Duration | None = Field(None, description="The first run, from now.")
    anchor_at: Moment | None = Field(
        None, description="A moment that the rhythm of an interval goes through."
    )

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_cannot_change(cls, document: Any) -> Any:
        if isinstance(document, dict) and "id" in document:
            return {name: value for name, value in document.items() if name not in READ_ONLY}
        return document

    def changed_settings(self) -> Json:
        """The settings that were given; None stands for the default."""
        return {name: getattr(self, name) for name in self.model_fields_set & BY_NAME.keys()}


class JobCreate(JobEdit):
    """A job to add. It needs a `task`, or a `url` to crawl."""

    model_config = ConfigDict(
        json_schema_extra={
            **one_given("task", "url"),
            "examples": [
                {"task": "send_report", "payload": {"to": "a@b.c"}, "schedule": "@daily"},
                {"url": "https://example.com", "interval_minutes": 30, "interval_type": "minutes"},
            ],
        }
    )

    scope: ScopeFields | None = None
    dedup_key: DedupKey | None = Field(
        None, description="While a live job has this key, that job is answered instead."
    )
    paused: bool | None = Field(None, description="Whether it waits to be resumed first.")


class BackfillRequest(Request):
    """The plans to run: from `from` on, and before `to`, which is not in the future."""

    model_config = ConfigDict(
        validate_by_name=True,
        validate_by_alias=True,
        json_schema_extra={
            "examples": [{"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}]
        },
    )

    from_: Moment = Field(alias="from")
    to: Moment
    limit: Annotated[int, Field(ge=1, le=10_000)] | None = None
    include_completed: bool = False


class PreviewRequest(ScheduleFields):
    """A schedule to try out."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": one_given("schedule", "interval_seconds")["anyOf"]}
    )

    window: Window | None = Field(None, description="The hours in which a run may start.")

    count: Annotated[int, Field(ge=1, le=100)] = 5
    after: Moment | None = Field(None, description="Where to start; now unless given.")


# -- from a request to a job -----------------------------------------------------------------------


def task_of(request: JobCreate) -> str:
    """The task that is meant: the one that is named, or `crawl` for a URL."""
    if request.task is not None:
        return str(request.task)
    if request.url is not None:
        return CRAWL
    raise InvalidInput(
        'A job needs a task to run, for example "task": "send_report", or a "url" to crawl.',
        field="task",
    )


def new_job(
    request: JobCreate, defaults: JobSpec, payload: Mapping[str, Any], created_by: str
) -> NewJob:
    """The job that a request describes; its payload was checked by then."""
    schedule = schedule_for(request, None)
    job = NewJob(
        edited_spec(request, defaults, defaults, schedule, payload, before={}),
        payload,
        start=_start(request),
        name=request.name,
        scope=Scope(**request.scope.model_dump()) if request.scope else GLOBAL,
        dedup_key=request.dedup_key,
        metadata=edited_metadata(request, {}) or {},
        created_by=created_by,
    )
    if "dedup_key" not in request.model_fields_set:
        job.dedup_key = next(filter(None, (key(job) for key in DEDUP_KEYS)), None)
    return job


def edited_spec(
    request: JobEdit,
    spec: JobSpec,
    defaults: JobSpec,
    schedule: Schedule,
    payload: Mapping[str, Any],
    *,
    before: Mapping[str, Any],
) -> JobSpec:
    """The spec with the request's fields in place of its own; `before` are the arguments that the
    payload takes the place of."""
    requested = request.changed_settings()
    changes = {n: BY_NAME[n].of(defaults) if v is None else v for n, v in requested.items()}
    if "retry_cap" in requested and requested["retry_cap"] is None:
        backoff = changes.get("retry_backoff", spec.retry.backoff)
        changes["retry_cap"] = max(defaults.retry.cap, backoff)
    if requested.get("concurrency_key") is None and (
        spec is defaults or "concurrency_key" in requested
    ):
        # A key in a request is meant literally; that of a task may be made of the arguments.
        key = defaults.concurrency_key
        changes["concurrency_key"] = None if key is None else filled_key(key, payload)
    elif "concurrency_key" not in requested:
        changes["concurrency_key"] = key_after_edit(
            spec.concurrency_key, defaults.concurrency_key, before, payload
        )
    edited = replace(spec, task=request.task or spec.task, schedule=schedule)
    return with_settings(edited, changes)


def edited_payload(request: JobEdit, payload: Mapping[str, Any]) -> Json | None:
    """The payload with the request's fields in it; None when it says nothing of the payload."""
    touched = request.model_fields_set & {"payload", *_SOURCE_FIELDS}
    if not touched:
        return None
    result = dict(request.payload or {}) if "payload" in touched else dict(payload)
    for field in _SOURCE_FIELDS:
        value = getattr(request, field)
        if value is not None:
            if "payload" in touched and result.get(field, value) != value:
                raise given_twice(field)
            result[field] = value
        elif field in touched and field not in (request.payload or {}):
            result.pop(field, None)
    return result


def given_twice(field: str) -> InvalidInput:
    """The error for an argument that differs from the one in the payload."""
    return InvalidInput(
        f"{field} is given twice, in the payload and beside it, and differs. Give it once.",
        field=field,
    )


def edited_metadata(request: JobEdit, metadata: Mapping[str, Any]) -> Json | None:
    """The metadata with description and tags in it; None when the request says nothing of it."""
    touched = request.model_fields_set & {"metadata", "description", "tags"}
    kept = metadata.get(WORDING)
    wording = kept
    if request.model_fields_set & _SCHEDULE_FIELDS:
        # The wording belongs to the schedule: a dialect says what of it changes, and another
        # schedule in our own words forgets it.
        written = {} if request.wording is None else request.wording
        known = kept if written and isinstance(kept, dict) else {}
        wording = {n: v for n, v in {**known, **written}.items() if v is not None} or None
    if not touched and wording == kept:
        return None
    result = dict(request.metadata or {}) if "metadata" in touched else dict(metadata)
    if wording or metadata:
        result.pop(WORDING, None)
    if wording:
        result[WORDING] = wording
    for field, value in (("description", request.description), ("tags", request.tags)):
        if value is not None and value != []:
            result[field] = value if isinstance(value, str) else list(dict.fromkeys(value))
        elif field in touched:
            result.pop(field, None)
    return result


def schedule_for(request: JobEdit, present: Schedule | None) -> Schedule:
    """The schedule that the fields describe; the present one where they say nothing of it."""
    if request.schedule_enabled is False and request.after is None and present is None:
        return Once()
    schedule = schedule_from_fields(request.schedule_fields(), present)
    if request.schedule_enabled and isinstance(schedule, Once):
        raise InvalidInput(
            "schedule_enabled is true, but there is no schedule. Give schedule, interval_seconds, "
            "or interval_minutes with interval_type; or false to run once.",
            field="schedule_enabled",
        )
    return schedule


def moved_once(request: JobEdit, schedule: Schedule, now: datetime) -> Schedule:
    """For an edit: a one-off job's schedule with the new moment that the request names."""
    start = _start(request)
    if start is None:
        return schedule
    if not isinstance(schedule, Once):
        field = "run_at" if request.delay is None else "delay"
        raise InvalidInput(
            f"{field} moves a job that runs once, and this one has a schedule. Use anchor_at to "
            "shift the rhythm of an interval, or run it now.",
            field=field,
        )
    return Once(now + start if isinstance(start, timedelta) else start)


def _start(request: JobEdit) -> datetime | timedelta | None:
    if request.run_at is not None and request.delay is not None:
        raise InvalidInput("run_at and delay both say when to start. Give one.", field="delay")
    return request.run_at if request.delay is None else request.delay
