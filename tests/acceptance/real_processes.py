"""Real processes, started as a user would start them, and waited for."""

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from waiting import PATIENCE, wait_for


class Running:
    """A started process and what it has written so far."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def text(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def wait_for_line(self, part: str) -> str:
        def found() -> str | None:
            assert self.process.poll() is None or part in self.text, self.text
            return next((line for line in self.lines if part in line), None)

        return wait_for(found, f"{part!r} in the output") or ""

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def exit_code(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(seconds)

    def stop(self) -> int:
        self.signal()
        return self.exit_code()


Start = Callable[..., Running]


_TRACEBACK_OF_A_RUN = re.compile(
    r"^(.*Job execution failed.*\n)( *)Traceback .*\n(?:\2 +.*\n| *\n)*\2\S.*\n?", re.MULTILINE
)
"""Its lines are indented, or not, as the log format has it; the last one names the exception."""


def without_failed_runs(text: str) -> str:
    """A log without the tracebacks that belong to a run's line: what handlers raise."""
    return _TRACEBACK_OF_A_RUN.sub(r"\1", text)
