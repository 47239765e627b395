"""Screen 10, webhooks: the endpoints that are called when jobs end, and what they received."""

from urllib.parse import urlsplit
from uuid import UUID

from fastapi import Response

from evenbeat.api.dependencies import Operator, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import Notice, PageDep, PageRequest, id_of
from evenbeat.domain.webhooks import message_id, parse_message_id
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.store.webhooks import COUNTED, Message

router = pages.router()

PAGE_SIZE = 50
_MOST_ENDPOINTS = 200
_STATES = ("pending", "delivered", "failed")


@router.get("/webhooks", name="webhooks")
def webhooks(page: PageDep, _viewer: Viewer) -> Response:
    """The endpoints, and what was sent to one of them: the newest, or the one in the address."""
    store, named, state = page.store.webhooks, page.query.text("webhook"), page.query.text("state")
    endpoints = store.endpoints(limit=_MOST_ENDPOINTS)
    selected = next((one for one in endpoints if named in ("", str(one.id))), None)
    if selected is None and named:
        selected = store.get(id_of(named, "webhook"))
    states = [state] if state in _STATES else None
    messages: list[Message] = []
    total = 0
    if selected is not None:
        messages, total = store.messages(selected.id, states=states, limit=PAGE_SIZE)
    return page.render(
        "webhooks.html",
        endpoints=endpoints,
        selected=selected,
        state=state if states else "",
        states=_STATES,
        messages=messages,
        message_id=message_id,
        urlsplit=urlsplit,
        total=total,
        counted=COUNTED,
    )


@router.get("/webhooks/messages/{message}", name="webhook_message")
def webhook_message(page: PageDep, message: str, _viewer: Viewer) -> Response:
    """The payload of a message, and every attempt to deliver it."""
    stored, payload, attempts = page.store.webhooks.message(_message_id(message))
    return page.render(
        "webhook_message.html",
        message=stored,
        id=message_id(stored.id),
        payload=payload,
        attempts=attempts,
    )


@router.post("/webhooks/{webhook_id}/test", name="webhook_test")
def send_test(page: PageDep, webhook_id: str, _operator: Operator) -> Response:
    store = page.store.webhooks
    message = store.test(id_of(webhook_id, "webhook"), now=page.service.now)
    return _sent(page, message, "A test message is on its way.")


@router.post("/webhooks/messages/{message}/redeliver", name="webhook_redeliver")
def redeliver(page: PageDep, message: str, _operator: Operator) -> Response:
    store = page.store.webhooks
    again = store.redeliver(_message_id(message), now=page.service.now)
    return _sent(page, again, "The message is being sent again.")


def _sent(page: PageRequest, message: Message, text: str) -> Response:
    return page.back(page.url("webhook_message", message=message_id(message.id)), Notice(text))


def _message_id(text: str) -> UUID:
    try:
        return parse_message_id(text)
    except InvalidInput:
        raise NotFound("webhook message", text[:60]) from None
