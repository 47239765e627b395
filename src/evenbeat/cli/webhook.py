"""`evenbeat webhook`: endpoints that are notified when jobs end, and their deliveries."""

from typing import Annotated

from rich.console import RenderableType

from evenbeat.cli.client import ApiError, Client, Document, path_segment, stated
from evenbeat.cli.output import (
    both,
    compact,
    confirmed,
    exact,
    facts,
    heading,
    relative,
    say,
    short,
    status,
    table,
)
from evenbeat.cli.session import (
    ApiSession,
    CommandGroup,
    LimitOption,
    OffsetOption,
    YesOption,
    argument,
    find,
    find_listed,
    is_id,
    option,
)
from evenbeat.domain.webhooks import WebhookEvent, WebhookFormat
from evenbeat.humanize import any_of, count, milliseconds

webhook_cli = CommandGroup()

WebhookArgument = Annotated[
    str, argument("WEBHOOK", "The id, or the beginning that the list shows.")
]
_PATH = "/api/v1/webhooks"
_MESSAGES = "/api/v1/webhook-messages"
_MOST = 1000


@webhook_cli.api_command("list")
def list_(
    session: ApiSession,
    job: Annotated[str | None, option("JOB", "Only those for this job alone.")] = None,
) -> None:
    """List the endpoints, newest first."""
    job_id = None if job is None else find(session.client, "job", job)["id"]
    page = session.client.get(_PATH, job_id=job_id, limit=_MOST)
    session.show_list(
        page,
        "webhooks",
        {
            "id": short(page["webhooks"]),
            "state": lambda one: status(_state(one, session.client)),
            "url…": "url",
            "events…": lambda one: ", ".join(one["events"]),
            "scope…": _scope,
            "description…": "description",
        },
        "There are none. Add one: evenbeat webhook add https://… --event job.failed",
    )


def _state(webhook: Document, client: Client) -> str:
    if webhook["enabled"] and webhook["failing_since"]:
        return f"failing, {relative(webhook['failing_since'], client.now())}"
    return "enabled" if webhook["enabled"] else "disabled"


def _scope(webhook: Document) -> str:
    """Which jobs it is notified about."""
    if webhook["job_id"]:
        return f"job {webhook['job_id']}"
    parts = [
        f"{name} {', '.join(webhook[name])}"
        for name in ("tasks", "queues", "tags")
        if webhook[name]
    ]
    return "; ".join(parts) or "all jobs"


@webhook_cli.api_command()
def add(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    endpoint: Annotated[str, argument("ENDPOINT", "The URL that messages are posted to.")],
    event: Annotated[
        list[str], option("EVENT", f"{any_of(WebhookEvent)}. May be given several times.")
    ],
    job: Annotated[str | None, option("JOB", "Only of this job: id, beginning, or name.")] = None,
    task: Annotated[list[str] | None, option("TASK", "Only of this task's jobs.")] = None,
    queue: Annotated[list[str] | None, option("QUEUE", "Only of this queue's jobs.")] = None,
    tag: Annotated[list[str] | None, option("TAG", "Only of jobs with this tag.")] = None,
    description: Annotated[str | None, option("TEXT", "What it is for.")] = None,
    form: Annotated[
        str | None,
        option("FORMAT", f"{any_of(WebhookFormat)}; the others are texts for people.", "--format"),
    ] = None,
    quiet_hours: Annotated[
        str | None, option("HOURS", "Send nothing then, such as 22:00-07:00 Europe/Berlin.")
    ] = None,
) -> None:
    """Add an endpoint, and print the secret that its messages are signed with. It is shown only
    this once."""
    job_id = None if job is None else find(session.client, "job", job)["id"]
    options = {"job_id": job_id, "tasks": task, "queues": queue, "tags": tag}
    options |= {"url": endpoint, "events": event, "description": description}
    options |= {"format": form, "quiet_hours": quiet_hours}
    added = session.client.post(_PATH, stated(options))
    if not session.as_json:
        say(f"Added {added['id']}. Its secret, shown only this once:")
    session.show(added, added["secret"])


@webhook_cli.api_command()
def show(session: ApiSession, webhook: WebhookArgument) -> None:
    """Show an endpoint, without its secret."""
    document = _find(session.client, webhook)
    session.show(document, _facts(document, session.client))


def _facts(webhook: Document, client: Client) -> RenderableType:
    now = client.now()
    return facts(
        {
            "id": webhook["id"],
            "url": webhook["url"],
            "state": _state(webhook, client),
            "disabled because": webhook["disabled_reason"],
            "failing since": both(webhook["failing_since"], now),
            "events": ", ".join(webhook["events"]),
            "format": webhook["format"],
            "quiet hours": webhook["quiet_hours"],
            "scope": _scope(webhook),
            "description": webhook["description"],
            "old secret until": both(webhook["old_secret_until"], now),
            "created": both(webhook["created_at"], now),
            "created by": webhook["created_by"],
        }
    )


@webhook_cli.api_command()
def delete(session: ApiSession, webhook: WebhookArgument, yes: YesOption = False) -> int:
    """Delete an endpoint with its messages. What was not delivered yet never will be."""
    document = _find(session.client, webhook)
    webhook_id = document["id"]
    if not confirmed(f"Delete the webhook for {document['url']}?", yes):
        return 1
    session.client.delete(f"{_PATH}/{webhook_id}")
    session.show({"id": webhook_id, "deleted": True}, f"Deleted {webhook_id}.")
    return 0


@webhook_cli.api_command()
def enable(session: ApiSession, webhook: WebhookArgument) -> None:
    """Send messages to an endpoint again."""
    _switch(session, webhook, enabled=True)


@webhook_cli.api_command()
def disable(session: ApiSession, webhook: WebhookArgument) -> None:
    """Send nothing more to an endpoint; what happens meanwhile is not stored for it."""
    _switch(session, webhook, enabled=False)


def _switch(session: ApiSession, webhook: str, *, enabled: bool) -> None:
    changed = session.client.patch(_path(session.client, webhook), {"enabled": enabled})
    session.show(changed, _facts(changed, session.client))


@webhook_cli.api_command()
def rotate(session: ApiSession, webhook: WebhookArgument) -> None:
    """Give an endpoint a new secret, and print it. For 24 hours messages are signed with both."""
    rotated = session.client.post(f"{_path(session.client, webhook)}/rotate")
    if not session.as_json:
        say(f"The old secret stays valid until {exact(rotated['old_secret_until'])}. The new one:")
    session.show(rotated, rotated["secret"])


@webhook_cli.api_command()
def test(session: ApiSession, webhook: WebhookArgument) -> None:
    """Send a test message. A worker delivers it; `webhook message` shows the result."""
    sent = session.client.post(f"{_path(session.client, webhook)}/test")
    session.show(sent, f"Sent {sent['id']}. See: evenbeat webhook message {sent['id']}")


@webhook_cli.api_command()
def deliveries(
    session: ApiSession,
    webhook: WebhookArgument,
    state: Annotated[list[str] | None, option("STATE", "pending, delivered or failed.")] = None,
    limit: LimitOption = 20,
    offset: OffsetOption = 0,
) -> None:
    """List what was sent to an endpoint, newest first."""
    path = f"{_path(session.client, webhook)}/deliveries"
    page = session.client.get(path, state=state, limit=limit, offset=offset)
    now = session.client.now()
    session.show_list(
        page,
        "deliveries",
        {
            "message": "id",
            "event": "event",
            "state": lambda one: status(one["state"]),
            "attempts": "attempts",
            "sent": lambda one: relative(one["created_at"], now),
            "next attempt": lambda one: relative(one["next_attempt_at"], now),
            "response…": lambda one: one["error"] or str(one["status_code"] or ""),
        },
        "There are none.",
        paged=True,
    )


@webhook_cli.api_command()
def message(
    session: ApiSession, message: Annotated[str, argument("MESSAGE", "Its id: msg_…")]
) -> None:
    """Show a message: its payload, and every attempt at delivering it."""
    document = session.client.get(f"{_MESSAGES}/{path_segment(message)}")
    now = session.client.now()
    overview = facts(
        {
            "id": document["id"],
            "event": document["event"],
            "state": document["state"],
            "created": both(document["created_at"], now),
            "delivered": both(document["delivered_at"], now),
            "next attempt": both(document["next_attempt_at"], now),
            "webhook": document["webhook_id"],
            "job": document["job_id"],
            "payload": compact(document["payload"]),
        }
    )
    attempts: RenderableType = heading("\nNo attempt yet")
    if document["deliveries"]:
        attempts = table(
            document["deliveries"],
            {
                "attempt": "attempt",
                "at": lambda one: exact(one["started_at"]),
                "took": lambda one: milliseconds(one["duration_ms"]),
                "response": lambda one: str(one["status_code"] or ""),
                "error…": "error",
                "body…": "response",
            },
        )
    session.show(document, overview, attempts)


@webhook_cli.api_command()
def redeliver(
    session: ApiSession,
    what: Annotated[str, argument("MESSAGE|WEBHOOK", "A message: msg_…; or see --since.")],
    since: Annotated[
        str | None,
        option("TIME", "All that have failed at this webhook since 2030-01-31T09:00:00Z."),
    ] = None,
) -> None:
    """Send a message again, at once; or all that were given up since a moment."""
    client = session.client
    if since is not None:
        result = client.post(f"{_path(client, what)}/redeliver", {"since": since})
        session.show(result, f"{count(result['redelivered'], 'message')} sent again.")
        return
    if not what.startswith("msg_"):
        raise ApiError("Give the id of a message (msg_…), or a webhook with --since.", 2)
    sent = client.post(f"{_MESSAGES}/{path_segment(what)}/redeliver")
    session.show(sent, f"Sent {sent['id']} again. See: evenbeat webhook message {sent['id']}")


def _find(client: Client, text: str) -> Document:
    """The one endpoint that an id or its beginning names."""
    if is_id(text):
        return client.get(f"{_PATH}/{path_segment(text)}")
    return find_listed(client.get(_PATH, limit=_MOST)["webhooks"], text, "webhook")


def _path(client: Client, text: str) -> str:
    return f"{_PATH}/{_find(client, text)['id']}"
