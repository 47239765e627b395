"""The comparison's own adapter and processes, at a small size and in this interpreter."""

import importlib
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
arena = importlib.import_module("arena")
measures = importlib.import_module("measures")
reckoning = importlib.import_module("reckoning")

JOBS = 60


def test_our_adapter_enqueues_drains_and_tells(empty_database_url: str, tmp_path: Path) -> None:
    python = Path(sys.executable)
    contender = arena.Contender("evenbeat", "evenbeat_", python, empty_database_url, tmp_path)
    sizes = measures.Sizes(jobs=JOBS, drain_seconds=30)

    found = measures.drain(contender, sizes)

    runs = [r for r in reckoning.records(tmp_path / "drain.log") if r.kind == 1]
    assert sorted(r.number for r in runs) == list(range(JOBS))
    assert found["bulk"] > 0
    assert found["drain"] > 0
    assert found["drain_mb"] > 10
