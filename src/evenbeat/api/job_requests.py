"""From a request to a job: which spec, payload and metadata its fields describe.

A new job starts from its task's own settings, an edited one from what it is; either way only the
fields that were given count, and null puts a setting back to the task's.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from evenbeat.api.requests import JobCreate, JobEdit
from evenbeat.domain.job import BY_NAME, JobSpec, NewJob, with_settings
from evenbeat.domain.limits import filled_key
from evenbeat.domain.schedule import Once, Schedule, schedule_from_fields
from evenbeat.domain.scope import GLOBAL, Scope
from evenbeat.errors import InvalidInput

CRAWL = "crawl"
SOURCE_FIELDS = ("url", "source_id", "source_name")


def task_of(request: JobCreate) -> str:
    """The task that is meant: the one that is named, or `crawl` for a URL."""
    if request.task is not None:
        return str(request.task)
    if request.url is not None:
        return CRAWL
    raise InvalidInput(
        'A job needs a task to run, for example "task": "send_report", or a "url" to crawl.',
        field="task",
    )


def new_job(
    request: JobCreate, defaults: JobSpec, payload: Mapping[str, Any], created_by: str
) -> NewJob:
    """The job that a request describes; its payload was checked by then."""
    schedule = schedule_for(request, None)
    start = _start(request)
    scope = GLOBAL
    if request.scope is not None:
        try:
            scope = Scope(request.scope.kind, request.scope.id)
        except InvalidInput as error:
            error.field = "scope"
            raise
    return NewJob(
        edited_spec(request, defaults, defaults, schedule, payload),
        payload,
        start=start,
        name=request.name,
        scope=scope,
        dedup_key=request.dedup_key,
        metadata=edited_metadata(request, {}) or {},
        created_by=created_by,
    )


def edited_spec(
    request: JobEdit,
    spec: JobSpec,
    defaults: JobSpec,
    schedule: Schedule,
    payload: Mapping[str, Any],
) -> JobSpec:
    """The spec with the request's fields in place of its own."""
    requested = request.changed_settings()
    changes = {n: BY_NAME[n].of(defaults) if v is None else v for n, v in requested.items()}
    if "retry_cap" in requested and requested["retry_cap"] is None:
        backoff = changes.get("retry_backoff", spec.retry.backoff)
        changes["retry_cap"] = max(defaults.retry.cap, backoff)
    if requested.get("concurrency_key") is None and (
        spec is defaults or "concurrency_key" in requested
    ):
        # A key in a request is meant literally; that of a task may be made of the arguments.
        key = defaults.concurrency_key
        changes["concurrency_key"] = None if key is None else filled_key(key, payload)
    edited = replace(spec, task=request.task or spec.task, schedule=schedule)
    return with_settings(edited, changes)


def edited_payload(request: JobEdit, payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """The payload with the request's fields in it; None when it says nothing of the payload."""
    touched = request.model_fields_set & {"payload", *SOURCE_FIELDS}
    if not touched:
        return None
    result = dict(request.payload or {}) if "payload" in touched else dict(payload)
    for field in SOURCE_FIELDS:
        value = getattr(request, field)
        if field in touched and value is None and field not in (request.payload or {}):
            result.pop(field, None)
        elif value is not None and result.get(field, value) != value and "payload" in touched:
            raise InvalidInput(
                f"{field} is given twice, in the payload and beside it, and differs. Give it once.",
                field=field,
            )
        elif value is not None:
            result[field] = value
    return result


def edited_metadata(request: JobEdit, metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """The metadata with description and tags in it; None when the request says nothing of it."""
    touched = request.model_fields_set & {"metadata", "description", "tags"}
    if not touched:
        return None
    result = dict(request.metadata or {}) if "metadata" in touched else dict(metadata)
    for field, value in (("description", request.description), ("tags", request.tags)):
        if value is not None and value != []:
            result[field] = value if isinstance(value, str) else list(dict.fromkeys(value))
        elif field in touched:
            result.pop(field, None)
    return result


def schedule_for(request: JobEdit, present: Schedule | None) -> Schedule:
    """The schedule that the fields describe; the present one where they say nothing of it."""
    if request.schedule_enabled is False and request.after is None:
        return Once()
    schedule = schedule_from_fields(request.schedule_fields(), present)
    if request.schedule_enabled and isinstance(schedule, Once):
        raise InvalidInput(
            "schedule_enabled is true, but there is no schedule. Give schedule, interval_seconds, "
            "or interval_minutes with interval_type; or false to run once.",
            field="schedule_enabled",
        )
    return schedule


def moved_once(request: JobEdit, schedule: Schedule, now: datetime) -> Schedule:
    """For an edit: a one-off job's schedule with the new moment that the request names."""
    start = _start(request)
    if start is None:
        return schedule
    if not isinstance(schedule, Once):
        field = "run_at" if request.delay is None else "delay"
        raise InvalidInput(
            f"{field} moves a job that runs once, and this one has a schedule. Use anchor_at to "
            "shift the rhythm of an interval, or run it now.",
            field=field,
        )
    return Once(now + start if isinstance(start, timedelta) else start)


def _start(request: JobEdit) -> datetime | timedelta | None:
    if request.run_at is not None and request.delay is not None:
        raise InvalidInput("run_at and delay both say when to start. Give one.", field="delay")
    return request.run_at if request.delay is None else request.delay
