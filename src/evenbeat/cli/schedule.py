"""`evenbeat schedule`: try a schedule out before a job has it."""

from typing import Annotated

import typer
from rich.console import Group, RenderableType

from evenbeat.cli.client import Document
from evenbeat.cli.output import both, exact, heading, moment, relative
from evenbeat.cli.session import ApiSession, api_command, command_group
from evenbeat.domain.moments import zone_named

schedule_cli = command_group("Preview a schedule.")


@schedule_cli.callback()
def _schedule() -> None:
    """Try a schedule out."""


@schedule_cli.command()
@api_command
def preview(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    schedule: Annotated[
        str,
        typer.Argument(
            metavar="SCHEDULE", help="'0 9 * * mon-fri', '@daily', '@every 90m', or just '90m'."
        ),
    ],
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="What cron is read in. Default: UTC.")
    ] = None,
    count: Annotated[int, typer.Option(metavar="N", min=1, max=100, help="How many plans.")] = 5,
    window: Annotated[
        str | None,
        typer.Option(metavar="HOURS", help="When runs may start: 'Mon-Fri 22:00-06:00'."),
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start at 2030-01-31T09:00:00Z, not now.")
    ] = None,
) -> None:
    """Explain a schedule in words, and show its next plans."""
    # A single word that starts with a digit can only be a duration.
    is_duration = schedule.strip()[:1].isdigit() and " " not in schedule.strip()
    body: Document = {"schedule": f"@every {schedule}" if is_duration else schedule, "count": count}
    options = {"timezone": timezone, "window": window, "after": after}
    body |= {name: value for name, value in options.items() if value is not None}
    result = session.client.post("/api/v1/schedules/preview", body)
    session.show(result, lambda: preview_view(result, timezone, session))


def preview_view(result: Document, timezone: str | None, session: ApiSession) -> RenderableType:
    """The schedule in words, and its plans in its own time zone; without one, in UTC."""
    now, lines = session.client.now(), []
    for plan in result["plans"]:
        when, shown = moment(plan), exact(plan)
        if timezone is not None and when is not None:
            shown = f"{when.astimezone(zone_named(timezone)):%a %Y-%m-%d %H:%M:%S %Z}"
        lines.append(f"  {shown}  ({relative(plan, now)})")
    if placed := result.get("placement"):
        lines.append(f"A balanced job would start {both(placed['at'], now)}.")
    return Group(heading(result["explanation"]), *lines)
