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


def without_failed_runs(text: str) -> str:
    """A log without the tracebacks that belong to a run's line: what handlers raise."""
    kept, skipping = [], False
    # As a format of a program's own has it, where the service's indents it.
    text = re.sub(r"(Job execution failed.*\n)Traceback .*\n(?: .*\n)+.*\n", r"\1", text)
    for line in text.splitlines():
        skipping = skipping and (not line.strip() or line.startswith("    "))
        if not skipping:
            kept.append(line)
            skipping = "Job execution failed" in line
    return "\n".join(kept)
