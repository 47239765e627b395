"""Durations, moments and counts in the one notation that every interface shares."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat import humanize
from evenbeat.domain.schedule import Cron, Interval, Once, parse_schedule

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (None, ""), (0, "0 s"), (0.24, "0.2 ms"), (12.4, "12 ms"), (999, "999 ms"), (1_000, "1 s"),
        (1_500, "1.5 s"), (45_000, "45 s"), (59_960, "1 min"), (61_000, "1 min 1 s"),
        (3_600_000, "1 h"), (3_605_000, "1 h"), (11_529_000, "3 h 12 min"),
        (90_061_000, "1 d 1 h"), (86_400_000 * 40, "40 d"),
    ],
)  # fmt: skip
def test_durations_have_two_units_at_most(milliseconds: float | None, words: str) -> None:
    assert humanize.milliseconds(milliseconds) == words
    if milliseconds is not None:
        assert humanize.duration(timedelta(milliseconds=milliseconds)) == words


@given(st.floats(min_value=0, max_value=1e10))
def test_every_duration_has_words_without_a_zero(seconds: float) -> None:
    words = humanize.duration(seconds).split()
    assert len(words) in (2, 4)
    assert words[0] != "0" or words == ["0", "s"]
    assert words[2:3] != ["0"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "now"), (0.4, "now"), (-0.4, "now"), (1, "in 1 s"), (-59, "59 s ago"), (60, "in 1 min"),
        (119, "in 1 min"), (3_599, "in 59 min"), (-3_600, "1 h ago"), (5_820, "in 1 h 37 min"),
        (90_000, "in 1 d 1 h"), (-90_000, "1 d 1 h ago"), (86_400 * 1_000, "in 1,000 d"),
    ],
)  # fmt: skip
def test_distances(seconds: float, words: str) -> None:
    assert humanize.relative(NOW + timedelta(seconds=seconds), NOW) == words


def test_moments_have_as_much_of_the_date_as_is_needed() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert humanize.time_of_day(NOW, NOW, UTC) == "12:00:00"
    assert humanize.time_of_day(NOW, NOW, berlin) == "13:00:00"
    assert humanize.time_of_day(NOW + timedelta(days=1), NOW, UTC) == "16 Nov 12:00"
    assert humanize.time_of_day(NOW + timedelta(days=400), NOW, UTC) == "20 Dec 2027 12:00"
    assert humanize.day_and_time(NOW, berlin) == "Sun 15 Nov 13:00:00"
    assert humanize.timestamp(NOW) == "2026-11-15 12:00:00 UTC"
    assert humanize.timestamp(NOW, berlin) == "2026-11-15 13:00:00 CET"


def test_nouns_agree_with_their_numbers() -> None:
    assert [humanize.count(n, "job") for n in (0, 1, 1234)] == ["0 jobs", "1 job", "1,234 jobs"]
    assert humanize.count(2, "job is", "jobs are") == "2 jobs are"


def test_long_lists_are_cut() -> None:
    assert [humanize.listing(list(names)) for names in ("a", "ab", "abc")] == [
        "a",
        "a and b",
        "a, b and c",
    ]
    assert humanize.listing(list("abcdef")) == "a, b, c and 3 more"


# -- schedules -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("30m", "every 30 minutes"),
        ("1h", "every hour"),
        ("1h30m", "every 1 hour 30 minutes"),
        ("7d", "every 7 days"),
        ("90s", "every 1 minute 30 seconds"),
        ("*/5 * * * *", "every 5 minutes"),
        ("*/1 * * * *", "every minute"),
        ("*/7 * * * *", "every seventh minute of every hour, Europe/Berlin"),
        ("0 9 * * mon-fri", "at 09:00 on Monday through Friday, Europe/Berlin"),
        ("@daily", "daily at 00:00, Europe/Berlin"),
    ],
)
def test_a_schedule_in_plain_english(schedule: str, words: str) -> None:
    assert parse_schedule(schedule, timezone="Europe/Berlin").describe() == words


def test_a_one_off_in_plain_english() -> None:
    assert Once().describe() == "once, as soon as possible"


@given(st.integers(1, 10**7))
def test_every_interval_can_be_described(seconds: int) -> None:
    assert Interval(timedelta(seconds=seconds)).describe().startswith("every ")


@given(st.sampled_from(["0 0 1 * *", "5,10 */2 * * 1-5", "@weekly", "0 12 L * *"]))
def test_every_cron_names_its_zone_once(expression: str) -> None:
    assert Cron(expression, "Asia/Tokyo").describe().count("Asia/Tokyo") == 1
