"""Webhooks in the database: endpoints, messages, the log of deliveries, and sending again."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from psycopg.types.json import Jsonb

from evenbeat.domain.ids import uuid7
from evenbeat.domain.webhooks import (
    OLD_SECRET_SIGNS,
    Webhook,
    WebhookEvent,
    WebhookFormat,
    check_events,
    check_reach,
    message_id,
    secret_of,
)
from evenbeat.errors import Conflict, NotFound
from evenbeat.store.audit import AuditLog
from evenbeat.store.database import Connection, Database
from evenbeat.store.part import BATCH, Between, StorePart, as_list, go_on
from evenbeat.store.rows import encode_json

MOST_GLOBAL = 100
"""Endpoints that hear of all jobs: the end of every run is compared with each of them."""

COUNTED = 10_000
"""How far the messages of an endpoint are counted; beyond that the total says only "at least"."""


class Message(NamedTuple):
    """A message and how its delivery stands: `state` is pending, delivered or failed. The last
    attempt is told by `status_code`, `error_code` and `error`."""

    id: UUID
    webhook_id: UUID
    event: str
    created_at: datetime
    job_id: UUID | None
    execution_id: UUID | None
    state: str
    attempts: int
    delivered_at: datetime | None
    next_attempt_at: datetime | None
    status_code: int | None
    error_code: str | None
    error: str | None


class DeliveryAttempt(NamedTuple):
    """One try at delivering a message; its id is that of the execution that made it."""

    id: UUID
    attempt: int
    started_at: datetime
    duration_ms: float | None
    status_code: int | None
    response: str | None
    error_code: str | None
    error: str | None


class MessagePage(NamedTuple):
    """A page of messages, and how many there are; from `COUNTED` on, at least that many."""

    messages: list[Message]
    total: int


class Outgoing(NamedTuple):
    """What the delivery of a message needs. No `url`: the endpoint was deleted."""

    event: str
    body: str
    delivered: bool
    url: str | None
    enabled: bool
    secret: str | None
    old_secret: str | None
    now: datetime
    format: str
    quiet_hours: str | None


class Attempted(NamedTuple):
    """How an attempt went. A `disabled_reason` ends deliveries to the endpoint altogether."""

    id: UUID
    started_at: datetime
    duration_ms: float
    delivered: bool
    status_code: int | None = None
    response: str | None = None
    error_code: str | None = None
    error: str | None = None
    disabled_reason: str | None = None


class Webhooks(StorePart):
    """Who is told of what, and what has become of it."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._audit = AuditLog(database)

    # -- endpoints -------------------------------------------------------------------------------

    def add(
        self,
        url: str,
        events: Sequence[str],
        *,
        description: str = "",
        job_id: UUID | None = None,
        tasks: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        enabled: bool = True,
        format: str = WebhookFormat.JSON,  # noqa: A002 - as the documents have it
        quiet_hours: str | None = None,
        created_by: str | None = None,
        now: datetime | None = None,
    ) -> Webhook:
        """Add an endpoint, with a secret of its own. The URL is the caller's to check."""
        checked = check_events(events)
        check_reach(checked, job=job_id is not None, filtered=bool(tasks or queues or tags))
        if job_id is None and self.count()[1] >= MOST_GLOBAL:
            raise Conflict(
                f"There are {MOST_GLOBAL} webhooks for all jobs already, the most there can be. "
                "Delete one, or add this one for a single job."
            )
        params = {
            "id": uuid7(),
            "url": url,
            "events": checked,
            "description": description,
            "job_id": job_id,
            **_filters(tasks, queues, tags),
            "enabled": enabled,
            "format": format,
            "quiet_hours": quiet_hours,
            "secret": secret_of(secrets.token_bytes(32)),
            "created_by": created_by,
            "now": now,
        }
        webhook = self._all(Webhook._make, "add_webhook", params)[0]
        self._audit.add_row("webhook.add", None, webhook, name=host_of(url), now=now)
        return webhook

    def endpoints(
        self, *, job_id: UUID | None = None, limit: int = 100, offset: int = 0
    ) -> list[Webhook]:
        """The endpoints, newest first; with `job_id`, those for that job alone."""
        params = {"job_id": job_id, "limit": limit, "offset": offset}
        return self._all(Webhook._make, "webhooks", params)

    def count(self, *, job_id: UUID | None = None) -> tuple[int, int]:
        """How many endpoints `endpoints` has without a limit, and how many hear of all jobs."""
        listed, of_all = self._database.rows("count_webhooks", {"job_id": job_id})[0]
        return listed, of_all

    def get(self, id_: UUID) -> Webhook:
        """One endpoint, or `NotFound`."""
        return self._get(Webhook._make, "webhook", "webhook", id_)

    def update(
        self, id_: UUID, changes: Mapping[str, Any], *, now: datetime | None = None
    ) -> Webhook:
        """Change url, description, events, tasks, queues, tags or enabled; the rest stays."""

        def work(open_: Connection) -> Webhook:
            before = self._get(
                Webhook._make, "webhook_until_commit", "webhook", id_, connection=open_
            )
            webhook = before._replace(**changes)
            filters = _filters(webhook.tasks, webhook.queues, webhook.tags)
            events = check_events(webhook.events)
            check_reach(events, job=webhook.job_id is not None, filtered=any(filters.values()))
            params = webhook._asdict() | filters | {"events": events, "now": now}
            after = self._all(Webhook._make, "update_webhook", params, open_)[0]
            self._audit.add_row(
                "webhook.edit", before, after, name=host_of(after.url), connection=open_, now=now
            )
            return after

        return self._database.atomically(work)

    def rotate(self, id_: UUID, *, now: datetime | None = None) -> Webhook:
        """Give an endpoint a new secret; the old one signs along for a day."""
        old = OLD_SECRET_SIGNS.total_seconds()
        params = {"secret": secret_of(secrets.token_bytes(32)), "old_seconds": old, "now": now}
        webhook = self._get(Webhook._make, "rotate_webhook_secret", "webhook", id_, params=params)
        self._audit.add_row("webhook.rotate", webhook, webhook, name=host_of(webhook.url), now=now)
        return webhook

    def delete(self, id_: UUID) -> None:
        """Remove an endpoint with its messages and what would still deliver them."""
        webhook = self.get(id_)
        if not self._database.rows("delete_webhook", {"id": id_}):
            raise NotFound("webhook", id_)
        self._audit.add_row("webhook.delete", webhook, None, name=host_of(webhook.url))

    # -- messages --------------------------------------------------------------------------------

    def test(self, id_: UUID, *, now: datetime | None = None) -> Message:
        """Send `webhook.test` to an endpoint."""
        params = {"id": id_, "message": uuid7(None if now is None else now.timestamp()), "now": now}
        row = self._database.row("add_webhook_test", params)
        if row is None:
            self._check_enabled(self.get(id_))
            raise Conflict(f"The webhook {id_} changed meanwhile. Try again.")
        message = self.message(row[0])[0]
        self._audit.add("webhook.test", ids=[id_], now=now)
        return message

    def note_balance(
        self,
        figure: str,
        value: Mapping[str, Any],
        alert: Mapping[str, Any],
        *,
        now: datetime | None = None,
    ) -> bool:
        """Keep how even the schedule is; when it has become uneven (`low`), store what tells of it
        in the same transaction. Returns whether it has just become so: true once, on one node."""

        def work(open_: Connection) -> bool:
            lock = {"name": f"{self._database.schema}:balance-alert"}
            self._database.rows("lock_until_commit", lock, open_)
            before = self._database.row("kept_figure", {"name": figure}, open_)
            raised = bool(value["low"]) and not (before and before[0].get("low"))
            params = {"name": figure, "value": Jsonb(dict(value)), "now": now}
            self._database.rows("save_figure", params, open_)
            if raised:
                data = encode_json("data", alert)
                self._database.rows("add_balance_alert", {"data": data, "now": now}, open_)
            return raised

        return self._database.atomically(work)

    def messages(
        self,
        webhook_id: UUID,
        *,
        states: Sequence[str] | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> MessagePage:
        """The messages of an endpoint, newest first."""
        page = {"limit": limit, "offset": offset}
        params = {**page, "webhook_id": webhook_id, "states": as_list(states)}
        messages = self._all(Message._make, "webhook_messages", params)
        if messages and len(messages) < limit:
            return MessagePage(messages, offset + len(messages))
        counted = self._database.rows("count_webhook_messages", params | {"most": COUNTED})[0][0]
        at_least = offset + len(messages) if messages else 0
        return MessagePage(messages, max(counted, at_least))

    def message(self, id_: UUID) -> tuple[Message, dict[str, Any], list[DeliveryAttempt]]:
        """One message, its payload, and every attempt at delivering it."""
        row = self._database.row("webhook_message", {"id": id_})
        if row is None:
            raise NotFound("webhook message", message_id(id_))
        attempts = self._all(DeliveryAttempt._make, "webhook_attempts", {"message": id_})
        return Message._make(row[:-1]), row[-1], attempts

    def redeliver(self, id_: UUID, *, now: datetime | None = None) -> Message:
        """Send one message again, delivered or not, to its own endpoint only. One that is just
        being delivered is left to that."""
        sent = self._redeliver(now, messages=[id_])
        message = self.message(id_)[0]
        if not sent:
            self._check_enabled(self.get(message.webhook_id))
            if message.state == "delivered":
                raise Conflict(
                    f"The message {message_id(id_)} has just been delivered. To send it again, ask "
                    "again in a moment."
                )
        self._audit.add("webhook.redeliver", ids=[message.webhook_id], now=now)
        return message

    def redeliver_failed(
        self, webhook_id: UUID, since: datetime, *, now: datetime | None = None
    ) -> int:
        """Send again what has failed since then and nothing is about to send; returns how many."""
        self._check_enabled(self.get(webhook_id))
        sent = self._redeliver(now, webhook_id=webhook_id, since=since)
        self._audit.add("webhook.redeliver", ids=[webhook_id], count=sent, now=now)
        return sent

    # -- delivering ------------------------------------------------------------------------------

    def outgoing(self, id_: UUID, *, now: datetime | None = None) -> Outgoing | None:
        """What to deliver, and where to; None when the message was removed."""
        row = self._database.row("outgoing_webhook", {"message": id_, "now": now})
        return None if row is None else Outgoing._make(row)

    def undelivered_beside(self, id_: UUID, limit: int) -> dict[UUID, dict[str, Any]]:
        """The payloads that wait to be sent to the endpoint of a message, oldest first."""
        return dict(self._database.rows("undelivered_beside", {"message": id_, "limit": limit}))

    def delivered_together(self, ids: Sequence[UUID], *, now: datetime | None = None) -> None:
        """Note that these went out as part of another message."""
        self._database.rows("delivered_together", {"ids": list(ids), "now": now})

    def tell_alerts(
        self,
        alerts: Mapping[str, tuple[str, datetime, Mapping[str, Any]]],
        over_after: timedelta,
        *,
        now: datetime | None = None,
    ) -> list[str]:
        """Note which alerts are on, by their keys, and tell the endpoints of those that were not,
        and of those that have been over for a while. Returns the keys of the new ones."""

        def work(open_: Connection) -> list[str]:
            params = {
                "keys": list(alerts),
                "titles": [title for title, _, _ in alerts.values()],
                "since": [since for _, since, _ in alerts.values()],
                "now": now,
            }
            new = [row[0] for row in self._database.rows("tell_alerts", params, open_)]
            over = {"over_after_seconds": over_after.total_seconds(), "now": now}
            gone = self._database.rows("forget_alerts_told", over, open_)
            told = [(WebhookEvent.ALERT, alerts[key][2]) for key in new]
            for _, title, since in gone:
                told.append((WebhookEvent.ALERT_OVER, {"title": title, "since": since.isoformat()}))
            for event, about in told:
                data = {"event": str(event), "data": Jsonb(about), "now": now}
                self._database.rows("add_alert_messages", data, open_)
            return new

        return self._database.atomically(work)

    def record(self, id_: UUID, attempted: Attempted, *, now: datetime | None = None) -> None:
        """Note an attempt and what follows from it."""
        params = attempted._asdict() | {"message": id_, "now": now}
        self._database.rows("record_delivery", params)

    def prune(self, *, older_than: datetime, batch: int = BATCH, between: Between = go_on) -> int:
        """Remove messages from before the moment; returns how many."""
        return self._prune("prune_webhooks", older_than, batch, between)

    # --------------------------------------------------------------------------------------------

    def _redeliver(self, now: datetime | None, **selection: Any) -> int:
        params = {"messages": [], "webhook_id": None, "since": None, "now": now} | selection
        return len(self._database.rows("redeliver_webhooks", params))

    @staticmethod
    def _check_enabled(webhook: Webhook) -> None:
        if not webhook.enabled:
            reason = f": {webhook.disabled_reason}" if webhook.disabled_reason else ""
            raise Conflict(
                f"The webhook {webhook.id} is disabled{reason or '.'} Enable it first; nothing is "
                "sent to it until then."
            )


def host_of(url: str) -> str:
    """Whom a webhook calls; the rest of its URL may be a secret."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _filters(
    tasks: Sequence[str] | None, queues: Sequence[str] | None, tags: Sequence[str] | None
) -> dict[str, list[str] | None]:
    """The filters as columns; an empty one would hear of nothing, and means all."""
    filters = {"tasks": tasks, "queues": queues, "tags": tags}
    return {name: sorted(set(words)) if words else None for name, words in filters.items()}
