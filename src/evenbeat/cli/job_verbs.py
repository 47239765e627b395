"""`evenbeat job pause|resume|cancel|retry|run|delete|backfill`."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from evenbeat.cli.choosing import (
    KindOption,
    QueueOption,
    SearchOption,
    StatusOption,
    TagOption,
    TaskOption,
)
from evenbeat.cli.client import Client, Document
from evenbeat.cli.job_views import label
from evenbeat.cli.output import both, confirmed, exact, say
from evenbeat.cli.resolve import find_job, find_jobs
from evenbeat.cli.session import ApiSession, api_command
from evenbeat.errors import InvalidInput
from evenbeat.humanize import count

_STATES = ("pending", "scheduled", "running", "paused", "completed", "failed", "cancelled")
_AT_ONCE = 1000

_DONE = {
    "pause": "paused",
    "resume": "resumed",
    "cancel": "cancelled",
    "retry": "to be retried",
    "run": "to be run now",
    "delete": "deleted",
}
_HELP = {
    "pause": "Keep jobs from running. A run in progress is finished first.",
    "resume": "Let paused jobs run again, at the next plan of their rhythm.",
    "cancel": "End jobs. A run in progress is stopped, and its result thrown away.",
    "retry": "Run failed or cancelled jobs again, now, with their retries back at 0.",
    "run": "Run jobs now, besides their schedule; their rhythm stays.",
    "delete": "Remove jobs with their history, whatever their state.",
}


def _verb(verb: str) -> Callable[..., int]:
    @api_command
    def command(  # noqa: PLR0917 - the options are named on the command line
        session: ApiSession,
        jobs: Annotated[
            list[str] | None,
            typer.Argument(metavar="JOB", help="Ids, their beginnings, or names."),
        ] = None,
        everything: Annotated[
            bool,
            typer.Option(
                "--all",
                rich_help_panel="Which jobs",
                help="All jobs that the filter below lets by.",
            ),
        ] = False,
        status: StatusOption = None,
        queue: QueueOption = None,
        task: TaskOption = None,
        kind: KindOption = None,
        tag: TagOption = None,
        search: SearchOption = None,
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
        force: Annotated[
            bool,
            typer.Option(
                "--force", help="Delete also what other jobs wait for.", hidden=verb != "delete"
            ),
        ] = False,
    ) -> int:
        if force and verb != "delete":
            raise InvalidInput("--force is for job delete only.", field="force")
        given = {
            "status": status,
            "queue": queue,
            "task": task,
            "kind": kind,
            "tag": tag,
            "search": search,
        }
        chosen = {name: value for name, value in given.items() if value}
        if everything == bool(jobs) or (chosen and not everything):
            raise InvalidInput(
                "Name the jobs, or give --all, which goes with filters such as --status failed.",
                field="jobs",
            )
        if everything:
            return _by_filter(session, verb, chosen, yes, force)
        return _by_ids(session, verb, find_jobs(session.client, jobs or []), yes, force)

    command.__doc__ = _HELP[verb]
    command.__name__ = verb
    return command


VERBS = {verb: _verb(verb) for verb in _DONE}


def _by_ids(session: ApiSession, verb: str, ids: list[str], yes: bool, force: bool) -> int:
    if verb == "delete" and not confirmed(_question(verb, len(ids)), yes):
        return 1
    if len(ids) == 1 and verb != "delete":
        job = session.client.post(f"/api/v1/jobs/{ids[0]}/{verb}")
        session.show(job, lambda: _told(verb, job, session.client))
        return 0
    return _report(session, verb, _changed(session.client, verb, ids, force))


def _by_filter(
    session: ApiSession, verb: str, chosen: dict[str, Any], yes: bool, force: bool
) -> int:
    # The API takes an empty filter for a mistake; whoever says --all means it.
    wanted = chosen or {"status": list(_STATES)}
    found = session.client.get("/api/v1/jobs", **wanted, limit=1)
    if not found["total"]:
        session.show({"changed": 0, "refused": [], "refused_count": 0}, "No job matches.")
        return 0
    question = _question(verb, found["total"], found["total_is_estimate"])
    if not confirmed(question, yes):
        return 1
    body: Document = {"filter": wanted, **_forced(force)}
    return _report(session, verb, session.client.post(f"/api/v1/jobs/bulk/{verb}", body))


def _forced(force: bool) -> Document:
    return {"force": True} if force else {}


def _changed(client: Client, verb: str, ids: list[str], force: bool) -> Document:
    """The bulk verb, in portions that it takes."""
    total: Document = {"changed": 0, "refused": [], "refused_count": 0}
    for at in range(0, len(ids), _AT_ONCE):
        body: Document = {"ids": ids[at : at + _AT_ONCE], **_forced(force)}
        done = client.post(f"/api/v1/jobs/bulk/{verb}", body)
        total = {key: total[key] + done[key] for key in total}
    return total


def _report(session: ApiSession, verb: str, done: Document) -> int:
    session.show(done, f"{count(done['changed'], 'job')} {_DONE[verb]}.")
    for refused in done["refused"]:
        say(f"{refused['id']}: {refused['reason']}")
    if done["refused_count"] > len(done["refused"]):
        say(f"and {done['refused_count'] - len(done['refused']):,} more that were refused.")
    return 1 if done["refused_count"] else 0


def _told(verb: str, job: Document, client: Client) -> str:
    is_waiting = job["status"] in ("pending", "scheduled") and job["next_run_at"]
    then = f" Next run: {both(job['next_run_at'], client.now())}." if is_waiting else ""
    return f"{label(job)} is {_DONE[verb]}.{then}"


def _question(verb: str, number: int, is_estimate: bool = False) -> str:
    about = "about " if is_estimate else ""
    whose = "its" if number == 1 else "their"
    history = f" with {whose} history" if verb == "delete" else ""
    return f"{verb.capitalize()} {about}{count(number, 'job')}{history}?"


# -- the past ------------------------------------------------------------------------------------


@api_command
def backfill(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id, its beginning, or name.")],
    since: Annotated[str, typer.Option("--from", metavar="TIME", help="Plans after this moment,")],
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="up to this one.")],
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=10_000, help="So many plans at most.")
    ] = None,
    include_completed: Annotated[
        bool, typer.Option("--include-completed", help="Also plans that have been run well.")
    ] = False,
) -> None:
    """Run a job for plans of the past, each as a job of its own.

    Times are written as 2030-01-31T09:00:00Z.
    """
    found = find_job(session.client, job)
    body: Document = {"from": since, "to": until}
    if limit is not None:
        body["limit"] = limit
    if include_completed:
        body["include_completed"] = True
    done = session.client.post(f"/api/v1/jobs/{found['id']}/backfill", body)
    session.show(done, lambda: _backfilled(done))


def _backfilled(done: Document) -> str:
    there = f", {done['existing']:,} were there already" if done["existing"] else ""
    plans = done["plans"]
    between = f" From {exact(plans[0])} to {exact(plans[-1])}." if plans else ""
    return f"{done['created']:,} runs added{there}.{between}"
