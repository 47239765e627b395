"""What type checkers say of right and wrong calls of the Python API."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from evenbeat import EventKind
from evenbeat.events import EventName

TYPED = Path(__file__).parents[1] / "typed"
BIN = Path(sys.executable).parent
CHECKERS = {
    "mypy": [str(BIN / "mypy"), "--strict", "--config-file=", "--cache-dir=/dev/null"],
    "pyright": [str(BIN / "pyright"), "--pythonpath", sys.executable],
}


def lines_with_errors(checker: str, file: Path) -> list[int]:
    said = subprocess.run(
        [*CHECKERS[checker], str(file)], capture_output=True, text=True, check=False
    )
    pattern = rf"{file.name}:(\d+)(?::\d+)?(?: -|:) error"
    assert said.returncode in (0, 1), said.stdout + said.stderr
    return sorted({int(line) for line in re.findall(pattern, said.stdout)})


@pytest.mark.parametrize("checker", CHECKERS)
def test_right_calls_are_right(checker):
    assert lines_with_errors(checker, TYPED / "right.py") == []


@pytest.mark.parametrize("checker", CHECKERS)
def test_every_wrong_call_is_an_error(checker):
    lines = (TYPED / "wrong.py").read_text().splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if "# error: " in line]
    assert len(wrong) >= 25
    assert lines_with_errors(checker, TYPED / "wrong.py") == wrong


def test_the_names_of_events_are_the_events():
    assert set(get_args(EventName)) == {"*", *EventKind}
