"""Reading Celery's beat schedule from the application that holds it.

Celery itself is not imported here: the caller's module did that. Schedules are told apart by what
they have, as Celery's own classes document it.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from types import ModuleType
from typing import Any

from evenbeat.domain.moments import zone_named
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.errors import InvalidInput
from evenbeat.importers.calls import payload_of
from evenbeat.importers.source import (
    Document,
    Found,
    Look,
    Source,
    Timing,
    cron_timing,
    interval_text,
    name_of,
    tag_of,
)

_USUAL_NAMES = ("app", "celery", "celery_app", "application")
_FIELDS = (
    ("minute", range(60)),
    ("hour", range(24)),
    ("day_of_month", range(1, 32)),
    ("month_of_year", range(1, 13)),
    ("day_of_week", range(7)),
)
_SAME_IN_CRON = re.compile(r"\*/\d+|\d+(-\d+)?(,\d+(-\d+)?)*")
_CARRIED = {"queue"}


def celery_app_in(module: ModuleType, attribute: str | None) -> Any:
    """The Celery application of a module: the one that is named, or the one that is there."""
    if attribute is not None:
        found: Any = module
        for part in attribute.split("."):
            found = getattr(found, part, None)
        if not _is_app(found):
            raise InvalidInput(
                f"{module.__name__}:{attribute} is no Celery application.{_suggestion(module)}",
                field="module",
            )
        return found
    names = [name for name, value in vars(module).items() if _is_app(value)]
    usual = [name for name in _USUAL_NAMES if name in names]
    if not names:
        raise InvalidInput(f"There is no Celery application in {module.__name__}.", field="module")
    if not usual and len({id(getattr(module, name)) for name in names}) > 1:
        raise InvalidInput(
            f"{module.__name__} has several Celery applications.{_suggestion(module)}",
            field="module",
        )
    return getattr(module, (usual or names)[0])


def _is_app(value: object) -> bool:
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(value).__mro__}
    return "celery.app.base.Celery" in kinds


def _suggestion(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if _is_app(value)]
    return f" Give one: {', '.join(f'{module.__name__}:{name}' for name in names)}." * bool(names)


def read_celery(app: Any, *, origin: str, balance: bool = False) -> Source:
    """The jobs of an application's beat schedule, those included that `add_periodic_task` adds."""
    app.loader.import_default_modules()
    app.finalize()
    source = Source(tag=tag_of("celery", origin))
    zone = _zone(app)
    for name, entry in sorted(app.conf.beat_schedule.items(), key=lambda item: str(item[0])):
        text = f"{name}: {entry.get('task')}, {entry.get('schedule')!r}"
        try:
            found, looks = _job(str(name), entry, app, zone, balance)
        except InvalidInput as error:
            source.looks.append(Look(str(name), text, str(error)))
            continue
        found.document["tags"] = [source.tag]
        source.found.append(found._replace(text=text))
        source.looks.extend(Look(str(name), text, why) for why in looks)
    return source


def _zone(app: Any) -> str:
    """The time zone of crontab(): the application's, or UTC."""
    zone = str(getattr(app.timezone, "key", None) or app.conf.timezone or "UTC")
    zone_named(zone, error=InvalidInput)
    return zone


def _job(
    name: str, entry: Mapping[str, Any], app: Any, zone: str, balance: bool
) -> tuple[Found, list[str]]:
    task = entry.get("task")
    if not isinstance(task, str) or not task:
        raise InvalidInput("It names no task.")
    options = dict(entry.get("options") or {})
    timing = _timing(entry.get("schedule"), zone, balance)
    document: Document = {
        "name": name_of(name),
        "task": task,
        "payload": payload_of(
            tuple(entry.get("args") or ()), dict(entry.get("kwargs") or {}), _function(app, task)
        ),
        **timing.fields,
    }
    if isinstance(options.get("queue"), str):
        document["queue"] = options["queue"]
    return Found(name, "", document, timing.remark), _left_out(options)


def _function(app: Any, task: str) -> Any:
    known = app.tasks.get(task)
    return getattr(known, "run", None)


def _left_out(options: Mapping[str, Any]) -> list[str]:
    others = sorted(str(option) for option in options if option not in _CARRIED)
    if not others:
        return []
    return [f"It is imported, but without its options {', '.join(others)}: set them here."]


# -- schedules -----------------------------------------------------------------------------------


def _timing(schedule: Any, zone: str, balance: bool) -> Timing:
    if isinstance(schedule, int | float) and not isinstance(schedule, bool):
        return _interval(timedelta(seconds=schedule))
    if isinstance(schedule, timedelta):
        return _interval(schedule)
    if _is_kind(schedule, "crontab"):
        return cron_timing(_cron(schedule, zone), balance=balance)
    if _is_kind(schedule, "schedule") and isinstance(
        getattr(schedule, "run_every", None), timedelta
    ):
        return _interval(schedule.run_every)
    kind = type(schedule).__name__
    if kind == "solar":
        raise InvalidInput(
            "It follows the sun, which Evenbeat does not. Choose a time, or let a job of each day "
            "add one for the right moment."
        )
    raise InvalidInput(f"Its schedule is a {kind}, which has no counterpart here.")


def _is_kind(schedule: object, name: str) -> bool:
    return any(
        kind.__module__ == "celery.schedules" and kind.__qualname__ == name
        for kind in type(schedule).__mro__
    )


def _interval(every: timedelta) -> Timing:
    return Timing({"schedule": interval_text(Interval(every).every)})


def _cron(schedule: Any, zone: str) -> Cron:
    """Celery demands that day of month and day of week both match; so does cron, but only where one
    of them begins with a star."""
    expression = [_field(schedule, name, allowed) for name, allowed in _FIELDS]
    if not expression[2].startswith("*") and not expression[4].startswith("*"):
        raise InvalidInput(
            "It runs on certain days of the month if they fall on certain days of the week, which "
            "cron cannot say. Import one condition, and check the other in the handler."
        )
    return Cron(" ".join(expression), zone)


def _field(schedule: Any, name: str, allowed: range) -> str:
    values = set(getattr(schedule, name))
    if values == set(allowed):
        return "*"
    given = str(getattr(schedule, f"_orig_{name}", "")).replace(" ", "")
    if _SAME_IN_CRON.fullmatch(given) and (name != "day_of_week" or "/" not in given):
        return given if given.startswith("*") or _named_by(given) == values else _list(values)
    return _list(values)


def _named_by(numbers: str) -> set[int]:
    """The values of numbers and ranges such as 1,5-7; Celery lets ranges wrap around, cron not."""
    ends = [part.split("-") for part in numbers.split(",")]
    return {
        value for first, *last in ends for value in range(int(first), int((last or [first])[0]) + 1)
    }


def _list(values: set[int]) -> str:
    return ",".join(map(str, sorted(values)))
