"""Older words in a job's document: `interval_minutes` with `interval_type`, `schedule_time`,
`retry_backoff_seconds`.

`modern_fields` translates a request into ours, `older_fields` adds them to an answer.
"""

from typing import Any

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.job import Job
from evenbeat.domain.schedule import Interval, parse_schedule
from evenbeat.domain.setting_kinds import plain_number
from evenbeat.errors import InvalidInput

_OTHER_FORMS = ("schedule", "interval_seconds", "after")
_OLDER = {"interval_minutes", "interval_type", "schedule_time", "retry_backoff_seconds"}
SECONDS = {"minutes": 60, "hours": 3_600, "days": 86_400}


def modern_fields(document: dict[str, Any]) -> dict[str, Any]:
    """The document in our own words. An interval goes before `schedule_time`."""
    if not document.keys() & _OLDER:
        return document
    fields = dict(document)
    if (backoff := fields.pop("retry_backoff_seconds", None)) is not None:
        fields.setdefault("retry_backoff", backoff)
    number, unit = fields.pop("interval_minutes", None), fields.pop("interval_type", None)
    text = fields.pop("schedule_time", None)
    if unit is not None and unit not in SECONDS:
        raise InvalidInput(
            f"interval_type must be one of {', '.join(SECONDS)}, got {unit!r}.",
            field="interval_type",
        )
    if number is not None:
        if type(number) is not int or number < 1:
            raise InvalidInput(
                f"interval_minutes must be a whole number from 1 on, got {str(number)[:40]}.",
                field="interval_minutes",
            )
        seconds = number * SECONDS[unit or "minutes"]
        others = {name: fields[name] for name in _OTHER_FORMS if fields.get(name) is not None}
        for other, value in others.items():
            if value != seconds and not _means(value, seconds):
                raise InvalidInput(
                    f"interval_minutes and {other} both say how often to run. Give one of them.",
                    field="after" if other == "after" else "interval_minutes",
                )
        try:
            Interval(parse_duration(seconds))
        except InvalidInput as error:
            error.field = "interval_minutes"
            raise
        fields["interval_seconds"] = seconds
    elif unit is not None:
        raise InvalidInput(
            "interval_type is the unit of interval_minutes, which is missing. For example "
            '"interval_minutes": 6, "interval_type": "hours".',
            field="interval_minutes",
        )
    elif text is not None and fields.get("schedule") is None:
        fields["schedule"] = text
    return fields


def _means(text: Any, seconds: int) -> bool:
    try:
        return parse_schedule(text) == Interval(parse_duration(seconds))
    except InvalidInput:
        return False


def older_fields(job: Job) -> dict[str, Any]:
    """The pair that describes the interval, in the largest unit that fits without a rest."""
    fields: dict[str, Any] = {"interval_minutes": None, "interval_type": None}
    for unit, size in SECONDS.items():
        if job.interval_seconds is not None and job.interval_seconds % size == 0:
            fields |= {"interval_minutes": job.interval_seconds // size, "interval_type": unit}
    return fields | {"retry_backoff_seconds": plain_number(job.retry_backoff_seconds)}
