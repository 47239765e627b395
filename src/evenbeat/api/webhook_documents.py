"""What requests to the webhooks' routes may contain, and what their answers look like."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from evenbeat.api.fields import (
    MAX_DESCRIPTION,
    MAX_TAGS,
    Limit,
    Moment,
    Offset,
    QueueName,
    Tag,
    TaskName,
)
from evenbeat.api.queries import Words
from evenbeat.api.schemas import Id, Json, Request
from evenbeat.tasks.addresses import MAX_URL

Event = Literal["job.completed", "job.retrying", "job.failed", "job.cancelled", "balance.low"]
State = Literal["pending", "delivered", "failed"]
STATES = ("pending", "delivered", "failed")

_Url = Annotated[str, StringConstraints(min_length=1, max_length=MAX_URL)]
_Events = Annotated[list[Event], Field(min_length=1, max_length=20)]
_Description = Annotated[str, StringConstraints(max_length=MAX_DESCRIPTION)]
_Tasks = Annotated[list[TaskName], Field(max_length=MAX_TAGS)]
_Queues = Annotated[list[QueueName], Field(max_length=MAX_TAGS)]
_Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]


class WebhookEdit(Request):
    """Changes to an endpoint: only the fields that are given change. Without words, or with null, a
    filter lets everything pass."""

    url: _Url | None = Field(None, description="Where messages are posted to.")
    events: _Events | None = Field(None, description="What it hears of.")
    description: _Description | None = None
    tasks: _Tasks | None = Field(None, description="Only jobs of these tasks.")
    queues: _Queues | None = Field(None, description="Only jobs of these queues.")
    tags: _Tags | None = Field(None, description="Only jobs with one of these tags.")
    enabled: bool | None = Field(None, description="Whether anything is sent to it.")


class NewWebhook(WebhookEdit):
    """An endpoint to add."""

    url: _Url = Field(description="Where messages are posted to.")
    events: _Events = Field(description="What it hears of.")
    job_id: Id | None = Field(None, description="Only this job. Default: all jobs.")


class WebhookDocument(BaseModel):
    """An endpoint. Who is not admin sees of its URL only where it leads."""

    id: UUID
    url: str
    description: str
    events: list[Event]
    job_id: UUID | None
    tasks: list[str] | None = Field(description="null: all.")
    queues: list[str] | None = Field(description="null: all.")
    tags: list[str] | None = Field(description="null: all.")
    enabled: bool
    disabled_reason: str | None = Field(description="Why nobody but a person will enable it again.")
    failing_since: datetime | None = Field(description="The first failure after the last success.")
    old_secret_until: datetime | None = Field(description="Until when the old secret signs along.")
    created_at: datetime
    updated_at: datetime
    created_by: str | None


class WebhookWithSecret(WebhookDocument):
    """An endpoint with its secret: no other answer shows it."""

    secret: str


class WebhookList(BaseModel):
    """A page of endpoints, newest first."""

    webhooks: list[WebhookDocument]
    total: int
    limit: int
    offset: int


class MessageDocument(BaseModel):
    """A message to an endpoint and how its delivery stands."""

    id: str = Field(description="As the header webhook-id has it.")
    webhook_id: UUID
    event: str
    created_at: datetime
    job_id: UUID | None
    execution_id: UUID | None
    state: State
    attempts: int
    delivered_at: datetime | None
    next_attempt_at: datetime | None
    status_code: int | None = Field(description="The answer to the last attempt.")
    error_code: str | None
    error: str | None


class AttemptDocument(BaseModel):
    """One try at delivering a message."""

    attempt: int
    started_at: datetime
    duration_ms: float | None
    status_code: int | None
    response: str | None = Field(description="The beginning of the answer's body.")
    error_code: str | None
    error: str | None
    execution_id: UUID


class WholeMessage(MessageDocument):
    """A message with its payload and every attempt at delivering it."""

    payload: Json
    deliveries: list[AttemptDocument]


class MessageList(BaseModel):
    """A page of messages, newest first."""

    deliveries: list[MessageDocument]
    total: int
    total_is_estimate: bool = Field(description="Whether there may be more than that.")
    limit: int
    offset: int


class Redeliver(Request):
    """Which messages to send again."""

    since: Moment = Field(description="Those that have failed since then.")


class Redelivered(BaseModel):
    """How many messages are sent again."""

    redelivered: int


class WebhookQuery(BaseModel):
    """The query of the list of endpoints."""

    model_config = ConfigDict(extra="forbid")

    job_id: Id | None = Field(None, description="Only those for this job alone.")
    limit: Limit = 50
    offset: Offset = 0


class MessageQuery(BaseModel):
    """The query of the list of deliveries."""

    model_config = ConfigDict(extra="forbid")

    state: Words = Field(None, description="pending, delivered or failed.")
    limit: Limit = 50
    offset: Offset = 0
