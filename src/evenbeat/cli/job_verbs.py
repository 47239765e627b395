"""`evenbeat job pause|resume|cancel|retry|run|delete|backfill`."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import typer

from evenbeat.cli.client import Document
from evenbeat.cli.job_views import label
from evenbeat.cli.output import both, confirmed, exact, say
from evenbeat.cli.resolve import find_job, find_jobs
from evenbeat.cli.session import ApiSession, YesOption, api_command
from evenbeat.domain.states import JobStatus
from evenbeat.errors import InvalidInput
from evenbeat.humanize import count

_BATCH = 1000


class _Verb(NamedTuple):
    """What a verb is for, and what it has done to jobs."""

    help: str
    done: str


_VERBS = {
    "pause": _Verb("Keep jobs from running. A run in progress is finished first.", "Paused"),
    "resume": _Verb("Let paused jobs run again, at the next time of their schedule.", "Resumed"),
    "cancel": _Verb(
        "End jobs. A run in progress is stopped, and its result thrown away.", "Cancelled"
    ),
    "retry": _Verb(
        "Run failed or cancelled jobs again, now, with their retries back at 0.", "Retrying"
    ),
    "run": _Verb("Run jobs now, besides their schedule, which stays as it is.", "Started"),
    "delete": _Verb("Remove jobs with their history, whatever their state.", "Deleted"),
}


def _command(verb: str) -> Callable[..., int]:
    @api_command
    def command(  # noqa: PLR0917 - the options are named on the command line
        session: ApiSession,
        filters: Document,
        jobs: Annotated[
            list[str] | None,
            typer.Argument(metavar="JOB", help="Ids, their beginnings, or names."),
        ] = None,
        everything: Annotated[
            bool,
            typer.Option(
                "--all",
                rich_help_panel="Which jobs",
                help="All jobs that match the filter below.",
            ),
        ] = False,
        yes: YesOption = False,
        force: Annotated[
            bool,
            typer.Option(
                "--force", help="Also delete what other jobs wait for.", hidden=verb != "delete"
            ),
        ] = False,
    ) -> int:
        if force and verb != "delete":
            raise InvalidInput("--force is for job delete only.", field="force")
        if everything == bool(jobs) or (filters and not everything):
            raise InvalidInput(
                "Name the jobs, or give --all, which goes with filters such as --status failed.",
                field="jobs",
            )
        if everything:
            # The API takes an empty filter for a mistake, but --all is none.
            return _apply_to_all(session, verb, filters or {"status": list(JobStatus)}, yes, force)
        return _apply(session, verb, find_jobs(session.client, jobs or []), yes, force)

    command.__doc__ = _VERBS[verb].help
    command.__name__ = verb
    return command


VERBS = {verb: _command(verb) for verb in _VERBS}


def _apply(session: ApiSession, verb: str, ids: list[str], yes: bool, force: bool) -> int:
    client = session.client
    if verb == "delete" and not confirmed(_question(verb, len(ids)), yes):
        return 1
    if len(ids) == 1 and verb != "delete":
        job = client.post(f"/api/v1/jobs/{ids[0]}/{verb}")
        is_waiting = job["status"] == JobStatus.SCHEDULED and job["next_run_at"]
        next_run = f" Next run: {both(job['next_run_at'], client.now())}." if is_waiting else ""
        session.show(job, f"{_VERBS[verb].done} {label(job)}.{next_run}")
        return 0
    total: Document = {"changed": 0, "refused": [], "refused_count": 0}
    for at in range(0, len(ids), _BATCH):
        body: Document = {"ids": ids[at : at + _BATCH]} | ({"force": True} if force else {})
        batch = client.post(f"/api/v1/jobs/bulk/{verb}", body)
        total = {key: total[key] + batch[key] for key in total}
    return _report(session, verb, total)


def _apply_to_all(session: ApiSession, verb: str, filters: Document, yes: bool, force: bool) -> int:
    page = session.client.get("/api/v1/jobs", **filters, limit=1)
    if not page["total"]:
        session.show({"changed": 0, "refused": [], "refused_count": 0}, "No job matches.")
        return 0
    if not confirmed(_question(verb, page["total"], page["total_is_estimate"]), yes):
        return 1
    body: Document = {"filter": filters} | ({"force": True} if force else {})
    return _report(session, verb, session.client.post(f"/api/v1/jobs/bulk/{verb}", body))


def _report(session: ApiSession, verb: str, result: Document) -> int:
    session.show(result, f"{_VERBS[verb].done} {count(result['changed'], 'job')}.")
    for refused in result["refused"]:
        say(f"{refused['id']}: {refused['reason']}")
    if result["refused_count"] > len(result["refused"]):
        say(f"and {result['refused_count'] - len(result['refused']):,} more that were refused.")
    return 1 if result["refused_count"] else 0


def _question(verb: str, number: int, is_estimate: bool = False) -> str:
    about = "about " if is_estimate else ""
    whose = "its" if number == 1 else "their"
    history = f" with {whose} history" if verb == "delete" else ""
    return f"{verb.capitalize()} {about}{count(number, 'job')}{history}?"


@api_command
def backfill(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id, its beginning, or name.")],
    since: Annotated[str, typer.Option("--from", metavar="TIME", help="Plans after this moment,")],
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="up to this one.")],
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=10_000, help="At most so many plans.")
    ] = None,
    include_completed: Annotated[
        bool, typer.Option("--include-completed", help="Also plans whose run succeeded.")
    ] = False,
) -> None:
    """Run a job for plans of the past, each as a job of its own.

    Times are written as 2030-01-31T09:00:00Z.
    """
    body: Document = {"from": since, "to": until}
    if limit is not None:
        body["limit"] = limit
    if include_completed:
        body["include_completed"] = True
    job_id = find_job(session.client, job)["id"]
    result = session.client.post(f"/api/v1/jobs/{job_id}/backfill", body)
    existing = f", {result['existing']:,} existed already" if result["existing"] else ""
    plans = result["plans"]
    between = f" From {exact(plans[0])} to {exact(plans[-1])}." if plans else ""
    session.show(result, f"{result['created']:,} runs added{existing}.{between}")
