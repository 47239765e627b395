"""Execution windows: reading them, and when they are open."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.window import EVERY_DAY, ExecutionWindow, due_at, parse_window
from evenbeat.errors import InvalidInput, InvalidWindow

BERLIN, LOS_ANGELES = "Europe/Berlin", "America/Los_Angeles"
MICROSECOND = timedelta(microseconds=1)
ZONES = ["UTC", BERLIN, LOS_ANGELES, "Australia/Lord_Howe", "America/Nuuk", "Pacific/Apia"]
WEEKDAYS = frozenset(range(5))


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


clocks = st.builds(time, st.integers(0, 23), st.integers(0, 59))
windows = st.builds(
    lambda days, hours, zone: ExecutionWindow(days, *hours, zone),
    st.frozensets(st.integers(0, 6), min_size=1),
    st.tuples(clocks, clocks).filter(lambda pair: pair[0] != pair[1] or pair[0] == time(0)),
    st.sampled_from(ZONES),
)
moments = st.datetimes(
    datetime(2010, 1, 1),  # noqa: DTZ001  hypothesis adds the zone
    datetime(2030, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
near_changes = st.builds(
    lambda day, offset: day + offset,
    st.sampled_from([
        utc(2025, 3, 29), utc(2025, 10, 25), utc(2025, 3, 8), utc(2025, 11, 1), utc(2025, 10, 4),
        utc(2025, 4, 5), utc(2024, 3, 30), utc(2024, 10, 26), utc(2011, 12, 29),
    ]),
    st.timedeltas(timedelta(0), timedelta(days=3)),
)  # fmt: skip


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("Mon-Fri 22:00-06:00 Europe/Berlin", "Mon-Fri 22:00-06:00 Europe/Berlin"),
        ("Mon–Fri 22:00–06:00 Europe/Berlin", "Mon-Fri 22:00-06:00 Europe/Berlin"),  # noqa: RUF001
        ("  mon - fri   22:00 - 06:00  UTC ", "Mon-Fri 22:00-06:00 UTC"),
        ("Mon,Wed,Fri 9:00-17:30", "Mon,Wed,Fri 09:00-17:30 UTC"),
        ("Monday, wednesday 09:00-17:00", "Mon,Wed 09:00-17:00 UTC"),
        ("TUES,THURS 09:00-17:00", "Tue,Thu 09:00-17:00 UTC"),
        ("Fri-Mon 00:00-24:00", "Mon,Fri-Sun 00:00-24:00 UTC"),
        ("Mon-Tue,Thu-Sat 10:00-12:00", "Mon,Tue,Thu-Sat 10:00-12:00 UTC"),
        ("Sun-Sun 10:00-12:00", "Sun 10:00-12:00 UTC"),
        ("Mon-Sun 10:00-12:00", "10:00-12:00 UTC"),
        ("22:00-06:00", "22:00-06:00 UTC"),
        ("22:00-24:00", "22:00-24:00 UTC"),
        ("22:00-00:00", "22:00-24:00 UTC"),
        ("00:00-24:00 America/Los_Angeles", "00:00-24:00 America/Los_Angeles"),
        ("08:00-09:00 Etc/GMT-5", "08:00-09:00 Etc/GMT-5"),
    ],
)
def test_reads_and_writes(text: str, canonical: str) -> None:
    assert str(parse_window(text)) == canonical
    assert parse_window(canonical) == parse_window(text)


@given(windows)
def test_what_is_written_reads_back(window: ExecutionWindow) -> None:
    assert parse_window(str(window)) == window


@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        ("", "22:00-06:00"),
        ("always", "22:00-06:00"),
        ("Mon-Fri", "22:00-06:00"),
        ("22:00", "22:00-06:00"),
        ("22-06", "22:00-06:00"),
        ("Mon-Fri 22:00-06:00 Europe/Berlin extra", "22:00-06:00"),
        ("09:00-09:00", "00:00-24:00"),
        ("00:00-00:00", "00:00-24:00"),
        ("9:00-09:00 UTC", "00:00-24:00"),
        ("25:00-06:00", "23:59"),
        ("24:00-06:00", "23:59"),
        ("22:60-23:00", "23:59"),
        ("22:00-24:01", "24:00 as the end"),
        ("Mon-Fry 22:00-06:00", "Mon Tue Wed Thu Fri Sat Sun"),
        ("Mo-Fr 22:00-06:00", "Mon Tue Wed Thu Fri Sat Sun"),
        ("Mon- 22:00-06:00", "22:00-06:00"),
        ("Mon,,Tue 22:00-06:00", "Mon Tue Wed Thu Fri Sat Sun"),
        ("Mon-Wed-Fri 22:00-06:00", "not a range of days"),
        ("x" * 1000, "22:00-06:00"),
        (None, "22:00-06:00"),
        (5, "22:00-06:00"),
    ],
)
def test_refuses_and_shows_the_way(bad: Any, shown: str) -> None:
    with pytest.raises(InvalidWindow) as caught:
        parse_window(bad)
    assert (repr(bad)[:150]) in str(caught.value)
    assert shown in str(caught.value)
    assert "for example" in str(caught.value)


@pytest.mark.parametrize("zone", ["Mars/Phobos", "../x", "CEST"])
def test_refuses_time_zones(zone: str) -> None:
    with pytest.raises(InvalidWindow, match="Europe/Berlin") as caught:
        parse_window(f"22:00-06:00 {zone}")
    assert repr(zone) in str(caught.value)


@given(st.text(alphabet="MonTueFri-–,:0123456789 UTC", max_size=30) | st.text(max_size=20))  # noqa: RUF001
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        window = parse_window(text)
    except InvalidWindow:
        return
    assert parse_window(str(window)) == window


@pytest.mark.parametrize(
    "values",
    [
        {"days": frozenset()},
        {"days": frozenset({7})},
        {"start": time(9), "end": time(9)},
        {"start": time(9, 0, 1)},
        {"end": time(9, tzinfo=UTC)},
        {"timezone": ""},
    ],
)
def test_a_constructed_window_is_sound(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidWindow, match="for example"):
        ExecutionWindow(**{"days": EVERY_DAY, "start": time(8), "end": time(10), **values})


# ---------------------------------------------------------------- when it is open


def test_start_is_inside_and_end_is_not() -> None:
    window = parse_window("09:00-17:00")
    assert window.contains(utc(2025, 1, 1, 9))
    assert window.contains(utc(2025, 1, 1, 17) - MICROSECOND)
    assert not window.contains(utc(2025, 1, 1, 17))
    assert not window.contains(utc(2025, 1, 1, 9) - MICROSECOND)


def test_a_window_across_midnight_belongs_to_the_day_it_opens_on() -> None:
    window = parse_window("Fri 22:00-06:00")  # 2025-01-03 is a Friday
    assert window.contains(utc(2025, 1, 3, 23))
    assert window.contains(utc(2025, 1, 4, 5, 59))
    assert not window.contains(utc(2025, 1, 3, 5))
    assert not window.contains(utc(2025, 1, 4, 23))
    assert window.next_open(utc(2025, 1, 4, 6)) == utc(2025, 1, 10, 22)


def test_the_zone_decides_which_hours() -> None:
    window = parse_window("Mon-Fri 22:00-06:00 Europe/Berlin")
    assert window.next_open(utc(2025, 7, 7, 12)) == utc(2025, 7, 7, 20)
    assert window.next_open(utc(2025, 1, 6, 12)) == utc(2025, 1, 6, 21)
    assert window.next_open(utc(2025, 7, 5, 12)) == utc(2025, 7, 7, 20)  # a Saturday waits


def test_all_day_never_closes() -> None:
    window = parse_window("00:00-24:00 Europe/Berlin")
    for hour in range(72):
        assert window.contains(utc(2025, 3, 29) + timedelta(hours=hour))
        assert window.contains(utc(2025, 10, 25) + timedelta(hours=hour))


@pytest.mark.parametrize(
    ("zone", "before", "gap_end"),
    [
        (BERLIN, utc(2025, 3, 30, 0), utc(2025, 3, 30, 1)),
        (LOS_ANGELES, utc(2025, 3, 9, 9), utc(2025, 3, 9, 10)),
    ],
)
def test_an_opening_in_a_gap_waits_for_its_end(
    zone: str, before: datetime, gap_end: datetime
) -> None:
    window = parse_window(f"02:30-05:00 {zone}")
    assert window.next_open(before) == gap_end
    assert not window.contains(gap_end - MICROSECOND)
    assert window.contains(gap_end)


def test_a_window_that_lies_in_a_gap_does_not_open_that_day() -> None:
    window = parse_window("02:10-02:50 Europe/Berlin")
    assert window.next_open(utc(2025, 3, 30)) == utc(2025, 3, 31, 0, 10)


@pytest.mark.parametrize(
    ("zone", "before", "first"),
    [
        (BERLIN, utc(2025, 10, 25, 22), utc(2025, 10, 26, 0, 30)),
        (LOS_ANGELES, utc(2025, 11, 2, 6), utc(2025, 11, 2, 8, 30)),
    ],
)
def test_a_fold_opens_at_the_first_of_two(zone: str, before: datetime, first: datetime) -> None:
    clock = first.astimezone(ZoneInfo(zone))
    window = parse_window(f"{clock:%H:%M}-05:00 {zone}")
    assert window.next_open(before) == first
    assert window.contains(first + timedelta(minutes=45))  # it shows an earlier time, yet is open


@given(windows, moments | near_changes)
def test_next_open_is_inside_and_nothing_before_it_is(
    window: ExecutionWindow, moment: datetime
) -> None:
    opening = window.next_open(moment)
    assert opening >= moment
    assert window.contains(opening)
    assert window.next_open(opening) == opening
    samples = [moment + (opening - moment) * n // 20 for n in range(20)] if opening > moment else []
    assert not any(window.contains(sample) for sample in samples)
    if opening > moment:
        assert not window.contains(opening - MICROSECOND)


@given(windows, moments)
def test_contains_reads_the_wall_clock(window: ExecutionWindow, moment: datetime) -> None:
    wall = moment.astimezone(ZoneInfo(window.timezone))
    if not keeps_its_offset(wall.date(), window.timezone):
        return
    clock, today = wall.time(), wall.weekday()
    if window.start < window.end:
        expected = today in window.days and window.start <= clock < window.end
    else:
        opened_today = today in window.days and clock >= window.start
        expected = opened_today or ((today - 1) % 7 in window.days and clock < window.end)
    assert window.contains(moment) == expected


def keeps_its_offset(day: date, zone: str) -> bool:
    noon = datetime.combine(day, time(12), tzinfo=ZoneInfo(zone))
    return len({(noon + timedelta(days=n)).utcoffset() for n in (-2, -1, 0, 1)}) == 1


@given(clocks, clocks, st.sampled_from(ZONES), moments | near_changes)
def test_a_window_and_its_complement_share_all_time(
    start: time, end: time, zone: str, moment: datetime
) -> None:
    if start == end:
        return
    open_part = ExecutionWindow(EVERY_DAY, start, end, zone)
    other_part = ExecutionWindow(EVERY_DAY, end, start, zone)
    assert open_part.contains(moment) != other_part.contains(moment)


def test_naive_moments_are_refused() -> None:
    window = parse_window("09:00-17:00")
    for verb in (window.contains, window.next_open):
        with pytest.raises(InvalidInput, match="has no time zone"):
            verb(datetime(2025, 1, 1))  # noqa: DTZ001


def test_the_end_of_time_is_an_error_with_words() -> None:
    with pytest.raises(InvalidWindow, match="does not open"):
        parse_window("09:00-10:00").next_open(datetime.max.replace(tzinfo=UTC))


# ---------------------------------------------------------------- due


def test_due_after_the_delay_and_inside_the_window() -> None:
    window = ExecutionWindow(WEEKDAYS, time(22), time(6), "UTC")
    plan = utc(2025, 1, 6, 12)
    assert due_at(plan, timedelta(0), None) == plan
    assert due_at(plan, timedelta(minutes=5), None) == utc(2025, 1, 6, 12, 5)
    assert due_at(plan, timedelta(minutes=5), window) == utc(2025, 1, 6, 22)
    assert due_at(plan, timedelta(hours=11), window) == utc(2025, 1, 6, 23)
