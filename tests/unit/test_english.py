"""Schedules, spans and distances as a person would say them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.english import say_count, say_distance, say_moment, say_schedule, say_span
from evenbeat.domain.schedule import Cron, Interval, Once, parse_schedule

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


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
def test_a_schedule_in_plain_english(schedule, words):
    assert say_schedule(parse_schedule(schedule, timezone="Europe/Berlin")) == words


def test_a_one_off_in_plain_english():
    assert say_schedule(Once()) == "once, as soon as possible"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "under a second"), (0.4, "under a second"), (45, "45 s"), (60, "1 m"), (61, "1 m 1 s"),
        (3 * 3600 + 12 * 60 + 9, "3 h 12 m"), (3600 + 5, "1 h"), (86_400 * 40, "40 d"),
        (86_400 + 3600, "1 d 1 h"),
    ],
)  # fmt: skip
def test_a_span_has_its_two_largest_units(seconds, words):
    assert say_span(timedelta(seconds=seconds)) == words


def test_distances():
    assert say_distance(NOW, NOW) == "now"
    assert say_distance(NOW + timedelta(hours=3, minutes=12), NOW) == "in 3 h 12 m"
    assert say_distance(NOW - timedelta(minutes=5), NOW) == "5 m ago"
    assert say_moment(NOW) == "2026-03-01 03:00:00 UTC"
    assert (say_count(1, "plan"), say_count(1200, "plan")) == ("1 plan", "1,200 plans")


@given(st.integers(1, 10**7))
def test_every_interval_can_be_said(seconds):
    every = timedelta(seconds=seconds)
    assert say_schedule(Interval(every)).startswith("every ")
    assert say_span(every)


@given(st.sampled_from(["0 0 1 * *", "5,10 */2 * * 1-5", "@weekly", "0 12 L * *"]))
def test_every_cron_names_its_zone_once(expression):
    assert say_schedule(Cron(expression, "Asia/Tokyo")).count("Asia/Tokyo") == 1
