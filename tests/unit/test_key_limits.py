"""Limits that jobs with one key share: rates, the bucket that keeps them, keys from arguments."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.job import JobSpec
from evenbeat.domain.limits import (
    Limits,
    RateLimit,
    arguments_in,
    filled_key,
    parse_rate,
)
from evenbeat.errors import InvalidInput
from token_bucket import after_starts, startable

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)

rates = st.builds(
    RateLimit,
    st.integers(1, 1000),
    st.integers(1000, 100_000_000).map(lambda n: n * MICROSECOND),
)


# -- rates as people write them --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count", "period", "written"),
    [
        ("10/s", 10, SECOND, "10/s"),
        ("100/min", 100, 60 * SECOND, "100/m"),
        ("1000/h", 1000, 3600 * SECOND, "1000/h"),
        ("5 per 30s", 5, 30 * SECOND, "5/30s"),
        ("7 / day", 7, 86_400 * SECOND, "7/d"),
        (" 3 per  minute ", 3, 60 * SECOND, "3/m"),
        ("1/1h30m", 1, 5400 * SECOND, "1/1h30m"),
        ("20/500ms", 20, SECOND / 2, "20/500ms"),
    ],
)
def test_rates_are_read_and_written(text: str, count: int, period: timedelta, written: str):
    rate = parse_rate(text)
    assert (rate.count, rate.period) == (count, period)
    assert str(rate) == written


@given(rates)
def test_a_rate_is_read_back_as_it_is_written(rate: RateLimit):
    assert parse_rate(str(rate)) == rate
    assert parse_rate(rate) is rate


@pytest.mark.parametrize(
    "text",
    [
        "", "10", "/s", "10/", "ten/s", "-1/s", "0/s", "1.5/s", "10/fortnight", "10/0s", "10/40d",
        "10 s", "10/s/s", "10\x00/s", "1000001/s", "9" * 400 + "/s", "1/" + "9" * 200 + "s",
        "10/1ns", "٣/s", None, 10, 10.0, True, ["10/s"],
    ],
)  # fmt: skip
def test_what_is_no_rate_is_refused_with_examples(text: object):
    with pytest.raises(InvalidInput, match="10/s") as refused:
        parse_rate(text)  # type: ignore[arg-type]
    assert refused.value.field == "rate_limit"


# -- the bucket ------------------------------------------------------------------------------------


@given(
    rates,
    st.lists(st.tuples(st.integers(-50, 400), st.integers(1, 50)), min_size=1, max_size=80),
)
def test_no_period_sees_more_starts_than_the_rate(rate: RateLimit, steps: list[tuple[int, int]]):
    """Whoever asks, whenever, and even if their clocks disagree a little and go back."""
    now, next_start, starts = T0, T0, []
    for percent, wanted in steps:
        now += rate.period * percent / 100
        taken = min(wanted, startable(rate, next_start, now))
        assert taken <= rate.burst
        if taken:
            next_start = after_starts(rate, next_start, now, taken)
            starts += [now] * taken
    starts.sort()
    for first in starts:
        assert sum(first <= start < first + rate.period for start in starts) <= rate.count


@given(rates.filter(lambda rate: rate.period / rate.count >= 100 * MICROSECOND))
def test_a_rate_is_used_up_to_a_hundredth(rate: RateLimit):
    now, next_start, starts = T0, T0, 0
    while now < T0 + 20 * rate.period and starts < 2000:
        taken = startable(rate, next_start, now)
        assert taken >= 1
        next_start, starts = after_starts(rate, next_start, now, taken), starts + taken
        now = next_start
    assert starts >= 0.97 * rate.count * ((now - T0) / rate.period) - 1


def test_after_a_rest_as_many_as_the_burst_start_at_once():
    rate = parse_rate("1000/h")
    assert rate.burst == 10
    assert startable(rate, T0, T0 - MICROSECOND) == 0
    assert startable(rate, T0, T0) == 1
    assert startable(rate, T0, T0 + timedelta(days=1)) == 10
    rested = after_starts(rate, T0, T0 + timedelta(days=1), 10)
    assert rested == T0 + timedelta(days=1) + rate.step
    assert parse_rate("10/s").burst == 1
    assert parse_rate("10/s").step == SECOND / 10


# -- keys ------------------------------------------------------------------------------------------


def test_a_key_is_filled_from_the_arguments():
    assert filled_key("reports", {}) == "reports"
    assert filled_key("customer:{customer_id}", {"customer_id": 42}) == "customer:42"
    assert filled_key("{a}/{b}", {"a": "x", "b": True, "c": None}) == "x/true"
    assert filled_key("{{{a}}}", {"a": 1.5}) == "{1.5}"
    assert filled_key("{name}", {"name": "{a}"}) == "{a}"
    assert arguments_in("{{x}} {a}:{b}") == ["a", "b"]


@pytest.mark.parametrize("arguments", [{}, {"a": None}, {"a": ""}, {"a": [1]}, {"a": {}}])
def test_a_missing_argument_is_refused_by_name(arguments: dict[str, object]):
    with pytest.raises(InvalidInput, match="argument 'a'") as refused:
        filled_key("k:{a}", arguments)
    assert refused.value.field == "concurrency_key"


@pytest.mark.parametrize("template", ["{", "}", "{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>9}"])
def test_what_is_no_template_is_refused(template: str):
    with pytest.raises(InvalidInput, match="braces"):
        filled_key(template, {"a": 1})


def test_a_spec_says_what_its_jobs_share():
    rate = parse_rate("10/s")
    assert JobSpec("t").limits is None
    assert JobSpec("t", concurrency_key="k").limits == Limits("k", 1, None)
    assert JobSpec("t", concurrency_limit=3).limits == Limits("t", 3, None)
    assert JobSpec("t", rate_limit=rate).limits == Limits("t", None, rate)
    assert JobSpec("t", concurrency_key="k", rate_limit=rate).limits == Limits("k", None, rate)


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency_key": ""},
        {"concurrency_key": "x" * 201},
        {"concurrency_key": "a\x00b"},
        {"concurrency_limit": 0},
        {"concurrency_limit": -1},
        {"concurrency_limit": True},
        {"concurrency_limit": 1_000_001},
        {"concurrency_limit": "2"},
    ],
)
def test_a_spec_refuses_limits_that_are_none(wrong: dict[str, object]):
    with pytest.raises(InvalidInput) as refused:
        JobSpec("t", **wrong)  # type: ignore[arg-type]
    assert refused.value.field == next(iter(wrong))
