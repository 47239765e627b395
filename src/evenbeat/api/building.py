"""From a request to a job: which spec, payload and metadata its fields describe.

A new job starts from its task's own settings, an edited one from what it is; either way only the
fields that were given count, and null puts a setting back to the task's.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from evenbeat.api.schemas import JobCreate, JobEdit, ScheduleFields
from evenbeat.domain.catch_up import CatchUp, CatchUpMode
from evenbeat.domain.job import JobSpec, NewJob, OnFailure, Placement
from evenbeat.domain.limits import filled_key, parse_rate
from evenbeat.domain.retry import RetryPolicy
from evenbeat.domain.schedule import (
    After,
    AfterCondition,
    Awaited,
    Cron,
    Interval,
    Once,
    Schedule,
    after_jobs,
    parse_schedule,
)
from evenbeat.domain.scope import GLOBAL, Scope
from evenbeat.domain.window import parse_window
from evenbeat.errors import InvalidInput

CRAWL = "crawl"
SOURCE_FIELDS = ("url", "source_id", "source_name")
_UNITS = {"minutes": "minutes", "hours": "hours", "days": "days"}


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
    schedule = schedule_for(request, Once())
    start = _start(request)
    spec = edited_spec(request, defaults, defaults, schedule, payload)
    return NewJob(
        spec,
        payload,
        start=start,
        name=request.name,
        scope=_scope(request),
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

    def chosen(field: str, attribute: str | None = None) -> Any:
        attribute = attribute or field
        if field not in request.model_fields_set:
            return getattr(spec, attribute)
        value = getattr(request, field)
        return getattr(defaults, attribute) if value is None else value

    window, rate = chosen("window"), chosen("rate_limit")
    return replace(
        spec,
        task=request.task or spec.task,
        queue=chosen("queue"),
        priority=chosen("priority"),
        schedule=schedule,
        placement=Placement(chosen("placement")),
        schedule_delay=chosen("schedule_delay"),
        window=parse_window(window) if isinstance(window, str) else window,
        catch_up=_catch_up(request, spec.catch_up, defaults.catch_up),
        retry=_retry(request, spec.retry, defaults.retry),
        on_failure=OnFailure(chosen("on_failure")),
        timeout=chosen("timeout"),
        lease=chosen("lease"),
        heartbeat=chosen("heartbeat"),
        allow_stale_reentry=chosen("allow_stale_reentry"),
        cost=chosen("cost"),
        concurrency_key=_key(request, spec, defaults, payload),
        concurrency_limit=chosen("concurrency_limit"),
        rate_limit=None if rate is None else parse_rate(rate),
    )


def _key(
    request: JobEdit, spec: JobSpec, defaults: JobSpec, payload: Mapping[str, Any]
) -> str | None:
    """A key in a request is meant literally; that of a task may be made of the arguments."""
    if request.concurrency_key is not None:
        return str(request.concurrency_key)
    if spec is not defaults and "concurrency_key" not in request.model_fields_set:
        return spec.concurrency_key
    key = defaults.concurrency_key
    return None if key is None else filled_key(key, payload)


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
        if value is not None:
            result[field] = value if isinstance(value, str) else list(dict.fromkeys(value))
        elif field in touched:
            result.pop(field, None)
    return result


# -- schedules -----------------------------------------------------------------------------------


def schedule_for(request: JobEdit, present: Schedule) -> Schedule:
    """The schedule that the fields describe; the present one where they say nothing of it."""
    if request.schedule_enabled is False:
        return Once()
    if awaited := _awaited(request, present):
        return awaited
    given = described_schedule(request) or _legacy_schedule(request) or _changed(request, present)
    if request.schedule_enabled and isinstance(given, Once):
        raise InvalidInput(
            "schedule_enabled is true, but there is no schedule. Give schedule, interval_seconds, "
            "or interval_minutes with interval_type; or false to run once.",
            field="schedule_enabled",
        )
    return _anchored(request, given)


def _awaited(request: JobEdit, present: Schedule) -> Schedule | None:
    """The schedule of a job that runs after others, if the request makes it one or ends that."""
    if request.after is None:
        if request.after_on is not None:
            raise InvalidInput(
                "after_on says how the jobs of `after` must end, and that is missing.",
                field="after_on",
            )
        ceases = "after" in request.model_fields_set and isinstance(present, After)
        return Once() if ceases and described_schedule(request) is None else None
    for other in ("schedule", "interval_seconds", "interval_minutes", "schedule_time"):
        if getattr(request, other) is not None:
            raise InvalidInput(
                f"after and {other} both say when to run. Give one of them.", field="after"
            )
    given = [request.after] if isinstance(request.after, str) else request.after
    default = request.after_on or AfterCondition.SUCCESS
    return after_jobs(
        [
            one if isinstance(one, str) else Awaited(one.job, AfterCondition(one.on or default))
            for one in given
        ],
        default,
    )


def described_schedule(request: ScheduleFields) -> Interval | Cron | None:
    """The recurring schedule that a request's own fields give, if any."""
    forms = ("schedule", "interval_seconds", "interval_minutes")
    found = [form for form in forms if getattr(request, form) is not None]
    if len(found) > 1:
        raise InvalidInput(
            f"{found[0]} and {found[1]} both say how often to run. Give one of them.",
            field=found[1],
        )
    if request.interval_type is not None and request.interval_minutes is None:
        raise InvalidInput(
            "interval_type is the unit of interval_minutes, which is missing. For example "
            '"interval_minutes": 6, "interval_type": "hours".',
            field="interval_minutes",
        )
    if request.schedule is not None:
        with naming("schedule"):
            return parse_schedule(request.schedule, timezone=request.timezone or "UTC")
    if request.interval_seconds is not None:
        return Interval(timedelta(seconds=request.interval_seconds))
    if request.interval_minutes is not None:
        unit = _UNITS[request.interval_type or "minutes"]
        with naming("interval_minutes"):
            return Interval(_distance(unit, request.interval_minutes))
    return None


def _distance(unit: str, number: int) -> timedelta:
    try:
        return timedelta(**{unit: number})
    except OverflowError:
        raise InvalidInput(f"{number} {unit} are too long for an interval.") from None


def _legacy_schedule(request: JobEdit) -> Interval | Cron | None:
    if request.schedule_time is None:
        return None
    with naming("schedule_time"):
        return parse_schedule(request.schedule_time, timezone=request.timezone or "UTC")


def _changed(request: JobEdit, present: Schedule) -> Schedule:
    if isinstance(present, Cron) and request.timezone is not None:
        return Cron(present.expression, request.timezone)
    return present


def _anchored(request: JobEdit, schedule: Schedule) -> Schedule:
    if request.anchor_at is None:
        return schedule
    if not isinstance(schedule, Interval):
        raise InvalidInput(
            "anchor_at fixes the rhythm of an interval, and this job has none. "
            "Use run_at for the first run.",
            field="anchor_at",
        )
    return Interval(schedule.every, request.anchor_at)


def _start(request: JobEdit) -> datetime | timedelta | None:
    if request.run_at is not None and request.delay is not None:
        raise InvalidInput("run_at and delay both say when to start. Give one.", field="delay")
    return request.run_at if request.delay is None else request.delay


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


# -- policies ------------------------------------------------------------------------------------


def _catch_up(request: JobEdit, present: CatchUp, default: CatchUp) -> CatchUp:
    given = request.model_fields_set
    mode = (request.catch_up or default.mode) if "catch_up" in given else present.mode
    window = request.catch_up_window if "catch_up_window" in given else present.window
    most = present.max_plans_per_tick
    if "max_plans_per_tick" in given:
        most = request.max_plans_per_tick or default.max_plans_per_tick
    with naming("catch_up_window"):
        return CatchUp(CatchUpMode(mode), window, most)


def _retry(request: JobEdit, present: RetryPolicy, default: RetryPolicy) -> RetryPolicy:
    given, policy = request.model_fields_set, present
    if "max_retries" in given:
        most = request.max_retries
        policy = replace(policy, max_retries=default.max_retries if most is None else most)
    if "retry_backoff_seconds" in given:
        seconds = request.retry_backoff_seconds
        base = default.base if seconds is None else timedelta(seconds=seconds)
        policy = replace(policy, base=base, cap=max(policy.cap, base))
    if "retry_cap_seconds" in given:
        seconds = request.retry_cap_seconds
        cap = max(default.cap, policy.base) if seconds is None else timedelta(seconds=seconds)
        policy = replace(policy, cap=cap)
    if "retry_jitter" in given:
        jitter = request.retry_jitter
        policy = replace(policy, jitter=default.jitter if jitter is None else jitter)
    if "retry_delays" in given:
        policy = replace(policy, delays=tuple(request.retry_delays or ()))
    return policy


def _scope(request: JobCreate) -> Scope:
    if request.scope is None:
        return GLOBAL
    with naming("scope"):
        return Scope(request.scope.kind, request.scope.id)


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Let a refusal by the domain name the request's field."""
    try:
        yield
    except InvalidInput as error:
        if error.field != "timezone":
            error.field = field
        raise
