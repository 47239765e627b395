"""Commands end with the worker that runs them, even when it is killed and cannot end them itself.

Its lease would run out, another worker would start the job again, and the command would run twice.
"""

import atexit
import subprocess
import threading
from contextlib import suppress

# Reads "+ group" and "- group" until the worker is gone, however it went; then ends what is left.
_WATCH = """
left=" "
while read -r sign group; do
  case $sign in
    +) left="$left$group " ;;
    -) case $left in *" $group "*) left="${left%% $group *} ${left#* $group }" ;; esac ;;
  esac
done
for group in $left; do kill -s KILL -- "-$group"; done
"""


class Lifeline:
    """One small process beside this one, started with the first command."""

    def __init__(self) -> None:
        self._watcher: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def hold(self, group: int) -> None:
        """End this process group when this process is gone."""
        with self._lock:
            if self._watcher is None or self._watcher.poll() is not None:
                self._watcher = self._start()
            self._say(f"+ {group}\n")

    def release(self, group: int) -> None:
        """The group is over, or is to outlive us."""
        with self._lock:
            self._say(f"- {group}\n")

    def let_go(self) -> None:
        """This process is about to end: so do the groups that are left."""
        with self._lock, suppress(OSError, subprocess.TimeoutExpired):
            if self._watcher is not None and self._watcher.stdin is not None:
                self._watcher.stdin.close()
                self._watcher.wait(timeout=2)

    def _start(self) -> "subprocess.Popen[bytes]":
        if self._watcher is None:
            atexit.register(self.let_go)
        elif self._watcher.stdin is not None:
            with suppress(OSError):
                self._watcher.stdin.close()
        return subprocess.Popen(  # noqa: S603 - our own text
            ["/bin/sh", "-c", _WATCH],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={},
        )

    def _say(self, line: str) -> None:
        if self._watcher is not None and self._watcher.stdin is not None:
            with suppress(OSError):  # someone ended the watcher; the next command starts another
                self._watcher.stdin.write(line.encode())
                self._watcher.stdin.flush()


lifeline = Lifeline()
