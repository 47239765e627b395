"""Reading the pickles of an APScheduler 3 job store without running anything that is in them.

A pickle is a program that may call anything it can name. Here it can name a few harmless values
only (times, zones) and APScheduler's triggers, which become plain records. Anything else becomes a
`Foreign` record, never the thing itself. It still may ask for more memory than there is, so a store
is read only when its owner vouches for it.
"""

import io
import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from evenbeat.domain.moments import zone_named
from evenbeat.errors import InvalidInput

_TRIGGERS = "apscheduler.triggers."
_LARGEST = 2**20


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

    def __call__(self, *_args: Any) -> "Record":
        return self

    def get(self, name: str) -> Any:
        """A field; None if it has no such."""
        return self.fields.get(name)


class Foreign(Record):
    """Something that is neither a trigger nor a plain value."""

    def append(self, _item: Any) -> None:
        """Foreign lists lose their items."""

    def extend(self, _items: Any) -> None:
        """Foreign lists lose their items."""

    def __setitem__(self, _key: Any, _value: Any) -> None:
        """Foreign mappings lose theirs."""


def unpickled(data: bytes) -> dict[str, Any]:
    """The state of a job, or InvalidInput."""
    if len(data) > _LARGEST:
        raise InvalidInput("It takes more than a mebibyte, which no job does.")
    try:
        state = _Reader(io.BytesIO(data)).load()
    except (Exception, RecursionError) as error:  # a broken pickle may raise anything
        raise InvalidInput(f"It cannot be unpickled: {type(error).__name__}.") from None
    if not isinstance(state, dict):
        raise InvalidInput("It is not the state of an APScheduler 3 job.")
    return state


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _HARMLESS:
            return _HARMLESS[module, name]
        if module.startswith(_TRIGGERS):
            return type(name, (Record,), {"kind": name})
        return type(name.rpartition(".")[2] or "?", (Foreign,), {"kind": f"{module}.{name}"})

    def persistent_load(self, _pid: Any) -> Any:
        return Foreign()


# -- times and zones -----------------------------------------------------------------------------


def _zone(key: Any = "UTC", *_rest: Any) -> tzinfo:
    return zone_named(str(key))


def _utc(*_rest: Any) -> tzinfo:
    return UTC


def _attribute(owner: Any, name: Any) -> Any:
    """`getattr`, for the one thing that pickles of time zones need it for."""
    if owner is _zone and name == "_unpickle":
        return _zone
    return Foreign()


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
    ("builtins", "getattr"): _attribute,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
}


def zone_key(zone: Any) -> str:
    """The IANA name of a trigger's time zone, or InvalidInput."""
    if isinstance(zone, ZoneInfo) and zone.key:
        return zone.key
    if zone is None or (isinstance(zone, tzinfo) and zone.utcoffset(None) == timedelta(0)):
        return "UTC"
    raise InvalidInput("Its time zone has no IANA name, such as Europe/Berlin.")
