"""What the tests of the command line and the examples start."""

import contextvars
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_processes import Running, Start
from said import Command, Said

from evenbeat.cli import main


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `python <arguments>` in the test's directory; whatever still runs is killed for you.

    Standard output and error end up together in one file.
    """
    started: list[Running] = []

    def run(*arguments: str, **environment: str) -> Running:
        log = tmp_path / f"output-{len(started)}.log"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("EVENBEAT_")}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=tmp_path,
                env=kept | {"COLUMNS": "200"} | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        started.append(Running(process, log))
        return started[-1]

    yield run
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


@pytest.fixture
def evenbeat(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Command:
    """Runs a command in this process, on the test's database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("EVENBEAT_DATABASE_URL", database_url)
    monkeypatch.setenv("EVENBEAT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOGNAME", "ann")

    def run(*arguments: str, **environment: str) -> Said:
        capsys.readouterr()
        with monkeypatch.context() as changed:
            for name, value in environment.items():
                changed.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                # What a command sets there, such as who is asking, ends with its process.
                contextvars.copy_context().run(main, arguments)
        return Said(int(ended.value.code or 0), *capsys.readouterr())

    return run
