"""Adding and editing a job: from the form's fields to the API's own request and back, with a
preview of when the job would run and where it would be placed.

What the API would refuse is refused here by the same models and rules, with its words beside the
field they are about.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from fastapi import Response
from pydantic import ValidationError

from evenbeat.api.dependencies import Operator, Service
from evenbeat.api.jobs import job_from, note_added, update_job
from evenbeat.api.requests import JobCreate, JobEdit, task_of
from evenbeat.api.tasks import TaskDocument, known_task, known_tasks
from evenbeat.dashboard import pages
from evenbeat.dashboard.jobs import undoable
from evenbeat.dashboard.pages import Form, FormDep, Notice, PageDep, PageRequest, id_of
from evenbeat.dashboard.reference import type_of
from evenbeat.domain import webhooks
from evenbeat.domain.dependencies import Dependency
from evenbeat.domain.duration import format_duration
from evenbeat.domain.job import (
    SETTINGS,
    JobRecord,
    JobSpec,
    Placement,
    Setting,
    spec_of,
    with_settings,
)
from evenbeat.domain.schedule import After, Cron, Interval, Recurring, schedule_from_fields
from evenbeat.domain.window import due_at
from evenbeat.errors import Conflict, InvalidInput, NameTaken, validation_message

router = pages.router()

REFUSED = (ValidationError, InvalidInput, Conflict)
"""What is wrong with a form; `errors_of` says so field by field."""

_PREVIEWED = 5
_DEFAULTS = JobSpec(task="any")
_TEXTS = ("name", "task", "description")
_TIMING = ("kind", "every", "cron", "timezone", "run_at", "placement", "window", "cost")
_BLANK = (("kind", "every"), ("placement", "balanced"))
_ENDS = ("success", "failure", "any")
# Where the API's field is another control of the form.
_SHOWN_AT = {"interval_seconds": "schedule", "delay": "run_at"}


@router.get("/jobs/new", name="new_job")
def new_job(page: PageDep, _operator: Operator) -> Response:
    """An empty form; `?task=` and `?queue=` fill it in. With `?like=` it has what another job has,
    for running that once with other arguments."""
    values = {name: page.query.text(name) for name in ("task", "queue")}
    form = Form([*_BLANK, *values.items()])
    if like := page.query.text("like"):
        pairs = filled(page.store.read.job(id_of(like)), page.zone).pairs
        own = [(name, value) for name, value in pairs if name not in ("name", *_TIMING)]
        form = Form([*_BLANK, *own, ("kind", "once")])
    return _page(page, form)


@router.post("/jobs/new", name="add_job")
def add_job(page: PageDep, operator: Operator, form: FormDep) -> Response:
    """Add the job, or show the form again with what is wrong with it."""
    service = page.service
    try:
        body = new_request(form, page.zone)
        task = known_task(service, task_of(body))
        job = job_from(body, task, operator.subject)
        added = service.app.add(job)
        note_added(service, [job], [added])
    except REFUSED as error:
        return _page(page, form, errors=errors_of(error))
    if body.paused and added.created:
        service.app.store.control.pause([added.id], now=service.now)
    warnings = [Notice(text, "refused") for text in task.warnings]
    text = "A job like this was there already."
    if added.created:
        text = f"Added {body.name or body.task}."
    return page.back(page.url("job", job_id=added.id), Notice(text), *warnings)


@router.get("/jobs/{job_id}/edit", name="edit_job")
def edit_job(page: PageDep, job_id: str, _operator: Operator) -> Response:
    job = page.store.read.job(id_of(job_id))
    awaited = page.store.dependencies.awaited_by([job.id])[job.id]
    return _page(page, filled(job, page.zone, awaited), job)


@router.post("/jobs/{job_id}/edit", name="change_job")
def change_job(page: PageDep, job_id: str, operator: Operator, form: FormDep) -> Response:
    """Change the job, or show the form again with what is wrong with it."""
    job = page.store.read.job(id_of(job_id))

    def act() -> list[JobRecord]:
        update_job(job.id, edit_request(form, job, page.zone), page.service, operator)
        return [page.store.read.job(job.id)]

    try:
        undo = page.store.undo.around([job.id], act, now=page.service.now)
    except REFUSED as error:
        return _page(page, form, job, errors_of(error))
    return page.back(page.url("job", job_id=job.id), undoable(page, "Saved.", undo))


@router.post("/jobs/preview", name="preview_job")
def preview_job(page: PageDep, _operator: Operator, form: FormDep) -> Response:
    """What the form would come to, as a fragment."""
    return page.render("job_preview.html", preview=preview(page, form, task_choices(page.service)))


def _page(
    page: PageRequest,
    form: Form,
    job: JobRecord | None = None,
    errors: dict[str, str] | None = None,
) -> Response:
    errors, tasks, kind = dict(errors or {}), task_choices(page.service), form.text("kind")
    if "schedule" in errors and kind in ("every", "cron"):
        errors[kind] = errors.pop("schedule")
    return page.render(
        "job_form.html",
        status=422 if errors else 200,
        form=form,
        job=job,
        errors=errors,
        tasks=tasks,
        groups=setting_groups(),
        defaults=_DEFAULTS,
        preview=preview(page, form, tasks),
    )


def task_choices(service: Service) -> list[TaskDocument]:
    """Every task that this process or a worker knows, but for the delivery of webhooks: its jobs
    are made by what happens."""
    return [task for task in known_tasks(service) if task.name != webhooks.TASK]


def setting_groups() -> dict[str, list[Setting]]:
    """All settings but the placement, which stands beside the interval."""
    groups: dict[str, list[Setting]] = {}
    for setting in SETTINGS:
        if setting.name != "placement":
            groups.setdefault(setting.group, []).append(setting)
    return groups


def new_request(form: Form, zone: tzinfo) -> JobCreate:
    """The request for a new job; empty fields are left to the task."""
    fields = {name: value for name, value in _fields(form).items() if value is not None}
    if form.flag("paused"):
        fields["paused"] = True
    return JobCreate.model_validate(fields | _when(form, zone))


def edit_request(form: Form, job: JobRecord, zone: tzinfo) -> JobEdit:
    """The request for a change. Empty fields go back to the task's defaults."""
    fields = _fields(form)
    if not fields["name"] and job.name is None:
        del fields["name"]
    when = _when(form, zone)
    if form.text("kind") == "once":
        when |= {"schedule": None, "after": None}
        if job.plan_time and local_minute(job.plan_time, zone) == form.text("run_at")[:16]:
            when.pop("run_at", None)
    return JobEdit.model_validate(fields | when)


def _fields(form: Form) -> dict[str, Any]:
    fields: dict[str, Any] = {name: form.text(name) or None for name in _TEXTS}
    for setting in SETTINGS:
        text: Any = form.text(setting.name) or None
        fields[setting.name] = text and setting.kind.from_text(text)
    fields["tags"] = [tag for part in form.text("tags").split(",") if (tag := part.strip())] or None
    try:
        fields["payload"] = json.loads(form.text("payload") or "{}")
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidInput(f"This is not JSON: {error}.", field="payload") from None
    if not isinstance(fields["payload"], dict):
        text = 'Give an object with the task\'s arguments, such as {"to": "a@b.c"}.'
        raise InvalidInput(text, field="payload")
    return fields


def _when(form: Form, zone: tzinfo) -> dict[str, Any]:
    kind = form.text("kind")
    if kind == "every":
        if not form.text("every"):
            raise InvalidInput("Say how often, for example 30m or 1h30m.", field="schedule")
        return {"schedule": f"@every {form.text('every')}"}
    if kind == "cron":
        if not form.text("cron"):
            text = "Give five cron fields, for example 0 9 * * mon-fri."
            raise InvalidInput(text, field="schedule")
        return {"schedule": form.text("cron"), "timezone": form.text("timezone") or "UTC"}
    if kind == "after":
        awaited = []
        for part in filter(None, map(str.strip, form.text("after").split(","))):
            name, _, end = part.rpartition(" on ")  # as in "load-data on any"
            named = {"job": name.strip(), "on": end}
            awaited.append(named if name and end in _ENDS else {"job": part})
        if not awaited:
            raise InvalidInput("Name at least one job, for example load-data.", field="after")
        return {"after": awaited}
    moment = moment_of(form, "run_at", zone)
    return {} if moment is None else {"run_at": moment.isoformat()}


def moment_of(form: Form, field: str, zone: tzinfo) -> datetime | None:
    """What a date and time control says, in the visitor's time zone; None when it is empty."""
    text = form.text(field)
    if not text:
        return None
    try:
        naive = datetime.fromisoformat(text)
        return (naive if naive.tzinfo else naive.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(f"{text[:40]!r} is not a date and time.", field=field) from None


def errors_of(error: Exception) -> dict[str, str]:
    """What is wrong, by the control that shows it; under "" what concerns the form as a whole."""
    if isinstance(error, ValidationError):
        texts = {
            str(one["loc"][0]): validation_message(one)
            for one in error.errors(include_url=False, include_input=False)
        }
        return {_SHOWN_AT.get(f, f): text[:1].upper() + text[1:] for f, text in texts.items()}
    field = (isinstance(error, InvalidInput) and error.field) or ""
    return {"name" if isinstance(error, NameTaken) else _SHOWN_AT.get(field, field): str(error)}


def filled(job: JobRecord, zone: tzinfo, awaited: Sequence[Dependency] = ()) -> Form:
    spec = spec_of(job)
    schedule = spec.schedule
    tags, description = job.metadata.get("tags"), job.metadata.get("description")
    values = {
        "name": job.name,
        "task": spec.task,
        "payload": json.dumps(job.payload, indent=2, ensure_ascii=False) if job.payload else "",
        "tags": ", ".join(map(str, tags)) if isinstance(tags, list) else "",
        "description": description if isinstance(description, str) else "",
        "timezone": job.timezone,
        "kind": "once",
    }
    for setting in SETTINGS:
        if (value := setting.of(spec)) is not None:
            values[setting.name] = setting.kind.to_text(value)
    if isinstance(schedule, Interval):
        values |= {"kind": "every", "every": format_duration(schedule.every)}
    elif isinstance(schedule, Cron):
        values |= {"kind": "cron", "cron": schedule.text}
    elif isinstance(schedule, After):
        names = []
        for one in awaited:
            is_plain = one.name is not None and "," not in one.name and " on " not in one.name
            is_plain = is_plain and not one.is_batch  # a name means a job
            end = "" if one.wanted == "success" else f" on {one.wanted}"
            names.append(f"{one.name if is_plain else one.id}{end}")
        values |= {"kind": "after", "after": ", ".join(names)}
    elif job.plan_time is not None:
        values["run_at"] = local_minute(job.plan_time, zone)
    return Form([*_BLANK, *((name, value) for name, value in values.items() if value)])


def local_minute(moment: datetime, zone: tzinfo) -> str:
    """A moment as the browser's own date and time control writes it."""
    return f"{moment.astimezone(zone):%Y-%m-%dT%H:%M}"


def preview(page: PageRequest, form: Form, tasks: list[TaskDocument]) -> dict[str, Any]:
    """As much as can be said; a form that is not finished yet is no error."""
    name, kind = form.text("task"), form.text("kind")
    task = next((one for one in tasks if one.name == name), None)
    shown: dict[str, Any] = {
        "schedule": "",
        "runs": (),
        "load": None,
        "hint": None,
        "trouble": "",
        "task": task,
    }
    shown["arguments"] = _arguments(task.schema_) if task else []
    shown["warnings"] = known_task(page.service, name[:200]).warnings if name else ()
    if kind in ("every", "cron") and not form.text(kind):
        return shown
    if kind == "after":
        return shown | {"schedule": "after other jobs"}
    try:
        return shown | _planned(page, form)
    except REFUSED as error:
        return shown | {"trouble": "; ".join(errors_of(error).values())}


def _arguments(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """The arguments that a payload's JSON schema describes, each with what is to be said of it."""
    arguments = []
    for name, one in schema.get("properties", {}).items():
        required = ", required" if name in schema.get("required", ()) else ""
        default = f"default {json.dumps(one['default'])}" if "default" in one else ""
        notes = [f"{type_of(one)}{required}", str(one.get("description", "")), default]
        arguments.append((name, "; ".join(filter(None, notes))))
    return arguments


def _planned(page: PageRequest, form: Form) -> dict[str, Any]:
    timing = Form([(k, v) for k, v in form.pairs if k in _TIMING] + [("task", "any")])
    body, now = new_request(timing, page.zone), page.now
    schedule = schedule_from_fields(body.schedule_fields())
    spec = with_settings(_DEFAULTS, body.changed_settings())
    if not isinstance(schedule, Recurring):
        run_at = body.run_at if body.run_at is not None and body.run_at > now else now
        return {"schedule": "once", "runs": (run_at,)}
    first, load, balancer = schedule.next_after(now), None, page.service.app.balancer
    window = None if spec.window is None else balancer.hours(spec.window)
    if isinstance(schedule, Interval) and spec.placement is Placement.BALANCED:
        cost = None if spec.cost is None else spec.cost.total_seconds() * 1000
        placed = balancer.where(schedule.every, cost, window)
        first, load = placed.at, placed.load
        schedule = Interval(schedule.every, first)
    elif isinstance(schedule, Interval) and spec.placement is Placement.PINNED:
        first = now + schedule.every
        schedule = Interval(schedule.every, first)
    plans = [first, *schedule.preview(first, _PREVIEWED - 1)]
    runs = tuple(due_at(plan, timedelta(0), window) for plan in plans)
    hint = balancer.hint(replace(spec, schedule=schedule))
    return {"schedule": schedule.describe(), "runs": runs, "load": load, "hint": hint}
