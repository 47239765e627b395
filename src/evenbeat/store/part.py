"""What the parts of the store share: rows become what they mean, old ones go in batches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

from evenbeat.domain.moments import as_utc
from evenbeat.errors import InvalidInput, NotFound
from evenbeat.store.database import Connection, Database
from evenbeat.store.rows import MAX_JSON_BYTES

MAX_PAGE = 1000
BATCH = 5000

Between = Callable[[], None]
"""Called before each batch of a long piece of work; it raises to end the work there."""

_Result = TypeVar("_Result")
_Make = Callable[[Iterable[Any]], _Result]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class StorePart:
    """Statements about one subject, on one database."""

    def __init__(self, database: Database, *, max_json_bytes: int = MAX_JSON_BYTES) -> None:
        self._database = database
        self._max_json_bytes = max_json_bytes

    def _all(
        self,
        make: _Make[_Result],
        statement: str,
        params: Mapping[str, Any] = _NOTHING,
        connection: Connection | None = None,
    ) -> list[_Result]:
        return [make(row) for row in self._database.rows(statement, params, connection)]

    def _get(
        self,
        make: _Make[_Result],
        statement: str,
        noun: str,
        id_: UUID | str,
        *,
        params: Mapping[str, Any] = _NOTHING,
        connection: Connection | None = None,
    ) -> _Result:
        """What a statement gives for this id, or `NotFound`."""
        row = self._database.row(statement, {"id": id_, **params}, connection)
        if row is None:
            raise NotFound(noun, id_)
        return make(row)

    def _ids(self, statement: str, params: Mapping[str, Any]) -> list[Any]:
        """The first column."""
        return [row[0] for row in self._database.rows(statement, params)]

    def _prune(self, statement: str, older_than: datetime, batch: int, between: Between) -> int:
        """Remove what is older, a batch at a time; returns how many rows went."""
        removed = 0
        while True:
            between()
            gone = len(self._ids(statement, {"older_than": older_than, "limit": batch}))
            removed += gone
            if gone < batch:
                return removed

    def _notify(self, signals: Iterable[str], connection: Connection | None) -> None:
        """Send hints such as `due:default`."""
        params = {"channel": self._database.channel, "signals": sorted(signals)}
        self._database.rows("notify", params, connection)


def go_on() -> None:
    """Nothing is in the way of the next batch."""


def check_page(limit: int, offset: int, farthest: int = 2**31 - 1) -> None:
    """Refuse a page that is too large or too far away to be had quickly."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(f"limit must be from 1 to {MAX_PAGE}, got {limit}.", field="limit")
    if not 0 <= offset <= farthest:
        raise InvalidInput(
            f"offset must be from 0 to {farthest}, got {offset}. "
            "To get further, narrow the list by a filter or sort it the other way round.",
            field="offset",
        )


def one_of(field: str, words: Sequence[str] | None, known: Sequence[str]) -> None:
    """Refuse words that are not among the known ones."""
    for word in words or ():
        if word not in known:
            raise InvalidInput(
                f"{field} must be one of {', '.join(known)}, got {word!r}.", field=field
            )


def check_period(start: datetime, end: datetime, fields: tuple[str, str]) -> None:
    """Refuse a period that is none."""
    if as_utc(start, field=fields[0]) >= as_utc(end, field=fields[1]):
        raise InvalidInput(
            f"{fields[0]} must be before {fields[1]}, got {start.isoformat()} and "
            f"{end.isoformat()}.",
            field=fields[0],
        )


def as_list(values: Iterable[str] | None) -> list[str] | None:
    """Words for a filter, in the driver's type; None for no filter."""
    return None if values is None else [str(value) for value in values]


def containing(text: str) -> str:
    """The LIKE pattern for what contains this text, with LIKE's own signs taken literally."""
    literal = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{literal}%"
