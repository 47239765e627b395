"""What requests to /api/v1 may contain."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

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

from evenbeat.api.field_types import (
    MAX_DESCRIPTION,
    MAX_TAGS,
    DedupKey,
    Duration,
    JobName,
    JobReference,
    Moment,
    ScheduleText,
    SourceText,
    Tag,
    TaskName,
    Timezone,
    Url,
    Window,
    check_json,
)
from evenbeat.domain.ids import parse_id
from evenbeat.domain.job import BY_NAME, SETTINGS, Setting
from evenbeat.domain.schedule import LONGEST_INTERVAL, MOST_AWAITED
from evenbeat.domain.scope import LONGEST_PART

MAX_BULK = 1000
Json = dict[str, Any]
AfterEnd = Literal["success", "failure", "any"]

_LONGEST_SECONDS = int(LONGEST_INTERVAL.total_seconds())


def _uuid(value: Any) -> UUID:
    id_ = parse_id(value)
    if id_ is None:
        raise ValueError("it is not an id")
    return id_


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
    """When to run: `schedule` or `interval_seconds`; without either, once."""

    schedule: ScheduleText | None = Field(
        None, description="A cron expression, a name such as @daily, or @every and a duration."
    )
    timezone: Timezone | None = Field(
        None, description="The IANA time zone that cron is read in.", examples=["Europe/Berlin"]
    )
    interval_seconds: Annotated[int, Field(ge=1, le=_LONGEST_SECONDS)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _translate(cls, document: Any) -> Any:
        for translate in DIALECTS:
            document = translate(document) if isinstance(document, dict) else document
        return document

    def schedule_fields(self) -> dict[str, Any]:
        """The fields that say when to run, as far as they were given."""
        names = self.model_fields_set & SCHEDULE_FIELDS
        return {name: value for name, value in self.model_dump().items() if name in names}


DIALECTS: list[Callable[[dict[str, Any]], dict[str, Any]]] = []
"""Other ways to write a request, each translated into ours before it is checked."""
SCHEDULE_FIELDS = frozenset({
    "schedule", "timezone", "interval_seconds", "anchor_at", "after", "after_on",
})  # fmt: skip


READ_ONLY: set[str] = set()
"""What the answer of a job has and a request has not; `responses.py` fills it in."""


class AwaitedFields(Request):
    """A job to wait for, and how it must end."""

    job: JobReference = Field(description="Its id, or its name in the same scope or globally.")
    on: AfterEnd | None = Field(None, description="How it must end; as after_on unless given.")

    @model_validator(mode="before")
    @classmethod
    def _leave_out_how_it_stands(cls, document: Any) -> Any:
        if isinstance(document, dict):
            return {name: value for name, value in document.items() if name not in _STANDING}
        return document


_STANDING = frozenset({"name", "satisfied", "status", "scope"})


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
    """Changes to a job: only the fields that are given change, and null restores a default. An
    answer of GET may be sent back: with the job's id in it, fields that cannot be changed are
    left out of account."""

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
    tags: Annotated[list[Tag], Field(max_length=MAX_TAGS)] | None = None
    metadata: Json | None = None
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

    def changed_settings(self) -> dict[str, Any]:
        """The settings that were given; None stands for the default."""
        return {name: getattr(self, name) for name in self.model_fields_set & BY_NAME.keys()}


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

    window: Window | None = Field(None, description="The hours in which a run may start.")

    count: Annotated[int, Field(ge=1, le=100)] = 5
    after: Moment | None = Field(None, description="Where to start; now unless given.")
