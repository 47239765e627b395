"""Webhooks over HTTP: endpoints, what was sent to them, and sending it again.

A secret is seen in the response that creates an endpoint and in the one that rotates its secret,
and nowhere else. A URL may be a secret too, so that only admins see more of it than the host.
"""

from datetime import datetime
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from evenbeat.api.auth.tokens import Principal, Role
from evenbeat.api.dependencies import Admin, Operator, ServiceDep, Viewer
from evenbeat.api.fields import (
    MAX_DESCRIPTION,
    WEB_ADDRESS,
    EstimatedPage,
    Id,
    Json,
    Moment,
    Page,
    PageQuery,
    QueueName,
    RowDocument,
    Several,
    Tag,
    TaskName,
    Window,
    fields_of,
)
from evenbeat.api.queries import Words, words_schema
from evenbeat.api.requests import Request
from evenbeat.domain.webhooks import (
    Webhook,
    WebhookEvent,
    WebhookFormat,
    check_events,
    message_id,
    parse_message_id,
)
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.external.addresses import MAX_URL
from evenbeat.store.part import one_of
from evenbeat.store.webhooks import COUNTED, DeliveryAttempt, Message
from evenbeat.tasks.builtin.webhook import check_endpoint

router = APIRouter(prefix="/api/v1", tags=["webhooks"])

State = Literal["pending", "delivered", "failed"]
EventName = Annotated[
    str,
    AfterValidator(lambda event: check_events([event])[0]),
    WithJsonSchema({"type": "string", "enum": list(WebhookEvent)}),
]
MessageInPath = Annotated[
    str,
    Path(
        min_length=32,
        max_length=36,
        description="As the header webhook-id has it: msg_…",
        json_schema_extra={
            "pattern": "^((msg_)?[0-9a-fA-F]{32}|"
            "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$"
        },
    ),
]
_Url = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_URL,
        json_schema_extra={"format": "uri", "pattern": f"{WEB_ADDRESS}|^mailto:"},
    ),
]
_Description = Annotated[str, Field(max_length=MAX_DESCRIPTION)]
_Format = Literal["json", "slack", "teams", "email"]
_Events = Annotated[list[EventName], Field(min_length=1, max_length=20)]


class WebhookEdit(Request):
    """Changes to an endpoint: only the fields that are given change. Without words, or with null, a
    filter lets everything pass."""

    url: _Url | SkipJsonSchema[None] = Field(None, description="Where messages are posted to.")
    events: _Events | SkipJsonSchema[None] = Field(None, description="The events sent to it.")
    description: _Description | SkipJsonSchema[None] = None
    tasks: Several[TaskName] | None = Field(None, description="Only jobs of these tasks.")
    queues: Several[QueueName] | None = Field(None, description="Only jobs of these queues.")
    tags: Several[Tag] | None = Field(None, description="Only jobs with one of these tags.")
    enabled: bool | SkipJsonSchema[None] = Field(None, description="Whether anything is sent.")
    format: _Format | SkipJsonSchema[None] = Field(
        None, description="json, or a text for people: slack, teams, or email (url: mailto:…)."
    )
    quiet_hours: Window | None = Field(None, description="The hours in which nothing is sent.")


class NewWebhook(WebhookEdit):
    description: _Description | None = None
    enabled: bool | None = Field(None, description="Whether anything is sent. Default: yes.")
    format: _Format | None = Field(None, description="As for a change. Default: json.")
    url: _Url = Field(description="Where messages are posted to.")
    events: _Events = Field(description="The events that are sent to it.")
    job_id: Id | None = Field(None, description="Only this job. Default: all jobs.")


@fields_of(Webhook, omit=["secret"])
class WebhookDocument(RowDocument):
    """An endpoint. Only admins see more of its URL than the host."""

    events: list[EventName]
    tasks: list[str] | None = Field(description="null: all.")
    queues: list[str] | None = Field(description="null: all.")
    tags: list[str] | None = Field(description="null: all.")
    disabled_reason: str | None = Field(description="Why only a person will enable it again.")
    failing_since: datetime | None = Field(description="The first failure after the last success.")
    old_secret_until: datetime | None = Field(
        description="Until when messages are also signed with the old secret."
    )


class WebhookWithSecret(WebhookDocument):
    """An endpoint with its secret: no other response shows it."""

    secret: str


class WebhookList(Page):
    webhooks: list[WebhookDocument]


@fields_of(Message)
class MessageDocument(RowDocument):
    """A message to an endpoint and the state of its delivery."""

    id: Annotated[str, BeforeValidator(message_id)] = Field(
        description="As the header webhook-id has it."
    )
    state: State
    status_code: int | None = Field(description="The response to the last attempt.")


@fields_of(DeliveryAttempt, omit=["id"])
class AttemptDocument(BaseModel):
    """One attempt at delivering a message."""

    response: str | None = Field(description="The beginning of the response's body.")
    execution_id: UUID = Field(validation_alias="id")


class WholeMessage(MessageDocument):
    """A message with its payload and every attempt at delivering it."""

    payload: Json
    deliveries: list[AttemptDocument]


class MessageList(EstimatedPage):
    deliveries: list[MessageDocument]


class Redeliver(Request):
    """Which messages to send again."""

    since: Moment = Field(description="Those that have failed since then.")


class Redelivered(BaseModel):
    redelivered: int


class WebhookQuery(PageQuery):
    job_id: Id | None = Field(None, description="Only those for this job alone.")


class MessageQuery(PageQuery):
    state: Annotated[Words, words_schema(enum=[*get_args(State)])] = Field(
        None, description="pending, delivered or failed."
    )


@router.get("/webhooks", summary="List webhooks")
def list_webhooks(
    query: Annotated[WebhookQuery, Query()], service: ServiceDep, principal: Viewer
) -> WebhookList:
    """The endpoints, the events that they receive, and whether that works."""
    webhooks = service.store.webhooks
    page = webhooks.endpoints(job_id=query.job_id, **query.paging)
    documents = [_document(webhook, principal) for webhook in page]
    total = webhooks.count(job_id=query.job_id)[0]
    return WebhookList(webhooks=documents, total=total, **query.paging)


@router.post("/webhooks", summary="Add a webhook", status_code=201)
def create_webhook(body: NewWebhook, service: ServiceDep, principal: Admin) -> WebhookWithSecret:
    """For all jobs, some, or one. The response has the secret that receivers verify messages with;
    no other response will."""
    check_endpoint(body.url, service.app.settings, body.format or WebhookFormat.JSON)
    if body.job_id is not None:
        try:
            service.store.read.job(body.job_id)
        except NotFound as error:
            raise InvalidInput(str(error), field="job_id") from None
    fields = body.model_dump(exclude={"url", "events"}, exclude_none=True)
    webhook = service.store.webhooks.add(
        body.url, body.events, **fields, created_by=principal.subject, now=service.now
    )
    return WebhookWithSecret.of(webhook)


@router.get("/webhooks/{webhook_id}", summary="Look at a webhook")
def get_webhook(webhook_id: UUID, service: ServiceDep, principal: Viewer) -> WebhookDocument:
    """One endpoint, without its secret."""
    return _document(service.store.webhooks.get(webhook_id), principal)


@router.patch("/webhooks/{webhook_id}", summary="Change a webhook")
def update_webhook(
    webhook_id: UUID, body: WebhookEdit, service: ServiceDep, principal: Admin
) -> WebhookDocument:
    """Waiting messages go to the new URL. Enabling an endpoint again clears its failures."""
    changes = body.model_dump(include=body.model_fields_set)
    for field in ("url", "events", "description", "enabled", "format"):
        if field in changes and changes[field] is None:
            raise InvalidInput(
                f"null is no {field}; leave it out to keep what is there.", field=field
            )
    if {"url", "format"} & changes.keys():
        present = service.store.webhooks.get(webhook_id)
        url, form = changes.get("url", present.url), changes.get("format", present.format)
        check_endpoint(url, service.app.settings, form)
    webhook = service.store.webhooks.update(webhook_id, changes, now=service.now)
    return _document(webhook, principal)


@router.delete("/webhooks/{webhook_id}", summary="Delete a webhook", status_code=204)
def delete_webhook(webhook_id: UUID, service: ServiceDep, _principal: Admin) -> None:
    """With its messages and their log. What was not delivered yet never will be."""
    service.store.webhooks.delete(webhook_id)


@router.post("/webhooks/{webhook_id}/rotate", summary="Give a webhook a new secret")
def rotate_webhook(webhook_id: UUID, service: ServiceDep, _principal: Admin) -> WebhookWithSecret:
    """For 24 hours messages are signed with both secrets, so that receivers can change over."""
    return WebhookWithSecret.of(service.store.webhooks.rotate(webhook_id, now=service.now))


@router.post(
    "/webhooks/{webhook_id}/test", operation_id="test_webhook", summary="Send a test message"
)
def send_test(webhook_id: UUID, service: ServiceDep, _principal: Operator) -> MessageDocument:
    """A message `webhook.test`, whatever the endpoint's events. Look at the message to see how the
    delivery went."""
    return MessageDocument.of(service.store.webhooks.test(webhook_id, now=service.now))


@router.get("/webhooks/{webhook_id}/deliveries", summary="List what was sent to a webhook")
def list_webhook_deliveries(
    webhook_id: UUID,
    query: Annotated[MessageQuery, Query()],
    service: ServiceDep,
    _principal: Viewer,
) -> MessageList:
    """Each message with the state of its delivery and its last attempt, newest first."""
    one_of("state", query.state, get_args(State))
    webhooks = service.store.webhooks
    page = webhooks.messages(webhook_id, states=query.state, **query.paging)
    if not page.total:
        webhooks.get(webhook_id)  # raises when there is no such endpoint
    more = {"deliveries": page.messages, "total_is_estimate": page.total >= COUNTED}
    return MessageList.of(page, **more, **query.paging)


@router.post("/webhooks/{webhook_id}/redeliver", summary="Send all failed messages again")
def redeliver_webhook(
    webhook_id: UUID, body: Redeliver, service: ServiceDep, _principal: Operator
) -> Redelivered:
    """Those that were given up since a moment; what still waits for an attempt is left alone."""
    count = service.store.webhooks.redeliver_failed(webhook_id, body.since, now=service.now)
    return Redelivered(redelivered=count)


@router.get("/webhook-messages/{message_id}", summary="Look at a message")
def get_webhook_message(
    message_id: MessageInPath, service: ServiceDep, _principal: Viewer
) -> WholeMessage:
    """What was sent, and every attempt at it."""
    message, payload, attempts = service.store.webhooks.message(parse_message_id(message_id))
    return WholeMessage.of(message, payload=payload, deliveries=attempts)


@router.post("/webhook-messages/{message_id}/redeliver", summary="Send a message again")
def redeliver_webhook_message(
    message_id: MessageInPath, service: ServiceDep, _principal: Operator
) -> MessageDocument:
    """At once, to its own endpoint only, delivered or not; with the same id, so that receivers can
    tell that they have seen it."""
    webhooks = service.store.webhooks
    return MessageDocument.of(webhooks.redeliver(parse_message_id(message_id), now=service.now))


def _document(webhook: Webhook, principal: Principal) -> WebhookDocument:
    """The endpoint as this caller may see it."""
    if not principal.role.covers(Role.ADMIN):
        parts = urlsplit(webhook.url)
        shown = f"{parts.scheme}://{parts.netloc}/…" if parts.netloc else f"{parts.scheme}:…"
        webhook = webhook._replace(url=shown)
    return WebhookDocument.of(webhook)
