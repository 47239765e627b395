"""Reading Celery's beat schedule from the application that holds it.

Celery itself is not imported here: the caller's module did that. Schedules are told apart by what
they have, as Celery's own classes document it.
"""

import re
from datetime import timedelta
from types import ModuleType
from typing import Any

from evenbeat.domain.moments import zone_named
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.errors import InvalidInput
from evenbeat.importers.source import (
    ImportSource,
    Timing,
    check_days,
    cron_timing,
    interval_text,
    name_of,
    payload_of,
    tag_of,
)

_USUAL_NAMES = ("app", "celery", "celery_app", "application")
_FIELDS = {
    "minute": range(60),
    "hour": range(24),
    "day_of_month": range(1, 32),
    "month_of_year": range(1, 13),
    "day_of_week": range(7),
}
_SAME_IN_CRON = re.compile(r"\*/\d+|\d+(-\d+)?(,\d+(-\d+)?)*")
_IMPORTED_OPTIONS = {"queue"}


def celery_app_in(module: ModuleType, attribute: str | None) -> Any:
    """The Celery application of a module: the one that is named, or the one that is there."""
    names = [name for name, value in vars(module).items() if _is_app(value)]
    choices = ", ".join(f"{module.__name__}:{name}" for name in names)
    suggestion = f" Give one: {choices}." if names else ""
    if attribute is not None:
        app: Any = module
        for part in attribute.split("."):
            app = getattr(app, part, None)
        if not _is_app(app):
            raise InvalidInput(
                f"{module.__name__}:{attribute} is no Celery application.{suggestion}",
                field="module",
            )
        return app
    if not names:
        raise InvalidInput(f"There is no Celery application in {module.__name__}.", field="module")
    usual = [name for name in _USUAL_NAMES if name in names]
    if not usual and len({id(getattr(module, name)) for name in names}) > 1:
        raise InvalidInput(
            f"{module.__name__} has several Celery applications.{suggestion}", field="module"
        )
    return getattr(module, (usual or names)[0])


def _is_app(value: object) -> bool:
    return _is_instance(value, "celery.app.base", "Celery")


def _is_instance(value: object, module: str, name: str) -> bool:
    return any((k.__module__, k.__qualname__) == (module, name) for k in type(value).__mro__)


def read_celery(app: Any, *, origin: str, balance: bool = False) -> ImportSource:
    """The jobs of an application's beat schedule, those included that `add_periodic_task` adds."""
    app.loader.import_default_modules()
    app.finalize()
    source = ImportSource(tag=tag_of("celery", origin))
    zone = str(getattr(app.timezone, "key", None) or app.conf.timezone or "UTC")
    zone_named(zone, error=InvalidInput)
    for key, entry in sorted(app.conf.beat_schedule.items(), key=lambda item: str(item[0])):
        name, task, options = str(key), entry.get("task"), dict(entry.get("options") or {})
        text = f"{name}: {task}, {entry.get('schedule')!r}"
        if not isinstance(task, str) or not task:
            source.review(name, text, "It names no task.")
            continue
        args, kwargs = tuple(entry.get("args") or ()), dict(entry.get("kwargs") or {})
        try:
            timing = _timing(entry.get("schedule"), zone, balance)
            payload = payload_of(args, kwargs, getattr(app.tasks.get(task), "run", None))
        except InvalidInput as error:
            source.review(name, text, str(error))
            continue
        document = {"name": name_of(name), "task": task, "payload": payload, **timing.fields}
        if isinstance(options.get("queue"), str):
            document["queue"] = options["queue"]
        source.add(name, text, document, timing.remark)
        if others := sorted(str(option) for option in options if option not in _IMPORTED_OPTIONS):
            why = f"It is imported, but without its options {', '.join(others)}: set them here."
            source.review(name, text, why)
    return source


def _timing(schedule: Any, zone: str, balance: bool) -> Timing:
    if _is_instance(schedule, "celery.schedules", "crontab"):
        fields = [_field(schedule, name, allowed) for name, allowed in _FIELDS.items()]
        check_days(fields[2], fields[4])
        return cron_timing(Cron(" ".join(fields), zone), balance=balance)
    every = schedule
    if isinstance(schedule, int | float) and not isinstance(schedule, bool):
        every = timedelta(seconds=schedule)
    elif _is_instance(schedule, "celery.schedules", "schedule"):
        every = getattr(schedule, "run_every", None)
    if isinstance(every, timedelta):
        return Timing({"schedule": interval_text(Interval(every).every)})
    kind = type(schedule).__name__
    if kind == "solar":
        raise InvalidInput(
            "It follows the sun, which Evenbeat does not. Choose a time, or let a job of each day "
            "add one for the right moment."
        )
    raise InvalidInput(f"Its schedule is a {kind}, which has no counterpart here.")


def _field(schedule: Any, name: str, allowed: range) -> str:
    """A field of cron: as it was written where cron reads it alike, otherwise value by value.
    Celery lets ranges wrap around, cron does not."""
    values = set(getattr(schedule, name))
    if values == set(allowed):
        return "*"
    written = str(getattr(schedule, f"_orig_{name}", "")).replace(" ", "")
    if _SAME_IN_CRON.fullmatch(written) and (name != "day_of_week" or "/" not in written):
        if written.startswith("*"):
            return written
        ends = [part.split("-") for part in written.split(",")]
        ranges = [range(int(first), int((last or [first])[0]) + 1) for first, *last in ends]
        if values == {value for numbers in ranges for value in numbers}:
            return written
    return ",".join(map(str, sorted(values)))
