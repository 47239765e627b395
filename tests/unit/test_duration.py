"""Durations read and written."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.duration import MAX_DURATION, format_duration, parse_duration
from evenbeat.errors import InvalidDuration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("  30s\n", timedelta(seconds=30)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        (".5h", timedelta(minutes=30)),
        ("2d12h", timedelta(hours=60)),
        ("30m1h", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        ("500ms", timedelta(milliseconds=500)),
        ("3us", timedelta(microseconds=3)),
        ("3µs", timedelta(microseconds=3)),
        ("3μs", timedelta(microseconds=3)),
        ("2000ns", timedelta(microseconds=2)),
        ("1ns", timedelta(0)),
        ("0s", timedelta(0)),
        ("0.1s", timedelta(microseconds=100_000)),
        ("36500d", MAX_DURATION),
        (90, timedelta(seconds=90)),
        (0.25, timedelta(milliseconds=250)),
        (timedelta(hours=3), timedelta(hours=3)),
    ],
)
def test_reads(text: str | float | timedelta, expected: timedelta) -> None:
    assert parse_duration(text) == expected


BAD = [
    "", "   ", "30", "1.5", "-5m", "-1", "5x", "5 m", "1h 30m", "h", "m5", "1..5h", "1h-30m",
    "5M", "1,5h", "٣s", "1e3s", "+5m", "nan", "infs", "36501d", "9" * 90 + "d", "1h30",
    float("nan"), float("inf"), float("-inf"), -1, -0.5, 10**30, 1e300, True, False, None, [5],
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
def test_refuses_and_shows_the_way(bad: object) -> None:
    with pytest.raises(InvalidDuration) as caught:
        parse_duration(bad, field="timeout")  # type: ignore[arg-type]
    message = str(caught.value)
    assert repr(bad) in message
    assert '"1h30m"' in message
    assert caught.value.field == "timeout"


@pytest.mark.parametrize("bad", [timedelta(seconds=-1), timedelta.max, timedelta.min])
def test_refuses_timedeltas_out_of_range(bad: timedelta) -> None:
    with pytest.raises(InvalidDuration, match=format_duration(bad)):
        parse_duration(bad)


@pytest.mark.parametrize(
    "bad", ["1" * 5000 + "s", 10**5000, -(10**5000)], ids=["text", "number", "negative"]
)
def test_a_huge_input_makes_a_short_message(bad: str | int) -> None:
    with pytest.raises(InvalidDuration) as caught:
        parse_duration(bad)
    assert len(str(caught.value)) < 400


def test_a_number_without_unit_is_told_its_unit() -> None:
    with pytest.raises(InvalidDuration, match='"30s"'):
        parse_duration("30")


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=7), "7d"),
        (timedelta(milliseconds=500), "500ms"),
        (timedelta(0), "0s"),
        (timedelta(microseconds=1), "1us"),
        (timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=5006), "1d2h3m4s5ms6us"),
        (timedelta(minutes=-90), "-1h30m"),
    ],
)
def test_writes(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(st.timedeltas(min_value=timedelta(0), max_value=MAX_DURATION))
def test_what_is_written_reads_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.text(alphabet="0123456789.-hmsdnuµ ", max_size=30) | st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert_read_or_refused(text)


@given(st.integers() | st.floats())
def test_any_number_is_read_or_refused(number: float) -> None:
    assert_read_or_refused(number)


def assert_read_or_refused(value: str | float) -> None:
    try:
        duration = parse_duration(value)
    except InvalidDuration:
        return
    assert timedelta(0) <= duration <= MAX_DURATION
