"""The small process beside each command: it starts the command, and ends it with all that it
has started when it is asked to or its worker is gone.

On Linux it adopts the orphans below it, so a process that left the command's group and session, or
lost its parents, is still found. Elsewhere the command's process group is all that can be ended.

It runs as a script without site-packages, to start in a few milliseconds and be small: the standard
library only. The worker sends one line of JSON, the request, and may send `end SECONDS` later; it
gets a line when the command has started, and one when it has ended.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

IDLE_SECONDS = 5.0
"""How often orphans that have ended are reaped while nothing else happens."""
_PDEATHSIG, _CHILD_SUBREAPER = 1, 36  # of prctl


# -- process trees -------------------------------------------------------------------------------


def adopt_orphans() -> None:
    """Become the parent of every process below this one that loses its own (Linux)."""
    _prctl(_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def tree_below(root: int) -> list[int]:
    """Every process below this one; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc") if sys.platform == "linux" else ():  # noqa: PTH208
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123 - pathlib loads slowly
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:  # it has ended
                continue
            children.setdefault(parent, []).append(int(entry))
    below = list(children.get(root, ()))
    for pid in below:
        below += children.get(pid, ())
    return below


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that is still there and ours."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


# -- the script ----------------------------------------------------------------------------------


def main(line: int) -> None:
    """Run the command that arrives on this socket, and say how it ended."""
    os.set_inheritable(line, False)
    text = b""
    while not text.endswith(b"\n"):
        if not (data := os.read(line, 65536)):
            return
        text += data
    request = json.loads(text)
    adopt_orphans()
    failure, failing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(request, failing)
    os.close(failing)
    if problem := os.read(failure, 1000):
        os.waitpid(pid, 0)
        os.write(line, problem)
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the command
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # otherwise the command's output would not end with it
        os.dup2(nothing, stream)
    _say(line, started=pid)
    _watch(line, pid)


def _watch(line: int, pid: int) -> None:
    """Until the command has ended, or was ended with all that it started."""
    linux = sys.platform == "linux"
    line_open, command = True, [os.pidfd_open(pid)] if linux else []
    exit_code: int | None = None
    kill_at: float | None = None
    while True:
        children, status = _reap(pid)
        exit_code = exit_code if status is None else status
        if kill_at is None and exit_code is not None:
            break  # by itself: what it has left in the background goes on
        # The number of a group that was reaped may be another's by now.
        group = pid if exit_code is None or not linux else None
        if kill_at is not None:
            late = time.monotonic() - kill_at
            if late >= 0:
                _signal_tree(group, signal.SIGKILL)
            if not (children or _signal_tree(group, 0)) or late > 1:  # of another user: not ours
                break
        quick = kill_at is not None or not linux
        pause = 0.02 if quick else IDLE_SECONDS
        watched = ([line] if line_open else []) + (command if exit_code is None else [])
        if line in select.select(watched, (), (), pause)[0]:
            order = os.read(line, 100).split()
            line_open = bool(order)
            # Without an order the worker is gone, and with it its lease.
            grace = float(order[1]) if order else 0.0
            kill_at = time.monotonic() + grace
            if grace:
                _signal_tree(group, signal.SIGTERM)
    if line_open:
        _say(line, exit_code=-signal.SIGKILL if exit_code is None else exit_code)


def _become(request: dict[str, Any], failing: int) -> NoReturn:
    """Turn this process, a fork, into the command."""
    where = request["cwd"]
    try:
        os.setsid()
        _prctl(_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; commands should not
            signal.signal(number, signal.SIG_DFL)
        os.chdir(where)
        where = request["argv"][0]
        os.execve(where, request["argv"], request["env"])  # noqa: S606 - the operator's list was asked
    except BaseException as error:
        reason = getattr(error, "strerror", None) or str(error)
        _say(failing, errno=getattr(error, "errno", None), reason=reason, where=where)
    os._exit(127)


def _reap(command: int) -> tuple[bool, int | None]:
    """Take note of what has ended: whether children are left, and the command's exit code."""
    exit_code = None
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return True, exit_code
            if pid == command:
                exit_code = os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        return False, exit_code


def _signal_tree(group: int | None, number: int) -> bool:
    """Signal everything below this process, and the command's group; whether there is a group."""
    in_group = False
    if group is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
            in_group = True
    if number:
        signal_all(tree_below(os.getpid()), number)
    return in_group


def _say(line: int, **content: Any) -> None:
    with suppress(OSError):  # nobody listens any more
        os.write(line, json.dumps(content).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
