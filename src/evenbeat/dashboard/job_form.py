"""The form of a job, new or edited: from fields to the API's own request, and back.

What the API would refuse is refused here by the same models and rules, with its words beside the
field they are about.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from evenbeat.api.dependencies import Service
from evenbeat.api.requests import JobCreate, JobEdit
from evenbeat.dashboard.forms import Form
from evenbeat.domain import webhooks
from evenbeat.domain.dependencies import Dependency
from evenbeat.domain.duration import format_duration
from evenbeat.domain.job import BY_NAME, SETTINGS, Job, JobSpec, Setting, schedule_of, spec_of
from evenbeat.domain.schedule import After, Cron, Interval
from evenbeat.domain.setting_kinds import Choice, Flag
from evenbeat.errors import Conflict, InvalidInput, NameTaken, validation_message

_Answer = TypeVar("_Answer")

# Where the API's field is another control of the form.
_SHOWN_AT = {"interval_seconds": "schedule", "schedule_enabled": "schedule", "delay": "run_at"}
_TEXTS = ("name", "task", "description")
_NO_OBJECT = 'Give an object with the task\'s arguments, such as {"to": "a@b.c"}.'
_DEFAULTS = JobSpec(task="any")
FIELDS = (
    *_TEXTS, *BY_NAME, "payload", "tags", "kind", "every", "cron", "timezone", "run_at", "paused",
    "after",
)  # fmt: skip


class FormControl(NamedTuple):
    """How the form shows a setting."""

    name: str
    label: str
    hint: str
    placeholder: str
    choices: tuple[str, ...]


def _control_of(setting: Setting) -> FormControl:
    default = setting.of(_DEFAULTS)
    choices: tuple[str, ...] = ()
    if isinstance(setting.kind, Choice):
        choices = tuple(setting.kind.words)
    elif isinstance(setting.kind, Flag):
        choices = ("true", "false")
    return FormControl(
        setting.name,
        setting.name.replace("_", " ").capitalize(),
        setting.help,
        "" if default is None else setting.kind.to_text(default),
        choices,
    )


def setting_groups() -> dict[str, list[FormControl]]:
    """The controls of all settings but the placement, which stands beside the interval."""
    groups: dict[str, list[FormControl]] = {}
    for setting in SETTINGS:
        if setting.name != "placement":
            groups.setdefault(setting.group, []).append(_control_of(setting))
    return groups


class Refused(Exception):
    """The form as it was sent, with what is wrong with each field."""

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = errors


class TaskChoice(NamedTuple):
    """A task to choose: its words and its arguments."""

    name: str
    doc: str
    schema: dict[str, Any]
    workers: int


# -- from the form to a request --------------------------------------------------------------------


def new_request(form: Form, zone: tzinfo) -> JobCreate:
    """The request for a new job; empty fields are left to the task."""
    fields = {name: value for name, value in _fields(form).items() if value is not None}
    fields |= _when(form, zone)
    if form.flag("paused"):
        fields["paused"] = True
    return _checked(lambda: JobCreate.model_validate(fields))


def edit_request(form: Form, job: Job, zone: tzinfo) -> JobEdit:
    """The request for a change. Empty fields go back to the task's defaults."""
    fields = _fields(form)
    if not fields["name"] and job.name is None:
        del fields["name"]
    when = _when(form, zone)
    if form.text("kind") == "once":
        when["schedule_enabled"] = False
        plan = job.plan_time
        unmoved = plan is not None and local_minute(plan, zone) == form.text("run_at")[:16]
        if when.get("run_at") is None or unmoved:
            when.pop("run_at", None)
    return _checked(lambda: JobEdit.model_validate(fields | when))


def refusing(work: Callable[[], _Answer]) -> _Answer:
    """Do what the form asks for; what is refused is said at its field."""
    try:
        return work()
    except NameTaken as error:
        raise Refused({"name": str(error)}) from None
    except InvalidInput as error:
        field = error.field or ""
        raise Refused({_control(field): str(error)}) from None
    except Conflict as error:
        raise Refused({"": str(error)}) from None


def _fields(form: Form) -> dict[str, Any]:
    errors: dict[str, str] = {}
    fields: dict[str, Any] = {name: form.text(name) or None for name in _TEXTS}
    for setting in SETTINGS:
        text = form.text(setting.name)
        try:
            fields[setting.name] = setting.kind.from_text(setting.name, text) if text else None
        except InvalidInput as error:
            errors[setting.name] = str(error)
    fields["tags"] = [tag for part in form.text("tags").split(",") if (tag := part.strip())] or None
    try:
        fields["payload"] = _payload(form.text("payload"))
    except ValueError as error:
        errors["payload"] = str(error)
    if errors:
        raise Refused(errors)
    return fields


def _payload(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"This is not JSON: {error.msg.lower()} at {where}.") from None
    except RecursionError:
        raise ValueError("This is nested too deeply.") from None
    if not isinstance(value, dict):
        raise ValueError(_NO_OBJECT)  # noqa: TRY004 - it becomes the field's message
    return value


def _when(form: Form, zone: tzinfo) -> dict[str, Any]:
    kind = form.text("kind")
    if kind == "every":
        if not form.text("every"):
            raise Refused({"schedule": "Say how often, for example 30m or 1h30m."})
        return {"schedule": f"@every {form.text('every')}"}
    if kind == "cron":
        if not form.text("cron"):
            raise Refused({"schedule": "Give five cron fields, for example 0 9 * * mon-fri."})
        return {"schedule": form.text("cron"), "timezone": form.text("timezone") or "UTC"}
    if kind == "after":
        awaited = [_awaited(part) for part in form.text("after").split(",") if part.strip()]
        if not awaited:
            raise Refused({"after": "Name at least one job, for example load-data."})
        return {"after": awaited}
    moment = moment_of(form.text("run_at"), zone, "run_at")
    return {} if moment is None else {"run_at": moment.isoformat()}


def _awaited(text: str) -> dict[str, str]:
    """ "load-data", or "load-data on any" where another end than success is wanted."""
    name, _, end = text.strip().rpartition(" on ")
    return {"job": name.strip(), "on": end} if end in _ENDS and name else {"job": text.strip()}


_ENDS = ("success", "failure", "any")


def _awaited_text(one: Dependency) -> str:
    job = str(one.id) if one.name is None or "," in one.name or " on " in one.name else one.name
    return job if one.wanted == "success" else f"{job} on {one.wanted}"


def moment_of(text: str, zone: tzinfo, field: str) -> datetime | None:
    """What a date and time control says, in the visitor's time zone; None when it is empty."""
    if not text:
        return None
    try:
        naive = datetime.fromisoformat(text)
        return (naive if naive.tzinfo else naive.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Refused({field: f"{text[:40]!r} is not a date and time."}) from None


def _checked(build: Callable[[], _Answer]) -> _Answer:
    try:
        return build()
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise Refused(
            {
                _control(str(e["loc"][0])): (text := validation_message(e))[:1].upper() + text[1:]
                for e in problems
            }
        ) from None


def _control(field: str) -> str:
    return _SHOWN_AT.get(field, field)


# -- from a job to the form ------------------------------------------------------------------------


def blank(task: str = "", queue: str = "") -> dict[str, str]:
    """The form before anything is filled in."""
    empty = dict.fromkeys(FIELDS, "")
    return empty | {"kind": "every", "placement": "balanced", "task": task, "queue": queue}


def sent(form: Form) -> dict[str, str]:
    """The form as it was sent."""
    return {name: form.text(name) for name in FIELDS} | {"kind": form.text("kind") or "once"}


def filled(job: Job, zone: tzinfo, awaited: Sequence[Dependency] = ()) -> dict[str, str]:
    """The form of a job that exists."""
    spec, schedule = spec_of(job), schedule_of(job)
    tags, description = job.metadata.get("tags"), job.metadata.get("description")
    settings = {setting: setting.of(spec) for setting in SETTINGS}
    values = {
        "name": job.name,
        "task": spec.task,
        "payload": json.dumps(job.payload, indent=2, ensure_ascii=False) if job.payload else "",
        "tags": ", ".join(map(str, tags)) if isinstance(tags, list) else "",
        "description": description if isinstance(description, str) else "",
        "timezone": job.timezone,
        "kind": "once",
        **{
            setting.name: setting.kind.to_text(value)
            for setting, value in settings.items()
            if value is not None
        },
    }
    if isinstance(schedule, Interval):
        values |= {"kind": "every", "every": format_duration(schedule.every)}
    elif isinstance(schedule, Cron):
        values |= {"kind": "cron", "cron": schedule.text}
    elif isinstance(schedule, After):
        values |= {"kind": "after", "after": ", ".join(map(_awaited_text, awaited))}
    elif job.plan_time is not None:
        values["run_at"] = local_minute(job.plan_time, zone)
    return blank() | {name: "" if v is None else str(v) for name, v in values.items()}


def local_minute(moment: datetime, zone: tzinfo) -> str:
    """A moment as the browser's own date and time control writes it."""
    return f"{moment.astimezone(zone):%Y-%m-%dT%H:%M}"


# -- what can be chosen ----------------------------------------------------------------------------


def task_choices(service: Service) -> list[TaskChoice]:
    """Every task that this process or a worker knows, but for the delivery of webhooks: its jobs
    are made by what happens."""
    named = {task.name: task for task in service.app.store.read.tasks(now=service.now)}
    choices = [TaskChoice(t.name, t.doc, t.schema, t.workers_now) for t in named.values()]
    choices += [
        TaskChoice(task.name, task.description, task.signature.json_schema(), 0)
        for task in service.app.registry
        if task.name not in named
    ]
    return sorted(choice for choice in choices if choice.name != webhooks.TASK)


class Argument(NamedTuple):
    """One argument of a task, for people."""

    name: str
    kind: str
    required: bool
    note: str


def arguments_of(schema: dict[str, Any]) -> tuple[Argument, ...]:
    """The arguments that a payload's JSON schema describes."""
    required = set(schema.get("required", ()))
    properties: dict[str, Any] = schema.get("properties", {})
    return tuple(
        Argument(name, _kind(one), name in required, _note(one)) for name, one in properties.items()
    )


def _kind(one: dict[str, Any]) -> str:
    options = one.get("anyOf") or [one]
    return " or ".join(
        str(o.get("type") or o.get("$ref", "any").rpartition("/")[2]) for o in options
    )


def _note(one: dict[str, Any]) -> str:
    default = f"default {json.dumps(one['default'])}" if "default" in one else ""
    return "; ".join(part for part in (str(one.get("description", "")), default) if part)
