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
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo

import psycopg
from psycopg import sql

from evenbeat.domain.moments import as_utc, zone_named
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.errors import InvalidInput
from evenbeat.importers.source import (
    Document,
    ImportSource,
    Timing,
    check_days,
    cron_timing,
    interval_text,
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
_LARGEST_PICKLE = 2**20
_QUERY = "SELECT id, next_run_time, job_state FROM {} ORDER BY id"


def read_apscheduler(
    url: str, *, now: datetime, table: str = TABLE, balance: bool = False
) -> ImportSource:
    """The jobs of a store. The caller vouches for it: its pickles are read."""
    source = ImportSource(tag=tag_of("apscheduler", shown(url)))
    for row in _rows(url, table):
        text = row.id
        try:
            state = _unpickled(row.state)
            trigger: Any = state.get("trigger")
            text = f"{row.id}: {state.get('func')}, {getattr(trigger, 'kind', '') or 'no trigger'}"
            source.add(row.id, text, *_job(row, state, now, balance))
        except InvalidInput as error:
            source.review(row.id, text, str(error))
            continue
        if trigger.get("jitter"):
            why = "It is imported without its jitter: balanced intervals spread runs by themselves."
            source.review(row.id, text, why)
        if isinstance(most := state.get("max_instances"), int) and most > 1:
            why = f"It may run {most} times at once there; here a job never overlaps itself."
            source.review(row.id, text, why)
    return source


def shown(url: str) -> str:
    """The URL without what only its owner should know."""
    scheme, sign, rest = url.partition("://")
    return f"{scheme}{sign}{rest.rpartition('@')[2].partition('?')[0]}"


class _StoredJob(NamedTuple):
    id: str
    next_run_time: float | None
    state: bytes

    @classmethod
    def of(cls, row: Any) -> "_StoredJob":
        id_, next_run_time, state = row
        return cls(str(id_), next_run_time, bytes(state))


def _rows(url: str, table: str) -> Iterator[_StoredJob]:
    if not _TABLE_NAME.fullmatch(table):
        raise InvalidInput(f"{table!r} is not the name of a table, such as {TABLE}.", field="table")
    scheme = urlsplit(url).scheme.partition("+")[0]
    try:
        if scheme == "sqlite":
            # Four slashes begin an absolute path, three a relative one, as in SQLAlchemy.
            path = Path(unquote(urlsplit(url).path.removeprefix("/")))
            if not path.is_file():
                raise InvalidInput(
                    f"There is no file {path}. Write sqlite:///jobs.sqlite.", field="url"
                )
            place = f"{path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(place, uri=True)) as database:
                yield from map(_StoredJob.of, database.execute(_QUERY.format(table)))
        elif scheme in {"postgresql", "postgres"}:
            plain_url = re.sub(r"^\w+(\+\w+)?://", "postgresql://", url)
            with psycopg.connect(plain_url, connect_timeout=10) as connection:
                query = sql.SQL(_QUERY).format(sql.Identifier(*table.split(".")))
                yield from map(_StoredJob.of, connection.execute(query))
        else:
            yield from _rows_by_sqlalchemy(url, table)
    except (sqlite3.Error, psycopg.Error, OSError) as error:
        raise InvalidInput(
            f"{shown(url)} cannot be read: {str(error).strip() or type(error).__name__}. Is it the "
            f"job store, and is {table} its table? --table names another.",
            field="url",
        ) from None


def _rows_by_sqlalchemy(url: str, table: str) -> Iterator[_StoredJob]:
    try:
        import sqlalchemy  # noqa: PLC0415 - anyone with such a store has it, Evenbeat need not
    except ImportError:
        raise InvalidInput(
            f"{shown(url)} takes SQLAlchemy to read, which is not installed here.", field="url"
        ) from None
    try:
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as connection:
            rows = connection.execute(sqlalchemy.text(_QUERY.format(table)))
            yield from map(_StoredJob.of, rows)
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInput(f"{shown(url)} cannot be read: {reason}", field="url") from None


class Record:
    """An object of the pickle as the fields it had; `kind` is the name of its class. The items of
    one that is a container are dropped."""

    kind = ""

    def __init__(self, *_args: Any) -> None:
        self.fields: dict[str, Any] = {}

    def __setstate__(self, state: Any) -> None:
        # Version 3.0 of APScheduler kept a pair; slots come as the second of two, too.
        if isinstance(state, tuple):
            state = state[1] if state[1] is not None else state[0]
        self.fields = dict(state) if isinstance(state, dict) else {}

    def __call__(self, *_args: Any) -> "Record":
        return self

    def append(self, _item: Any) -> None: ...
    def extend(self, _items: Any) -> None: ...
    def __setitem__(self, _key: Any, _value: Any) -> None: ...

    def get(self, name: str) -> Any:
        """A field; None if there is no such field."""
        return self.fields.get(name)


def _unpickled(data: bytes) -> dict[str, Any]:
    if len(data) > _LARGEST_PICKLE:
        raise InvalidInput("It takes more than a mebibyte, which no job does.")
    try:
        state = _Unpickler(io.BytesIO(data)).load()
    except (Exception, RecursionError) as error:  # a broken pickle may raise anything
        raise InvalidInput(f"It cannot be unpickled: {type(error).__name__}.") from None
    if not isinstance(state, dict):
        raise InvalidInput("It is not the state of an APScheduler 3 job.")
    return state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _HARMLESS:
            return _HARMLESS[module, name]
        kind = name if module.startswith("apscheduler.triggers.") else f"{module}.{name}"
        return type(name.rpartition(".")[2] or "?", (Record,), {"kind": kind})

    def persistent_load(self, _pid: Any) -> Any:
        return Record()


def _zone(key: Any = "UTC", *_rest: Any) -> tzinfo:
    return zone_named(str(key))


def _utc(*_rest: Any) -> tzinfo:
    return UTC


def _getattr(owner: Any, name: Any) -> Any:
    """`getattr`, for the one thing that pickles of time zones need it for."""
    return _zone if owner is _zone and name == "_unpickle" else Record()


_HARMLESS: dict[tuple[str, str], Any] = {
    ("datetime", "datetime"): datetime,
    ("datetime", "date"): date,
    ("datetime", "time"): time,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone,
    ("zoneinfo", "ZoneInfo"): _zone,
    ("zoneinfo", "ZoneInfo._unpickle"): _zone,
    ("backports.zoneinfo", "ZoneInfo._unpickle"): _zone,
    ("pytz", "_p"): _zone,
    ("pytz", "_UTC"): _utc,
    ("dateutil.tz.tz", "tzutc"): _utc,
    ("builtins", "getattr"): _getattr,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
}


def _job(
    row: _StoredJob, state: dict[str, Any], now: datetime, balance: bool
) -> tuple[Document, str | None]:
    """The document, and a remark on it."""
    reference, trigger = state.get("func"), state.get("trigger")
    if not isinstance(reference, str) or ":" not in reference:
        raise InvalidInput("It does not say which function it calls.")
    if not isinstance(trigger, Record):
        raise InvalidInput("It has no trigger.")
    args, kwargs = tuple(state.get("args") or ()), dict(state.get("kwargs") or {})
    timing = _timing(trigger, now, balance)
    # The id, unless nobody chose it: then the job's name and the beginning of the id.
    named = _RANDOM_ID.fullmatch(row.id) and isinstance(state.get("name"), str)
    document: Document = {
        "name": name_of(f"{state['name']}-{row.id[:8]}" if named else row.id),
        "task": reference.rpartition(":")[2].rpartition(".")[2],
        "description": f"{reference} of APScheduler",
        "payload": payload_of(args, kwargs, _function(reference) if args else None),
        **timing.fields,
    }
    if state.get("coalesce") is False:
        document["catch_up"] = "every_plan"
    if row.next_run_time is None:
        document["paused"] = True
    return document, timing.remark


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


def _timing(trigger: Record, now: datetime, balance: bool) -> Timing:
    if trigger.get("end_date") is not None:
        raise InvalidInput(
            f"It ends at {trigger.get('end_date')}, and schedules here have no end. Import it "
            "without one, and cancel it then."
        )
    start = _moment(trigger.get("start_date"))
    match trigger.kind:
        case "CronTrigger":
            zone = trigger.get("timezone") or UTC
            if not isinstance(zone, ZoneInfo) or not zone.key:
                if not isinstance(zone, tzinfo) or zone.utcoffset(None) != timedelta(0):
                    raise InvalidInput("Its time zone has no IANA name, such as Europe/Berlin.")
                zone = ZoneInfo("UTC")
            cron = Cron(_expression(trigger.get("fields") or []), zone.key)
            timing = cron_timing(cron, balance=balance)
            if start is not None and start > now:
                first = cron.next_after(start - timedelta(microseconds=1))
                timing.fields["run_at"] = moment_text(first)
            return timing
        case "IntervalTrigger":
            every = trigger.get("interval")
            if not isinstance(every, timedelta):
                raise InvalidInput("Its interval cannot be read.")
            when: Document = {"schedule": interval_text(Interval(every).every)}
            if not balance and start is not None:
                anchor = moment_text(start.replace(microsecond=0))
                when |= {"anchor_at": anchor, "placement": "pinned"}
            return Timing(when)
        case "DateTrigger":
            moment = _moment(trigger.get("run_date"))
            if moment is None or moment <= now:
                raise InvalidInput(f"Its moment, {trigger.get('run_date')}, has passed.")
            return Timing({"run_at": moment_text(moment)})
        case kind:
            raise InvalidInput(f"Its trigger is a {kind}, which has no counterpart here.")


def _moment(value: Any) -> datetime | None:
    return as_utc(value) if isinstance(value, datetime) else None


def _expression(fields: list[Any]) -> str:
    texts: dict[str, str] = {}
    for field in fields:
        if isinstance(field, Record):
            name = str(field.get("name"))
            parts = [one for one in field.get("expressions") or () if isinstance(one, Record)]
            texts[name] = ",".join(_part(name, part) for part in parts) or "*"
    for name, default in (("year", "*"), ("week", "*"), ("second", "0")):
        if texts.get(name, default) != default:
            raise InvalidInput(f"It has a condition on the {name}, which cron has not.")
    day, weekday = texts.get("day", "*"), texts.get("day_of_week", "*")
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
    first, last = part.get("first"), part.get("last")
    if not isinstance(first, int):
        raise InvalidInput(f"Its condition on the {field} cannot be read.")
    if last is None:
        ends = {"minute": 59, "hour": 23, "day": 31, "month": 12, "day_of_week": 6}
        last = ends.get(field)
    shift = 1 if field == "day_of_week" else 0
    if last == first:
        return str(first + shift)
    return f"{first + shift}-{(last or first) + shift}" + (f"/{step}" if step else "")
