"""`evenbeat webhook`: who is told of what happens to jobs, and whether it arrived."""

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
from evenbeat.cli.resolve import find_job, is_id
from evenbeat.cli.session import ApiSession, api_command
from evenbeat.humanize import count, milliseconds

webhook_cli = typer.Typer(
    help="Tell others when jobs end: endpoints, deliveries, sending again.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

WebhookArgument = Annotated[
    str, typer.Argument(metavar="WEBHOOK", help="The id, or the beginning that the list shows.")
]
_MOST = 1000
_EVENTS = "job.completed, job.retrying, job.failed, job.cancelled or balance.low"


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
    found = session.client.get("/api/v1/webhooks", job_id=job_id, limit=_MOST)
    if found["webhooks"] or session.as_json:
        session.show(found, lambda: _table(found["webhooks"], session.client))
    if not found["webhooks"]:
        say("There are none. Add one: evenbeat webhook add https://… --event job.failed")


def _table(webhooks: list[Document], client: Client) -> RenderableType:
    made = table("id", "state", "url…", "events…", "of…", "description…")
    short = short_ids([one["id"] for one in webhooks])
    for one in webhooks:
        made.add_row(
            short[one["id"]],
            status(_state(one, client)),
            cell(one["url"]),
            cell(", ".join(one["events"])),
            cell(_reach(one)),
            cell(one["description"]),
        )
    return made


def _state(webhook: Document, client: Client) -> str:
    if not webhook["enabled"]:
        return "disabled"
    if webhook["failing_since"]:
        return f"failing, {relative(webhook['failing_since'], client.now())}"
    return "enabled"


def _reach(webhook: Document) -> str:
    """Which jobs it hears of."""
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
        typer.Option(metavar="EVENT", help=f"What it hears of: {_EVENTS}. May be repeated."),
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
    asked: dict[str, Any] = {
        "url": endpoint,
        "events": event,
        "job_id": None if job is None else find_job(session.client, job)["id"],
        "tasks": task,
        "queues": queue,
        "tags": tag,
        "description": description,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    made = session.client.post("/api/v1/webhooks", given)
    if not session.as_json:
        say(f"Added {made['id']}. Its secret, shown only this once:")
    session.show(made, made["secret"])


@webhook_cli.command()
@api_command
def show(session: ApiSession, webhook: WebhookArgument) -> None:
    """Show an endpoint, without its secret."""
    found = _find(session.client, webhook)
    session.show(found, lambda: _facts(found, session.client))


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
            "hears of": _reach(webhook),
            "description": webhook["description"],
            "old secret until": both(webhook["old_secret_until"], now),
            "created": both(webhook["created_at"], now),
            "created by": webhook["created_by"],
        }
    )


@webhook_cli.command()
@api_command
def delete(
    session: ApiSession,
    webhook: WebhookArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Delete an endpoint with its messages. What was not delivered yet never will be."""
    found = _find(session.client, webhook)
    if not confirmed(f"Delete the webhook for {found['url']}?", yes):
        return 1
    session.client.delete(f"/api/v1/webhooks/{found['id']}")
    session.show({"id": found["id"], "deleted": True}, f"Deleted {found['id']}.")
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
    found = _find(session.client, webhook)
    changed = session.client.patch(f"/api/v1/webhooks/{found['id']}", {"enabled": enabled})
    session.show(changed, lambda: _facts(changed, session.client))


@webhook_cli.command()
@api_command
def rotate(session: ApiSession, webhook: WebhookArgument) -> None:
    """Give an endpoint a new secret, and print it. For 24 hours messages are signed with both."""
    rotated = session.client.post(f"/api/v1/webhooks/{_find(session.client, webhook)['id']}/rotate")
    if not session.as_json:
        say(f"The old secret signs along until {exact(rotated['old_secret_until'])}. The new one:")
    session.show(rotated, rotated["secret"])


@webhook_cli.command()
@api_command
def test(session: ApiSession, webhook: WebhookArgument) -> None:
    """Send a test message. A worker delivers it; `webhook message` shows what came of it."""
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
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000)] = 20,
    offset: Annotated[int, typer.Option(metavar="N", min=0, help="Leave out the first N.")] = 0,
) -> None:
    """List what was sent to an endpoint, newest first."""
    path = f"/api/v1/webhooks/{_find(session.client, webhook)['id']}/deliveries"
    found = session.client.get(path, state=state, limit=limit, offset=offset)
    if found["deliveries"] or session.as_json:
        session.show(found, lambda: _deliveries(found["deliveries"], session.client))
    if not found["deliveries"]:
        say("There are none.")
    elif found["total"] > offset + len(found["deliveries"]):
        least = "At least " if found["total_is_estimate"] else ""
        say(f"{least}{count(found['total'], 'message')} in all; see --limit and --offset.")


def _deliveries(messages: list[Document], client: Client) -> RenderableType:
    made = table("message", "event", "state", "tries", "sent", "next try", "last answer…")
    now = client.now()
    for one in messages:
        made.add_row(
            one["id"],
            one["event"],
            status(one["state"]),
            str(one["attempts"]),
            relative(one["created_at"], now),
            relative(one["next_attempt_at"], now),
            cell(one["error"] or one["status_code"]),
        )
    return made


@webhook_cli.command()
@api_command
def message(
    session: ApiSession,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Its id: msg_…")],
) -> None:
    """Show a message: what it says, and every attempt at delivering it."""
    found = session.client.get(f"/api/v1/webhook-messages/{path_segment(message)}")
    session.show(found, lambda: _message_facts(found, session.client), lambda: _attempts(found))


def _message_facts(message: Document, client: Client) -> RenderableType:
    now = client.now()
    return facts(
        {
            "id": message["id"],
            "event": message["event"],
            "state": message["state"],
            "created": both(message["created_at"], now),
            "delivered": both(message["delivered_at"], now),
            "next try": both(message["next_attempt_at"], now),
            "webhook": message["webhook_id"],
            "job": message["job_id"],
            "payload": compact(message["payload"]),
        }
    )


def _attempts(message: Document) -> RenderableType:
    if not message["deliveries"]:
        return heading("\nNo attempt yet")
    made = table("try", "at", "took", "answer", "error…", "body…")
    for one in message["deliveries"]:
        made.add_row(
            str(one["attempt"]),
            exact(one["started_at"]),
            milliseconds(one["duration_ms"]),
            str(one["status_code"] or ""),
            cell(one["error"]),
            cell(one["response"]),
        )
    return made


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
        done = client.post(path, {"since": since})
        session.show(done, f"{count(done['redelivered'], 'message')} sent again.")
        return
    if not what.startswith("msg_"):
        raise ApiError("Give the id of a message (msg_…), or a webhook with --since.", 2)
    sent = client.post(f"/api/v1/webhook-messages/{path_segment(what)}/redeliver")
    session.show(sent, f"Sent {sent['id']} again. See: evenbeat webhook message {sent['id']}")


def _find(client: Client, text: str) -> Document:
    """The one endpoint that an id or its beginning means; raises ApiError otherwise."""
    if is_id(text):
        return client.get(f"/api/v1/webhooks/{path_segment(text)}")
    known = client.get("/api/v1/webhooks", limit=_MOST)["webhooks"]
    meant = [one for one in known if text and one["id"].startswith(text.lower())]
    if len(meant) == 1:
        found: Document = meant[0]
        return found
    which = "more than one webhook" if meant else "no webhook"
    raise ApiError(f"{text!r} means {which}; see evenbeat webhook list.", 2 if meant else 4)
