"""What the tests of the command line and the examples start."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_processes import Running, Start


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
