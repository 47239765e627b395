"""`evenbeat limit`, and jobs that get limits on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenbeat.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def evenbeat(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Run:
    """Runs a command in this process, on the test's database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENBEAT_DATABASE_URL", database_url)
    monkeypatch.setenv("EVENBEAT_DATA_DIR", str(tmp_path / "data"))

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return (int(ended.value.code or 0), *capsys.readouterr())

    return run


def test_limits_are_given_listed_set_and_reset(evenbeat: Run):
    assert "No job has a concurrency key" in evenbeat("limit", "list")[2]
    limits = ("--concurrency-key", "host a/b", "--concurrency-limit", "2", "--rate-limit", "5/30s")
    code, out, err = evenbeat("job", "add", "fetch", *limits, "--json")
    assert code == 0, err
    job = json.loads(out)
    assert (job["concurrency_key"], job["concurrency_limit"]) == ("host a/b", 2)
    assert job["rate_limit"] == "5/30s"

    code, out, _ = evenbeat("limit", "list")
    assert code == 0
    assert out.splitlines()[0].split()[:4] == ["key", "at", "once", "rate"]
    assert out.splitlines()[1].split()[:6] == ["host", "a/b", "2", "5/30s", "0", "1"]

    code, out, _ = evenbeat("limit", "set", "host a/b", "--rate", "10/s")
    assert (code, out) == (0, "host a/b: 10/s starts; 0 running, 1 waiting.\n")
    assert "by hand" in evenbeat("limit", "list")[1]
    code, out, _ = evenbeat("limit", "reset", "host a/b")
    assert (code, out) == (0, "host a/b: 2 at once, 5/30s starts; 0 running, 1 waiting.\n")


def test_wrong_limits_end_with_two_and_unknown_keys_with_four(evenbeat: Run):
    for wrong in (
        ("limit", "set", "k"),
        ("limit", "set", "k", "--rate", "often"),
        ("limit", "set", "k", "--concurrency", "0"),
        ("job", "add", "x", "--rate-limit", "often"),
        ("job", "add", "x", "--concurrency-limit", "many"),
        ("limit", "list", "--limit", "0"),
    ):
        code, _, err = evenbeat(*wrong)
        assert (code, err != "") == (2, True), wrong
    assert evenbeat("limit", "reset", "k")[0] == 4


def test_limits_go_out_and_come_back(evenbeat: Run, tmp_path: Path):
    evenbeat("job", "add", "x", "--name", "one", "--every", "1h", "--rate-limit", "100/min")
    code, out, _ = evenbeat("export")
    assert code == 0
    (written,) = json.loads(out)["jobs"]
    assert (written["concurrency_key"], written["rate_limit"]) == ("x", "100/m")
    (tmp_path / "jobs.json").write_text(out.replace("100/m", "100 per minute"))
    assert "job 1  unchanged  one" in evenbeat("import", "json", "jobs.json")[1]
    (tmp_path / "jobs.json").write_text(out.replace("100/m", "7/h"))
    assert evenbeat("import", "json", "jobs.json", "--apply")[0] == 0
    assert json.loads(evenbeat("job", "show", "one", "--json")[1])["rate_limit"] == "7/h"
