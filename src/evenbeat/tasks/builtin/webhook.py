"""The task that delivers webhook messages. Every worker has it, whatever its application is.

A message was stored, with the job that runs this, by the very statement that did what it tells of.
So a worker may die at any moment: the job is still there. What cannot be ruled out is that one dies
between the receiver's answer and noting it; then the message comes twice, with one id.
"""

import asyncio
import importlib
import logging
import random
import socket
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.job import JobSpec
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.webhooks import QUEUE, TASK, message_id, next_delay, signed_headers
from evenbeat.errors import Fail, Retry, StoreError
from evenbeat.external.addresses import AddressRefused, Policy, Resolver, check_url
from evenbeat.settings import Settings
from evenbeat.store.store import Store
from evenbeat.store.webhooks import Attempted, Outgoing
from evenbeat.tasks.builtin.http import retry_after
from evenbeat.tasks.context import Context
from evenbeat.tasks.registry import Registry, Runs, TaskDefinition, define

if TYPE_CHECKING:
    from evenbeat.external.fetching import Answer, Call

logger = logging.getLogger(__name__)

MOST_KEPT = 1024
_NOTING_PAUSES = (0.2, 1.0, 5.0)
_ASKS_TO_WAIT = frozenset({429, 502, 503, 504})


def register(
    registry: Registry,
    settings: Callable[[], Settings],
    store: Callable[[], Store],
    now: Callable[[], datetime | None] = lambda: None,
) -> None:
    """Add the task, unless it is there. It runs where other tasks run already: a runner for it
    alone would cost every round of claims one more question."""
    if TASK in registry:
        return
    in_threads = not registry.named(Runs.ON_LOOP) and bool(registry.named(Runs.IN_THREAD))
    registry.add(definition(settings, store, now, in_threads=in_threads))


def definition(
    settings: Callable[[], Settings],
    store: Callable[[], Store],
    now: Callable[[], datetime | None] = lambda: None,
    resolver: Resolver | None = None,
    *,
    in_threads: bool = False,
) -> TaskDefinition:
    """The task, as a coroutine or as a plain function."""

    async def deliver(message: UUID, ctx: Context) -> dict[str, Any]:
        """Deliver a webhook message (see docs/webhooks.md). Made by Evenbeat itself."""
        return await Delivery(settings(), store(), now, resolver).run(message, ctx)

    def deliver_here(message: UUID, ctx: Context) -> dict[str, Any]:
        """Deliver a webhook message (see docs/webhooks.md). Made by Evenbeat itself."""
        return asyncio.run(deliver(message, ctx))

    spec = JobSpec(task=TASK, queue=QUEUE, retry=RetryPolicy(max_retries=100))
    return define(deliver_here if in_threads else deliver, spec)


def check_endpoint(url: str, settings: Settings) -> str:
    """The URL, when its form is right and it names no address that deliveries would refuse. Where
    a name leads is seen only when something is delivered."""
    parts = urlsplit(check_url(url))
    host, port = parts.hostname or "", parts.port or 443
    if host.rstrip(".").endswith("localhost"):
        addresses = ["127.0.0.1"]
    else:
        try:
            found = socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            return url  # a name
        addresses = [str(entry[4][0]) for entry in found]
    _policy(settings).check(host, addresses)
    return url


class Delivery:
    """One attempt at one message: look, send, note, and say what comes next."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        now: Callable[[], datetime | None],
        resolver: Resolver | None = None,
    ) -> None:
        self._settings = settings
        self._webhooks = store.webhooks
        self._now = now
        self._resolver = resolver

    async def run(self, message: UUID, ctx: Context) -> dict[str, Any]:
        """Deliver, or raise what the run ends with."""
        out = await asyncio.to_thread(self._webhooks.outgoing, message, now=self._now())
        if out is None:
            raise Fail("The message was removed.", code="message_gone")
        if out.delivered:  # by a worker that died before it could say so
            return {"message": message_id(message), "delivered": "before"}
        if out.url is None or out.secret is None:
            raise Fail("The webhook was deleted.", code="webhook_gone")
        if not out.enabled:
            raise Fail("The webhook is disabled.", code="webhook_disabled")
        begun = time.monotonic()
        fetching = await asyncio.to_thread(importlib.import_module, "evenbeat.external.fetching")
        try:
            answer: Answer = await fetching.fetch(
                self._call(fetching.Call, message, out), _policy(self._settings), self._resolver
            )
        except (AddressRefused, fetching.FetchTrouble) as error:
            code = getattr(error, "code", "address_refused")
            attempted = _attempted(ctx, out, begun, error_code=code, error=str(error))
            wait = self._wait(ctx, None)  # the URL may be mended meanwhile, or what it leads to
        else:
            attempted = _judged(ctx, out, begun, answer)
            waits = answer.status in _ASKS_TO_WAIT
            asked = retry_after(answer.headers, out.now) if waits else None
            wait = None if attempted.disabled_reason else self._wait(ctx, asked)
        await self._note(message, attempted)
        return _end(message, attempted, wait, ctx)

    def _call(self, call: "type[Call]", message: UUID, out: Outgoing) -> "Call":
        body = out.body.encode()
        secrets = [secret for secret in (out.secret, out.old_secret) if secret is not None]
        return call(
            url=out.url or "",
            method="POST",
            headers={
                "content-type": "application/json",
                "user-agent": "Evenbeat",
                "accept-encoding": "identity",
                **signed_headers(secrets, message_id(message), out.now, body),
            },
            content=body,
            seconds=self._settings.webhook_timeout_seconds,
            keep=MOST_KEPT,
            redirects=0,
            status_suffices=True,
        )

    def _wait(self, ctx: Context, asked: timedelta | None) -> timedelta | None:
        schedule = [parse_duration(text) for text in self._settings.webhook_retry_delays]
        return next_delay(schedule, ctx.attempt, asked, random.random())  # noqa: S311

    async def _note(self, message: UUID, attempted: Attempted) -> None:
        """What was delivered must not be delivered again for want of a database just now."""
        for pause in _NOTING_PAUSES:
            try:
                return await asyncio.to_thread(
                    self._webhooks.record, message, attempted, now=self._now()
                )
            except StoreError as error:
                logger.warning("A webhook delivery cannot be noted yet: %s", error)
                await asyncio.sleep(pause)
        return await asyncio.to_thread(self._webhooks.record, message, attempted, now=self._now())


def _policy(settings: Settings) -> Policy:
    return Policy.of(settings.allow_private_addresses, settings.allowed_networks)


def _judged(ctx: Context, out: Outgoing, begun: float, answer: "Answer") -> Attempted:
    kept: dict[str, Any] = {
        "status_code": answer.status,
        "response": answer.body.decode("utf-8", "replace").replace("\x00", "\ufffd"),
    }
    if 200 <= answer.status < 300:
        return _attempted(ctx, out, begun, delivered=True, **kept)
    error = f"The answer was {answer.status} {answer.reason}".rstrip() + "."
    if 300 <= answer.status < 400:
        error += " Redirects are not followed: change the URL of the webhook."
    gone = "The receiver answered 410 Gone." if answer.status == 410 else None
    return _attempted(
        ctx,
        out,
        begun,
        error_code=f"http_{answer.status}",
        error=error,
        disabled_reason=gone,
        **kept,
    )


def _attempted(
    ctx: Context, out: Outgoing, begun: float, *, delivered: bool = False, **rest: Any
) -> Attempted:
    took = (time.monotonic() - begun) * 1000
    return Attempted(ctx.execution_id, out.now, round(took, 3), delivered, **rest)


def _end(
    message: UUID, attempted: Attempted, wait: timedelta | None, ctx: Context
) -> dict[str, Any]:
    """The run's result; or the failure, with when to try again."""
    result = {"message": message_id(message), "status": attempted.status_code}
    if attempted.delivered:
        return result
    if wait is not None:
        raise Retry(attempted.error or "", after=wait, code=attempted.error_code, result=result)
    if attempted.disabled_reason is not None:
        raise Fail("The receiver answered 410 Gone; the webhook was disabled.",
                   code=attempted.error_code, result=result)  # fmt: skip
    raise Fail(
        f"{attempted.error} Given up after attempt {ctx.attempt}.",
        code=attempted.error_code,
        result=result,
    )
