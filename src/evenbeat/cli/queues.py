"""`evenbeat queue|limit|task`: what jobs wait in, what holds them back, what they run."""

from typing import Annotated

import typer
from rich.console import RenderableType

from evenbeat.cli.client import Client, Document, path_segment
from evenbeat.cli.output import cell, relative, say, table
from evenbeat.cli.session import (
    ApiSession,
    LimitOption,
    OffsetOption,
    api_command,
    command_group,
)

queue_cli = command_group("List, pause and resume queues.")
limit_cli = command_group("Limits shared by jobs with the same key.")
task_cli = command_group("The tasks that workers have.")

QueueArgument = Annotated[str, typer.Argument(metavar="NAME", help="The queue.")]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="The concurrency key.")]


# -- queues --------------------------------------------------------------------------------------


@queue_cli.command("list")
@api_command
def list_queues(session: ApiSession) -> None:
    """List queues with due or running jobs, and those that are paused."""
    document = session.client.get("/api/v1/queues")
    queues = document["queues"]
    session.show_list(
        document,
        queues,
        lambda: queue_table(queues, session.client),
        "No queue has anything due or running, and none is paused.",
    )


def queue_table(queues: list[Document], client: Client) -> RenderableType:
    """One line for each queue."""
    lines = table("queue…", "due", "running", "oldest due", "paused", right=("due", "running"))
    for queue in queues:
        lines.add_row(
            cell(queue["name"]),
            f"{queue['due']:,}",
            f"{queue['running']:,}",
            relative(queue["oldest_due"], client.now()),
            relative(queue["paused_at"], client.now()),
        )
    return lines


@queue_cli.command("pause")
@api_command
def pause_queue(session: ApiSession, name: QueueArgument) -> None:
    """Start nothing more from a queue. What runs goes on, and what is added waits."""
    queue = session.client.post(f"/api/v1/queues/{path_segment(name)}/pause")
    session.show(queue, f"Paused queue {name}; {queue['due']:,} due jobs wait in it.")


@queue_cli.command("resume")
@api_command
def resume_queue(session: ApiSession, name: QueueArgument) -> None:
    """Start jobs from a queue again."""
    queue = session.client.post(f"/api/v1/queues/{path_segment(name)}/resume")
    session.show(queue, f"Resumed queue {name}; {queue['due']:,} jobs are due in it.")


# -- limits --------------------------------------------------------------------------------------


@limit_cli.command("list")
@api_command
def list_limits(session: ApiSession, limit: LimitOption = 50, offset: OffsetOption = 0) -> None:
    """List concurrency keys with their limits, and how many jobs run and wait."""
    client = session.client
    page = client.get("/api/v1/limits", limit=limit, offset=offset)
    limits = page["limits"]

    def view() -> RenderableType:
        numbers = ("at once", "running", "waiting")
        lines = table(
            "key…", "at once", "rate", "running", "waiting", "next start", "set", right=numbers
        )
        for one in limits:
            most, waiting = one["concurrency_limit"], one["waiting"]
            is_held_back = one["rate_limit"] is not None and waiting > 0
            lines.add_row(
                cell(one["key"]),
                "" if most is None else f"{most:,}",
                cell(one["rate_limit"] or ""),
                f"{one['running']:,}",
                f"{waiting:,}+" if waiting == 1000 else f"{waiting:,}",
                relative(one["next_start_at"], client.now()) if is_held_back else "",
                "by hand" if one["is_set"] else "",
            )
        return lines

    empty = "No job has a concurrency key. See evenbeat job add --help."
    session.show_list(page, limits, view, empty)
    if limits and page["total"] > offset + len(limits):
        say(f"{page['total']:,} keys in all; see --offset.")


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
    options = {"concurrency_limit": concurrency, "rate_limit": rate}
    body = {name: value for name, value in options.items() if value is not None}
    limit = session.client.put(f"/api/v1/limits/{path_segment(key)}", body)
    session.show(limit, _limit_text(limit))


@limit_cli.command("reset")
@api_command
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


# -- tasks ---------------------------------------------------------------------------------------


@task_cli.callback()
def _task() -> None:
    """The tasks that workers have."""


@task_cli.command("list")
@api_command
def list_tasks(session: ApiSession) -> None:
    """List the tasks that workers have, with their arguments."""
    document = session.client.get("/api/v1/tasks")
    tasks = document["tasks"]

    def view() -> RenderableType:
        lines = table(
            "task", "arguments…", "queue…", "runs in", "workers", "about…", right=("workers",)
        )
        for task in tasks:
            required = task["schema"].get("required") or []
            names = task["schema"].get("properties") or ()
            optional = [f"[{name}]" for name in names if name not in required]
            lines.add_row(
                cell(task["name"]),
                cell(" ".join([*required, *optional])),
                cell(task["queue"]),
                task["runner"],
                str(task["workers"]),
                cell(task["doc"]),
            )
        return lines

    empty = "No task is known yet: workers report theirs when they start."
    session.show_list(document, tasks, view, empty)
