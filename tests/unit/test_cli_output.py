"""How the command line writes times, ids and foreign text."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat import cli
from evenbeat.cli.job_edit import value_of
from evenbeat.cli.output import both, cell, exact, relative, safe, short_ids
from evenbeat.cli.views import outcome, progress_text
from evenbeat.domain.ids import uuid7_many

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def test_moments_are_written_in_utc_whatever_their_zone():
    assert exact("2026-11-15T13:00:00+01:00") == "2026-11-15 12:00:00 UTC"
    assert both("2026-11-15T12:05:00Z", NOW) == "2026-11-15 12:05:00 UTC (in 5 min)"
    assert (exact(None), both(None, NOW), relative(None, NOW)) == ("", "", "")


# -- ids -----------------------------------------------------------------------------------------


@given(st.integers(min_value=1, max_value=300), st.floats(min_value=0, max_value=2e9))
def test_short_ids_tell_ids_apart_even_of_one_millisecond(number: int, moment: float):
    ids = [str(one) for one in uuid7_many(number, moment)]
    short = short_ids(ids)
    assert short.keys() == set(ids)
    for one, beginning in short.items():
        assert len(beginning) >= 13
        assert [other for other in ids if other.startswith(beginning)] == [one]


def test_short_ids_take_doubles_and_none():
    assert short_ids([]) == {}
    assert short_ids(["01a1e187-927b-7000", "01a1e187-927b-7000"]) == {
        "01a1e187-927b-7000": "01a1e187-927b"
    }


# -- foreign text --------------------------------------------------------------------------------


@given(st.text())
def test_nothing_that_a_terminal_obeys_gets_through(text: str):
    shown = safe(text)
    assert all(sign.isprintable() or sign in "\n\t" for sign in shown)
    assert "\n" not in cell(text).plain


def test_everything_is_printed_by_one_module():
    package = Path(cli.__file__).parents[1]
    for path in [*package.glob("cli/*.py"), *package.glob("*/commands.py")]:
        if path.name not in ("output.py", "__init__.py"):
            text = path.read_text()
            assert not re.search(r"\bConsole\(|(?<![.\w])print\(|\becho\(|sys\.stdout", text), path


def test_ordinary_text_stays_as_it_is():
    assert safe("ärger über 東京 🚀\n\tok") == "ärger über 東京 🚀\n\tok"
    assert safe("\x1b[31mred\ud800") == "\\x1b[31mred\\ud800"


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (None, ""),
        ({}, ""),
        ({"done": 3, "total": 10, "message": "pages"}, "3 of 10 pages"),
        ({"done": 0.5, "total": None, "message": None}, "0.5"),
        ({"done": None, "total": None, "message": "warming up"}, "warming up"),
    ],
)
def test_progress_in_words(progress: dict[str, object] | None, words: str):
    assert progress_text(progress) == words
    running = {"status": "running", "progress": progress}
    assert outcome(running) == words


# -- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-1.5", -1.5),
        ("true", True),
        ("null", None),
        ('"5"', "5"),
        ("[1, 2]", [1, 2]),
        ('{"a": 1}', {"a": 1}),
        ("", ""),
        ("a@b.c", "a@b.c"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("[" * 100_000, "[" * 100_000),
        ("{broken", "{broken"),
        ("007", "007"),
    ],
)
def test_values_are_json_where_they_are(text: str, value: object):
    assert value_of(text) == value
