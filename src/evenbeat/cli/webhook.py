"""`evenbeat webhook`: endpoints that are notified when jobs end, and their deliveries."""

from typing import Annotated, Any

import typer
from rich.console import RenderableType

from evenbeat.cli.client import ApiError, Client, Document, path_segment
from evenbeat.cli.output import (
    both,
    cell,
    compact,
    confirmed,
    exact,
    facts,
    heading,
    relative,
    say,
    short_ids,
    status,
    table,
)
from evenbeat.cli.resolve import find_job, find_listed, is_id
from evenbeat.cli.session import (
    ApiSession,
    LimitOption,
    OffsetOption,
    YesOption,
    api_command,
    command_group,
)
from evenbeat.domain.webhooks import WebhookEvent
from evenbeat.humanize import any_of, count, milliseconds

webhook_cli = command_group(
    "Notify other systems when jobs end: endpoints, deliveries, sending again."
)

WebhookArgument = Annotated[
    str, typer.Argument(metavar="WEBHOOK", help="The id, or the beginning that the list shows.")
]
_MOST = 1000


@webhook_cli.command("list")
@api_command
def list_(
    session: ApiSession,
    job: Annotated[
        str | None, typer.Option(metavar="JOB", help="Only those for this job alone.")
    ] = None,
) -> None:
    """List the endpoints, newest first."""
    job_id = None if job is None else find_job(session.client, job)["id"]
    page = session.client.get("/api/v1/webhooks", job_id=job_id, limit=_MOST)
    webhooks = page["webhooks"]

    def view() -> RenderableType:
        lines = table("id", "state", "url…", "events…", "scope…", "description…")
        short = short_ids([one["id"] for one in webhooks])
        for one in webhooks:
            lines.add_row(
                short[one["id"]],
                status(_state(one, session.client)),
                cell(one["url"]),
                cell(", ".join(one["events"])),
                cell(_scope(one)),
                cell(one["description"]),
            )
        return lines

    empty = "There are none. Add one: evenbeat webhook add https://… --event job.failed"
    session.show_list(page, webhooks, view, empty)


def _state(webhook: Document, client: Client) -> str:
    if not webhook["enabled"]:
        return "disabled"
    if webhook["failing_since"]:
        return f"failing, {relative(webhook['failing_since'], client.now())}"
    return "enabled"


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


@webhook_cli.command()
@api_command
def add(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    endpoint: Annotated[
        str, typer.Argument(metavar="ENDPOINT", help="The URL that messages are posted to.")
    ],
    event: Annotated[
        list[str],
        typer.Option(metavar="EVENT", help=f"{any_of(WebhookEvent)}. May be given several times."),
    ],
    job: Annotated[
        str | None, typer.Option(metavar="JOB", help="Only of this job: id, beginning, or name.")
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(metavar="TASK", help="Only of this task's jobs.")
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option(metavar="QUEUE", help="Only of this queue's jobs.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Only of jobs with this tag.")
    ] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="What it is for.")] = None,
) -> None:
    """Add an endpoint, and print the secret that its messages are signed with. It is shown only
    this once."""
    options: dict[str, Any] = {
        "url": endpoint,
        "events": event,
        "job_id": None if job is None else find_job(session.client, job)["id"],
        "tasks": task,
        "queues": queue,
        "tags": tag,
        "description": description,
    }
    body = {name: value for name, value in options.items() if value is not None}
    added = session.client.post("/api/v1/webhooks", body)
    if not session.as_json:
        say(f"Added {added['id']}. Its secret, shown only this once:")
    session.show(added, added["secret"])


@webhook_cli.command()
@api_command
def show(session: ApiSession, webhook: WebhookArgument) -> None:
    """Show an endpoint, without its secret."""
    document = _find(session.client, webhook)
    session.show(document, lambda: _facts(document, session.client))


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
            "scope": _scope(webhook),
            "description": webhook["description"],
            "old secret until": both(webhook["old_secret_until"], now),
            "created": both(webhook["created_at"], now),
            "created by": webhook["created_by"],
        }
    )


@webhook_cli.command()
@api_command
def delete(session: ApiSession, webhook: WebhookArgument, yes: YesOption = False) -> int:
    """Delete an endpoint with its messages. What was not delivered yet never will be."""
    document = _find(session.client, webhook)
    webhook_id = document["id"]
    if not confirmed(f"Delete the webhook for {document['url']}?", yes):
        return 1
    session.client.delete(f"/api/v1/webhooks/{webhook_id}")
    session.show({"id": webhook_id, "deleted": True}, f"Deleted {webhook_id}.")
    return 0


@webhook_cli.command()
@api_command
def enable(session: ApiSession, webhook: WebhookArgument) -> None:
    """Send messages to an endpoint again."""
    _switch(session, webhook, enabled=True)


@webhook_cli.command()
@api_command
def disable(session: ApiSession, webhook: WebhookArgument) -> None:
    """Send nothing more to an endpoint; what happens meanwhile is not stored for it."""
    _switch(session, webhook, enabled=False)


def _switch(session: ApiSession, webhook: str, *, enabled: bool) -> None:
    path = f"/api/v1/webhooks/{_find(session.client, webhook)['id']}"
    changed = session.client.patch(path, {"enabled": enabled})
    session.show(changed, lambda: _facts(changed, session.client))


@webhook_cli.command()
@api_command
def rotate(session: ApiSession, webhook: WebhookArgument) -> None:
    """Give an endpoint a new secret, and print it. For 24 hours messages are signed with both."""
    rotated = session.client.post(f"/api/v1/webhooks/{_find(session.client, webhook)['id']}/rotate")
    if not session.as_json:
        say(f"The old secret stays valid until {exact(rotated['old_secret_until'])}. The new one:")
    session.show(rotated, rotated["secret"])


@webhook_cli.command()
@api_command
def test(session: ApiSession, webhook: WebhookArgument) -> None:
    """Send a test message. A worker delivers it; `webhook message` shows the result."""
    sent = session.client.post(f"/api/v1/webhooks/{_find(session.client, webhook)['id']}/test")
    session.show(sent, f"Sent {sent['id']}. See: evenbeat webhook message {sent['id']}")


@webhook_cli.command()
@api_command
def deliveries(
    session: ApiSession,
    webhook: WebhookArgument,
    state: Annotated[
        list[str] | None, typer.Option(metavar="STATE", help="pending, delivered or failed.")
    ] = None,
    limit: LimitOption = 20,
    offset: OffsetOption = 0,
) -> None:
    """List what was sent to an endpoint, newest first."""
    path = f"/api/v1/webhooks/{_find(session.client, webhook)['id']}/deliveries"
    page = session.client.get(path, state=state, limit=limit, offset=offset)
    messages = page["deliveries"]

    def view() -> RenderableType:
        now = session.client.now()
        lines = table("message", "event", "state", "attempts", "sent", "next attempt", "response…")
        for one in messages:
            lines.add_row(
                one["id"],
                one["event"],
                status(one["state"]),
                str(one["attempts"]),
                relative(one["created_at"], now),
                relative(one["next_attempt_at"], now),
                cell(one["error"] or one["status_code"]),
            )
        return lines

    session.show_list(page, messages, view, "There are none.")
    if messages and page["total"] > offset + len(messages):
        least = "At least " if page["total_is_estimate"] else ""
        say(f"{least}{count(page['total'], 'message')} in all; see --limit and --offset.")


@webhook_cli.command()
@api_command
def message(
    session: ApiSession,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Its id: msg_…")],
) -> None:
    """Show a message: its payload, and every attempt at delivering it."""
    client = session.client
    document = client.get(f"/api/v1/webhook-messages/{path_segment(message)}")
    now = client.now()
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
    if not document["deliveries"]:
        session.show(document, overview, heading("\nNo attempt yet"))
        return
    attempts = table("attempt", "at", "took", "response", "error…", "body…")
    for one in document["deliveries"]:
        attempts.add_row(
            str(one["attempt"]),
            exact(one["started_at"]),
            milliseconds(one["duration_ms"]),
            str(one["status_code"] or ""),
            cell(one["error"]),
            cell(one["response"]),
        )
    session.show(document, overview, attempts)


@webhook_cli.command()
@api_command
def redeliver(
    session: ApiSession,
    what: Annotated[
        str, typer.Argument(metavar="MESSAGE|WEBHOOK", help="A message: msg_…; or see --since.")
    ],
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="All that have failed at this webhook since 2030-01-31T09:00:00Z.",
        ),
    ] = None,
) -> None:
    """Send a message again, at once; or all that were given up since a moment."""
    client = session.client
    if since is not None:
        path = f"/api/v1/webhooks/{_find(client, what)['id']}/redeliver"
        result = client.post(path, {"since": since})
        session.show(result, f"{count(result['redelivered'], 'message')} sent again.")
        return
    if not what.startswith("msg_"):
        raise ApiError("Give the id of a message (msg_…), or a webhook with --since.", 2)
    sent = client.post(f"/api/v1/webhook-messages/{path_segment(what)}/redeliver")
    session.show(sent, f"Sent {sent['id']} again. See: evenbeat webhook message {sent['id']}")


def _find(client: Client, text: str) -> Document:
    """The one endpoint that an id or its beginning names."""
    if is_id(text):
        return client.get(f"/api/v1/webhooks/{path_segment(text)}")
    return find_listed(client.get("/api/v1/webhooks", limit=_MOST)["webhooks"], text, "webhook")
