"""The task that delivers webhook messages. Every worker has it, whatever its application is.

A message is stored, together with the job that runs this, by the very statement that it reports on.
So a worker may die at any moment: the job is still there. What cannot be ruled out is that one dies
between the receiver's response and recording it; then the message comes twice, with one id.
"""

import asyncio
import importlib
import json
import logging
import random
import smtplib
import socket
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.job import JobSpec
from evenbeat.domain.notices import Announcement, as_slack, as_teams, notice
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.webhooks import (
    QUEUE,
    TASK,
    WebhookFormat,
    message_id,
    next_delay,
    signed_headers,
)
from evenbeat.domain.window import parse_window
from evenbeat.errors import Fail, InvalidInput, Retry, Snooze, StoreError
from evenbeat.external.addresses import AddressRefused, Policy, check_url
from evenbeat.external.mail import check_mail, send_mail
from evenbeat.settings import Settings
from evenbeat.store.store import Store
from evenbeat.store.webhooks import Attempted, Outgoing
from evenbeat.tasks.builtin.http import retry_after
from evenbeat.tasks.context import Context
from evenbeat.tasks.registry import Registry, RunnerKind, define

if TYPE_CHECKING:
    from evenbeat.external.fetching import Call, FetchedResponse

logger = logging.getLogger(__name__)

MOST_KEPT = 1024
_MOST_TOGETHER = 1000
_RECORDING_PAUSES = (0.2, 1.0, 5.0)
_ASKS_TO_WAIT = frozenset({429, 502, 503, 504})


def register(
    registry: Registry,
    settings: Callable[[], Settings],
    store: Callable[[], Store],
    now: Callable[[], datetime | None],
) -> None:
    """Add the task, unless it is there. It runs where other tasks run already: a runner for it
    alone would cost every round of claims one more query."""
    if TASK in registry:
        return

    async def deliver(message: UUID, ctx: Context) -> dict[str, Any]:
        """Deliver a webhook message (see docs/webhooks.md). Made by Evenbeat itself."""
        webhooks = store().webhooks
        out = await asyncio.to_thread(webhooks.outgoing, message, now=now())
        if out is None:
            raise Fail("The message was removed.", code="message_gone")
        if out.delivered:  # by a worker that died before it could say so
            return {"message": message_id(message), "delivered": "before"}
        if out.url is None or out.secret is None:
            raise Fail("The webhook was deleted.", code="webhook_gone")
        if not out.enabled:
            raise Fail("The webhook is disabled.", code="webhook_disabled")
        if (quiet := quiet_for(out)) is not None:
            raise Snooze(quiet, "These are the quiet hours of the webhook.")
        beside: list[UUID] = []
        if out.format != WebhookFormat.JSON:
            waiting = await asyncio.to_thread(webhooks.undelivered_beside, message, _MOST_TOGETHER)
            waiting[message] = waiting.get(message) or json.loads(out.body)
            text = notice(waiting.values(), settings().public_url)
            beside = [id_ for id_ in waiting if id_ != message]
            attempted, wait = await _send_text(message, out, text, ctx, settings())
        else:
            attempted, wait = await _attempt(message, out, ctx, settings())
        await _record(lambda: webhooks.record(message, attempted, now=now()))
        if attempted.delivered and beside:
            await _record(lambda: webhooks.delivered_together(beside, now=now()))
        code = attempted.error_code
        result = {"message": message_id(message), "status": attempted.status_code}
        if attempted.delivered:
            return result
        if attempted.disabled_reason is not None:
            raise Fail("The receiver answered 410 Gone; the webhook was disabled.", code=code,
                       result=result)  # fmt: skip
        if wait is not None:
            raise Retry(attempted.error or "", after=wait, code=code, result=result)
        raise Fail(f"{attempted.error} Given up after attempt {ctx.attempt}.", code=code,
                   result=result)  # fmt: skip

    def deliver_here(message: UUID, ctx: Context) -> dict[str, Any]:
        return asyncio.run(deliver(message, ctx))

    deliver_here.__doc__ = deliver.__doc__
    kinds = {task.runs for task in registry}
    in_threads = RunnerKind.IN_THREAD in kinds and RunnerKind.ON_LOOP not in kinds
    spec = JobSpec(task=TASK, queue=QUEUE, retry=RetryPolicy(max_retries=100))
    registry.add(define(deliver_here if in_threads else deliver, spec))


async def _attempt(
    message: UUID, out: Outgoing, ctx: Context, settings: Settings
) -> tuple[Attempted, timedelta | None]:
    """Send the message; how that went, and when to try again if it failed."""
    body = out.body.encode()
    secrets = [secret for secret in (out.secret, out.old_secret) if secret is not None]
    signed = signed_headers(secrets, message_id(message), out.now, body)
    return await _post(out, body, signed, ctx, settings)


async def _send_text(
    message: UUID, out: Outgoing, text: Announcement, ctx: Context, settings: Settings
) -> tuple[Attempted, timedelta | None]:
    """Send what people read, by mail or to a chat."""
    if out.format != WebhookFormat.EMAIL:
        shape = as_slack if out.format == WebhookFormat.SLACK else as_teams
        return await _post(out, json.dumps(shape(text)).encode(), {}, ctx, settings)
    begun, outcome = time.monotonic(), dict[str, Any](delivered=True)
    try:
        await asyncio.to_thread(send_mail, out.url or "", text, message_id(message), settings)
    except (OSError, smtplib.SMTPException, InvalidInput) as error:
        reason = f"{type(error).__name__}: {error}"[:MOST_KEPT]
        outcome = {"delivered": False, "error_code": "mail_not_sent", "error": reason}
    return _attempted(out, ctx, settings, begun, outcome, None)


async def _post(
    out: Outgoing, body: bytes, headers: dict[str, str], ctx: Context, settings: Settings
) -> tuple[Attempted, timedelta | None]:
    fetching = await asyncio.to_thread(importlib.import_module, "evenbeat.external.fetching")
    call: Call = fetching.Call(
        url=out.url,
        method="POST",
        headers={
            "content-type": "application/json",
            "user-agent": "Evenbeat",
            "accept-encoding": "identity",
            **headers,
        },
        content=body,
        seconds=settings.webhook_timeout_seconds,
        keep=MOST_KEPT,
        redirects=0,
        status_suffices=True,
    )
    begun, requested_wait = time.monotonic(), None
    outcome: dict[str, Any] = {"delivered": False}
    try:
        response: FetchedResponse = await fetching.fetch(call, _policy(settings))
    except (AddressRefused, fetching.FetchTrouble) as error:
        # Tried again: the URL may be fixed meanwhile, or what it leads to.
        outcome |= {"error_code": error.code, "error": str(error)}
    else:
        outcome = _outcome(response)
        if response.status in _ASKS_TO_WAIT:
            requested_wait = retry_after(response.headers, out.now)
    return _attempted(out, ctx, settings, begun, outcome, requested_wait)


def _attempted(  # noqa: PLR0917
    out: Outgoing,
    ctx: Context,
    settings: Settings,
    begun: float,
    outcome: dict[str, Any],
    requested_wait: timedelta | None,
) -> tuple[Attempted, timedelta | None]:
    took = round((time.monotonic() - begun) * 1000, 3)
    delays = [parse_duration(text) for text in settings.webhook_retry_delays]
    wait = next_delay(delays, ctx.attempt, requested_wait, random.random())  # noqa: S311
    return Attempted(ctx.execution_id, out.now, took, **outcome), wait


async def _record(record: Callable[[], None]) -> None:
    """What was delivered must not be delivered again because the database was away just then."""
    for pause in (*_RECORDING_PAUSES, None):
        try:
            await asyncio.to_thread(record)
            break
        except StoreError as error:
            if pause is None:
                raise
            logger.warning("A webhook delivery cannot be noted yet: %s", error)
            await asyncio.sleep(pause)


def quiet_for(out: Outgoing) -> timedelta | None:
    """How long the endpoint's quiet hours still last; None outside of them."""
    if out.quiet_hours is None:
        return None
    opening, closing = parse_window(out.quiet_hours).open_span(out.now)
    return closing - out.now if opening <= out.now else None


def check_endpoint(
    url: str,
    settings: Settings,
    format: str = WebhookFormat.JSON,  # noqa: A002 - as the documents have it
) -> str:
    """The URL, when its form is right and it names no address that deliveries would refuse. Where
    a name leads is seen only when something is delivered. One for e-mail is an address."""
    if format == WebhookFormat.EMAIL:
        check_mail(url, settings)
        return url
    parts = urlsplit(check_url(url))
    host, port = parts.hostname or "", parts.port or 443
    if host.rstrip(".").endswith("localhost"):
        addresses = ["127.0.0.1"]
    else:
        try:
            entries = socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            return url  # a name
        addresses = [str(entry[4][0]) for entry in entries]
    _policy(settings).check(host, addresses)
    return url


def _policy(settings: Settings) -> Policy:
    return Policy.of(settings.allow_private_addresses, settings.allowed_networks)


def _outcome(response: "FetchedResponse") -> dict[str, Any]:
    """What a response means, as fields of `Attempted`."""
    delivered = 200 <= response.status < 300
    text = response.body.decode("utf-8", "replace").replace("\x00", "\ufffd")
    outcome = {"delivered": delivered, "status_code": response.status, "response": text}
    if delivered:
        return outcome
    error = f"The answer was {response.status} {response.reason}".rstrip() + "."
    if 300 <= response.status < 400:
        error += " Redirects are not followed: change the URL of the webhook."
    gone = "The receiver answered 410 Gone." if response.status == 410 else None
    code = f"http_{response.status}"
    return outcome | {"error_code": code, "error": error, "disabled_reason": gone}
