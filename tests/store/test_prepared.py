"""Statements straight through libpq give what they were given, and fail as the driver's do."""

import os
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenbeat.store.database import Database
from evenbeat.store.prepared import PreparedConnection
from evenbeat.store.statements import Statement, bind

ONE_CONNECTION = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Colour(StrEnum):
    RED = "red"


@pytest.fixture(params=["auto", "transaction"])
def connection(request, database_url):
    """One for the server as it is met, and one as for a pooler: nothing is prepared there."""
    yield from connected(database_url, request.param)


@pytest.fixture
def session(direct_url):
    """One that has its session for itself."""
    yield from connected(direct_url, "session")


def connected(url: str, pooling: str) -> Iterator[PreparedConnection]:
    database = Database(url, pooling=pooling)
    connection = database.connect()
    assert isinstance(connection, PreparedConnection)
    yield connection
    connection.close()
    database.close()


def statement(text: str, name: str = "echo") -> Statement:
    return bind(name, text, "evenbeat", hot=True)


def echo(connection: PreparedConnection, kind: str, value: object) -> object:
    asked = statement(f"SELECT %(value)s::{kind}", f"echo {kind}")
    ((back,),) = connection.run(asked, {"value": value})
    return back


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text", "plain"),
        ("text", ""),
        ("text", "NULL"),
        ("text", "a 100% 'quoted' \\ \"thing\"\n\tæ 漢 🎻"),
        ("bigint", -(2**63)),
        ("float8", 0.1 + 0.2),
        ("float8", float("inf")),
        ("boolean", True),
        ("boolean", False),
        ("uuid", UUID(int=7)),
        ("timestamptz", datetime(2026, 11, 16, 1, 2, 3, 456789, tzinfo=UTC)),
        ("timestamptz", datetime(1999, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))),
        ("text[]", []),
        ("text[]", [None, None]),
        ("text[]", ["NULL", None, "", "a,b", "{}", '"', "\\"]),
        ("float8[]", [60.0, None, 0.5]),
        ("uuid[]", [UUID(int=1), UUID(int=2)]),
        ("timestamptz[]", [datetime(2030, 1, 1, tzinfo=UTC), None]),
        ("text", None),
    ],
)
def test_what_goes_in_comes_out(connection, kind, value):
    assert echo(connection, kind, value) == value


@ONE_CONNECTION
@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"))))
def test_any_texts_come_out_as_they_went_in(connection, values):
    assert echo(connection, "text[]", values) == values


def test_a_member_of_an_enumeration_is_its_value(connection):
    assert echo(connection, "text", Colour.RED) == "red"


def test_json_that_is_encoded_already_is_not_encoded_again(connection):
    assert echo(connection, "jsonb", '{"a": [1, "\\u00e6"]}') == {"a": [1, "æ"]}


@pytest.mark.parametrize("value", ["a\0b", ["fine", "a\0b"]])
def test_a_text_is_never_cut_off_at_a_nul(connection, value):
    kind = "text[]" if isinstance(value, list) else "text"
    with pytest.raises(psycopg.DataError, match="NUL"):
        echo(connection, kind, value)
    assert echo(connection, kind, None) is None


def test_what_cannot_be_written_is_named(connection):
    with pytest.raises(TypeError, match="timedelta"):
        echo(connection, "interval", timedelta(seconds=1))


def test_a_parameter_may_stand_in_several_places(connection):
    asked = statement("SELECT %(b)s::int, %(a)s::int, %(b)s::int, 7 %% 4")
    assert connection.run(asked, {"a": 1, "b": 2}) == [(2, 1, 2, 3)]


def test_an_error_is_the_drivers_and_leaves_the_connection_usable(connection):
    with pytest.raises(psycopg.errors.DivisionByZero, match="zero"):
        connection.run(statement("SELECT 1 / %(n)s::int"), {"n": 0})
    assert connection.run(statement("SELECT 1 / %(n)s::int"), {"n": 1}) == [(1,)]


def test_a_statement_that_cannot_be_prepared_is_tried_again_next_time(session):
    asked = statement("SELECT count(*) FROM evenbeat_later WHERE %(n)s::int = 1")
    with pytest.raises(psycopg.errors.UndefinedTable):
        session.run(asked, {"n": 1})
    session.execute("CREATE TEMPORARY TABLE evenbeat_later ()")
    assert session.run(asked, {"n": 1}) == [(0,)]


def test_a_statement_is_prepared_once(session):
    for n in range(3):
        session.run(statement("SELECT %(n)s::int"), {"n": n})
    prepared = session.execute("SELECT name FROM pg_prepared_statements WHERE name = 'echo'")
    assert prepared.fetchall() == [("echo",)]


def test_it_belongs_to_an_open_transaction(connection):
    key = str(uuid4())
    asked = statement("INSERT INTO evenbeat.queues (name) VALUES (%(name)s) RETURNING name")
    with connection.transaction(force_rollback=True):
        assert connection.run(asked, {"name": key}) == [(key,)]
    assert connection.run(statement("SELECT FROM evenbeat.queues", "count"), {}) == []


def test_a_hint_that_comes_during_a_statement_is_not_lost(session, store):
    session.execute("LISTEN evenbeat")
    store.notify("due:default")
    assert session.run(statement("SELECT pg_sleep(%(s)s)"), {"s": 0.2})
    assert [n.payload for n in session.notifies(timeout=2, stop_after=1)] == ["due:default"]


def test_a_broken_connection_is_the_drivers_error(session, connect):
    with connect() as other:
        other.execute("SELECT pg_terminate_backend(%s)", (session.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        session.run(statement("SELECT %(n)s::int"), {"n": 1})
    assert session.broken


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="needs the main thread"
)
def test_an_interrupt_ends_the_statement(connection):
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        connection.run(statement("SELECT pg_sleep(%(s)s)"), {"s": 30})
    assert connection.run(statement("SELECT %(n)s::int", "one"), {"n": 1}) == [(1,)]
