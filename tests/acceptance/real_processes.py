"""Real processes, started as a user would start them, and waited for."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str = "the condition", seconds: float = 20) -> T:
    """What the condition gives as soon as that is true; fails after a while."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        time.sleep(0.02)
    return value


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

    def exit_code(self, seconds: float = 20) -> int:
        return self.process.wait(seconds)

    def stop(self) -> int:
        self.signal()
        return self.exit_code()


Start = Callable[..., Running]
