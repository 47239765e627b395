"""`evenbeat job` and `evenbeat execution`: look at jobs and their history."""

from typing import Annotated

import typer
from rich.text import Text

from evenbeat.cli import job_add, job_edit, job_verbs, job_watch
from evenbeat.cli.client import ApiError, Document
from evenbeat.cli.job_views import (
    execution_facts,
    execution_table,
    job_facts,
    job_table,
    label,
    section,
)
from evenbeat.cli.output import both, safe, say
from evenbeat.cli.resolve import find_execution, find_job
from evenbeat.cli.session import (
    ApiSession,
    LimitOption,
    OffsetOption,
    api_command,
    command_group,
)

job_cli = command_group(
    "Add, list, show, control and watch jobs. A job is named by its id, the beginning of its id, "
    "or its name."
)
execution_cli = command_group("The history of jobs: each attempt at each occurrence.")
job_cli.command("add")(job_add.add)

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id, its beginning, or name.")]

_SHOWN = 5


@job_cli.command("list")
@api_command
def list_jobs(
    session: ApiSession,
    filters: Document,
    sort: Annotated[
        str, typer.Option(help="created_at, next_run_at, priority, name …; a minus descends.")
    ] = "-created_at",
    limit: LimitOption = 50,
    offset: OffsetOption = 0,
) -> None:
    """List jobs, newest first."""
    page = session.client.get("/api/v1/jobs", **filters, sort=sort, limit=limit, offset=offset)
    jobs = page["jobs"]
    if offset:
        empty = "There are no more jobs."
    elif filters:
        empty = "No job matches. `evenbeat job list` without options shows all."
    else:
        empty = (
            "There are no jobs yet. Add one: evenbeat job add TASK key=value, "
            "with --every 30m to repeat it. `evenbeat task list` shows the tasks."
        )
    session.show_list(page, jobs, lambda: job_table(jobs, session.client.now()), empty)
    if jobs and (rest := page["total"] - offset - len(jobs)) > 0:
        about = "about " if page["total_is_estimate"] else ""
        say(f"{about}{rest:,} more: --limit, or --offset {offset + len(jobs)}.")


@job_cli.command("show")
@api_command
def show_job(session: ApiSession, job: JobArgument) -> None:
    """Show a job: its definition, its next runs, its last executions, and why it did or did not
    run."""
    client = session.client
    document = find_job(client, job)
    path = f"/api/v1/jobs/{document['id']}"
    explanation = client.get(f"{path}/explain")
    plans = client.get(f"{path}/plans", count=_SHOWN)["plans"]
    executions = client.get(f"{path}/executions", limit=_SHOWN)["executions"]
    now = client.now()
    parts = [job_facts(document, now)]
    parts.append(section("Why", *(f"  {safe(fact['text'])}" for fact in explanation["facts"])))
    if plans:
        parts.append(section("Next runs", *(Text(f"  {both(plan, now)}") for plan in plans)))
    if executions:
        parts.append(section("Last executions", execution_table(executions, now)))
    more = {"explanation": explanation, "plans": plans, "executions": executions}
    session.show(document | more, *parts)


@job_cli.command()
@api_command
def logs(
    session: ApiSession,
    job: JobArgument,
    failed: Annotated[bool, typer.Option("--failed", help="Only those that failed.")] = False,
    limit: LimitOption = 10,
) -> None:
    """Show what a job's executions left: results, errors with their traces, progress, figures.

    Evenbeat keeps no output of handlers. What they log with `ctx.logger` is in the worker's log,
    each line with its `job_id`.
    """
    client = session.client
    path = f"/api/v1/jobs/{find_job(client, job)['id']}/executions"
    history = client.get(path, status="failed" if failed else None, limit=limit)
    views = []
    for one in reversed(history["executions"]):
        views += [execution_facts(one, client.now()), ""]
    session.show(history, *views[:-1])
    if not history["executions"]:
        say("It has no failed executions." if failed else "It has not run yet.")


job_cli.command("edit")(job_edit.edit)
for name, verb in job_verbs.VERBS.items():
    job_cli.command(name)(verb)
job_cli.command("watch")(job_watch.watch)
job_cli.command("backfill")(job_verbs.backfill)


# -- executions ----------------------------------------------------------------------------------


@execution_cli.command("list")
@api_command
def list_executions(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    job: Annotated[
        str | None, typer.Option(metavar="JOB", help="Only of this job: id, beginning, or name.")
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(metavar="STATUS", help="running, completed, failed or cancelled."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only those started since 2030-01-31T09:00:00Z."),
    ] = None,
    limit: LimitOption = 20,
    offset: OffsetOption = 0,
) -> None:
    """List executions, newest first."""
    client = session.client
    labels: dict[str, str] | None = None
    query = {"status": status, "limit": limit, "offset": offset}
    if job is not None:
        if since is not None:
            raise ApiError("--since goes with all jobs, not with --job.", 2)
        page = client.get(f"/api/v1/jobs/{find_job(client, job)['id']}/executions", **query)
    else:
        page = client.get("/api/v1/executions", since=since, **query)
        labels = {}
    executions = page["executions"]
    if labels is not None and not session.as_json:
        for job_id in dict.fromkeys(one["job_id"] for one in executions):
            try:
                labels[job_id] = label(client.get(f"/api/v1/jobs/{job_id}"))
            except ApiError as error:
                if error.status != 404:
                    raise
                labels[job_id] = "(deleted)"
    session.show_list(
        page,
        executions,
        lambda: execution_table(executions, client.now(), labels),
        "There are none.",
    )


@execution_cli.command("show")
@api_command
def show_execution(
    session: ApiSession,
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="The id, or the beginning that lists show.")
    ],
) -> None:
    """Show one execution: its times, its result or its error with the trace."""
    document = find_execution(session.client, execution)
    session.show(document, lambda: execution_facts(document, session.client.now()))
