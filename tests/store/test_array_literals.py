"""Array literals must reach the database exactly as they were meant."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.rows import scalar_row

from evenbeat.domain.moments import EPOCH
from evenbeat.domain.states import JobStatus
from evenbeat.store.prepared import numbers, texts, times, uuids, words

any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)

MOMENTS = st.integers(-60 * 10**15, 250 * 10**15).map(lambda us: EPOCH + timedelta(microseconds=us))


@pytest.fixture(scope="module")
def database(server_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        yield connection


def back(database: psycopg.Connection, kind: str, literal: str | None) -> object:
    cursor = database.cursor(row_factory=scalar_row)
    return cursor.execute(f"SELECT %s::{kind}[]", [literal]).fetchone()


@given(values=st.lists(st.none() | any_text, min_size=1))
def test_texts(database: psycopg.Connection, values: list[str | None]) -> None:
    expected = values if any(value is not None for value in values) else None
    assert back(database, "text", texts(values)) == expected


@pytest.mark.parametrize(
    "text", ["NULL", "null", "", "{}", '"', "\\", 'a,b "c" \\"', " x ", "a\nb"]
)
def test_texts_that_mean_something_in_a_literal(database: psycopg.Connection, text: str) -> None:
    assert back(database, "text", texts([text, None])) == [text, None]


@given(values=st.lists(st.none() | st.floats(allow_nan=False), min_size=1))
def test_floats(database: psycopg.Connection, values: list[float | None]) -> None:
    expected = values if any(value is not None for value in values) else None
    assert back(database, "float8", numbers(values)) == expected


def test_whole_numbers(database: psycopg.Connection) -> None:
    assert back(database, "bigint", numbers([-1, None, 2**62])) == [-1, None, 2**62]


@given(
    values=st.lists(
        st.none() | MOMENTS,
        min_size=1,
    )
)
def test_times(database: psycopg.Connection, values: list[datetime | None]) -> None:
    expected = values if any(value is not None for value in values) else None
    assert back(database, "timestamptz", times(values)) == expected


@given(values=st.lists(st.none() | st.uuids(), min_size=1))
def test_ids(database: psycopg.Connection, values: list[UUID | None]) -> None:
    assert back(database, "uuid", uuids(values)) == values


def test_states(database: psycopg.Connection) -> None:
    assert back(database, "text", words(list(JobStatus))) == [state.value for state in JobStatus]


def test_a_missing_column_is_nulls(database: psycopg.Connection) -> None:
    rows = database.execute(
        "SELECT * FROM unnest(%s::int[], %s::text[])", [numbers([1, 2]), texts([None, None])]
    ).fetchall()
    assert rows == [(1, None), (2, None)]
