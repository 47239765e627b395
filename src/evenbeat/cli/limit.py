"""`evenbeat limit`: limits that jobs with one concurrency key share."""

from typing import Annotated

import typer
from rich.console import RenderableType

from evenbeat.cli.client import Client, Document, path_segment
from evenbeat.cli.output import cell, relative, say, table
from evenbeat.cli.session import ApiSession, api_command

limit_cli = typer.Typer(
    help="Limits that jobs with one key share.", no_args_is_help=True, rich_markup_mode="markdown"
)

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="The concurrency key.")]


@limit_cli.command("list")
@api_command
def list_limits(
    session: ApiSession,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="How many at most.")
    ] = 50,
    offset: Annotated[int, typer.Option(metavar="N", min=0, help="How many to leave out.")] = 0,
) -> None:
    """List concurrency keys with their limits, and how many jobs run and wait."""
    found = session.client.get("/api/v1/limits", limit=limit, offset=offset)
    if found["limits"] or session.as_json:
        session.show(found, lambda: _table(found["limits"], session.client))
    if not found["limits"]:
        say("No job has a concurrency key. See evenbeat job add --help.")
    elif found["total"] > offset + len(found["limits"]):
        say(f"{found['total']:,} keys in all; see --offset.")


@limit_cli.command("set")
@api_command
def set_limit(
    session: ApiSession,
    key: KeyArgument,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="How many may run at once.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="How often one may start, such as 10/s.")
    ] = None,
) -> None:
    """Set what counts for a key from now on, whatever its jobs ask for.

    What is left out is not limited: `--rate 10/s` alone lets any number run at once.
    """
    given = {"concurrency_limit": concurrency, "rate_limit": rate}
    body = {name: value for name, value in given.items() if value is not None}
    told = session.client.put(f"/api/v1/limits/{path_segment(key)}", body)
    session.show(told, _told(told))


@limit_cli.command("reset")
@api_command
def reset_limit(session: ApiSession, key: KeyArgument) -> None:
    """Take back what was set for a key: what its jobs ask for counts again."""
    told = session.client.delete(f"/api/v1/limits/{path_segment(key)}")
    session.show(told, _told(told))


def _told(one: Document) -> str:
    running, rate = one["concurrency_limit"], one["rate_limit"]
    rules = [f"{running:,} at once"] if running is not None else []
    rules += [f"{rate} starts"] if rate is not None else []
    return (
        f"{one['key']}: {', '.join(rules)}; {one['running']:,} running, {one['waiting']:,} waiting."
    )


def _table(limits: list[Document], client: Client) -> RenderableType:
    numbers = ("at once", "running", "waiting")
    made = table(
        "key…", "at once", "rate", "running", "waiting", "next start", "set", right=numbers
    )
    for one in limits:
        most, waiting = one["concurrency_limit"], one["waiting"]
        blocked = one["rate_limit"] is not None and waiting > 0
        made.add_row(
            cell(one["key"]),
            "" if most is None else f"{most:,}",
            cell(one["rate_limit"] or ""),
            f"{one['running']:,}",
            f"{waiting:,}+" if waiting == 1000 else f"{waiting:,}",
            relative(one["next_start_at"], client.now()) if blocked else "",
            "by hand" if one["is_set"] else "",
        )
    return made
