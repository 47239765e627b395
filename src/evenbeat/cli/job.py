"""`evenbeat job`: look at jobs and control them."""

from typing import Annotated, Any

import typer

from evenbeat.cli import job_add, job_edit, job_verbs, job_watch
from evenbeat.cli.choosing import (
    KindOption,
    QueueOption,
    SearchOption,
    StatusOption,
    TagOption,
    TaskOption,
)
from evenbeat.cli.job_views import (
    execution_facts,
    execution_table,
    job_facts,
    job_table,
    plans_view,
    section,
)
from evenbeat.cli.output import safe, say
from evenbeat.cli.resolve import find_job
from evenbeat.cli.session import ApiSession, api_command

job_cli = typer.Typer(
    help="Add, list, show, control and watch jobs. A job is named by its id, the beginning of its "
    "id, or its name.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
job_cli.command("add")(job_add.add)

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id, its beginning, or name.")]

_SHOWN = 5


@job_cli.command("list")
@api_command
def list_(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    status: StatusOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    kind: KindOption = None,
    tag: TagOption = None,
    search: SearchOption = None,
    sort: Annotated[
        str, typer.Option(help="created_at, next_run_at, priority, name …; a minus descends.")
    ] = "-created_at",
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000)] = 50,
    offset: Annotated[int, typer.Option(metavar="N", min=0, help="Leave out the first N.")] = 0,
) -> None:
    """List jobs, newest first."""
    chosen: dict[str, Any] = {
        "status": status,
        "queue": queue,
        "task": task,
        "kind": kind,
        "tag": tag,
        "search": search,
    }
    found = session.client.get("/api/v1/jobs", **chosen, sort=sort, limit=limit, offset=offset)
    if found["jobs"] or session.as_json:
        session.show(found, lambda: job_table(found["jobs"], session.client.now()))
    if not found["jobs"]:
        _say_empty(any(chosen.values()), offset)
    elif (rest := found["total"] - offset - len(found["jobs"])) > 0:
        about = "about " if found["total_is_estimate"] else ""
        say(f"{about}{rest:,} more: --limit, or --offset {offset + len(found['jobs'])}.")


def _say_empty(filtered: bool, offset: int) -> None:
    if offset:
        say("There are no more jobs.")
    elif filtered:
        say("No job matches. `evenbeat job list` without options shows all.")
    else:
        say(
            "There are no jobs yet. Add one: evenbeat job add TASK key=value, "
            "with --every 30m to repeat it. `evenbeat task list` shows the tasks."
        )


@job_cli.command()
@api_command
def show(session: ApiSession, job: JobArgument) -> None:
    """Show a job: its definition, its next plans, its last executions, and why it did or did not
    run."""
    client = session.client
    found = find_job(client, job)
    path = f"/api/v1/jobs/{found['id']}"
    explained = client.get(f"{path}/explain")
    plans = client.get(f"{path}/plans", count=_SHOWN)["plans"]
    runs = client.get(f"{path}/executions", limit=_SHOWN)["executions"]
    document = found | {"explanation": explained, "plans": plans, "executions": runs}
    now = client.now()
    parts = [job_facts(found, now)]
    parts.append(section("Why", *(f"  {safe(fact['text'])}" for fact in explained["facts"])))
    if plans:
        parts.append(plans_view(plans, now))
    if runs:
        parts.append(section("Last executions", execution_table(runs, now)))
    session.show(document, *parts)


@job_cli.command()
@api_command
def logs(
    session: ApiSession,
    job: JobArgument,
    failed: Annotated[bool, typer.Option("--failed", help="Only those that failed.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000)] = 10,
) -> None:
    """Show what a job's executions left: results, errors with their traces, progress, figures.

    Evenbeat keeps no output of handlers. What they log with `ctx.logger` is in the worker's log,
    each line with its `job_id`.
    """
    found = find_job(session.client, job)
    states = "failed" if failed else None
    path = f"/api/v1/jobs/{found['id']}/executions"
    history = session.client.get(path, status=states, limit=limit)
    now = session.client.now()
    views = []
    for one in reversed(history["executions"]):
        views += [execution_facts(one, now), ""]
    session.show(history, *views[:-1])
    if not history["executions"]:
        say("It has no failed executions." if failed else "It has not run yet.")


job_cli.command("edit")(job_edit.edit)
for name, verb in job_verbs.VERBS.items():
    job_cli.command(name)(verb)
job_cli.command("watch")(job_watch.watch)
job_cli.command("backfill")(job_verbs.backfill)
