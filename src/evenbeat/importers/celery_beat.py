"""Reading Celery's beat schedule from the application that holds it.

Celery itself is not imported here: the caller's module did that. Schedules are told apart by what
they have, as Celery's own classes document it.
"""

from datetime import timedelta
from types import ModuleType
from typing import Any

from evenbeat.domain.moments import zone_named
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.errors import InvalidInput
from evenbeat.importers.source import (
    AS_IT_STANDS,
    Balance,
    Document,
    ImportSource,
    check_days,
    cron_timing,
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


def celery_app_in(module: ModuleType, attribute: str | None) -> Any:
    """The Celery application of a module: the one that is named, or the one that is there."""
    names = [name for name, value in vars(module).items() if _is_app(value)]
    usual = [name for name in _USUAL_NAMES if name in names]
    app: Any = module
    for part in (attribute or "".join((usual or names)[:1])).split("."):
        app = getattr(app, part, None)
    if not _is_app(app):
        choices = " or ".join(f"{module.__name__}:{name}" for name in names)
        raise InvalidInput(
            f"There is no Celery application{f' {attribute}' if attribute else ''} in "
            f"{module.__name__}. Name one, such as {choices or 'shop.celery:app'}.",
            field="module",
        )
    return app


def _is_app(value: object) -> bool:
    return _is_instance(value, "celery.app.base", "Celery")


def _is_instance(value: object, module: str, name: str) -> bool:
    return any((k.__module__, k.__qualname__) == (module, name) for k in type(value).__mro__)


def read_celery(app: Any, *, origin: str, balance: Balance = AS_IT_STANDS) -> ImportSource:
    """The jobs of an application's beat schedule, those included that `add_periodic_task` adds."""
    app.loader.import_default_modules()
    app.finalize()
    source = ImportSource(tag=tag_of("celery", origin))
    zone = str(getattr(app.timezone, "key", None) or app.conf.timezone or "UTC")
    zone_named(zone, error=InvalidInput)
    for key, entry in sorted(app.conf.beat_schedule.items(), key=lambda item: str(item[0])):
        name, task, options = str(key), entry.get("task"), dict(entry.get("options") or {})
        text = f"{name}: {task}, {entry.get('schedule')!r}"
        args, kwargs = tuple(entry.get("args") or ()), dict(entry.get("kwargs") or {})
        try:
            timing, remark = _timing(entry.get("schedule"), zone, balance)
            payload = payload_of(args, kwargs, getattr(app.tasks.get(task), "run", None))
            document = {"name": name_of(name), "task": task, "payload": payload, **timing}
            if isinstance(queue := options.pop("queue", None), str):
                document["queue"] = queue
            source.add(name, text, document, remark)
        except InvalidInput as error:
            source.review(name, text, str(error))
            continue
        if options:
            others = ", ".join(sorted(map(str, options)))
            why = f"It is imported, but without its options {others}: set them here."
            source.review(name, text, why)
    return source


def _timing(schedule: Any, zone: str, balance: Balance) -> tuple[Document, str | None]:
    if _is_instance(schedule, "celery.schedules", "crontab"):
        fields = [_field(schedule, name, allowed) for name, allowed in _FIELDS.items()]
        check_days(fields[2], fields[4])
        return cron_timing(Cron(" ".join(fields), zone), balance)
    every = schedule
    if isinstance(schedule, int | float) and not isinstance(schedule, bool):
        every = timedelta(seconds=schedule)
    elif _is_instance(schedule, "celery.schedules", "schedule"):
        every = getattr(schedule, "run_every", None)
    if isinstance(every, timedelta):
        return {"schedule": Interval(every).text}, None
    raise InvalidInput(
        f"Its schedule is a {type(schedule).__name__}, which has no counterpart here."
    )


def _field(schedule: Any, name: str, allowed: range) -> str:
    """A field of cron, from the set of values that Celery has made of it."""
    values = sorted(getattr(schedule, name))
    for step in range(1, (len(allowed) + 1) // 2):
        if values == list(allowed[::step]):
            return "*" if step == 1 else f"*/{step}"
    ranges: list[list[int]] = []
    for value in values:
        if ranges and ranges[-1][-1] == value - 1:
            ranges[-1].append(value)
        else:
            ranges.append([value])
    return ",".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else f"{one[0]}" for one in ranges)
