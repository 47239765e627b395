"""Retry delays, against the tables of the seed documents."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.retry import RetryPolicy
from evenbeat.errors import InvalidInput


def seconds(policy: RetryPolicy, attempt: int, spread: float = 0) -> float:
    return policy.delay(attempt, spread).total_seconds()


def test_doubles_up_to_the_cap() -> None:
    policy = RetryPolicy(jitter=0)
    delays = [seconds(policy, attempt) for attempt in range(1, 9)]
    assert delays == [60, 120, 240, 480, 960, 1920, 3600, 3600]


@pytest.mark.parametrize(
    ("attempt", "low", "high"),
    [
        (1, 48, 72),
        (2, 96, 144),
        (3, 192, 288),
        (4, 384, 576),
        (5, 768, 1152),
        (20, 19.2 * 3600, 28.8 * 3600),
        (1000, 19.2 * 3600, 28.8 * 3600),
    ],
)
def test_jitter_comes_after_the_cap(attempt: int, low: float, high: float) -> None:
    policy = RetryPolicy(backoff=timedelta(minutes=1), cap=timedelta(hours=24), jitter=0.2)
    assert seconds(policy, attempt, -1) == pytest.approx(low)
    assert seconds(policy, attempt, 1) == pytest.approx(high)


def test_a_list_of_delays_repeats_its_last_without_jitter() -> None:
    policy = RetryPolicy(delays=(timedelta(seconds=10), timedelta(seconds=60)))
    assert [seconds(policy, attempt, 1) for attempt in range(1, 5)] == [10, 60, 60, 60]


def test_a_list_may_be_given_as_a_list() -> None:
    policy = RetryPolicy(delays=[timedelta(seconds=1)])  # type: ignore[arg-type]
    assert policy.delays == (timedelta(seconds=1),)


def test_allows_as_many_retries_as_it_says() -> None:
    assert [RetryPolicy(max_retries=2).allows(attempt) for attempt in (1, 2, 3)] == [
        True,
        True,
        False,
    ]
    assert not RetryPolicy(max_retries=0).allows(1)


@pytest.mark.parametrize(
    ("given_values", "quoted", "example"),
    [
        ({"max_retries": -1}, "-1", "for example 3"),
        ({"max_retries": True}, "True", "for example 3"),
        ({"max_retries": 1.5}, "1.5", "for example 3"),
        ({"backoff": timedelta(seconds=-1)}, "'-1s'", "'60s'"),
        ({"backoff": timedelta(hours=2)}, "'2h'", "cap '1h'"),
        ({"cap": timedelta(hours=25)}, "'1d1h'", "'1h'"),
        ({"jitter": -0.1}, "-0.1", "0.2"),
        ({"jitter": 1.1}, "1.1", "0.2"),
        ({"jitter": float("nan")}, "nan", "0.2"),
        ({"delays": (timedelta(seconds=-5),)}, "'-5s'", "['10s', '60s']"),
    ],
)
def test_refuses_and_shows_the_way(given_values: dict[str, Any], quoted: str, example: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        RetryPolicy(**given_values)
    assert quoted in str(caught.value)
    assert example in str(caught.value)


@pytest.mark.parametrize(
    ("attempt", "spread"), [(0, 0), (-1, 0), (1, 1.1), (1, -2), (1, float("nan"))]
)
def test_refuses_impossible_draws(attempt: int, spread: float) -> None:
    with pytest.raises(InvalidInput):
        RetryPolicy().delay(attempt, spread)


@given(
    backoff=st.timedeltas(timedelta(0), timedelta(hours=24)),
    jitter=st.floats(0, 1),
    attempt=st.integers(1, 10**12),
    spread=st.floats(-1, 1),
)
def test_a_delay_stays_within_the_spread_cap(
    backoff: timedelta, jitter: float, attempt: int, spread: float
) -> None:
    policy = RetryPolicy(backoff=backoff, cap=timedelta(hours=24), jitter=jitter)
    assert timedelta(0) <= policy.delay(attempt, spread) <= timedelta(hours=48)
    assert policy.delay(attempt, 0) <= policy.delay(attempt + 1, 0) <= policy.cap
