"""`evenbeat queue|limit|task|schedule`: what jobs wait in, what holds them back, what they run, and
when."""

from contextlib import suppress
from typing import Annotated

from rich.console import Group

from evenbeat.cli.client import Document, path_segment, stated
from evenbeat.cli.output import both, exact, heading, moment, relative
from evenbeat.cli.session import (
    ApiSession,
    CommandGroup,
    LimitOption,
    OffsetOption,
    api_command,
    argument,
    option,
)
from evenbeat.cli.views import queue_columns
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.moments import zone_named
from evenbeat.errors import InvalidInput

queue_cli = CommandGroup()
limit_cli = CommandGroup()
task_cli = CommandGroup()
schedule_cli = CommandGroup()

QueueArgument = Annotated[str, argument("NAME", "The queue.")]
KeyArgument = Annotated[str, argument("KEY", "The concurrency key.")]


@queue_cli.api_command("list")
def list_queues(session: ApiSession) -> None:
    """List queues with due or running jobs, and those that are paused."""
    session.show_list(
        session.client.get("/api/v1/queues"),
        "queues",
        queue_columns(session.client.now()),
        "No queue has anything due or running, and none is paused.",
    )


@queue_cli.api_command("pause")
def pause_queue(session: ApiSession, name: QueueArgument) -> None:
    """Start nothing more from a queue. What runs goes on, and what is added waits."""
    queue = session.client.post(f"/api/v1/queues/{path_segment(name)}/pause")
    session.show(queue, f"Paused queue {name}; {queue['due']:,} due jobs wait in it.")


@queue_cli.api_command("resume")
def resume_queue(session: ApiSession, name: QueueArgument) -> None:
    """Start jobs from a queue again."""
    queue = session.client.post(f"/api/v1/queues/{path_segment(name)}/resume")
    session.show(queue, f"Resumed queue {name}; {queue['due']:,} jobs are due in it.")


def pause(
    session: ApiSession,
    reason: Annotated[str, option("TEXT", "Why: shown to everybody meanwhile.")] = "",
    until: Annotated[
        str | None, option("TIME", "End by itself at 2030-01-31T06:00:00Z, or after 2h.")
    ] = None,
) -> None:
    """Start nothing more, on any worker, until `evenbeat resume`. What runs goes on. Neither jobs
    nor queues are touched: each keeps its rhythm, and what was paused before stays paused after."""
    if until is not None:
        with suppress(InvalidInput):
            until = (session.client.now() + parse_duration(until)).isoformat()
    body = {"reason": reason, "until": until}
    paused = session.client.put("/api/v1/pause", body)
    end = f"until {both(paused['ends_at'], session.client.now())}" if until else "until you resume"
    session.show(paused, f"Nothing more starts, {end}. Running jobs go on. Resume: evenbeat resume")


def resume(session: ApiSession) -> None:
    """Start jobs again after `evenbeat pause`: exactly those that could run before, each in its
    rhythm."""
    was = session.client.get("/api/v1/pause") or {}
    session.client.delete("/api/v1/pause")
    words = "Workers start jobs again, as before the pause." if was else "Nothing was paused."
    session.show(was, words)


pause_command, resume_command = api_command(pause), api_command(resume)


@limit_cli.api_command("list")
def list_limits(session: ApiSession, limit: LimitOption = 50, offset: OffsetOption = 0) -> None:
    """List concurrency keys with their limits, and how many jobs run and wait."""

    def next_start(one: Document) -> str:
        is_held_back = one["rate_limit"] is not None and one["waiting"] > 0
        return relative(one["next_start_at"], session.client.now()) if is_held_back else ""

    session.show_list(
        session.client.get("/api/v1/limits", limit=limit, offset=offset),
        "limits",
        {
            "key…": "key",
            "at once": "concurrency_limit",
            "rate": "rate_limit",
            "running": "running",
            "waiting": lambda one: "1,000+" if one["waiting"] == 1000 else one["waiting"],
            "next start": next_start,
            "set": lambda one: "by hand" if one["is_set"] else "",
        },
        "No job has a concurrency key. See evenbeat job add --help.",
        paged=True,
    )


@limit_cli.api_command("set")
def set_limit(
    session: ApiSession,
    key: KeyArgument,
    concurrency: Annotated[int | None, option("N", "How many may run at once.")] = None,
    rate: Annotated[str | None, option("RATE", "How often one may start, such as 10/s.")] = None,
) -> None:
    """Set what counts for a key from now on, whatever its jobs ask for.

    What is left out is not limited: `--rate 10/s` alone lets any number run at once.
    """
    body = stated({"concurrency_limit": concurrency, "rate_limit": rate})
    limit = session.client.put(f"/api/v1/limits/{path_segment(key)}", body)
    session.show(limit, _limit_text(limit))


@limit_cli.api_command("reset")
def reset_limit(session: ApiSession, key: KeyArgument) -> None:
    """Take back what was set for a key: what its jobs ask for counts again."""
    limit = session.client.delete(f"/api/v1/limits/{path_segment(key)}")
    session.show(limit, _limit_text(limit))


def _limit_text(limit: Document) -> str:
    most, rate = limit["concurrency_limit"], limit["rate_limit"]
    rules = [] if most is None else [f"{most:,} at once"]
    rules += [] if rate is None else [f"{rate} starts"]
    standing = f"{limit['running']:,} running, {limit['waiting']:,} waiting"
    return f"{limit['key']}: {', '.join(rules)}; {standing}."


@task_cli.api_command("list")
def list_tasks(session: ApiSession) -> None:
    """List the tasks that workers have, with their arguments."""

    def arguments(task: Document) -> str:
        required = task["schema"].get("required") or []
        names = task["schema"].get("properties") or ()
        return " ".join([*required, *(f"[{name}]" for name in names if name not in required)])

    session.show_list(
        session.client.get("/api/v1/tasks"),
        "tasks",
        {
            "task": "name",
            "arguments…": arguments,
            "queue…": "queue",
            "runs in": "runner",
            "workers": "workers",
            "about…": "doc",
        },
        "No task is known yet: workers report theirs when they start.",
    )


@schedule_cli.api_command()
def preview(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    schedule: Annotated[
        str, argument("SCHEDULE", "'0 9 * * mon-fri', '@daily', '@every 90m', or just '90m'.")
    ],
    timezone: Annotated[str | None, option("ZONE", "What cron is read in. Default: UTC.")] = None,
    count: Annotated[int, option("N", "How many plans.", min=1, max=100)] = 5,
    window: Annotated[
        str | None, option("HOURS", "When runs may start: 'Mon-Fri 22:00-06:00'.")
    ] = None,
    after: Annotated[str | None, option("TIME", "Start at 2030-01-31T09:00:00Z, not now.")] = None,
) -> None:
    """Explain a schedule in words, and show its next plans in its own time zone."""
    # A single word that starts with a digit can only be a duration.
    is_duration = schedule.strip()[:1].isdigit() and " " not in schedule.strip()
    body = {"schedule": f"@every {schedule}" if is_duration else schedule, "count": count}
    body |= {"timezone": timezone, "window": window, "after": after}
    result = session.client.post("/api/v1/schedules/preview", stated(body))
    now, lines = session.client.now(), []
    for plan in result["plans"]:
        when, shown = moment(plan), exact(plan)
        if timezone is not None and when is not None:
            shown = f"{when.astimezone(zone_named(timezone)):%a %Y-%m-%d %H:%M:%S %Z}"
        lines.append(f"  {shown}  ({relative(plan, now)})")
    if placed := result.get("placement"):
        lines.append(f"A balanced job would start {both(placed['at'], now)}.")
    session.show(result, Group(heading(result["explanation"]), *lines))
