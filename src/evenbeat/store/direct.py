"""The journey's statements straight through libpq.

The driver looks at every parameter to find its type and at every statement to see whether it is
prepared. A statement of ours knows both: it is prepared once for a connection under its own name,
its parameters go as text whose type the statement's casts and columns tell, and the loaders of its
columns are chosen once. For a single enqueue that is a third of the client's CPU time.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import abc, generators, pq
from psycopg.adapt import Transformer

from evenbeat.store.arrays import quoted
from evenbeat.store.rows import RawJson
from evenbeat.store.statements import Statement

Row = tuple[Any, ...]


class HotConnection(psycopg.Connection[Row]):
    """A connection of ours, for the journey's statements. It also does all that others do."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._known: set[str] = set()
        self._loaders: dict[str, abc.Transformer] = {}

    def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Row]:
        """Execute one statement and fetch all its rows."""
        values = [_text(params[name]) for name in statement.names]
        name = statement.name
        with self.lock:
            if name not in self._known:
                self.pgconn.send_prepare(name.encode(), statement.numbered)
                self._answer()
                self._known.add(name)
            self.pgconn.send_query_prepared(name.encode(), values, result_format=pq.Format.BINARY)
            return self._rows(name, self._answer())

    def _rows(self, name: str, result: pq.abc.PGresult) -> list[Row]:
        loaders = self._loaders.get(name)
        if loaders is None:
            loaders = self._loaders[name] = Transformer(self)
            loaders.set_pgresult(result)
        else:
            loaders.set_pgresult(result, set_loaders=False)
        rows: list[Row] = loaders.load_rows(0, result.ntuples, tuple)
        loaders.set_pgresult(None, set_loaders=False)
        return rows

    def _answer(self) -> pq.abc.PGresult:
        """The result of what was sent. Waits as the driver does: hints that come meanwhile are
        kept, and Ctrl-C is heard."""
        results: list[pq.abc.PGresult] = self.wait(generators.execute(self.pgconn))
        result = results[-1]
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
        return result


def _text(value: Any) -> bytes | None:
    """A parameter as PostgreSQL would write it."""
    if value is None:
        return None
    data = _written(value).encode()
    if b"\x00" in data:  # libpq would end the text there
        raise psycopg.DataError("a text cannot contain NUL (0x00) bytes")
    return data


def _written(value: Any) -> str:
    writer = _WRITERS.get(type(value))
    if writer is None:  # an enumeration's member, for one, is written as what it is made of
        writer = next((w for kind, w in _WRITERS.items() if isinstance(value, kind)), None)
    if writer is None:
        raise TypeError(f"a statement cannot be given a {type(value).__name__}: {value!r}")
    return writer(value)


def _array(values: list[Any]) -> str:
    written = ["NULL" if value is None else quoted(_written(value)) for value in values]
    return "{" + ",".join(written) + "}"


_WRITERS: dict[type, Callable[[Any], str]] = {
    str: str,
    bool: str,
    int: str,
    float: repr,
    UUID: lambda value: value.hex,
    datetime: datetime.isoformat,
    RawJson: lambda value: value.obj,
    list: _array,
}
