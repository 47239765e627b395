"""Reading the jobs to simulate: a crontab, or a JSON or YAML list."""

import reprlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.moments import as_utc
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.errors import InvalidInput
from evenbeat.importers.crontab import CrontabEntry, UnusableLine, lines
from evenbeat.importers.files import LINE, job_rows, line_of, load_file, read_text
from evenbeat.placement.simulate import RecurringJob

FIELDS = (
    "name", "every", "cron", "interval_minutes", "interval_type", "timezone", "duration",
    "next_run_at", "placement",
)  # fmt: skip
UNITS = {"minutes": 60, "hours": 3600, "days": 86_400}
PLACEMENTS = ("balanced", "grid", "pinned")

_LISTED = '[{"name": "report", "every": "6h", "duration": "90s"}, {"cron": "0 0 * * *"}]'


# ---------------------------------------------------------------- crontab


def read_crontab(path: Path, lasting: timedelta, timezone: str) -> list[RecurringJob]:
    """The jobs of a crontab, of a user or of the system: who runs a command does not matter here.
    `@reboot` has no place in a week."""
    jobs: list[RecurringJob] = []
    for line in lines(read_text(path), timezone):
        if isinstance(line, UnusableLine) and not line.at_start:
            raise InvalidInput(f"{path}, line {line.number}: {line.why}", field="crontab")
        if isinstance(line, CrontabEntry):
            jobs.append(RecurringJob(line.raw, line.cron, line.duration or lasting))
    return _some(jobs, path, "such as: 0 * * * * /usr/local/bin/sync")


# ---------------------------------------------------------------- JSON and YAML


def read_list(path: Path, lasting: timedelta, timezone: str) -> list[RecurringJob]:
    """The jobs of a JSON or YAML list, or of one under the key `jobs`."""
    rows = job_rows(load_file(path), path, _LISTED)
    jobs = []
    for number, row in enumerate(rows, start=1):
        where = f"{path}, job {number}{line_of(row)}"
        try:
            jobs.append(_known(row, lasting, timezone, number))
        except InvalidInput as error:
            raise InvalidInput(f"{where}: {error}", field="jobs") from error
    return _some(jobs, path, f"such as {_LISTED}")


def _known(row: object, lasting: timedelta, timezone: str, number: int) -> RecurringJob:
    if not isinstance(row, Mapping):
        raise InvalidInput(f"a job is a set of fields, not {_shown(row)}.")
    if unknown := [str(key) for key in row if key not in FIELDS and key != LINE]:
        raise InvalidInput(f"there is no field {unknown[0]!r}. Fields are {', '.join(FIELDS)}.")
    name, zone = row.get("name", f"job {number}"), row.get("timezone", timezone)
    for key, value in (("name", name), ("timezone", zone)):
        if not isinstance(value, str) or not value.strip():
            raise InvalidInput(f"{key} must be text, not {_shown(value)}.")
    placement = row.get("placement", "balanced")
    if placement not in PLACEMENTS:
        raise InvalidInput(f"placement is {', '.join(PLACEMENTS)}, not {_shown(placement)}.")
    takes = parse_duration(row["duration"], field="duration") if "duration" in row else lasting
    return RecurringJob(name, _schedule(row, zone), takes, placement != "balanced")


def _schedule(row: Mapping[str, Any], timezone: str) -> Interval | Cron:
    forms = [key for key in ("every", "cron", "interval_minutes") if row.get(key) is not None]
    if len(forms) != 1:
        raise InvalidInput(
            "give exactly one of every, cron and interval_minutes"
            + (f", not {' and '.join(forms)}." if forms else ".")
        )
    value = row[forms[0]]
    if forms[0] == "cron":
        if not isinstance(value, str):
            raise InvalidInput(f"cron must be text such as '0 * * * *', not {_shown(value)}.")
        return Cron(value, timezone)
    seconds = _minutes(value, row.get("interval_type", "minutes")) if forms[0] != "every" else value
    return Interval(parse_duration(seconds, field=forms[0]), _moment(row.get("next_run_at")))


def _minutes(value: object, unit: object) -> int:
    if unit not in UNITS:
        raise InvalidInput(f"interval_type is {', '.join(UNITS)}, not {_shown(unit)}.")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"interval_minutes is a whole number from 1 on, not {_shown(value)}.")
    return value * UNITS[str(unit)]


def _moment(value: object) -> datetime | None:
    if value is None:
        return None
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise InvalidInput(
            f"next_run_at is a moment such as 2026-02-04T14:15:00Z, not {_shown(value)}."
        ) from None
    return as_utc(moment, field="next_run_at")


def _some(jobs: list[RecurringJob], path: Path, example: str) -> list[RecurringJob]:
    if not jobs:
        raise InvalidInput(f"{path} holds no jobs, {example}.")
    return jobs


def _shown(value: object) -> str:
    # Never all of it: what aliases of aliases stand for would not fit into memory.
    text = reprlib.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
