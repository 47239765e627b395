"""The small process beside each command: it starts the command, and ends it with all that it
has started when it is asked to, its worker is gone, or they take more than they may.

On Linux it adopts the orphans below it, so a process that left the command's group and session, or
lost its parents, is still found. Elsewhere the command's process group is all that can be ended.

It runs as a script without site-packages, to start in a few milliseconds and be small: the standard
library only. The worker sends one line of JSON, the request, and may send `end SECONDS` later; it
gets a line when the command has started, and one when it has ended.
"""

import ctypes
import json
import math
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

IDLE_SECONDS = 5.0
"""How often orphans that have ended are reaped while nothing else happens."""
LOOK_SECONDS = 0.2
"""How often processes with a limit are looked at; less often where looking takes long."""
_PDEATHSIG, _CHILD_SUBREAPER = 1, 36  # of prctl


# -- process trees -------------------------------------------------------------------------------


def adopt_orphans() -> None:
    """Become the parent of every process below this one that loses its own (Linux)."""
    _prctl(_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def tree_below(root: int) -> list[int]:
    """Every live process below this one, parents first; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc") if sys.platform == "linux" else ():  # noqa: PTH208
        if entry.isdigit() and (stat := _stat(int(entry))):
            state, parent, threads = stat[0], int(stat[1]), stat[17]
            if state != b"Z" or threads != b"1":  # a zombie's other threads may live on
                children.setdefault(parent, []).append(int(entry))
    below = list(children.get(root, ()))
    for pid in below:
        below += children.get(pid, ())
    return below


def _stat(pid: int) -> list[bytes]:
    """What the kernel says of a process from its state on, see proc(5); nothing once it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib loads slowly
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def signal_all(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that is still there and ours."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_below(root: int) -> None:
    """Kill all that is below a process which adopts orphans, also what is started meanwhile."""
    unseen, give_up_at = 0, time.monotonic() + 1
    while unseen < 2 and time.monotonic() < give_up_at:  # one look may miss what changes parents
        below = tree_below(root)
        signal_all(below, signal.SIGKILL)
        unseen = 0 if below else unseen + 1
        time.sleep(0.005)


def kill_tree(root: int) -> None:
    """Kill a process that adopts orphans, and first all that is below it."""
    signal_all([root], signal.SIGSTOP)  # it starts no more meanwhile
    kill_below(root)
    signal_all([root], signal.SIGKILL)


class Meter:
    """What a process and all below it take, looked at again and again while they have a limit
    (Linux). Of the process that looks, only what is below it counts."""

    def __init__(self, root: int, memory_limit: int | None, cpu_limit: float | None) -> None:
        self.cpu_seconds = 0.0
        self.memory_bytes = 0
        """The most that was seen."""
        self.root = root
        self._memory_limit, self._cpu_limit = memory_limit, cpu_limit
        self._resident = 0
        self._ticks: dict[tuple[int, bytes], int] = {}
        limited = memory_limit is not None or cpu_limit is not None
        self._look_at = 0.0 if limited else math.inf

    @property
    def pause(self) -> float:
        """Seconds until it is time to look."""
        return max(0.0, self._look_at - time.monotonic())

    def exceeded(self) -> str | None:
        """Look if it is time to; the name of the limit that was exceeded, if any."""
        begun = time.monotonic()
        if begun < self._look_at:
            return None
        stats = {pid: _stat(pid) for pid in (self.root, *tree_below(self.root))}
        stats = {pid: stat for pid, stat in stats.items() if stat}
        self._count_cpu(stats)
        if self._memory_limit is not None:
            self._count_memory(stats, self._memory_limit)
        took = time.monotonic() - begun
        self._look_at = begun + took + max(LOOK_SECONDS, 20 * took)
        if self.memory_bytes > (self._memory_limit or math.inf):
            return "memory_limit"
        return "cpu_limit" if self.cpu_seconds > (self._cpu_limit or math.inf) else None

    def _count_cpu(self, stats: dict[int, list[bytes]]) -> None:
        """Each process has its own time and that of the children that it has waited for. Parents
        were read first, so no child counts twice. Where nobody waits, the last known times do."""
        total = 0
        for pid, stat in stats.items():
            own = int(stat[11]) + int(stat[12]) if pid != os.getpid() else 0
            total += own + int(stat[13]) + int(stat[14])
            if own and self._cpu_limit is not None:
                self._ticks[pid, stat[19]] = own
        ticks = max(total, sum(self._ticks.values()))
        self.cpu_seconds = max(self.cpu_seconds, ticks / os.sysconf("SC_CLK_TCK"))

    def _count_memory(self, stats: dict[int, list[bytes]], limit: int) -> None:
        """What is resident counts shared memory again for each process. What it really comes to
        takes longer to read, so that is done when it has grown or may be too much."""
        stats = {pid: stat for pid, stat in stats.items() if pid != os.getpid()}
        resident = {pid: int(stat[21]) * resource.getpagesize() for pid, stat in stats.items()}
        if (total := sum(resident.values())) > min(limit, self._resident * 1.1):
            self._resident = total
            total = sum(_share(pid, most) for pid, most in resident.items())
            self.memory_bytes = max(self.memory_bytes, total)


def _share(pid: int, resident: int) -> int:
    """A process's memory: its own, and its part of what it shares with others. Pages of files do
    not count: the kernel can drop them. Where that cannot be read, all that is resident does."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123
            lines = [line.split() for line in file]
    except OSError:
        return resident
    kilobytes = {words[0]: int(words[1]) for words in lines if words[0].startswith(b"Pss")}
    return (kilobytes.get(b"Pss:", 0) - kilobytes.get(b"Pss_File:", 0)) * 1024


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
    _watch(line, pid, Meter(os.getpid(), request["memory_limit"], request["cpu_limit"]))


def _watch(line: int, pid: int, meter: Meter) -> None:
    """Until the command has ended, or was ended with all that it started."""
    linux = sys.platform == "linux"
    line_open, command = True, [os.pidfd_open(pid)] if linux else []
    exit_code: int | None = None
    kill_at: float | None = None
    exceeded: str | None = None
    while True:
        children, status = _reap(pid)
        exit_code = exit_code if status is None else status
        if kill_at is None and exit_code is not None:
            break  # by itself: what it has left in the background goes on
        if kill_at is None and (exceeded := meter.exceeded()):
            kill_at = time.monotonic()
        # The number of a group that was reaped may be another's by now.
        group = pid if exit_code is None or not linux else None
        if kill_at is not None:
            late = time.monotonic() - kill_at
            if late >= 0:
                _signal_tree(group, signal.SIGKILL)
            if not (children or _signal_tree(group, 0)) or late > 1:  # of another user: not ours
                break
        quick = kill_at is not None or not linux
        pause = 0.02 if quick else min(IDLE_SECONDS, meter.pause)
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
        taken = resource.getrusage(resource.RUSAGE_CHILDREN)
        largest = taken.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        _say(
            line,
            exit_code=-signal.SIGKILL if exit_code is None else exit_code,
            cpu_seconds=max(meter.cpu_seconds, taken.ru_utime + taken.ru_stime),
            memory_bytes=max(meter.memory_bytes, largest),
            exceeded=exceeded,
        )


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
