"""Reading the jobs to simulate: a crontab, or a JSON or YAML list."""

import json
import re
import reprlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from evenbeat.domain.duration import parse_duration
from evenbeat.domain.moments import as_utc
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.errors import InvalidInput
from evenbeat.placement.forecast import Known

LARGEST = 64 * 2**20
FIELDS = (
    "name", "every", "cron", "interval_minutes", "interval_type", "timezone", "duration",
    "next_run_at", "placement",
)  # fmt: skip
UNITS = {"minutes": 60, "hours": 3600, "days": 86_400}
PLACEMENTS = ("balanced", "grid", "pinned")

_SETTING = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(.*)$")
_LASTING = re.compile(r"#+\s*duration\s*[:=]\s*(\S+)", re.IGNORECASE)
_LISTED = '[{"name": "report", "every": "6h", "duration": "90s"}, {"cron": "0 0 * * *"}]'


# ---------------------------------------------------------------- crontab


def read_crontab(path: Path, lasting: timedelta, timezone: str) -> list[Known]:
    """The jobs of a crontab. `CRON_TZ=` sets the time zone from its line on, and a comment
    `# duration: 5m` tells how long the next entry takes. `@reboot` has no place in a week."""
    jobs: list[Known] = []
    told: timedelta | None = None
    for number, line in enumerate(_text_of(path).splitlines(), start=1):
        try:
            if found := _LASTING.match(line.strip()):
                told = parse_duration(found[1], field="duration")
            elif zone := _zone_of(line):
                timezone = zone
            elif (job := _entry(line, told or lasting, timezone)) is not None:
                jobs.append(job)
                told = None
        except InvalidInput as error:
            raise InvalidInput(f"{path}, line {number}: {error}", field="crontab") from error
    return _some(jobs, path, "such as: 0 * * * * /usr/local/bin/sync")


def _zone_of(line: str) -> str | None:
    found = _SETTING.match(line)
    return found[2].strip().strip("'\"") if found and found[1] in {"CRON_TZ", "TZ"} else None


def _entry(line: str, lasting: timedelta, timezone: str) -> Known | None:
    words = line.split()
    if not words or words[0].startswith("#") or words[0] == "@reboot" or _SETTING.match(line):
        return None
    count = 1 if words[0].startswith("@") else 5
    if len(words) < count:
        raise InvalidInput(
            f"{line.strip()!r} is no crontab entry: five time fields and a command, "
            "such as 0 * * * * /usr/local/bin/sync, or a name, such as @daily, and a command."
        )
    command = " ".join(words[count:])
    return Known(command or line.strip(), Cron(" ".join(words[:count]), timezone), lasting)


# ---------------------------------------------------------------- JSON and YAML


def read_list(path: Path, lasting: timedelta, timezone: str) -> list[Known]:
    """The jobs of a JSON or YAML list, or of one under the key `jobs`."""
    parsed = _parsed(path)
    rows = parsed.get("jobs") if isinstance(parsed, dict) else parsed
    if not isinstance(rows, list):
        raise InvalidInput(f"{path} is not a list of jobs, such as {_LISTED}.", field="jobs")
    jobs = []
    for number, row in enumerate(rows, start=1):
        where = f"{path}, job {number}{_line_of(row)}"
        try:
            jobs.append(_known(row, lasting, timezone, number))
        except InvalidInput as error:
            raise InvalidInput(f"{where}: {error}", field="jobs") from error
    return _some(jobs, path, f"such as {_LISTED}")


def _known(row: object, lasting: timedelta, timezone: str, number: int) -> Known:
    if not isinstance(row, Mapping):
        raise InvalidInput(f"a job is a set of fields, not {_shown(row)}.")
    if unknown := [str(key) for key in row if key not in FIELDS and key != _LINE]:
        raise InvalidInput(f"there is no field {unknown[0]!r}. Fields are {', '.join(FIELDS)}.")
    name, zone = row.get("name", f"job {number}"), row.get("timezone", timezone)
    for key, value in (("name", name), ("timezone", zone)):
        if not isinstance(value, str) or not value.strip():
            raise InvalidInput(f"{key} must be text, not {_shown(value)}.")
    placement = row.get("placement", "balanced")
    if placement not in PLACEMENTS:
        raise InvalidInput(f"placement is {', '.join(PLACEMENTS)}, not {_shown(placement)}.")
    takes = parse_duration(row["duration"], field="duration") if "duration" in row else lasting
    return Known(name, _schedule(row, zone), takes, placement != "balanced")


def _schedule(row: Mapping[str, Any], timezone: str) -> Interval | Cron:
    given = [key for key in ("every", "cron", "interval_minutes") if row.get(key) is not None]
    if len(given) != 1:
        raise InvalidInput(
            "give exactly one of every, cron and interval_minutes"
            + (f", not {' and '.join(given)}." if given else ".")
        )
    value = row[given[0]]
    if given[0] == "cron":
        if not isinstance(value, str):
            raise InvalidInput(f"cron must be text such as '0 * * * *', not {_shown(value)}.")
        return Cron(value, timezone)
    seconds = _minutes(value, row.get("interval_type", "minutes")) if given[0] != "every" else value
    return Interval(parse_duration(seconds, field=given[0]), _moment(row.get("next_run_at")))


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


# ---------------------------------------------------------------- files

_LINE = "__line__"


class _Lined(yaml.SafeLoader):
    """Remembers on which line a mapping begins."""


def _mapping(loader: _Lined, node: yaml.MappingNode) -> dict[object, object]:
    return {**loader.construct_mapping(node, deep=True), _LINE: node.start_mark.line + 1}


_Lined.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _parsed(path: Path) -> Any:
    text = _text_of(path)
    try:
        if path.suffix == ".json":
            return json.loads(text)
        return yaml.load(text, _Lined)  # noqa: S506 - a safe loader that counts lines
    except json.JSONDecodeError as error:
        told = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        told = f"line {line}: {error.problem}"
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        told = str(error)
    kind = "JSON" if path.suffix == ".json" else "YAML"
    raise InvalidInput(f"{path} is not {kind}: {told}.", field="jobs")


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise InvalidInput(f"{path} is larger than {LARGEST // 2**20} MiB.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text (byte {error.start}).") from None


def _line_of(row: object) -> str:
    return f" (line {row[_LINE]})" if isinstance(row, dict) and _LINE in row else ""


def _some(jobs: list[Known], path: Path, example: str) -> list[Known]:
    if not jobs:
        raise InvalidInput(f"{path} holds no jobs, {example}.")
    return jobs


def _shown(value: object) -> str:
    # Never all of it: what aliases of aliases stand for would not fit into memory.
    text = reprlib.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
