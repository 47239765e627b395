"""`evenbeat job add`."""

import inspect
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from evenbeat.cli.client import Document
from evenbeat.cli.job_views import label
from evenbeat.cli.output import both, say
from evenbeat.cli.session import ApiSession, api_command
from evenbeat.domain.job import BY_NAME, SETTINGS, Setting
from evenbeat.domain.setting_kinds import Choice
from evenbeat.errors import InvalidInput

_WHEN = "When"
_EXAMPLE = """for example: evenbeat job add send_email to=a@example.org"""


def _option(panel: str, metavar: str, text: str, kind: Any = str, *names: str) -> Any:
    return Annotated[
        kind | None, typer.Option(*names, metavar=metavar, rich_help_panel=panel, help=text)
    ]


def _setting_option(setting: Setting) -> Any:
    kind = setting.kind
    metavar = "|".join(kind.words) if isinstance(kind, Choice) else kind.metavar or None
    return _option(setting.group, metavar or "", setting.help, kind.option_type)


# The options that `job add` and `job edit` share, by the API's names of their fields.
OPTIONS: dict[str, Any] = {
    "payload": _option(
        "What", "JSON|@FILE|-", "The arguments as a JSON object, from a file, or from -."
    ),
    "name": _option("What", "NAME", "A name, unique within the scope."),
    "description": _option("What", "TEXT", "For people."),
    "tags": _option("What", "TAG", "May be given several times.", list[str], "--tag"),
    "metadata": _option("What", "JSON", "Anything to keep with the job, as a JSON object."),
    "every": _option(_WHEN, "DURATION", "Run every so often, such as 30m."),
    "cron": _option(_WHEN, "FIELDS", "Run by cron, such as '0 9 * * mon-fri'."),
    "schedule": _option(_WHEN, "TEXT", "Either of them, or a name such as @daily."),
    "timezone": _option(_WHEN, "ZONE", "What cron is read in."),
    "run_at": _option(
        _WHEN, "TIME", "The first run: 2030-01-31T09:00:00Z.", str, "--run-at", "--at"
    ),
    "delay": _option(_WHEN, "DURATION", "The first run, from now."),
    "anchor_at": _option(_WHEN, "TIME", "A moment that the rhythm of an interval goes through."),
    "after": _option(
        _WHEN,
        "JOB",
        "Run whenever this job has ended; id or name, may be given several times.",
        list[str],
    ),
    "after_on": _option(_WHEN, "END", "How it must end: success, failure or any."),
    **{setting.name: _setting_option(setting) for setting in SETTINGS},
}
_ONLY_NEW: dict[str, Any] = {
    "dedup_key": _option("How", "KEY", "At most one live job for this key."),
    "scope": _option("How", "KIND/ID", "What this copy stands for."),
}
_Paused = Annotated[
    bool, typer.Option("--paused", rich_help_panel=_WHEN, help="Wait to be resumed first.")
]


def keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """A parameter of a command whose signature is put together here."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _add(
    session: ApiSession,
    /,
    task: str,
    arguments: list[str] | None,
    payload: str | None,
    scope: str | None,
    **options: Any,
) -> int:
    """Add a job: now, later, or on a schedule.

    `evenbeat job add send_email to=a@example.org --delay 10m` runs once in ten minutes; with
    `--every 30m`, every half hour in a balanced place.
    """
    body = body_of(options) | {"task": task}
    if (arguments_of_task := payload_of(payload, arguments or [])) is not None:
        body["payload"] = arguments_of_task
    if scope is not None:
        kind, _, name = scope.partition("/")
        if not kind or not name:
            raise InvalidInput(
                f"--scope {scope}: give kind and id with a slash between, such as tenant/42.",
                field="scope",
            )
        body["scope"] = {"kind": kind, "id": name}
    return answer(session, session.client.post("/api/v1/jobs", body))


_add.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
    inspect.Parameter("session", inspect.Parameter.POSITIONAL_ONLY),
    keyword(
        "task",
        Annotated[str, typer.Argument(
            metavar="TASK", help="What to run; `evenbeat task list` shows tasks.")],
        inspect.Parameter.empty,
    ),
    keyword(
        "arguments",
        Annotated[list[str] | None, typer.Argument(
            metavar="KEY=VALUE",
            help="The task's arguments. A value is read as JSON where it is JSON, "
            "otherwise as text.")],
    ),
    *(keyword(name, option) for name, option in (OPTIONS | _ONLY_NEW).items()),
    keyword("paused", _Paused, False),
])  # fmt: skip
add = api_command(_add)


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


def body_of(options: Document) -> Document:
    """The API's fields for the options that were given."""
    body = {name: value for name, value in options.items() if value not in (None, [], False)}
    body |= {name: False for name, value in options.items() if value is False and name in BY_NAME}
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
    return body


def payload_of(text: str | None, arguments: list[str]) -> dict[str, Any] | None:
    """The payload, with the single arguments laid over it."""
    payload = {} if text is None else _object(text, "payload")
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


def _object(text: str, field: str) -> dict[str, Any]:
    source = _read(text)
    try:
        value = json.loads(source, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--{field} is not JSON: {error}.", field=field) from None
    if not isinstance(value, dict):
        raise InvalidInput(
            f'--{field} must be a JSON object, such as {{"to": "a@example.org"}}.', field=field
        )
    return value


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
