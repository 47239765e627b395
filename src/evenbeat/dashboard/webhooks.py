"""Screen 10, webhooks: who is told when jobs end, and whether it arrived."""

import json
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import Request, Response

from evenbeat.api.dependencies import Operator, ServiceDep, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.forms import QueryDep, id_of
from evenbeat.dashboard.notices import Notice
from evenbeat.domain.webhooks import Webhook, message_id, parse_message_id
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.store.webhooks import COUNTED, Message, Webhooks

router = pages.router()

ON_A_PAGE = 50
_MOST_ENDPOINTS = 200
_STATES = ("pending", "delivered", "failed")
_COLOURS = {"delivered": "completed", "pending": "pending", "failed": "failed"}


class Endpoint(NamedTuple):
    """An endpoint as a line shows it: where to, how it does, and what it hears of."""

    webhook: Webhook
    host: str
    state: str
    colour: str
    hears_of: str


class Told(NamedTuple):
    """A message as a line shows it."""

    message: Message
    id: str
    colour: str


@router.get("/webhooks", name="webhooks")
def webhooks(request: Request, _viewer: Viewer, service: ServiceDep, query: QueryDep) -> Response:
    """The endpoints, and what was sent to one of them."""
    kept = service.app.store.webhooks
    endpoints = [_endpoint(one) for one in kept.endpoints(limit=_MOST_ENDPOINTS)]
    chosen = _chosen(kept, query.text("webhook"), endpoints)
    state = query.text("state") if query.text("state") in _STATES else None
    page = None
    if chosen is not None:
        states = None if state is None else [state]
        page = kept.messages(chosen.webhook.id, states=states, limit=ON_A_PAGE)
    return pages.render(
        request,
        "webhooks.html",
        now=pages.now_of(request),
        endpoints=endpoints,
        chosen=chosen,
        state=state,
        states=_STATES,
        told=[] if page is None else [_told(one) for one in page.messages],
        total=0 if page is None else page.total,
        counted=COUNTED,
    )


@router.get("/webhooks/messages/{message}", name="webhook_message")
def webhook_message(
    request: Request, message: str, _viewer: Viewer, service: ServiceDep
) -> Response:
    """What a message says, and every attempt at it."""
    found, payload, attempts = service.app.store.webhooks.message(_message_id(message))
    return pages.render(
        request,
        "webhook_message.html",
        now=pages.now_of(request),
        told=_told(found),
        payload=json.dumps(payload, indent=2, ensure_ascii=False),
        attempts=attempts,
    )


# -- changes ---------------------------------------------------------------------------------------


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
    return pages.back(request, to, Notice("The message is sent again."))


# -- what is shown ---------------------------------------------------------------------------------


def _message_id(text: str) -> UUID:
    try:
        return parse_message_id(text)
    except InvalidInput:
        raise NotFound("webhook message", text[:60]) from None


def _chosen(kept: Webhooks, text: str, endpoints: list[Endpoint]) -> Endpoint | None:
    """The endpoint that the address names, listed or not; the newest where it names none."""
    if not text:
        return next(iter(endpoints), None)
    named = [one for one in endpoints if str(one.webhook.id) == text]
    return next(iter(named), None) or _endpoint(kept.get(id_of(text, "webhook")))


def _endpoint(webhook: Webhook) -> Endpoint:
    if not webhook.enabled:
        state, colour = "disabled", "paused"
    elif webhook.failing_since is not None:
        state, colour = "failing", "failed"
    else:
        state, colour = "enabled", "active"
    # A URL may be a secret: where it leads is enough here.
    host = urlsplit(webhook.url).netloc
    return Endpoint(webhook, host, state, colour, _hears_of(webhook))


def _hears_of(webhook: Webhook) -> str:
    if webhook.job_id is not None:
        return "one job"
    filters = {"tasks": webhook.tasks, "queues": webhook.queues, "tags": webhook.tags}
    parts = [f"{name} {', '.join(words)}" for name, words in filters.items() if words]
    return "; ".join(parts) or "all jobs"


def _told(message: Message) -> Told:
    return Told(message, message_id(message.id), _COLOURS[message.state])
