"""`evenbeat job add|edit|pause|resume|cancel|retry|run|delete|backfill`: change jobs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from evenbeat.cli.client import Document, stated
from evenbeat.cli.output import both, confirmed, exact, say
from evenbeat.cli.session import (
    ApiSession,
    JobArgument,
    YesOption,
    api_command,
    argument,
    find,
    flag,
    is_id,
    option,
)
from evenbeat.cli.views import label
from evenbeat.domain.job import BY_NAME, SETTINGS
from evenbeat.domain.setting_kinds import Choice
from evenbeat.domain.states import JobStatus
from evenbeat.errors import InvalidInput
from evenbeat.humanize import count

_WHEN = "When"
_BATCH = 1000
_HELP_AND_NOTICE = {
    "pause": ("Keep jobs from running. A run in progress is finished first.", "Paused"),
    "resume": ("Let paused jobs run again, at the next time of their schedule.", "Resumed"),
    "cancel": ("End jobs. A run in progress is stopped, and its result thrown away.", "Cancelled"),
    "retry": ("Run failed or cancelled jobs again, now, with their retries back at 0.", "Retrying"),
    "run": ("Run jobs now, besides their schedule, which stays as it is.", "Started"),
    "delete": ("Remove jobs with their history, whatever their state.", "Deleted"),
}


def _option(panel: str, metavar: str | None, text: str, *names: str, kind: Any = str) -> Any:
    return Annotated[kind | None, option(metavar, text, *names, panel=panel)]


# The options that `job add` and `job edit` share, by the API's names of their fields.
OPTIONS: dict[str, Any] = {
    "payload": _option(
        "What", "JSON|@FILE|-", "The arguments as a JSON object, from a file, or from -."
    ),
    "name": _option("What", "NAME", "A name, unique within the scope."),
    "description": _option("What", "TEXT", "For people."),
    "tags": _option("What", "TAG", "May be given several times.", "--tag", kind=list[str]),
    "metadata": _option("What", "JSON", "Anything to keep with the job, as a JSON object."),
    "every": _option(_WHEN, "DURATION", "Run every so often, such as 30m."),
    "cron": _option(_WHEN, "FIELDS", "Run by cron, such as '0 9 * * mon-fri'."),
    "schedule": _option(_WHEN, "TEXT", "Either of them, or a name such as @daily."),
    "timezone": _option(_WHEN, "ZONE", "What cron is read in."),
    "run_at": _option(_WHEN, "TIME", "The first run: 2030-01-31T09:00:00Z.", "--run-at", "--at"),
    "delay": _option(_WHEN, "DURATION", "The first run, from now."),
    "anchor_at": _option(_WHEN, "TIME", "A moment that the rhythm of an interval goes through."),
    "after": _option(
        _WHEN,
        "JOB",
        "Run whenever this job has ended; id or name, may be given several times.",
        kind=list[str],
    ),
    "after_on": _option(_WHEN, "END", "How it must end: success, failure or any."),
} | {
    setting.name: _option(
        setting.group,
        "|".join(kind.words) if isinstance(kind := setting.kind, Choice) else kind.metavar,
        setting.help,
        kind=kind.option_type,
    )
    for setting in SETTINGS
}
_ONLY_NEW: dict[str, Any] = {
    "dedup_key": _option("How", "KEY", "At most one live job for this key."),
    "scope": _option("How", "KIND/ID", "What this copy stands for."),
    "paused": _option(_WHEN, None, "Wait to be resumed first.", "--paused", kind=bool),
}
_UNSET = _option(
    "How",
    "FIELD",
    "Back to the default, by the API's name: timeout, window, retry_delays …",
    kind=list[str],
)


def _add(
    session: ApiSession,
    task: Annotated[str, argument("TASK", "What to run; `evenbeat task list` shows tasks.")],
    arguments: Annotated[
        list[str] | None,
        argument(
            "KEY=VALUE",
            "The task's arguments. A value is read as JSON where it is JSON, otherwise as text.",
        ),
    ] = None,
    **options: Any,
) -> int:
    """Add a job: now, later, or on a schedule.

    `evenbeat job add send_email to=a@example.org --delay 10m` runs once in ten minutes; with
    `--every 30m`, every half hour in a balanced place.
    """
    payload, scope = payload_of(options.pop("payload"), arguments), options.pop("scope")
    body = _body(options) | {"task": task} | ({} if payload is None else {"payload": payload})
    if scope is not None:
        kind, _, name = scope.partition("/")
        if not kind or not name:
            raise InvalidInput(
                f"--scope {scope}: give kind and id with a slash between, such as tenant/42.",
                field="scope",
            )
        body["scope"] = {"kind": kind, "id": name}
    return answer(session, session.client.post("/api/v1/jobs", body))


def _edit(
    session: ApiSession,
    job: JobArgument,
    arguments: Annotated[
        list[str] | None, argument("KEY=VALUE", "Change these arguments and keep the others.")
    ] = None,
    **options: Any,
) -> int:
    """Change a job: only what is given changes.

    A changed schedule is planned again; a run in progress ends under the old definition.
    """
    text, unset = options.pop("payload"), options.pop("unset")
    present = find(session.client, "job", job)
    changes = _body(options) | dict.fromkeys(unset or (), None)
    if (payload := payload_of(text, arguments)) is not None:
        changes["payload"] = payload if text is not None else present["payload"] | payload
    if not changes:
        raise InvalidInput("There is nothing to change. Give an option, such as --priority 50.")
    return answer(session, session.client.patch(f"/api/v1/jobs/{present['id']}", changes))


add = api_command(_add, OPTIONS | _ONLY_NEW)
edit = api_command(_edit, OPTIONS | {"unset": _UNSET})


def answer(session: ApiSession, job: Document) -> int:
    """Say what the job is now."""
    for warning in job.get("warnings") or ():
        say(f"Note: {warning}")
    text = f"{label(job)}: {job['schedule_text']}."
    if job.get("duplicate"):
        text = f"was there already: {label(job)}, {job['status']}."
    elif job["is_paused"]:
        text += " Next run: paused."
    elif job["next_run_at"] is not None or job["schedule_kind"] != "after":
        text += f" Next run: {both(job['next_run_at'], session.client.now())}."
    session.show(job, f"{job['id']}  {text}")
    return 0


def _body(options: Document) -> Document:
    """The API's fields for the options that were given."""
    body = stated(options)
    forms = [name for name in ("every", "cron", "schedule") if name in body]
    if len(forms) > 1:
        raise InvalidInput(
            f"--{forms[0]} and --{forms[1]} both say how often to run. Give one.", field="schedule"
        )
    if "every" in body:
        body["schedule"] = f"@every {body.pop('every')}"
    if "cron" in body:
        body["schedule"] = body.pop("cron")
    if "metadata" in body:
        body["metadata"] = _object(body["metadata"], "metadata")
    for name in body.keys() & BY_NAME.keys():
        if isinstance(body[name], list):  # given several times, or with commas
            body[name] = BY_NAME[name].kind.from_text(",".join(body[name]))
    return body


def payload_of(text: str | None, arguments: list[str] | None) -> Document | None:
    """The payload, with the single arguments laid over it; None where neither is given."""
    if text is None and not arguments:
        return None
    payload = {} if text is None else _object(text, "payload")
    for one in arguments or ():
        key, value = key_and_value(one)
        payload[key] = value_of(value)
    return payload


def key_and_value(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise InvalidInput(f"{text!r} is not of the form KEY=VALUE, such as city=Rome.")
    return key, value


def value_of(text: str) -> Any:
    """What a value on the command line means: JSON where it is JSON, otherwise the text itself."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _object(text: str, field: str) -> Document:
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        value = json.loads(text, parse_constant=_no_constant)
    except OSError as error:
        raise InvalidInput(f"{text[1:]} cannot be read: {error.strerror}.", field=field) from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{text} is not UTF-8 text.", field=field) from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--{field} is not JSON: {error}.", field=field) from None
    if not isinstance(value, dict):
        raise InvalidInput(
            f'--{field} must be a JSON object, such as {{"to": "a@example.org"}}.', field=field
        )
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _command(verb: str) -> Callable[..., int]:
    help_, notice = _HELP_AND_NOTICE[verb]
    is_delete = verb == "delete"

    @api_command
    def command(  # noqa: PLR0917 - the options are named on the command line
        session: ApiSession,
        filters: Document,
        jobs: Annotated[
            list[str] | None, argument("JOB", "Ids, their beginnings, or names.")
        ] = None,
        everything: Annotated[
            bool, flag("--all", "All jobs that match the filter below.", panel="Which jobs")
        ] = False,
        yes: YesOption = False,
        force: Annotated[
            bool,
            option(None, "Also delete what other jobs wait for.", "--force", hidden=not is_delete),
        ] = False,
    ) -> int:
        client = session.client
        if force and not is_delete:
            raise InvalidInput("--force is for job delete only.", field="force")
        if everything == bool(jobs) or (filters and not everything):
            raise InvalidInput(
                "Name the jobs, or give --all, which goes with filters such as --status failed.",
                field="jobs",
            )
        total: Document = {"changed": 0, "refused": [], "refused_count": 0}
        forced = {"force": True} if force else {}
        if everything:
            # The API takes an empty filter for a mistake, but --all is none.
            filters = filters or {"status": list(JobStatus)}
            page = client.get("/api/v1/jobs", **filters, limit=1)
            number, about = page["total"], "about " if page["total_is_estimate"] else ""
            parts: list[Document] = [{"filter": filters}]
        else:
            # All are found before anything is done to one.
            ids = [one if is_id(one) else find(client, "job", one)["id"] for one in jobs or ()]
            ids = list(dict.fromkeys(ids))
            number, about = len(ids), ""
            parts = [{"ids": ids[at : at + _BATCH]} for at in range(0, len(ids), _BATCH)]
        if not number:
            session.show(total, "No job matches.")
            return 0
        whose = "its" if number == 1 else "their"
        history = f" with {whose} history" if is_delete else ""
        question = f"{verb.capitalize()} {about}{count(number, 'job')}{history}?"
        if (everything or is_delete) and not confirmed(question, yes):
            return 1
        if number == 1 and not everything and not is_delete:
            job = client.post(f"/api/v1/jobs/{ids[0]}/{verb}")
            text = f"{notice} {label(job)}."
            if job["status"] == JobStatus.SCHEDULED and job["next_run_at"]:
                text += f" Next run: {both(job['next_run_at'], client.now())}."
            session.show(job, text)
            return 0
        for part in parts:
            result = client.post(f"/api/v1/jobs/bulk/{verb}", part | forced)
            total = {key: total[key] + result[key] for key in total}
        session.show(total, f"{notice} {count(total['changed'], 'job')}.")
        for refused in total["refused"]:
            say(f"{refused['id']}: {refused['reason']}")
        if (unnamed := total["refused_count"] - len(total["refused"])) > 0:
            say(f"and {unnamed:,} more that were refused.")
        return 1 if total["refused_count"] else 0

    command.__doc__ = help_
    command.__name__ = verb
    return command


VERBS = {verb: _command(verb) for verb in _HELP_AND_NOTICE}


@api_command
def backfill(  # noqa: PLR0917 - the options are named on the command line
    session: ApiSession,
    job: JobArgument,
    since: Annotated[str, option("TIME", "Plans after this moment,", "--from")],
    until: Annotated[str, option("TIME", "up to this one.", "--to")],
    limit: Annotated[int | None, option("N", "At most so many plans.", min=1, max=10_000)] = None,
    include_completed: Annotated[
        bool, flag("--include-completed", "Also plans whose run succeeded.")
    ] = False,
) -> None:
    """Run a job for plans of the past, each as a job of its own.

    Times are written as 2030-01-31T09:00:00Z.
    """
    body = {"from": since, "to": until, "limit": limit, "include_completed": include_completed}
    job_id = find(session.client, "job", job)["id"]
    result = session.client.post(f"/api/v1/jobs/{job_id}/backfill", stated(body))
    existing = f", {result['existing']:,} existed already" if result["existing"] else ""
    plans = result["plans"]
    between = f" From {exact(plans[0])} to {exact(plans[-1])}." if plans else ""
    session.show(result, f"{result['created']:,} runs added{existing}.{between}")
