"""The arithmetic of the comparison with peers: a wrong figure there would be a false claim."""

import importlib
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
reckoning: ModuleType = importlib.import_module("reckoning")
stage: ModuleType = importlib.import_module("peers.stage")
verdict: ModuleType = importlib.import_module("verdict")
report: ModuleType = importlib.import_module("report")
arena: ModuleType = importlib.import_module("arena")

BEGIN = 1_800_000_000


def fired(i: int, wall: float, planned: float = math.nan) -> Any:
    return reckoning.Record(stage.FIRED, i, planned, wall, wall, 1)


def ran(i: int, steady: float, sent_at: float = 0.0) -> Any:
    return reckoning.Record(stage.RAN, i, sent_at, steady, steady, 1)


def began(i: int, steady: float) -> Any:
    return reckoning.Record(stage.BEGAN, i, 600.0, steady, steady, 1)


def on_time(late: float = 0.01) -> list[Any]:
    """Three schedules, ten seconds, all runs equally late, and some seconds around."""
    return [fired(i, BEGIN + k + late, BEGIN + k) for k in range(-2, 14) for i in range(3)]


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1),
    st.floats(0.01, 1.0),
)
def test_a_percentile_is_the_smallest_value_that_covers_its_share(
    values: list[float], share: float
) -> None:
    found = reckoning.percentile(values, share)

    assert found in values
    assert sum(v <= found for v in values) >= share * len(values) - 1e-9
    assert sum(v < found for v in values) < share * len(values) + 1e-9


def test_what_a_handler_logs_is_read_back(tmp_path: Path, monkeypatch: Any) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("STAGE_LOG", str(log))
    monkeypatch.setattr(stage, "_log", -1)

    stage.ready()
    stage.ran(7, 1.5)
    assert stage.began(3, 600.0) == 600.0
    monkeypatch.setenv("STAGE_NAP", "0.01")
    assert stage.began(3, 600.0) == 0.01
    stage.fired(9)
    stage.fired(9, BEGIN)
    with log.open("ab") as torn:
        torn.write(b"half a record")
    found = reckoning.records(log)

    assert [r.kind for r in found] == [
        stage.READY, stage.RAN, stage.BEGAN, stage.BEGAN, stage.FIRED, stage.FIRED,
    ]  # fmt: skip
    assert (found[1].number, found[1].value) == (7, 1.5)
    assert math.isnan(found[4].value)
    assert found[5].value == BEGIN
    assert reckoning.ready_at(found) == found[0].steady
    assert reckoning.records(tmp_path / "none") == []


def test_a_drain_lasts_from_the_first_run_until_none_is_left() -> None:
    log = [ran(i, 100 + i / 10) for i in range(11)]

    assert reckoning.drain_rate(log, 102.0) == pytest.approx(11 / 2.0)
    assert reckoning.drain_rate(log, None) == pytest.approx(11 / 1.0)
    assert math.isnan(reckoning.drain_rate(log[:1], None))


def test_the_first_pickups_do_not_count() -> None:
    log = [ran(i, 10 + i + 0.002, 10 + i) for i in range(4)]

    assert reckoning.pickups_ms(log, skip=1) == pytest.approx([2, 2, 2])


@pytest.mark.parametrize("rhythm", ["planned", "seconds", "phase"])
def test_schedules_on_time_miss_and_double_nothing(rhythm: str) -> None:
    found = reckoning.recurring(on_time(), rhythm, 3, BEGIN, 10)

    assert (found.expected, found.missed, found.doubled) == (30, 0, 0)
    assert found.lateness == pytest.approx([0.0 if rhythm == "phase" else 0.01] * 30, abs=1e-5)


@pytest.mark.parametrize("rhythm", ["planned", "seconds", "phase"])
def test_a_run_that_is_missing_is_missed_and_one_too_many_is_doubled(rhythm: str) -> None:
    log = [r for r in on_time() if (r.number, round(r.wall)) != (1, BEGIN + 4)]
    again = next(r for r in log if (r.number, round(r.wall)) == (2, BEGIN + 6))
    log.append(again._replace(wall=again.wall + 0.2))

    found = reckoning.recurring(log, rhythm, 3, BEGIN, 10)

    assert (found.missed, found.doubled) == (1, 1)


def test_a_schedule_that_never_ran_missed_everything() -> None:
    found = reckoning.recurring([fired(0, BEGIN + 0.1)], "seconds", 2, BEGIN, 5)

    assert (found.missed, found.doubled) == (9, 0)


def test_a_backlog_is_late_and_not_missed() -> None:
    """Everything runs, but what was planned in the first five seconds runs in the sixth."""
    log = [fired(0, BEGIN + 5 + k / 100) for k in range(6)]
    log.insert(0, fired(0, BEGIN - 1))

    found = reckoning.recurring(log, "seconds", 1, BEGIN, 6)

    assert (found.missed, found.doubled) == (0, 0)
    assert sum(found.lateness) == pytest.approx(5 + 4 + 3 + 2 + 1, abs=0.2)


def test_idle_schedules_and_other_seconds_do_not_count() -> None:
    log = [*on_time(), fired(3, BEGIN + 1, BEGIN + 1), fired(0, BEGIN + 30, BEGIN + 30)]

    assert reckoning.recurring(log, "planned", 3, BEGIN, 10).doubled == 0


def test_a_crash_counts_what_ran_again_and_when() -> None:
    log = [began(0, 1), began(1, 1), began(2, 1), began(0, 7), began(1, 9), began(1, 10)]
    log.append(began(5, 8))

    found = reckoning.crash(log, 4.0)

    assert found == (3, 2, 1, [3.0, 5.0])


def about(title: str, durable: bool = True, needs: str = "postgres") -> dict[str, Any]:
    return {
        "title": title, "durable": durable, "needs": needs, "note": "as it comes",
        "versions": {"it": "1"}, "unsupported": {}, "rhythm": "planned",
    }  # fmt: skip


def document() -> dict[str, Any]:
    timely = {
        "p50_ms": 5.0, "p99_ms": 20.0, "expected": 80, "missed": 0, "doubled": 0,
        "cpu_s": 1.0, "server_cpu_s": 1.0, "resident_mb": 60.0,
    }  # fmt: skip
    return {
        "date": "2026-01-02", "minutes": 1.0, "rounds": 3, "sizes": {
            "jobs": 10, "singles": 10, "drain_seconds": 1.0, "pickups": 3, "load_seconds": 1.0,
            "idle": 5, "firing": 4, "firing_seconds": 20, "sleepers": 2, "crash_seconds": 9.0,
        },
        "machine": {"cores": 2, "cpu": "x", "memory_gib": 4, "kernel": "6", "python": "3.11.0",
                    "load_before": 0.0},
        "server": {"fsync": "on"},
        "contenders": {
            "evenbeat": about("Evenbeat"), "floor": about("the bare statements"),
            "slow": about("Slow, tuned"), "slow_default": about("Slow"),
            "loose": about("Loose", durable=False, needs="redis"),
        },
        "values": {
            "drain": {"evenbeat": [900.0, 1000.0, 5000.0], "floor": [1500.0], "slow": [800.0],
                      "slow_default": [500.0], "loose": [9000.0]},
            "bulk": {"evenbeat": [100.0], "slow": [50.0], "loose": [101.0]},
            "single": {"evenbeat": [100.0], "slow": [100.0], "loose": [900.0]},
            "pickup_ms": {"evenbeat": [[1.0, 2.0], [2.0, 10.0]]},
            "recurring": {"evenbeat": [timely], "slow": [timely | {"p50_ms": math.nan}]},
        },
        "notes": {"slow": {"load": "too slow", "crash": "too slow"}, "gone": {"all": "no wheel"}},
    }  # fmt: skip


def test_the_verdict_says_which_aims_were_met() -> None:
    found = verdict.verdict(verdict.figures(document()))

    met = [line.met for line in found]
    assert met == [True, False, True, False, True, True, False, None, True]
    assert "1,000/s beside 500/s of Slow: 2.00" in found[0].numbers
    assert "1,000/s beside 800/s of Slow, tuned: 1.25" in found[1].numbers
    assert "1,000/s beside 1,500/s of the bare statements: 0.67" in found[2].numbers


def test_the_report_survives_its_own_json(tmp_path: Path) -> None:
    page = report.write(document(), tmp_path)
    first = page.read_text()
    report.write(json.loads((tmp_path / "compare-2026-01-02.json").read_text()), tmp_path)

    assert page.read_text() == first
    assert "| drain at least 2 times the best durable peer, each as it comes | met |" in first
    assert "load, crash: too slow" in first
    assert "**gone** did not take part: no wheel" in first
    for picture in report.CHARTS:
        assert (tmp_path / f"compare-2026-01-02-{picture}.svg").read_text().startswith("<svg")


def test_every_adapter_says_what_it_needs() -> None:
    known = arena.adapters()

    assert {"evenbeat", "floor", "pgqueuer", "procrastinate", "saq", "dbos"} <= set(known)
    for name, module in known.items():
        facts = arena.facts(module)
        assert {"TITLE", "PACKAGES", "REQUIREMENTS", "NEEDS", "DURABLE"} <= set(facts), name
        assert facts["NEEDS"] in ("postgres", "redis", "none")
        pinned = [requirement for requirement in facts["REQUIREMENTS"] if "==" in requirement]
        assert pinned == list(facts["REQUIREMENTS"])
