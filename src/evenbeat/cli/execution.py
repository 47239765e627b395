"""`evenbeat execution`: the history of all jobs."""

from typing import Annotated

import typer

from evenbeat.cli.client import ApiError, Client, Document
from evenbeat.cli.job_views import execution_facts, execution_table, label
from evenbeat.cli.output import say
from evenbeat.cli.resolve import find_execution, find_job
from evenbeat.cli.session import ApiSession, api_command

execution_cli = typer.Typer(
    help="The history of jobs: each attempt at each occurrence.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@execution_cli.command("list")
@api_command
def list_(  # noqa: PLR0917 - the options are named on the command line
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
        typer.Option(metavar="TIME", help="Only those begun since 2030-01-31T09:00:00Z."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000)] = 20,
    offset: Annotated[int, typer.Option(metavar="N", min=0, help="Leave out the first N.")] = 0,
) -> None:
    """List executions, newest first."""
    client, labels = session.client, None
    if job is not None:
        if since is not None:
            raise ApiError("--since goes with all jobs, not with --job.", 2)
        path = f"/api/v1/jobs/{find_job(client, job)['id']}/executions"
        found = client.get(path, status=status, limit=limit, offset=offset)
    else:
        found = client.get(
            "/api/v1/executions", status=status, since=since, limit=limit, offset=offset
        )
        labels = {} if session.as_json else _labels(client, found["executions"])
    executions = found["executions"]
    if executions or session.as_json:
        session.show(found, lambda: execution_table(executions, client.now(), labels))
    if not executions:
        say("There are none.")


def _labels(client: Client, executions: list[Document]) -> dict[str, str]:
    """What people call the jobs; one that was deleted meanwhile has no name left."""
    labels = {}
    for job_id in dict.fromkeys(one["job_id"] for one in executions):
        try:
            labels[job_id] = label(client.get(f"/api/v1/jobs/{job_id}"))
        except ApiError as refused:
            if refused.status != 404:
                raise
            labels[job_id] = "(deleted)"
    return labels


@execution_cli.command()
@api_command
def show(
    session: ApiSession,
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="The id, or the beginning that lists show.")
    ],
) -> None:
    """Show one execution: its times, its result or its error with the trace."""
    found = find_execution(session.client, execution)
    session.show(found, lambda: execution_facts(found, session.client.now()))
