"""The journey's statements straight through libpq.

The driver looks at every parameter to find its type and at every statement to see whether it is
prepared. A statement of ours knows both: it is prepared once for a connection under its own name,
its parameters go as text whose type the statement's casts and columns tell, and the loaders of its
columns are chosen once. For a single enqueue that is a third of the client's CPU time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import abc, generators, pq
from psycopg.adapt import Transformer

from evenbeat.store.statements import Statement
from evenbeat.store.timed import Row, TimedConnection


class PreparedConnection(TimedConnection):
    """A connection of ours, for the journey's statements. It also does all that others do."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.local_settings = b"SELECT"
        """Behind a pooler: makes the settings of a session for the present transaction alone."""
        self._known: set[str] = set()
        self._loaders: dict[str, abc.Transformer] = {}

    def run(self, statement: Statement, params: Mapping[str, Any]) -> list[Row]:
        """Execute one statement and fetch all its rows."""
        values = as_texts([params[name] for name in statement.names])
        name = statement.name
        with self.lock:
            if self.prepare_threshold is None:
                result = self._run_with_settings(statement, values)
            else:
                if name not in self._known:
                    self.pgconn.send_prepare(name.encode(), statement.numbered)
                    self._result_of(self.wait(generators.execute(self.pgconn)))
                    self._known.add(name)
                self.pgconn.send_query_prepared(
                    name.encode(), values, result_format=pq.Format.BINARY
                )
                # The driver's wait: hints that come meanwhile are kept, and Ctrl-C is heard.
                result = self._result_of(self.wait(generators.execute(self.pgconn)))
            loaders = self._loaders.get(name)
            if loaders is None:
                loaders = self._loaders[name] = Transformer(self)
                loaders.set_pgresult(result)
            else:
                loaders.set_pgresult(result, set_loaders=False)
            rows: list[Row] = loaders.load_rows(0, result.ntuples, tuple)
            loaders.set_pgresult(None, set_loaders=False)
        return rows

    def _run_with_settings(
        self, statement: Statement, values: list[bytes | None]
    ) -> pq.abc.PGresult:
        """Behind a pooler each transaction may meet another session, so the settings come along:
        in the same transaction, and in the same packet."""
        self.pgconn.enter_pipeline_mode()
        try:
            self.pgconn.send_query_params(self.local_settings, [])
            self.pgconn.send_query_params(
                statement.numbered, values, result_format=pq.Format.BINARY
            )
            self.pgconn.pipeline_sync()
            settings, results, _sync = self.wait(_three_results(self.pgconn))
        finally:
            if self.pgconn.status == pq.ConnStatus.OK:
                self.pgconn.exit_pipeline_mode()
        self._result_of(settings)
        return self._result_of(results)

    def _result_of(self, results: list[pq.abc.PGresult]) -> pq.abc.PGresult:
        if results[-1].status == pq.ExecStatus.FATAL_ERROR:
            raise self.outage_if_closed(psycopg.errors.error_from_result(results[-1]))
        return results[-1]


def _three_results(pgconn: pq.abc.PGconn) -> abc.PQGen[list[list[pq.abc.PGresult]]]:
    yield from generators.send(pgconn)
    settings = yield from generators.fetch_many(pgconn)
    results = yield from generators.fetch_many(pgconn)
    sync = yield from generators.fetch_many(pgconn)
    return [settings, results, sync]


def as_texts(values: list[Any]) -> list[bytes | None]:
    """Parameters as PostgreSQL would write them."""
    texts = [None if value is None else _WRITERS[type(value)](value).encode() for value in values]
    if b"\x00" in b"".join(filter(None, texts)):  # libpq would end the text there
        raise psycopg.DataError("a text cannot contain NUL (0x00) bytes")
    return texts


def _array(values: list[Any]) -> str:
    written = [
        "NULL" if value is None else quoted(_WRITERS[type(value)](value)) for value in values
    ]
    return "{" + ",".join(written) + "}"


class _Writers(dict[type, Callable[[Any], str]]):
    """How to write a value, by its type. An enumeration's member, for one, is written as what it is
    made of."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        for known, writer in list(self.items()):
            if issubclass(kind, known):
                self[kind] = writer
                return writer
        raise TypeError(f"a statement cannot be given a {kind.__name__}")


_WRITERS = _Writers(
    {
        str: str,
        bool: str,
        int: str,
        float: repr,
        UUID: lambda value: value.hex,
        datetime: datetime.isoformat,
        list: _array,
    }
)


# -- columns of a batch ----------------------------------------------------------------------------
# Thousands of values go with every finish, each column with one known type. A column of which every
# value is None is None: `unnest` fills a missing column with nulls.


def uuids(values: Iterable[UUID | None]) -> str:
    """Ids."""
    return "{" + ",".join(["NULL" if value is None else value.hex for value in values]) + "}"


def words(values: Iterable[str]) -> str:
    """Texts of ours that need no quotes, such as states."""
    return "{" + ",".join(values) + "}"


def numbers(values: Sequence[float | None]) -> str | None:
    """Whole numbers or floats."""
    if values.count(None) == len(values):
        return None
    return "{" + ",".join(["NULL" if value is None else repr(value) for value in values]) + "}"


def times(values: Sequence[datetime | None]) -> str | None:
    """Moments with a timezone."""
    if values.count(None) == len(values):
        return None
    return (
        "{" + ",".join(["NULL" if value is None else value.isoformat() for value in values]) + "}"
    )


def texts(values: Sequence[str | None]) -> str | None:
    """Any texts."""
    if values.count(None) == len(values):
        return None
    return "{" + ",".join(["NULL" if value is None else quoted(value) for value in values]) + "}"


def quoted(text: str) -> str:
    """One text as an element."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
