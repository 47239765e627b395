"""What the scale benchmark says of its own figures."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
report: ModuleType = importlib.import_module("scale_report")

CONDITIONS = {
    "cores": 2, "memory_gib": 24, "system": "Linux", "python": "3.11", "postgresql": "18",
    "evenbeat": "0", "psycopg": "3", "load_before": 0.1, "settings": {"fsync": "on"},
}  # fmt: skip


def workers(*rows: tuple[int, float, float], waiting: float = 4.0) -> dict[str, Any]:
    """Processes, rate, cores busy; and how many times two's rate eight have where jobs wait."""
    return {
        "jobs": 1000,
        "processes": [
            {
                "number": number,
                "rate": rate,
                "rates": [rate],
                "ratio": rate / rows[0][1],
                "cores": cores,
            }
            for number, rate, cores in rows
        ],
        "waiting": {
            "processes": [{"number": 2, "rates": [1000]}, {"number": 8, "rates": [1000 * waiting]}]
        },
    }


def schedules(grown: float, p99: float = 10.0, missed: int = 0) -> dict[str, Any]:
    def size(n: int, ms: float) -> dict[str, Any]:
        return {"schedules": n, "idle": {"claim": {"p50_ms": ms, "p99_ms": 2 * ms}}}

    few = {"firings": 200, "schedules": 10_000, "p99_ms": p99, "missed": missed, "doubled": 0}
    return {"sizes": [size(10_000, 0.2), size(1_000_000, 0.2 * grown)], "few": few}


def verdicts(**parts: Any) -> list[str]:
    table = report.judged({"conditions": CONDITIONS, **parts})
    return [line.split("|")[-2].strip() for line in table.splitlines()[4:]]


@pytest.mark.parametrize(
    ("two", "holds"),
    [
        ((2, 1500, 1.2), "yes"),  # half as much again
        ((2, 1300, 1.95), "yes"),  # no core was left, and a job cost no more
        ((2, 1300, 1.5), "**no**"),  # cores were left
        ((2, 1050, 1.95), "**no**"),  # they were busy with something else
    ],
)
def test_two_processes_must_use_what_the_cores_allow(monkeypatch, two, holds):
    monkeypatch.setattr(report.os, "cpu_count", lambda: 2)
    assert verdicts(workers=workers((1, 1000, 1.5), two)) == [holds]


@pytest.mark.parametrize(("rate", "holds"), [(1500, "yes"), (1460, "yes"), (1450, "**no**")])
def test_eight_are_held_against_two(monkeypatch, rate, holds):
    monkeypatch.setattr(report.os, "cpu_count", lambda: 2)
    found = verdicts(workers=workers((1, 1000, 1.5), (2, 1500, 1.9), (8, rate, 1.9)))
    assert found == ["yes", holds, "yes"]


def test_eight_are_held_against_two_of_the_same_round():
    measured = workers((2, 1000, 1.9), (8, 900, 1.9))
    two, eight = measured["processes"]
    two["rates"], eight["rates"] = [1000, 2000, 1500], [1010, 1800, 1530]
    table = report.judged({"conditions": CONDITIONS, "workers": measured})
    assert "| 1.01x in the middle of 3 rounds, 0.90 to 1.02 | yes |" in table


def test_eight_are_held_against_two_where_jobs_wait_as_well():
    measured = workers((2, 1500, 1.9), (8, 1500, 1.9), waiting=0.96)
    assert verdicts(workers=measured) == ["yes", "**no**"]


def test_the_promises_about_schedules():
    assert verdicts(schedules=schedules(1.9)) == ["yes", "yes"]
    assert verdicts(schedules=schedules(2.1, p99=50.0)) == ["**no**", "**no**"]
    assert verdicts(schedules=schedules(1.0, missed=1)) == ["yes", "**no**"]


def test_the_charts_can_be_drawn():
    results = {"workers": workers((1, 1000, 1.5), (2, 1500, 1.9)), "schedules": schedules(1.2)}
    pictures = report.charts(results)
    assert set(pictures) == {"workers", "claims"}
    for picture in pictures.values():
        assert ET.fromstring(picture).tag.endswith("svg")  # noqa: S314 - our own
    assert "2 processes" in pictures["workers"]
    assert "1,000,000 schedules" in pictures["claims"]
    assert "0.24 to 0.48" in pictures["claims"]


def test_everything_is_written(tmp_path):
    files = report.written(tmp_path, "today", "# Scale\n", {"a": 1}, {"claims": "<svg/>"})
    assert {file.name for file in files} == {
        "scale-today.md", "scale-today.json", "scale-claims-today.svg",
    }  # fmt: skip
    assert "![claims](scale-claims-today.svg)" in (tmp_path / "scale-today.md").read_text()


@pytest.mark.parametrize("numbers", [[1], [1, 2], [1, 2, 8], [1, 2, 4, 8], [1, 2, 3, 4, 8]])
def test_processes_that_are_held_against_each_other_drain_next_to_each_other(
    numbers: list[int],
) -> None:
    order = report.in_turn(numbers)
    assert sorted(order) == numbers
    for one, other in ((1, 2), (2, 8)):
        if one in numbers and other in numbers:
            assert abs(order.index(one) - order.index(other)) == 1
