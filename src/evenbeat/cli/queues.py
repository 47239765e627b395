"""`evenbeat worker|queue|task`: what runs jobs.

`evenbeat worker` without a command runs a worker; `evenbeat worker list` asks about them.
"""

import inspect
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import RenderableType

from evenbeat.cli import worker as running
from evenbeat.cli.client import ApiError, Client, Document, path_segment
from evenbeat.cli.output import cell, is_wide, relative, say, short_ids, status, table
from evenbeat.cli.resolve import is_id
from evenbeat.cli.session import ApiSession, api_command

worker_cli = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode="markdown",
    subcommand_metavar="[COMMAND] [ARGS]...",
)
queue_cli = typer.Typer(
    help="List, pause and resume queues.", no_args_is_help=True, rich_markup_mode="markdown"
)
task_cli = typer.Typer(
    help="The tasks that workers have.", no_args_is_help=True, rich_markup_mode="markdown"
)


# -- workers -------------------------------------------------------------------------------------


def _run_worker(context: typer.Context, **options: Any) -> int:
    if context.invoked_subcommand is not None:
        return 0
    return running.worker(**options)


def _as_callback() -> Any:
    """`worker` with the same options, which is not run for `worker list`."""
    own = inspect.signature(running.worker).parameters.values()
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    options = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    _run_worker.__signature__ = inspect.Signature([context, *options])  # type: ignore[attr-defined]
    _run_worker.__doc__ = running.worker.__doc__
    return _run_worker


worker_cli.callback(invoke_without_command=True)(_as_callback())


@worker_cli.command("list")
@api_command
def list_workers(session: ApiSession) -> None:
    """List the workers that have given a sign of life in the last hour."""
    found = session.client.get("/api/v1/workers")
    if found["workers"] or session.as_json:
        session.show(found, lambda: worker_table(found["workers"], session.client))
    if not found["workers"]:
        say("No worker is known. Start one: evenbeat worker --app yourmodule:app")


def worker_table(workers: list[Document], client: Client) -> RenderableType:
    """One line for each worker."""
    more = ("tasks…", "version") if is_wide() else ()
    made = table(
        "id", "status", "host…", "pid", "running", "queues…", "seen", *more, right=("pid",)
    )
    short = short_ids([one["id"] for one in workers])
    for one in workers:
        extra = [cell(_some(one["tasks"])), cell(one["version"])]
        made.add_row(
            short[one["id"]],
            status(_state(one)),
            cell(one["host"].split("/")[0]),
            str(one["pid"]),
            f"{one['running']}/{one['concurrency']}",
            cell(_some(one["queues"])),
            relative(one["heartbeat_at"], client.now()),
            *(extra if more else ()),
        )
    return made


def _state(worker: Document) -> str:
    if not worker["alive"]:
        return "silent"
    return "draining" if worker["status"] == "draining" else "alive"


def _some(names: list[str] | None) -> str:
    return "all" if names is None else ",".join(names)


@worker_cli.command()
@api_command
def drain(
    session: ApiSession,
    worker: Annotated[str, typer.Argument(metavar="ID", help="The id, or its beginning.")],
) -> None:
    """Ask a worker to take no more jobs. It finishes what it has."""
    told = session.client.post(f"/api/v1/workers/{_worker_id(session.client, worker)}/drain")
    session.show(told, lambda: _drained(told))


def _drained(worker: Document) -> str:
    left = f"{worker['running']} running" if worker["running"] else "none running"
    host = worker["host"].split("/")[0]
    return f"{host} (pid {worker['pid']}) takes no more jobs; {left}."


def _worker_id(client: Client, text: str) -> UUID:
    if is_id(text):
        return UUID(text)
    known = [one["id"] for one in client.get("/api/v1/workers")["workers"]]
    meant = [one for one in known if one.startswith(text.lower())] if text else []
    if len(meant) != 1:
        which = "more than one worker" if meant else "no worker"
        raise ApiError(f"{text!r} means {which}; see evenbeat worker list.", 2 if meant else 4)
    return UUID(meant[0])


# -- queues --------------------------------------------------------------------------------------

QueueArgument = Annotated[str, typer.Argument(metavar="NAME", help="The queue.")]


@queue_cli.command("list")
@api_command
def list_queues(session: ApiSession) -> None:
    """List queues with due or running jobs, and those that are paused."""
    found = session.client.get("/api/v1/queues")
    if found["queues"] or session.as_json:
        session.show(found, lambda: queue_table(found["queues"], session.client))
    if not found["queues"]:
        say("No queue has anything due or running, and none is paused.")


def queue_table(queues: list[Document], client: Client) -> RenderableType:
    """One line for each queue."""
    made = table("queue…", "due", "running", "oldest due", "paused", right=("due", "running"))
    for one in queues:
        made.add_row(
            cell(one["name"]),
            f"{one['due']:,}",
            f"{one['running']:,}",
            relative(one["oldest_due"], client.now()),
            relative(one["paused_at"], client.now()),
        )
    return made


@queue_cli.command("pause")
@api_command
def pause_queue(session: ApiSession, name: QueueArgument) -> None:
    """Start nothing more from a queue. What runs goes on, and what is added waits."""
    told = session.client.post(f"/api/v1/queues/{path_segment(name)}/pause")
    session.show(told, f"The queue {name} is paused; {told['due']:,} due jobs wait in it.")


@queue_cli.command("resume")
@api_command
def resume_queue(session: ApiSession, name: QueueArgument) -> None:
    """Start jobs from a queue again."""
    told = session.client.post(f"/api/v1/queues/{path_segment(name)}/resume")
    session.show(told, f"The queue {name} goes on; {told['due']:,} jobs are due in it.")


# -- tasks ---------------------------------------------------------------------------------------


@task_cli.callback()
def _task() -> None:
    """The tasks that workers have."""


@task_cli.command("list")
@api_command
def list_tasks(session: ApiSession) -> None:
    """List the tasks that workers have, with their arguments."""
    found = session.client.get("/api/v1/tasks")
    if found["tasks"] or session.as_json:
        session.show(found, lambda: _task_table(found["tasks"]))
    if not found["tasks"]:
        say("No task is known yet: workers tell which ones they have when they start.")


def _task_table(tasks: list[Document]) -> RenderableType:
    made = table("task", "arguments…", "queue…", "runs in", "workers", "about…", right=("workers",))
    for one in tasks:
        made.add_row(
            cell(one["name"]),
            cell(" ".join(_arguments(one["schema"]))),
            cell(one["queue"]),
            one["runner"],
            str(one["workers"]),
            cell(one["doc"]),
        )
    return made


def _arguments(schema: Document) -> list[str]:
    """The arguments by name; one that may be left out stands in brackets."""
    required = schema.get("required") or []
    others = [name for name in schema.get("properties") or () if name not in required]
    return [*required, *(f"[{name}]" for name in others)]
