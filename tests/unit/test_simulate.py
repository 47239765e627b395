"""Forecasts of a week before and after, and the files they are read from."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat.cli.simulate import document, picture, recurring_jobs, simulate
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.errors import InvalidInput
from evenbeat.importers.files import read_job_file
from evenbeat.placement.simulate import Curve, RecurringJob, equivalent_interval, forecast

NOW = datetime(2026, 2, 4, 9, 3, 27, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NIGHT = "22:00-06:00 UTC"


# ---------------------------------------------------------------- forecast


@pytest.mark.parametrize(
    ("expression", "every"),
    [
        ("0 * * * *", HOUR),
        ("0 0 * * *", DAY),
        ("0 */6 * * *", 6 * HOUR),
        ("*/30 * * * *", 30 * MINUTE),
        ("* * * * *", MINUTE),
        ("@hourly", HOUR),
        ("@daily", DAY),
        ("@weekly", 7 * DAY),
        ("0 0,12 * * *", 12 * HOUR),
        ("@monthly", None),
        ("0 0 */7 * *", None),
        ("0 0 5 * *", None),
        ("0 */5 * * *", None),
        ("*/7 * * * *", None),
        ("15 * * * *", None),
        ("30 9 * * *", None),
        ("0 9 * * 1-5", None),
        ("0 0 * * 3", None),
    ],
)
def test_cron_that_means_an_interval(expression: str, every: timedelta | None) -> None:
    assert equivalent_interval(Cron(expression, "Europe/Berlin")) == every


def test_bunched_cron_jobs_come_apart() -> None:
    jobs = [RecurringJob(f"job {n}", Cron("0 0 * * *"), 10 * MINUTE) for n in range(20)]
    found = forecast([*jobs, RecurringJob("report", Cron("30 9 * * *"))], NOW)
    assert (found.before.peak, found.after.peak) == (20, 1)
    assert found.since == datetime(2026, 2, 2, tzinfo=UTC)
    assert len(found.converted) == 20
    assert [(kept.name, kept.reason) for kept in found.unchanged] == [
        ("report", "cron at a chosen time")
    ]


def test_pinned_jobs_stay_and_others_avoid_them() -> None:
    pinned = RecurringJob("pinned", Interval(HOUR, NOW), 30 * MINUTE, pinned=True)
    found = forecast([pinned, RecurringJob("free", Interval(HOUR), 29 * MINUTE)], NOW)
    assert (found.placed, found.after.peak) == (1, 1)
    assert found.unchanged[0].schedule == "every 1h"


def hours_of(curve: Curve) -> set[int]:
    """The hours of the day in which anything runs."""
    return set((np.flatnonzero(curve.per_second) % 86_400 // 3600).tolist())


def test_windowed_jobs_are_placed_inside_their_window() -> None:
    def jobs(pinned: bool) -> list[RecurringJob]:
        schedule = Interval(DAY, NOW)  # of the morning
        return [RecurringJob(str(n), schedule, 10 * MINUTE, pinned, NIGHT) for n in range(10)]

    found = forecast(jobs(pinned=False), NOW)
    assert (found.placed, found.before.peak, found.after.peak) == (10, 10, 1)
    assert hours_of(found.before) | hours_of(found.after) <= {22, 23, *range(6)}
    pinned = forecast(jobs(pinned=True), NOW)
    assert (len(pinned.unchanged), pinned.before.peak, pinned.after.peak) == (10, 10, 10)
    assert hours_of(pinned.after) == {22}


def test_cron_in_a_window_starts_as_it_opens_and_may_become_an_interval() -> None:
    jobs = [RecurringJob(str(n), Cron("0 * * * *"), MINUTE, window=NIGHT) for n in range(9)]
    found = forecast([*jobs, RecurringJob("noon", Cron("0 12 * * *"), MINUTE, window=NIGHT)], NOW)
    assert (len(found.converted), found.before.peak, found.after.peak) == (9, 10, 1)
    assert hours_of(found.before) | hours_of(found.after) <= {22, 23, *range(6)}


def test_off_peak_is_found_by_the_load_of_the_others() -> None:
    busy = [RecurringJob(str(h), Cron(f"0 {h} * * *"), HOUR) for h in (*range(13), *range(17, 24))]
    quiet = [
        RecurringJob(f"quiet {n}", Interval(DAY), 30 * MINUTE, window="off_peak") for n in range(3)
    ]
    found = forecast([*busy, *quiet], NOW)
    assert (found.placed, found.before.peak, found.after.peak) == (3, 4, 1)
    known = [job._replace(window="off_peak 02:00-06:00 UTC") for job in quiet]
    assert forecast([*busy, *known], NOW).after.peak == 2


recurring = st.one_of(
    st.builds(Interval, st.integers(1, 10**6).map(lambda s: timedelta(seconds=s))),
    st.sampled_from(["0 * * * *", "30 9 * * *", "@monthly", "*/7 * * * *"]).map(Cron),
)
known = st.builds(
    RecurringJob,
    st.just("job"),
    recurring,
    st.integers(0, 10**5).map(lambda s: timedelta(seconds=s)),
    st.booleans(),
    st.sampled_from([None, NIGHT, "Sat 09:00-09:30 Europe/Berlin", "off_peak"]),
)


@given(st.lists(known, max_size=6))
@settings(max_examples=25, deadline=None)
def test_no_job_is_lost_in_a_forecast(jobs: list[RecurringJob]) -> None:
    found = forecast(jobs, NOW)
    assert found.placed + len(found.converted) + len(found.unchanged) == len(jobs) == found.jobs
    if not found.unchanged:
        assert found.after.peak <= max(found.before.peak, 1)


# ---------------------------------------------------------------- files


def listed(path: Path, text: str, name: str = "jobs.json") -> list[RecurringJob]:
    file = path / name
    file.write_text(text)
    return recurring_jobs(read_job_file(file), MINUTE, "Asia/Tokyo")


ROWS = [
    {"name": "a", "task": "t", "schedule": "@every 30m", "cost": "90s"},
    {"name": "b", "task": "t", "schedule": "0 9 * * *", "timezone": "Europe/Berlin"},
    {"task": "t", "interval_minutes": 6, "interval_type": "hours", "placement": "pinned"},
    {"name": "d", "task": "t", "schedule": "90s", "anchor_at": "2026-02-04T14:15:00Z"},
    {"name": "e", "task": "t", "schedule": "0 9 * * *", "cost": None},
    {"task": "t", "schedule": "@every 1d", "window": "22:00-06:00"},
    {"task": "t", "schedule": "@every 1d", "window": "off-peak"},
    {"name": "once", "task": "t"},
]
JOBS = [
    RecurringJob("a", Interval(30 * MINUTE), timedelta(seconds=90)),
    RecurringJob("b", Cron("0 9 * * *", "Europe/Berlin"), MINUTE),
    RecurringJob("job 3", Interval(6 * HOUR), MINUTE, pinned=True),
    RecurringJob(
        "d", Interval(timedelta(seconds=90), datetime(2026, 2, 4, 14, 15, tzinfo=UTC)), MINUTE
    ),
    RecurringJob("e", Cron("0 9 * * *", "Asia/Tokyo"), MINUTE),
    RecurringJob("job 6", Interval(DAY), MINUTE, window=NIGHT),
    RecurringJob("job 7", Interval(DAY), MINUTE, window="off_peak"),
]  # fmt: skip


def test_a_list_of_jobs(tmp_path: Path) -> None:
    assert listed(tmp_path, json.dumps(ROWS)) == JOBS
    assert listed(tmp_path, json.dumps({"jobs": ROWS})) == JOBS


def test_the_same_in_yaml(tmp_path: Path) -> None:
    jobs = listed(tmp_path, yaml.safe_dump(ROWS), "jobs.yaml")
    assert [job.schedule for job in jobs] == [job.schedule for job in JOBS]


def test_a_wrong_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"job 2 \(line 2\): there is no field 'evry'"):
        listed(tmp_path, "- {task: t}\n- {task: t, evry: 1h}", "jobs.yaml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        simulate(jobs=tmp_path / "none.json")
    with pytest.raises(InvalidInput, match="cannot be read: Is a directory"):
        simulate(crontab=tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="is not UTF-8 text"):
        simulate(crontab=tmp_path / "binary")


# ---------------------------------------------------------------- the command


def test_simulate_prints_figures_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, svg = tmp_path / "crontab", tmp_path / "week.svg"
    file.write_text(
        "MAILTO=\n0 0 * * * root a\n# duration: 5m\n0 0 * * * b\n30 9 * * * c\n61 * * * * d\n"
    )
    assert simulate(crontab=file, svg=svg) == 0
    told = capsys.readouterr()
    assert "before needs 2 workers at once, 1 would suffice" in told.out
    assert "1 worker fewer." in told.out
    assert "0 0 * * * -> @every 1d  x 2" in told.out
    assert "30 9 * * * (cron at a chosen time)" in told.out
    assert told.err.startswith("line 6: ")
    assert svg.read_text().startswith("<svg")


def test_simulate_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps([{"task": "t", "schedule": "1h", "cost": "60s"}] * 3))
    simulate(jobs=file, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["before"]["workers_needed"], told["after"]["workers_needed"]) == (3, 1)
    assert len(told["after"]["week_load"]) == 672
    assert told["placed"] == told["total_jobs"] == 3


def test_simulate_advises_on_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.json"
    usual = [{"task": "t", "schedule": "30m", "cost": "4m"}] * 5
    odd = [{"task": "t", "schedule": "37m", "cost": "2m"}]
    file.write_text(json.dumps(usual + odd))
    simulate(jobs=file)
    text = " ".join(capsys.readouterr().out.split())
    assert "Every 37m meets other runs about" in text
    assert "; every 36m hardly ever. That needs 1 worker at once." in text
    simulate(jobs=file, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert [one["instead"] for one in told["advice"]] == [36 * 60]
    assert told["after"]["workers_needed"] == 2
    assert told["workers_with_advice"] == 1


def test_simulate_shows_a_week_with_slack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, svg = tmp_path / "crontab", tmp_path / "week.svg"
    file.write_text("30 9 * * 1-5 a\n30 9 * * 1-5 b\n0 0 * * * c\n0 0 * * * d\n")
    assert simulate(crontab=file, slack="2h", svg=svg) == 0
    shown = capsys.readouterr().out
    for line in (
        "before needs 2 workers at once, 1 would suffice",
        "after  needs 2 workers at once, 2 would suffice",
        "slack  needs 1 worker at once, 1 would suffice",
        "4 cron jobs get slack:",
        "30 9 * * 1-5 -> 30 9 * * 1-5 within 2h  x 2",
    ):
        assert line in shown
    assert "with slack: 1 workers needed" in svg.read_text()
    simulate(crontab=file, slack="2h", as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert [answer[week]["workers_needed"] for week in ("before", "after", "slack")] == [2, 2, 1]
    assert len(answer["loosened"]) == 4


def test_the_document_and_the_picture_agree() -> None:
    found = forecast([RecurringJob("a", Interval(HOUR), 6 * MINUTE)] * 4, NOW)
    assert document(found)["before"]["expected_peak"] == 4
    assert "Before: 4 workers needed, 0.4 on average" in picture(found)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "Give one of --crontab"),
        ({"live": True, "crontab": Path("x")}, "Give one of --crontab"),
        ({"crontab": Path("x"), "duration": "never"}, "never"),
        ({"crontab": Path("/dev/null"), "timezone": "Nowhere"}, "Nowhere"),
        ({"crontab": Path("/dev/null")}, "There is no recurring job to simulate"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Path | bool | str], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        simulate(**given)  # type: ignore[arg-type]


def test_a_picture_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_text("0 0 * * * a\n")
    with pytest.raises(InvalidInput, match=r"ends in \.svg"):
        simulate(crontab=file, svg=tmp_path / "week.png")
    with pytest.raises(InvalidInput, match="cannot be written: No such file"):
        simulate(crontab=file, svg=tmp_path / "none" / "week.svg")
