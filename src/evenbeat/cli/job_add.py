"""`evenbeat job add`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from evenbeat.cli.client import Document
from evenbeat.cli.job_views import label
from evenbeat.cli.output import both, say
from evenbeat.cli.session import ApiSession, api_command
from evenbeat.errors import InvalidInput

_WHEN, _HOW = "When", "How"
_EXAMPLE = """for example: evenbeat job add send_email to=a@example.org"""


@api_command
def add(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="What to run; `evenbeat task list` shows tasks.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="The task's arguments. A value is read as JSON where it is JSON, else as text.",
        ),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE|-", help="The arguments as a JSON object, from a file, or from -."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name, unique within the scope.")] = None,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", rich_help_panel=_WHEN, help="Run every so often, such as 30m."
        ),
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(
            metavar="FIELDS", rich_help_panel=_WHEN, help="Run by cron, such as '0 9 * * mon-fri'."
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(rich_help_panel=_WHEN, help="Either of both, or a name such as @daily."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", rich_help_panel=_WHEN, help="What cron is read in."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", rich_help_panel=_WHEN, help="The first run: 2030-01-31T09:00:00Z."
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=_WHEN, help="The first run, from now."),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB",
            rich_help_panel=_WHEN,
            help="Run whenever this job has ended; id or name, may be given several times.",
        ),
    ] = None,
    after_on: Annotated[
        str | None,
        typer.Option(
            metavar="END", rich_help_panel=_WHEN, help="How it must end: success, failure or any."
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="HOURS",
            rich_help_panel=_WHEN,
            help="When runs may start: 'Mon-Fri 22:00-06:00'.",
        ),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(rich_help_panel=_WHEN, help="Of an interval: balanced, grid or pinned."),
    ] = None,
    catch_up: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_WHEN, help="Of missed plans: latest_only, every_plan or skip."
        ),
    ] = None,
    paused: Annotated[
        bool, typer.Option("--paused", rich_help_panel=_WHEN, help="Wait to be resumed first.")
    ] = False,
    queue: Annotated[str | None, typer.Option(rich_help_panel=_HOW, help="Where it waits.")] = None,
    priority: Annotated[
        int | None, typer.Option(rich_help_panel=_HOW, help="0 to 100; higher runs first.")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=_HOW, help="When a run is stopped."),
    ] = None,
    max_retries: Annotated[
        int | None, typer.Option(metavar="N", rich_help_panel=_HOW, help="Tries after the first.")
    ] = None,
    backoff: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", rich_help_panel=_HOW, help="Before the first retry; then doubled."
        ),
    ] = None,
    on_failure: Annotated[
        str | None,
        typer.Option(rich_help_panel=_HOW, help="Of a recurring job: continue or stop."),
    ] = None,
    dedup_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", rich_help_panel=_HOW, help="At most one live job for this key."
        ),
    ] = None,
    concurrency_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            rich_help_panel=_HOW,
            help="What shares the two limits below; default: the task's name.",
        ),
    ] = None,
    concurrency_limit: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=_HOW, help="How many with the key run at once."),
    ] = None,
    rate_limit: Annotated[
        str | None,
        typer.Option(
            metavar="RATE", rich_help_panel=_HOW, help="How often one may start, such as 10/s."
        ),
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(metavar="KIND/ID", rich_help_panel=_HOW, help="What this copy stands for."),
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=_HOW, help="How long a run should take."),
    ] = None,
) -> int:
    """Add a job: now, later, or on a schedule.

    `evenbeat job add send_email to=a@example.org --delay 10m` runs once in ten minutes; with
    `--every 30m`, every half hour in a balanced place.
    """
    body = body_of({
        "task": task,
        "payload": payload_of(payload, arguments or []),
        "every": every,
        "cron": cron,
        "schedule": schedule,
        "at": at,
        "backoff": backoff,
        "paused": paused or None,
        "tag": tag,
        "scope": _scope(scope),
        "name": name,
        "description": description,
        "timezone": timezone,
        "delay": delay,
        "after": after,
        "after_on": after_on,
        "window": window,
        "placement": placement,
        "catch_up": catch_up,
        "queue": queue,
        "priority": priority,
        "timeout": timeout,
        "max_retries": max_retries,
        "on_failure": on_failure,
        "dedup_key": dedup_key,
        "concurrency_key": concurrency_key,
        "concurrency_limit": concurrency_limit,
        "rate_limit": rate_limit,
        "cost": cost,
    })  # fmt: skip
    job = session.client.post("/api/v1/jobs", body)
    return answer(session, job)


def answer(session: ApiSession, job: Document) -> int:
    """Say what the job is now."""
    for warning in job.get("warnings") or ():
        say(f"Note: {warning}")
    session.show(job, lambda: _told(session, job))
    return 0


def _told(session: ApiSession, job: Document) -> str:
    if job.get("duplicate"):
        return f"{job['id']}  was there already: {label(job)}, {job['status']}."
    when = "paused" if job["is_paused"] else both(job["next_run_at"], session.client.now())
    if job["schedule_kind"] == "after" and job["next_run_at"] is None and not job["is_paused"]:
        return f"{job['id']}  {label(job)}: {job['schedule_text']}."
    return f"{job['id']}  {label(job)}: {job['schedule_text']}. Next run: {when}."


# -- options -------------------------------------------------------------------------------------

_FIELDS = {"at": "run_at", "backoff": "retry_backoff_seconds", "tag": "tags"}


def body_of(options: Document) -> Document:
    """The API's fields for the options that were given."""
    every, cron, schedule = (options.pop(name) for name in ("every", "cron", "schedule"))
    options["schedule"] = _schedule(every, cron, schedule)
    given = {name: value for name, value in options.items() if value not in (None, [])}
    return {_FIELDS.get(name, name): value for name, value in given.items()}


def _schedule(every: str | None, cron: str | None, schedule: str | None) -> str | None:
    given = {"--every": every, "--cron": cron, "--schedule": schedule}
    named = [option for option, value in given.items() if value is not None]
    if len(named) > 1:
        raise InvalidInput(
            f"{named[0]} and {named[1]} both say how often to run. Give one.", field="schedule"
        )
    return f"@every {every}" if every is not None else schedule if cron is None else cron


def _scope(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    kind, _, name = text.partition("/")
    if not kind or not name:
        raise InvalidInput(
            f"--scope {text}: give kind and id with a slash between, such as tenant/42.",
            field="scope",
        )
    return {"kind": kind, "id": name}


def payload_of(text: str | None, arguments: list[str]) -> dict[str, Any] | None:
    """The payload, with the single arguments laid over it."""
    payload = {} if text is None else _object(text)
    for argument in arguments:
        key, sign, value = argument.partition("=")
        if not sign or not key:
            raise InvalidInput(
                f"{argument!r} is not of the form KEY=VALUE, {_EXAMPLE}.", field="payload"
            )
        payload[key] = value_of(value)
    return payload if payload or text is not None else None


def value_of(text: str) -> Any:
    """What a value on the command line means: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _object(text: str) -> dict[str, Any]:
    source = _read(text)
    try:
        found = json.loads(source, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--payload is not JSON: {error}.", field="payload") from None
    if not isinstance(found, dict):
        raise InvalidInput(
            '--payload must be a JSON object, such as {"to": "a@example.org"}.', field="payload"
        )
    return found


def _read(text: str) -> str:
    if text != "-" and not text.startswith("@"):
        return text
    try:
        return sys.stdin.read() if text == "-" else Path(text[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"{text[1:]} cannot be read: {error.strerror}.", field="payload"
        ) from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{text} is not UTF-8 text.", field="payload") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
