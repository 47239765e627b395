"""Screen 10, webhooks: the endpoints that are called when jobs end, and what they received."""

import json
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import Request, Response

from evenbeat.api.dependencies import Operator, ServiceDep, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.forms import QueryDep, id_of
from evenbeat.dashboard.pages import Notice
from evenbeat.domain.webhooks import Webhook, message_id, parse_message_id
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.store.webhooks import COUNTED, Message

router = pages.router()

PAGE_SIZE = 50
_MOST_ENDPOINTS = 200
_COLOURS = {"pending": "pending", "delivered": "completed", "failed": "failed"}


class Endpoint(NamedTuple):
    """An endpoint as a row shows it. A URL may be a secret, so only its host is shown."""

    webhook: Webhook
    host: str
    state: str
    colour: str
    scope: str


class MessageRow(NamedTuple):
    """A message as a row shows it."""

    message: Message
    id: str
    colour: str


@router.get("/webhooks", name="webhooks")
def webhooks(request: Request, _viewer: Viewer, service: ServiceDep, query: QueryDep) -> Response:
    """The endpoints, and what was sent to one of them: the newest, or the one in the address."""
    store = service.app.store.webhooks
    endpoints = [_endpoint(one) for one in store.endpoints(limit=_MOST_ENDPOINTS)]
    named = query.text("webhook")
    listed = (one for one in endpoints if named in ("", str(one.webhook.id)))
    selected = next(listed, None)
    if selected is None and named:
        selected = _endpoint(store.get(id_of(named, "webhook")))
    state = query.text("state") if query.text("state") in _COLOURS else None
    page = None
    if selected is not None:
        states = None if state is None else [state]
        page = store.messages(selected.webhook.id, states=states, limit=PAGE_SIZE)
    return pages.render(
        request,
        "webhooks.html",
        now=pages.now_of(request),
        endpoints=endpoints,
        selected=selected,
        state=state,
        states=list(_COLOURS),
        rows=[] if page is None else [_row(one) for one in page.messages],
        total=0 if page is None else page.total,
        counted=COUNTED,
    )


@router.get("/webhooks/messages/{message}", name="webhook_message")
def webhook_message(
    request: Request, message: str, _viewer: Viewer, service: ServiceDep
) -> Response:
    """The payload of a message, and every attempt to deliver it."""
    stored, payload, attempts = service.app.store.webhooks.message(_message_id(message))
    return pages.render(
        request,
        "webhook_message.html",
        now=pages.now_of(request),
        row=_row(stored),
        payload=json.dumps(payload, indent=2, ensure_ascii=False),
        attempts=attempts,
    )


@router.post("/webhooks/{webhook_id}/test", name="webhook_test")
def send_test(
    request: Request, webhook_id: str, _operator: Operator, service: ServiceDep
) -> Response:
    """Send a test message."""
    sent = service.app.store.webhooks.test(id_of(webhook_id, "webhook"), now=service.now)
    to = pages.url(request, "webhook_message", message=message_id(sent.id))
    return pages.back(request, to, Notice("A test message is on its way."))


@router.post("/webhooks/messages/{message}/redeliver", name="webhook_redeliver")
def redeliver(request: Request, message: str, _operator: Operator, service: ServiceDep) -> Response:
    """Send a message again."""
    sent = service.app.store.webhooks.redeliver(_message_id(message), now=service.now)
    to = pages.url(request, "webhook_message", message=message_id(sent.id))
    return pages.back(request, to, Notice("The message is being sent again."))


def _message_id(text: str) -> UUID:
    try:
        return parse_message_id(text)
    except InvalidInput:
        raise NotFound("webhook message", text[:60]) from None


def _endpoint(webhook: Webhook) -> Endpoint:
    if not webhook.enabled:
        state, colour = "disabled", "paused"
    elif webhook.failing_since is not None:
        state, colour = "failing", "failed"
    else:
        state, colour = "enabled", "active"
    filters = {"tasks": webhook.tasks, "queues": webhook.queues, "tags": webhook.tags}
    scope = "; ".join(f"{kind} {', '.join(names)}" for kind, names in filters.items() if names)
    return Endpoint(webhook, urlsplit(webhook.url).netloc, state, colour, scope or "all jobs")


def _row(message: Message) -> MessageRow:
    return MessageRow(message, message_id(message.id), _COLOURS[message.state])
