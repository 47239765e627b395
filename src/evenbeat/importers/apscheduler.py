"""Reading the jobs of APScheduler 3 from an SQLAlchemyJobStore."""

import importlib
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg import sql

from evenbeat.domain.moments import as_utc
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.errors import InvalidInput
from evenbeat.importers.calls import payload_of
from evenbeat.importers.pickles import Record, unpickled, zone_key
from evenbeat.importers.source import (
    Document,
    Found,
    Look,
    Source,
    Timing,
    cron_timing,
    interval_text,
    moment_text,
    name_of,
    tag_of,
)

TABLE = "apscheduler_jobs"

_RANDOM_ID = re.compile(r"[0-9a-f]{32}")
_TABLE_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
_NTH = re.compile(r"\d(#\d|L)")
_LAST_OF_MONTH = 5
_MICROSECOND = timedelta(microseconds=1)


class _Row(NamedTuple):
    id: str
    next_run_time: float | None
    state: bytes


def read_apscheduler(
    url: str, *, now: datetime, table: str = TABLE, balance: bool = False
) -> Source:
    """The jobs of a store. The caller vouches for it: its pickles are read."""
    source = Source(tag=tag_of("apscheduler", shown(url)))
    for row in _rows(url, table):
        text = row.id
        try:
            state = unpickled(row.state)
            text = f"{row.id}: {state.get('func')}, {_kind(state.get('trigger'))}"
            found, looks = _job(row, state, now, balance)
        except InvalidInput as error:
            source.looks.append(Look(row.id, text, str(error)))
            continue
        found.document["tags"] = [source.tag]
        source.found.append(found._replace(text=text))
        source.looks.extend(Look(row.id, text, why) for why in looks)
    return source


def shown(url: str) -> str:
    """The URL without what only its owner should know."""
    scheme, sign, rest = url.partition("://")
    return f"{scheme}{sign}{rest.rpartition('@')[2].partition('?')[0]}"


def _kind(trigger: Any) -> str:
    return getattr(trigger, "kind", "") or "no trigger"


# -- the store -----------------------------------------------------------------------------------


def _rows(url: str, table: str) -> Iterator[_Row]:
    if not _TABLE_NAME.fullmatch(table):
        raise InvalidInput(f"{table!r} is not the name of a table, such as {TABLE}.", field="table")
    scheme = urlsplit(url).scheme.partition("+")[0]
    try:
        if scheme == "sqlite":
            yield from _from_sqlite(url, table)
        elif scheme in {"postgresql", "postgres"}:
            yield from _from_postgresql(url, table)
        else:
            yield from _from_others(url, table)
    except (sqlite3.Error, psycopg.Error, OSError) as error:
        raise InvalidInput(
            f"{shown(url)} cannot be read: {str(error).strip() or type(error).__name__}. Is it the "
            f"job store, and is {table} its table? --table names another.",
            field="url",
        ) from None


def _from_sqlite(url: str, table: str) -> Iterator[_Row]:
    """Four slashes begin an absolute path, three a relative one, as SQLAlchemy has it."""
    path = Path(unquote(urlsplit(url).path.removeprefix("/")))
    if not path.is_file():
        raise InvalidInput(f"There is no file {path}. Write sqlite:///jobs.sqlite.", field="url")
    place = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(place, uri=True)) as connection:
        yield from map(_row, connection.execute(_QUERY.format(table)))


def _from_postgresql(url: str, table: str) -> Iterator[_Row]:
    plain = re.sub(r"^\w+(\+\w+)?://", "postgresql://", url)
    with psycopg.connect(plain, connect_timeout=10) as connection:
        name = sql.Identifier(*table.split("."))
        query = sql.SQL("SELECT id, next_run_time, job_state FROM {} ORDER BY id").format(name)
        yield from map(_row, connection.execute(query))


def _from_others(url: str, table: str) -> Iterator[_Row]:
    try:
        import sqlalchemy  # noqa: PLC0415 - whoever has such a store has it, Evenbeat need not
    except ImportError:
        raise InvalidInput(
            f"{shown(url)} takes SQLAlchemy to read, which is not installed here.", field="url"
        ) from None
    try:
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as connection:
            yield from map(_row, connection.execute(sqlalchemy.text(_QUERY.format(table))))
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        told = " ".join(str(error).split())
        raise InvalidInput(f"{shown(url)} cannot be read: {told}", field="url") from None


_QUERY = "SELECT id, next_run_time, job_state FROM {} ORDER BY id"


def _row(row: Any) -> _Row:
    id_, next_run_time, state = row
    return _Row(str(id_), next_run_time, bytes(state))


# -- jobs ----------------------------------------------------------------------------------------


def _job(row: _Row, state: dict[str, Any], now: datetime, balance: bool) -> tuple[Found, list[str]]:
    reference = state.get("func")
    if not isinstance(reference, str) or ":" not in reference:
        raise InvalidInput("It does not say which function it calls.")
    trigger = state.get("trigger")
    if not isinstance(trigger, Record):
        raise InvalidInput("It has no trigger.")
    args, kwargs = tuple(state.get("args") or ()), dict(state.get("kwargs") or {})
    timing = _timing(trigger, now, balance)
    document: Document = {
        "name": _name(row.id, state.get("name")),
        "task": reference.rpartition(":")[2].rpartition(".")[2],
        "description": f"{reference} of APScheduler",
        "payload": payload_of(args, kwargs, _function(reference) if args else None),
        **timing.fields,
    }
    if state.get("coalesce") is False:
        document["catch_up"] = "every_plan"
    if row.next_run_time is None:
        document["paused"] = True
    return Found(row.id, "", document, timing.remark), list(_left_out(state, trigger))


def _name(id_: str, name: Any) -> str:
    """The id, unless nobody chose it: then the job's name and the beginning of the id."""
    if _RANDOM_ID.fullmatch(id_) and isinstance(name, str):
        return name_of(f"{name}-{id_[:8]}")
    return name_of(id_)


def _function(reference: str) -> Any:
    """The function, to learn the names of its parameters; it is not called."""
    module, _, path = reference.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit):  # the module is the user's and may raise anything
        return None
    return found


def _left_out(state: dict[str, Any], trigger: Record) -> Iterator[str]:
    if trigger.get("jitter"):
        yield "It is imported without its jitter: balanced intervals spread runs by themselves."
    if isinstance(most := state.get("max_instances"), int) and most > 1:
        yield f"It may run {most} times at once there; here a job never overlaps itself."


# -- triggers ------------------------------------------------------------------------------------


def _timing(trigger: Record, now: datetime, balance: bool) -> Timing:
    if trigger.get("end_date") is not None:
        raise InvalidInput(
            f"It ends at {trigger.get('end_date')}, and schedules here have no end. Import it "
            "without one, and cancel it then."
        )
    match trigger.kind:
        case "CronTrigger":
            return _cron_timing(trigger, now, balance)
        case "IntervalTrigger":
            return _interval_timing(trigger, balance)
        case "DateTrigger":
            return _date_timing(trigger, now)
        case kind:
            raise InvalidInput(f"Its trigger is a {kind}, which has no counterpart here.")


def _date_timing(trigger: Record, now: datetime) -> Timing:
    moment = _moment(trigger.get("run_date"))
    if moment is None or moment <= now:
        raise InvalidInput(f"Its moment, {trigger.get('run_date')}, has passed.")
    return Timing({"run_at": moment_text(moment)})


def _interval_timing(trigger: Record, balance: bool) -> Timing:
    every = trigger.get("interval")
    if not isinstance(every, timedelta):
        raise InvalidInput("Its interval cannot be read.")
    when: Document = {"schedule": interval_text(Interval(every).every)}
    start = _moment(trigger.get("start_date"))
    if balance or start is None:
        return Timing(when)
    start = start.replace(microsecond=0)
    return Timing({**when, "anchor_at": moment_text(start), "placement": "pinned"})


def _cron_timing(trigger: Record, now: datetime, balance: bool) -> Timing:
    cron = Cron(_expression(trigger.get("fields") or []), zone_key(trigger.get("timezone")))
    timing = cron_timing(cron, balance=balance)
    start = _moment(trigger.get("start_date"))
    if start is not None and start > now:
        timing.fields["run_at"] = moment_text(cron.next_after(start - _MICROSECOND))
    return timing


def _moment(value: Any) -> datetime | None:
    return as_utc(value) if isinstance(value, datetime) else None


def _expression(fields: list[Any]) -> str:
    told = {str(one.get("name")): _field(one) for one in fields if isinstance(one, Record)}
    for name, plain in (("year", "*"), ("week", "*"), ("second", "0")):
        if told.get(name, plain) != plain:
            raise InvalidInput(f"It has a condition on the {name}, which cron has not.")
    day, weekday = told.get("day", "*"), told.get("day_of_week", "*")
    if not day.startswith("*") and not weekday.startswith("*"):
        raise InvalidInput(
            "It runs on certain days of the month if they fall on certain days of the week, which "
            "cron cannot say. Import one condition, and check the other in the handler."
        )
    if _NTH.search(day):  # the second Tuesday is a day of the month there, a day of the week here
        if not all(map(_NTH.fullmatch, day.split(","))):
            raise InvalidInput("It mixes days of the month with days of its weeks.")
        day, weekday = "*", day
    return " ".join((told["minute"], told["hour"], day, told["month"], weekday))


def _field(one: Record) -> str:
    expressions = [part for part in one.get("expressions") or () if isinstance(part, Record)]
    return ",".join(_part(str(one.get("name")), part) for part in expressions) or "*"


def _part(field: str, part: Record) -> str:
    step = part.get("step")
    match part.kind:
        case "AllExpression":
            stepped_days = field == "day_of_week" and step
            days = ",".join(str(day + 1) for day in range(0, 7, step or 1))
            return days if stepped_days else f"*/{step}" if step else "*"
        case "LastDayOfMonthExpression":
            return "L"
        case "WeekdayPositionExpression":
            number, weekday = part.get("option_num"), (part.get("weekday") + 1) % 7
            return f"{weekday}L" if number == _LAST_OF_MONTH else f"{weekday}#{number + 1}"
        case _:
            return _range(field, part, f"/{step}" if step else "")


def _range(field: str, part: Record, step: str) -> str:
    """Days of the week begin with Monday as 0 there, with Sunday here; 7 is Sunday here, too."""
    first, last = part.get("first"), part.get("last")
    if not isinstance(first, int):
        raise InvalidInput(f"Its condition on the {field} cannot be read.")
    shift = 1 if field == "day_of_week" else 0
    most = {"minute": 59, "hour": 23, "day": 31, "month": 12, "day_of_week": 6}.get(field)
    last = most if last is None else last
    if last == first:
        return str(first + shift)
    return f"{first + shift}-{(last or first) + shift}{step}"
