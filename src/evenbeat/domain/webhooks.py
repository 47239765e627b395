"""Webhooks by the Standard Webhooks specification: events, message ids, secrets, signatures, and
when to try again. Pure; nothing here sends anything."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.ids import parse_id
from evenbeat.errors import InvalidInput

TASK = "evenbeat:webhook"
QUEUE = "webhooks"
"""The task that delivers messages and the queue that its jobs wait in, as the tables know them."""

OLD_SECRET_SIGNS = timedelta(hours=24)
LONGEST_RETRY = timedelta(hours=24)
SPREAD = 0.1
"""Retries come up to a tenth later than the schedule says, so that many do not coincide."""

_SECRET_PREFIX = "whsec_"  # noqa: S105 - the form of one
_ID_PREFIX = "msg_"
_KEY_BYTES = range(24, 65)


class WebhookEvent(StrEnum):
    """What an endpoint can receive. `webhook.test` is sent besides, when an endpoint is tested."""

    COMPLETED = "job.completed"
    RETRYING = "job.retrying"
    FAILED = "job.failed"
    CANCELLED = "job.cancelled"
    LATE = "job.late"
    OVERDUE = "job.overdue"
    RECOVERED = "job.recovered"
    BALANCE_LOW = "balance.low"
    ALERT = "alert.started"
    ALERT_OVER = "alert.ended"


OF_THE_WHOLE = frozenset({WebhookEvent.BALANCE_LOW, WebhookEvent.ALERT, WebhookEvent.ALERT_OVER})
"""Events that are about no single job."""


class WebhookFormat(StrEnum):
    """What is sent: the signed JSON message, or several messages as one text for people."""

    JSON = "json"
    SLACK = "slack"
    TEAMS = "teams"
    EMAIL = "email"


class Webhook(NamedTuple):
    """An endpoint as it is in the database; None for a filter means all."""

    id: UUID
    created_at: datetime
    updated_at: datetime
    created_by: str | None
    url: str
    description: str
    events: list[str]
    job_id: UUID | None
    tasks: list[str] | None
    queues: list[str] | None
    tags: list[str] | None
    secret: str
    old_secret_until: datetime | None
    enabled: bool
    disabled_reason: str | None
    failing_since: datetime | None
    format: str
    quiet_hours: str | None


# -- events -----------------------------------------------------------------------


def check_events(events: Iterable[str]) -> list[str]:
    """The events, each once, in their usual order; `InvalidInput` for none or an unknown one."""
    events = set(events)
    if not events or not events <= set(WebhookEvent):
        raise InvalidInput(
            f"A webhook needs at least one event of: {', '.join(WebhookEvent)}; "
            f"got {', '.join(sorted(events)) or 'none'}.",
            field="events",
        )
    return [str(event) for event in WebhookEvent if event in events]


def check_reach(events: Iterable[str], *, job: bool, filtered: bool) -> None:
    """Refuse what would never be sent: the balance is that of all jobs, not of some."""
    if set(events) <= OF_THE_WHOLE and (job or filtered):
        raise InvalidInput(
            f"{' and '.join(sorted(events))} is about the schedule as a whole: leave out the job, "
            "tasks, queues and tags, or choose an event of jobs.",
            field="events",
        )


# -- ids -----------------------------------------------------------------------------------------


def message_id(id_: UUID) -> str:
    """What the header `webhook-id` says: the same for every attempt at a message."""
    return _ID_PREFIX + id_.hex


def parse_message_id(text: str) -> UUID:
    """The id of a message, as `message_id` writes it or as a plain UUID."""
    id_ = parse_id(text.removeprefix(_ID_PREFIX))
    if id_ is None:
        raise InvalidInput(
            f"{text[:60]!r} is no id of a message; one looks like {message_id(UUID(int=0))}.",
            field="message_id",
        )
    return id_


# -- signing -------------------------------------------------------------------------------------


def secret_of(key: bytes) -> str:
    """A key of 24 to 64 random bytes as the specification writes it."""
    return _SECRET_PREFIX + base64.b64encode(key).decode()


def key_of(secret: str) -> bytes:
    """The key in a secret; the message of an error never repeats it."""
    try:
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_SECRET_PREFIX) or len(key) not in _KEY_BYTES:
        raise InvalidInput(
            "A secret is whsec_ and 24 to 64 random bytes in base64.", field="secret"
        )
    return key


def signature(secret: str, id_: str, timestamp: int, body: bytes) -> str:
    """One signature: version 1, HMAC-SHA256 over id, timestamp and the very bytes of the body."""
    signed = b"%s.%d.%s" % (id_.encode(), timestamp, body)
    digest = hmac.new(key_of(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def signed_headers(
    secrets: Sequence[str], id_: str, moment: datetime, body: bytes
) -> dict[str, str]:
    """The three headers of an attempt. Each secret signs: after a rotation there are two."""
    timestamp = int(moment.timestamp())
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signature(s, id_, timestamp, body) for s in secrets),
    }


# -- retries --------------------------------------------------------------------------------


def next_delay(
    schedule: Sequence[timedelta], attempt: int, retry_after: timedelta | None, spread: float
) -> timedelta | None:
    """How long to wait after the failed `attempt` (1 is the first); None when it was the last.

    A receiver that asks to wait longer is waited for, up to a day. `spread` in [0, 1] is the
    caller's random draw.
    """
    if attempt > len(schedule):
        return None
    wait = schedule[attempt - 1] * (1 + SPREAD * spread)
    return min(max(wait, retry_after or timedelta(0)), max(wait, LONGEST_RETRY))
