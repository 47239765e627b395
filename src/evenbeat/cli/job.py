"""`evenbeat job` and `evenbeat execution`: look at jobs and their history, and watch a run."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from typing import Annotated, Any
from urllib.parse import quote

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from evenbeat.cli import job_edit, logs, tree
from evenbeat.cli.client import ApiError, Client, Document
from evenbeat.cli.output import Column, both, confirmed, console, relative, safe, say, table
from evenbeat.cli.session import (
    ApiSession,
    CommandGroup,
    JobArgument,
    LimitOption,
    OffsetOption,
    YesOption,
    api_command,
    argument,
    find,
    find_listed,
    flag,
    option,
)
from evenbeat.cli.views import (
    execution_columns,
    execution_facts,
    job_columns,
    job_facts,
    label,
    progress_text,
    section,
    step_columns,
)
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.states import FINISHED, ExecutionStatus
from evenbeat.errors import InvalidInput
from evenbeat.humanize import any_of, count

job_cli = CommandGroup(
    "Add, list, show, control and watch jobs. A job is named by its id, the beginning of its id, "
    "or its name."
)
execution_cli = CommandGroup("The history of jobs: each attempt at each occurrence.")
execution_cli.command("logs")(logs.execution_logs)
job_cli.command("add")(job_edit.add)

_SHOWN = 5


@job_cli.api_command("list")
def list_jobs(
    session: ApiSession,
    filters: Document,
    sort: Annotated[
        str, option("FIELD", "created_at, next_run_at, priority, name …; a minus descends.")
    ] = "-created_at",
    limit: LimitOption = 50,
    offset: OffsetOption = 0,
) -> None:
    """List jobs, newest first."""
    page = session.client.get("/api/v1/jobs", **filters, sort=sort, limit=limit, offset=offset)
    if offset:
        empty = "There are no more jobs."
    elif filters:
        empty = "No job matches. `evenbeat job list` without options shows all."
    else:
        empty = (
            "There are no jobs yet. Add one: evenbeat job add TASK key=value, "
            "with --every 30m to repeat it. `evenbeat task list` shows the tasks."
        )
    columns = job_columns(page["jobs"], session.client.now())
    session.show_list(page, "jobs", columns, empty, paged=True)


@job_cli.api_command("show")
def show_job(session: ApiSession, job: JobArgument) -> None:
    """Show a job: its definition, its next runs, its last executions, and why it did or did not
    run."""
    client = session.client
    document = find(client, "job", job)
    path = f"/api/v1/jobs/{document['id']}"
    explanation = client.get(f"{path}/explain")
    plans = client.get(f"{path}/plans", count=_SHOWN)["plans"]
    executions = client.get(f"{path}/executions", limit=_SHOWN)["executions"]
    steps = client.get(f"{path}/steps")["steps"]
    now = client.now()
    parts = [job_facts(document, now)]
    parts.append(section("Why", *(f"  {safe(fact['text'])}" for fact in explanation["facts"])))
    if plans:
        parts.append(section("Next runs", *(Text(f"  {both(plan, now)}") for plan in plans)))
    if executions:
        lines = table(executions, execution_columns(executions, now))
        parts.append(section("Last executions", lines))
    if steps:
        parts.append(section("Steps", table(steps, step_columns(now))))
    more = {"explanation": explanation, "plans": plans, "executions": executions, "steps": steps}
    session.show(document | more, *parts)


job_cli.command("logs")(logs.job_logs)


@job_cli.api_command("send-event")
def send_event(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    job: JobArgument,
    name: Annotated[str, argument("EVENT", "The name that the handler waits for.")],
    payload: Annotated[str | None, option("JSON", "What comes with it.")] = None,
    link: Annotated[
        bool, flag("--link", "Print a link instead, by which a person sends it once.")
    ] = False,
    expires: Annotated[str, option("DURATION", "How long the link is good.")] = "7d",
) -> None:
    """Send an event to a job whose handler waits for it, or will."""
    client = session.client
    document = find(client, "job", job)
    path = f"/api/v1/jobs/{document['id']}/events/{quote(name, safe='')}"
    try:
        body = {"payload": None if payload is None else json.loads(payload)}
    except ValueError as error:
        raise InvalidInput(f"--payload takes JSON, such as 5 or true: {error}.") from None
    if link:
        made = client.post(f"{path}/link", body | {"expires": expires})
        session.show(made, made["url"])
        return
    sent = client.post(path, body)
    rest = "goes on." if sent["awaited"] else "does not wait for it yet; it is kept."
    session.show(sent, f"{label(document)} {rest}")


job_cli.command("edit")(job_edit.edit)
for name, verb in job_edit.VERBS.items():
    job_cli.command(name)(verb)


@job_cli.api_command()
def watch(
    session: ApiSession,
    job: JobArgument,
    timeout: Annotated[str | None, option("DURATION", "Give up watching after so long.")] = None,
    every: Annotated[str, option("DURATION", "How often to look.", hidden=True)] = "500ms",
) -> int:
    """Follow a job, with a progress bar while it runs, until it has ended.

    Of a recurring job, the run in progress or the next one is followed. The exit code is 0 when it
    completed and 1 when not. Ctrl-C stops the watching; the job goes on.
    """
    first = find(session.client, "job", job)
    pause = parse_duration(every, field="every").total_seconds()
    limit = inf if timeout is None else parse_duration(timeout, field="timeout").total_seconds()
    out, line = console(), ""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
        console=out,
        transient=True,
        disable=session.as_json or not out.is_terminal,
    )
    task = bar.add_task(safe(label(first)), total=None, text="")
    with bar:
        for last, run in _follow(session.client, f"/api/v1/jobs/{first['id']}", pause, limit):
            state = text = last["status"]
            progress = (run["progress"] or {}) if run and state == "running" else {}
            if state not in {*FINISHED, "running", "paused"}:
                retry = last["current_retry_count"]
                state = f"try {retry + 1} waits" if retry else "waits"
                text = f"{state}, due {relative(last['next_run_at'], session.client.now())}"
            far = progress_text(progress)
            done, total = progress.get("done") or 0, progress.get("total")
            bar.update(task, total=total, completed=done, text=safe(far or text))
            before, line = line, ", ".join(filter(None, (f"{label(last)}: {state}", far)))
            if line != before and not out.is_terminal and not session.as_json:
                say(line)  # for logs and pipes, whenever something has changed
    if run is None or run["status"] == "running":
        if last["status"] in FINISHED:
            say(f"It is {last['status']} and did not run.")
        else:
            say(f"Still {last['status']} after {timeout}; it goes on without being watched.")
        session.show(run or last)
        return 1
    session.show(run, execution_facts(run, session.client.now()))
    return 0 if run["status"] == "completed" else 1


def _follow(
    client: Client, path: str, pause: float, limit: float
) -> Iterator[tuple[Document, Document | None]]:
    """The job and the run to watch, again and again until the run or the time is over."""

    def newest() -> Document | None:
        executions: list[Document] = client.get(f"{path}/executions", limit=1)["executions"]
        return executions[0] if executions else None

    ends_at = time.monotonic() + limit
    # The run before the job: one that is over while the job still waits is an earlier one for sure.
    run, job = newest(), client.get(path)
    earlier = None  # the id of a run that was over before the watch began: not the one to wait for
    if run is not None and run["status"] != "running" and job["status"] not in FINISHED:
        earlier = run["id"]
    is_away = False
    while True:
        is_new = run is not None and run["id"] != earlier
        yield job, run if is_new else None
        has_ended = job["status"] in FINISHED or (is_new and job["current_retry_count"] == 0)
        is_running = run is not None and run["status"] == "running"
        if (has_ended and not is_running) or time.monotonic() >= ends_at:
            return
        time.sleep(pause)
        try:
            job, run = client.get(path), newest()
            if is_away:
                say("It answers again.")
            is_away = False
        except ApiError as error:  # a service that is away may come back
            if error.exit_code != 3:
                raise
            if not is_away:
                say(f"{error} Trying again; Ctrl-C ends it.")
            is_away = True


job_cli.command("tree")(tree.tree)
job_cli.command("backfill")(job_edit.backfill)


# The options by which runs are chosen, by the API's names of their conditions.
_RUN_FILTERS = {
    "job": option("JOB", "Of this job: id, beginning, or name."),
    "status": option("STATUS", f"{any_of(ExecutionStatus)}; with commas, or several times."),
    "task": option("NAME", "Of these tasks."),
    "queue": option("NAME", "From these queues."),
    "error_code": option("CODE", "Ended with these errors.", "--error"),
    "tag": option("TAG", "Of jobs with this tag."),
    "worker": option("ID", "On this worker; a beginning is enough."),
    "since": option("TIME", "Ended since then, or still running: 12h, 2030-01-31T09:00:00Z."),
    "until": option("TIME", "Ended before then."),
    "search": option("TEXT", "In the error, the job's name or the task."),
}
_SEVERAL = ("status", "task", "queue", "error_code")
_RUN_OPTIONS = {
    name: Annotated[list[str] | None if name in _SEVERAL else str | None, filter_]
    for name, filter_ in _RUN_FILTERS.items()
}


def _run_query(client: Client, filters: Document) -> Document:
    """The conditions that were given, as the API takes them."""
    query = {name: value for name, value in filters.items() if value}
    if "job" in query:
        query["job_id"] = find(client, "job", query.pop("job"))["id"]
    if "worker" in query:
        workers = client.get("/api/v1/workers")["workers"]
        query["worker_id"] = find_listed(workers, query.pop("worker"), "worker")["id"]
    for name in ("since", "until"):
        with suppress(InvalidInput):
            moment = client.now() - parse_duration(query.get(name, ""))
            query[name] = moment.isoformat()
    return query


def _list_executions(
    session: ApiSession, limit: LimitOption = 20, offset: OffsetOption = 0, **conditions: Any
) -> None:
    """List executions, newest first."""
    client = session.client
    query = _run_query(client, conditions)
    page = client.get("/api/v1/executions", **query, limit=limit, offset=offset)
    names = [one["job_name"] or one["task"] or "(deleted)" for one in page["executions"]]
    labels = {one["job_id"]: n for one, n in zip(page["executions"], names, strict=True)}
    columns = execution_columns(page["executions"], client.now(), labels)
    session.show_list(page, "executions", columns, "There are none.")
    if back := page.get("read_back_to"):
        say(f"Looked at runs back to {back}; --until looks further back.")


def _list_errors(session: ApiSession, **conditions: Any) -> None:
    """Count executions by task and error: how many, of how many jobs, since when. Without --status,
    those that failed or were cancelled."""
    client = session.client
    page = client.get("/api/v1/executions/errors", **_run_query(client, conditions))
    now = client.now()
    columns: dict[str, Column] = {
        "error…": lambda group: group["error_code"] or "none",
        "task…": lambda group: group["task"] or "(deleted)",
        "runs": "runs",
        "jobs": "jobs",
        "since": lambda group: relative(group["since"], now),
        "newest": lambda group: relative(group["until"], now),
        "message…": lambda group: (group["error_message"] or "").strip().split("\n")[0],
    }
    session.show_list(page, "groups", columns, "There are none.")


def _retry_executions(
    session: ApiSession,
    executions: Annotated[
        list[str] | None, argument("ID", "Executions, by id or its beginning.")
    ] = None,
    yes: YesOption = False,
    dry_run: Annotated[bool, flag("--dry-run", "Only say how many would run.")] = False,
    **conditions: Any,
) -> int:
    """Run the jobs of executions again now: those that are named, or those of all that match.

    Each job runs once, however many of its executions are meant, besides its schedule. Options
    without --status mean those that failed.
    """
    client, query = session.client, _run_query(session.client, conditions)
    if query:
        query.setdefault("status", ["failed"])
    if bool(executions) == bool(query):
        raise ApiError("Name executions, or choose them by options such as --status failed.", 2)
    body: Document = {"filter": query}
    if executions:
        body = {"ids": [find(client, "execution", one)["id"] for one in executions]}
        number = len(body["ids"])
    else:
        number = client.get("/api/v1/executions/errors", **query)["total"]
    what = f"the jobs of {count(number, 'execution')}"
    if dry_run:
        session.show({"executions": number}, f"Would run {what} again.")
        return 0
    if number > 1 and not confirmed(f"Run {what} again?", yes):
        return 1
    done = client.post("/api/v1/executions/retry", body)
    session.show(done, f"Started {count(done['changed'], 'job')}.")
    for refused in done["refused"]:
        say(refused["reason"])
    return 0 if done["changed"] or not done["refused_count"] else 1


for _name, _command in (
    ("list", _list_executions),
    ("errors", _list_errors),
    ("retry", _retry_executions),
):
    execution_cli.command(_name)(api_command(_command, _RUN_OPTIONS))


@execution_cli.api_command("cancel")
def cancel_execution(
    session: ApiSession,
    execution: Annotated[str, argument("ID", "The id, or the beginning that lists show.")],
) -> None:
    """Stop one run. Its job goes on with its next plan; `job cancel` ends the schedule as well."""
    id_ = find(session.client, "execution", execution)["id"]
    document = session.client.post(f"/api/v1/executions/{id_}/cancel")
    job = session.client.get(f"/api/v1/jobs/{document['job_id']}")
    text = f"The run of {label(job)} is stopped."
    if job["next_run_at"]:
        text += f" Next run: {both(job['next_run_at'], session.client.now())}."
    session.show(document, f"{text} The job is {job['status']}.")


@execution_cli.api_command("show")
def show_execution(
    session: ApiSession,
    execution: Annotated[str, argument("ID", "The id, or the beginning that lists show.")],
) -> None:
    """Show one execution: its times, its result or its error with the trace."""
    document = find(session.client, "execution", execution)
    session.show(document, execution_facts(document, session.client.now()))
