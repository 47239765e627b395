"""Reading the jobs of APScheduler 3 from an SQLAlchemyJobStore.

The store holds pickles, and a pickle is a program that may call anything it can name. Here it can
name a few harmless values only (times, zones); anything else, APScheduler's triggers included,
becomes a plain record of its fields, never the thing itself. It may still ask for more memory than
there is, so a store is read only when its owner vouches for it.
"""

import importlib
import io
import pickle
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg

from evenbeat.domain.moments import as_utc, zone_named
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.errors import InvalidInput
from evenbeat.importers.source import (
    AS_IT_STANDS,
    Balance,
    Document,
    ImportSource,
    check_days,
    cron_timing,
    moment_text,
    name_of,
    payload_of,
    tag_of,
)

TABLE = "apscheduler_jobs"

_RANDOM_ID = re.compile(r"[0-9a-f]{32}")
_TABLE_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
_NTH_WEEKDAY = re.compile(r"\d(#\d|L)")
_LAST_OF_MONTH = 5


def read_apscheduler(
    url: str, *, now: datetime, table: str = TABLE, balance: Balance = AS_IT_STANDS
) -> ImportSource:
    """The jobs of a store. The caller vouches for it: its pickles are read."""
    source = ImportSource(tag=tag_of("apscheduler", shown(url)))
    for job_id, next_run_time, data in _rows(url, table):
        text, remarks = job_id, []
        try:
            state = _Unpickler(io.BytesIO(data)).load()
            trigger = state["trigger"]
            text = f"{job_id}: {state['func']}, {trigger.kind}"
            document, remark = _job(job_id, state, now, balance)
            if next_run_time is None:
                document["paused"] = True
            source.add(job_id, text, document, remark)
            if trigger.get("jitter"):
                remarks.append(
                    "It is imported without its jitter: balanced intervals spread runs by "
                    "themselves."
                )
            if (most := state.get("max_instances") or 1) > 1:
                remarks.append(
                    f"It may run {most} times at once there; here a job never overlaps itself."
                )
        except InvalidInput as error:
            remarks.append(str(error))
        except Exception as error:  # a pickle may hold anything, and be broken anywhere
            problem = f"{type(error).__name__}: {error}"
            remarks.append(f"It cannot be read as a job of APScheduler 3 ({problem}).")
        for why in remarks:
            source.review(job_id, text, why)
    return source


def shown(url: str) -> str:
    """The URL without what only its owner should know."""
    scheme, sign, rest = url.partition("://")
    return f"{scheme}{sign}{rest.rpartition('@')[2].partition('?')[0]}"


def _rows(url: str, table: str) -> list[tuple[str, float | None, bytes]]:
    """Id, next run and pickle of every job."""
    if not _TABLE_NAME.fullmatch(table):
        raise InvalidInput(f"{table!r} is not the name of a table, such as {TABLE}.", field="table")
    name = ".".join(f'"{part}"' for part in table.split("."))
    try:
        connection: Any
        match urlsplit(url).scheme.partition("+")[0]:
            case "sqlite":
                # Four slashes begin an absolute path, three a relative one, as in SQLAlchemy.
                path = Path(unquote(urlsplit(url).path.removeprefix("/")))
                connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
                query = connection.execute
            case "postgresql" | "postgres":
                plain_url = re.sub(r"^\w+(\+\w+)?://", "postgresql://", url)
                connection = psycopg.connect(plain_url, connect_timeout=10)
                query = connection.execute
            case _:
                import sqlalchemy  # noqa: PLC0415 - anyone with such a store has it

                connection = sqlalchemy.create_engine(url).connect()
                query, name = connection.exec_driver_sql, table
        with closing(connection):
            rows = query(f"SELECT id, next_run_time, job_state FROM {name} ORDER BY id")  # noqa: S608
            return [(str(job_id), at, bytes(state)) for job_id, at, state in rows]
    except Exception as error:  # drivers have no error in common
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidInput(
            f"{shown(url)} cannot be read: {reason}. Is it the job store, such as "
            f"sqlite:///jobs.sqlite, and is {table} its table? --table names another.",
            field="url",
        ) from None


class Record:
    """An object of the pickle as the fields it had; `kind` is the name of its class."""

    kind = ""

    def __init__(self, *_args: Any) -> None:
        self.fields: dict[str, Any] = {}

    def __setstate__(self, state: Any) -> None:
        # Version 3.0 of APScheduler kept a pair; slots come as the second of two, too.
        if isinstance(state, tuple):
            state = state[1] if state[1] is not None else state[0]
        self.fields = dict(state) if isinstance(state, dict) else {}

    def get(self, name: str) -> Any:
        """A field; None if there is no such field."""
        return self.fields.get(name)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _HARMLESS:
            return _HARMLESS[module, name]
        kind = name if module.startswith("apscheduler.triggers.") else f"{module}.{name}"
        return type(name.rpartition(".")[2] or "?", (Record,), {"kind": kind})


def _zone(key: Any = "UTC", *_rest: Any) -> tzinfo:
    return zone_named(str(key))


def _getattr(owner: Any, name: Any) -> Any:
    """`getattr`, for the one thing that pickles of time zones need it for."""
    return _zone if owner is _zone and name == "_unpickle" else Record()


_HARMLESS: dict[tuple[str, str], Any] = {
    ("datetime", "datetime"): datetime,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone,
    ("zoneinfo", "ZoneInfo"): _zone,
    ("zoneinfo", "ZoneInfo._unpickle"): _zone,
    ("backports.zoneinfo", "ZoneInfo._unpickle"): _zone,
    ("pytz", "_p"): _zone,
    ("pytz", "_UTC"): _zone,
    ("builtins", "getattr"): _getattr,
}


def _job(
    job_id: str, state: dict[str, Any], now: datetime, balance: Balance
) -> tuple[Document, str | None]:
    """The document, and a remark on it."""
    reference, args = state["func"], tuple(state.get("args") or ())
    timing, remark = _timing(state["trigger"], now, balance)
    function = _function(reference) if args else None
    # The id, unless nobody chose it: then the job's name and the beginning of the id.
    named = _RANDOM_ID.fullmatch(job_id) and isinstance(state.get("name"), str)
    document: Document = {
        "name": name_of(f"{state['name']}-{job_id[:8]}" if named else job_id),
        "task": reference.rpartition(":")[2].rpartition(".")[2],
        "description": f"{reference} of APScheduler",
        "payload": payload_of(args, state.get("kwargs") or {}, function),
        **timing,
    }
    if state.get("coalesce") is False:
        document["catch_up"] = "every_plan"
    return document, remark


def _function(reference: str) -> Any:
    """The function, to learn the names of its parameters; it is not called."""
    module, _, path = reference.partition(":")
    try:
        function: Any = importlib.import_module(module)
        for part in path.split("."):
            function = getattr(function, part)
    except (Exception, SystemExit):  # the module is the user's and may raise anything
        return None
    return function


def _timing(trigger: Record, now: datetime, balance: Balance) -> tuple[Document, str | None]:
    if trigger.get("end_date") is not None:
        raise InvalidInput(
            f"It ends at {trigger.get('end_date')}, and schedules here have no end. Import it "
            "without one, and cancel it then."
        )
    start = _moment(trigger.get("start_date"))
    match trigger.kind:
        case "CronTrigger":
            zone = trigger.get("timezone")
            name = "UTC" if zone in (None, UTC) else getattr(zone, "key", None)
            if name is None:
                raise InvalidInput("Its time zone has no IANA name, such as Europe/Berlin.")
            cron = Cron(_expression(trigger.get("fields")), name)
            timing, remark = cron_timing(cron, balance)
            if start is not None and start > now:
                first = cron.next_after(start - timedelta(microseconds=1))
                timing["run_at"] = moment_text(first)
            return timing, remark
        case "IntervalTrigger":
            when: Document = {"schedule": Interval(trigger.get("interval")).text}
            if not balance.intervals and start is not None:
                anchor = moment_text(start.replace(microsecond=0))
                when |= {"anchor_at": anchor, "placement": "pinned"}
            return when, None
        case "DateTrigger":
            moment = _moment(trigger.get("run_date"))
            if moment is None or moment <= now:
                raise InvalidInput(f"Its moment, {trigger.get('run_date')}, has passed.")
            return {"run_at": moment_text(moment)}, None
        case kind:
            raise InvalidInput(f"Its trigger is a {kind}, which has no counterpart here.")


def _moment(value: Any) -> datetime | None:
    return as_utc(value) if isinstance(value, datetime) else None


def _expression(fields: list[Record]) -> str:
    texts: dict[str, str] = {}
    for field in fields:
        name = field.get("name")
        texts[name] = ",".join(_part(name, part) for part in field.get("expressions"))
    for name, default in (("year", "*"), ("week", "*"), ("second", "0")):
        if texts.get(name, default) != default:
            raise InvalidInput(f"It has a condition on the {name}, which cron has not.")
    day, weekday = texts["day"], texts["day_of_week"]
    check_days(day, weekday)
    if _NTH_WEEKDAY.search(day):  # a day of the month there, a day of the week here
        if not all(map(_NTH_WEEKDAY.fullmatch, day.split(","))):
            raise InvalidInput("It mixes days of the month with days of its weeks.")
        day, weekday = "*", day
    return " ".join((texts["minute"], texts["hour"], day, texts["month"], weekday))


def _part(field: str, part: Record) -> str:
    """Days of the week begin with Monday as 0 there, with Sunday here; 7 is Sunday here, too."""
    step = part.get("step")
    match part.kind:
        case "AllExpression" if field == "day_of_week" and step:
            return ",".join(str(day + 1) for day in range(0, 7, step))
        case "AllExpression":
            return f"*/{step}" if step else "*"
        case "LastDayOfMonthExpression":
            return "L"
        case "WeekdayPositionExpression":
            number, weekday = part.get("option_num"), (part.get("weekday") + 1) % 7
            return f"{weekday}L" if number == _LAST_OF_MONTH else f"{weekday}#{number + 1}"
    ends = {"minute": 59, "hour": 23, "day": 31, "month": 12, "day_of_week": 6}
    shift = 1 if field == "day_of_week" else 0
    first = part.get("first") + shift
    last = (ends[field] if part.get("last") is None else part.get("last")) + shift
    if last == first:
        return str(first)
    return f"{first}-{last}" + (f"/{step}" if step else "")
