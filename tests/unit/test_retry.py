"""Retry delays, against the tables of the seed documents."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.job import JobSpec
from evenbeat.domain.retry import FailuresAlike, RetryPolicy
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
        (20, 19.2 * 3600, 24 * 3600),
        (1000, 19.2 * 3600, 24 * 3600),
    ],
)
def test_jitter_varies_a_wait_within_the_cap(attempt: int, low: float, high: float) -> None:
    policy = RetryPolicy(backoff=timedelta(minutes=1), cap=timedelta(hours=24), jitter=0.2)
    waits = sorted(seconds(policy, attempt, spread / 50) for spread in range(-50, 51))
    assert (waits[0], waits[-1]) == pytest.approx((low, high))
    # They lie evenly, and do not come together at the cap.
    assert max(b - a for a, b in pairwise(waits)) < (high - low) / 20
    assert len(set(waits)) > 50


policies = st.builds(
    RetryPolicy,
    backoff=st.timedeltas(timedelta(0), timedelta(hours=1)),
    cap=st.timedeltas(timedelta(hours=1), timedelta(hours=24)),
    jitter=st.floats(0, 1),
)


@given(policies, st.integers(1, 10_000), st.floats(-1, 1))
def test_no_retry_waits_longer_than_its_cap(
    policy: RetryPolicy, attempt: int, spread: float
) -> None:
    assert timedelta(0) <= policy.delay(attempt, spread) <= policy.cap


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
    ("values", "setting"),
    [
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": True}, "max_retries"),
        ({"max_retries": 1.5}, "max_retries"),
        ({"backoff": timedelta(seconds=-1)}, "retry_backoff"),
        ({"backoff": timedelta(hours=2)}, "retry_cap"),
        ({"cap": timedelta(hours=25)}, "retry_cap"),
        ({"jitter": -0.1}, "retry_jitter"),
        ({"jitter": 1.1}, "retry_jitter"),
        ({"jitter": float("nan")}, "retry_jitter"),
        ({"delays": (timedelta(seconds=-5),)}, "retry_delays.0"),
    ],
)
def test_a_spec_refuses_values_that_their_settings_do_not_allow(
    values: dict[str, Any], setting: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        JobSpec("noop", retry=RetryPolicy(**values))
    assert caught.value.field == setting


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


NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_many_runs_that_fail_alike_do_not_retry_together() -> None:
    failures = FailuresAlike(timedelta(hours=3))
    due = [MINUTE + failures.extra_wait("ConnectError", MINUTE, NOW) for _ in range(2000)]
    assert set(due[:51]) == {MINUTE}, "a few retry as always"
    assert all(a <= b for a, b in pairwise(due)), "in the order in which they failed"
    assert max(due) == timedelta(minutes=39.98)
    most = max(Counter(wait // MINUTE for wait in due).values())
    assert most <= 101, "the few, and then as many in each minute"


def test_other_errors_and_later_ones_begin_anew() -> None:
    failures = FailuresAlike(timedelta(hours=3))
    for _ in range(200):
        failures.extra_wait("ConnectError", MINUTE, NOW)
    assert failures.extra_wait("ValueError", MINUTE, NOW) == timedelta(0)
    assert failures.extra_wait("ConnectError", MINUTE, NOW + MINUTE) > MINUTE
    assert failures.extra_wait("ConnectError", MINUTE, NOW + 3 * MINUTE) == timedelta(0)


def test_the_extra_wait_has_a_limit_and_can_be_turned_off() -> None:
    endless = timedelta(days=365_000)
    for longest in (timedelta(0), timedelta(hours=3)):
        failures = FailuresAlike(longest)
        for wait in (timedelta(0), MINUTE, endless):
            waits = [failures.extra_wait("timeout", wait, NOW) for _ in range(500)]
            assert all(timedelta(0) <= one <= longest for one in waits)
