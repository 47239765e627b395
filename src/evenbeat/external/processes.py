"""One command as a process group of its own, watched from an event loop without a thread, that ends
with the worker even if the worker is killed."""

import asyncio
import atexit
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]

from evenbeat.external import HeadAndTail

GRACE_SECONDS = 3.0
"""Between asking a group to end and ending it; less than what a stopping worker waits for."""
DRAIN_SECONDS = 1.0
"""How long output is still read after the command itself has ended."""
_LONGEST_LINE = 2 * 2**20


class Launch(NamedTuple):
    """What to start."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    stdin: str | None = None
    keep: int = 0
    """How many bytes `run` keeps of each output."""


class CommandResult(NamedTuple):
    """How it went; `exit_code` is minus the signal's number if one ended it."""

    exit_code: int
    stdout: HeadAndTail
    stderr: HeadAndTail


class StartedCommand(NamedTuple):
    """A command under way. It waits when nobody reads what it prints."""

    process: "subprocess.Popen[bytes]"
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader


async def run(
    launch: Launch, on_output: Callable[[int], None] = lambda _size: None
) -> CommandResult:
    """Start a command and wait for its end; `on_output` gets how much it has printed so far.

    Cancelled, it ends the whole group first. Raises OSError when it cannot be started.
    """
    outputs = HeadAndTail(launch.keep), HeadAndTail(launch.keep)

    async def collect(stream: asyncio.StreamReader, output: HeadAndTail) -> None:
        while data := await stream.read(65536):
            output.add(data)
            on_output(sum(one.total for one in outputs))

    async with started(launch) as (process, stdout, stderr):
        reading = [
            asyncio.ensure_future(collect(stdout, outputs[0])),
            asyncio.ensure_future(collect(stderr, outputs[1])),
        ]
        await _exited(process)
        await asyncio.wait(reading, timeout=DRAIN_SECONDS)
    return CommandResult(process.returncode, *outputs)


@asynccontextmanager
async def started(launch: Launch) -> AsyncIterator[StartedCommand]:
    """A command for as long as the block lasts: when the block fails or is done before the command,
    the whole group is ended, and when this process is killed, the lifeline ends it. Processes that
    a command leaves behind when it ends by itself go on, as they do under cron."""
    # Standard input is a file: no one needs to feed it.
    with tempfile.TemporaryFile() as stdin:
        stdin.write((launch.stdin or "").encode("utf-8", "replace"))
        stdin.seek(0)
        process = subprocess.Popen(  # noqa: S603 - the operator's list has been asked
            launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            stdin=subprocess.DEVNULL if launch.stdin is None else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    lifeline.hold(process.pid)
    loop, ended_by_itself = asyncio.get_running_loop(), False
    with ExitStack() as pipes:
        try:
            streams = []
            for pipe in (process.stdout, process.stderr):
                streams.append(asyncio.StreamReader(limit=_LONGEST_LINE))
                protocol = partial(asyncio.StreamReaderProtocol, streams[-1])
                transport, _ = await loop.connect_read_pipe(protocol, pipe)
                pipes.callback(transport.close)
            yield StartedCommand(process, *streams)
            ended_by_itself = _has_exited(process)
        finally:
            try:
                if not ended_by_itself:
                    await _end_group(process)
            finally:
                # While the process is not reaped, its number is nobody else's: until here it may
                # be named.
                lifeline.release(process.pid)
                process.poll()


# -- the end -------------------------------------------------------------------------------------


def _has_exited(process: "subprocess.Popen[bytes]") -> bool:
    """Whether the process has ended. It is not reaped yet: see `started`."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, flags) is not None


async def _exited(process: "subprocess.Popen[bytes]") -> None:
    """Until the process has ended."""
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # a system that cannot tell of it without being asked
        while not _has_exited(process):
            await asyncio.sleep(0.05)
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(handle, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """Ask the group to end, and end what has not after its grace. The command itself may go first:
    what it has started gets the same time."""
    _signal_group(process.pid, signal.SIGTERM)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await _exited(process)
                while _has_others(process.pid):
                    await asyncio.sleep(0.05)
    finally:
        _signal_group(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):  # a command of another user, under sudo, cannot be ended by us
        await asyncio.wait_for(_exited(process), 1)


def _has_others(group: int) -> bool:
    for pid in psutil.pids():
        with suppress(OSError):
            if pid != group and os.getpgid(pid) == group:
                return True
    return False


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


# -- the end of the worker -----------------------------------------------------------------------


class Lifeline:
    """One small process beside this one, started with the first command: it ends the commands of a
    worker that was killed. Otherwise the lease would run out, another worker would start the job
    again, and the command would run twice."""

    def __init__(self) -> None:
        self._watcher: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def hold(self, group: int) -> None:
        """End this process group when this process is gone."""
        with self._lock:
            if self._watcher is None:
                atexit.register(self.let_go)
            if self._watcher is None or self._watcher.poll() is not None:
                self._close_watcher()
                self._watcher = subprocess.Popen(  # noqa: S603 - our own text
                    ["/bin/sh", Path(__file__).with_name("lifeline.sh")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                    env={},
                )
            self._say(f"+ {group}\n")

    def release(self, group: int) -> None:
        """The group is over, or is to outlive us."""
        with self._lock:
            self._say(f"- {group}\n")

    def let_go(self) -> None:
        """This process is about to end: so do the groups that are left."""
        with self._lock, suppress(subprocess.TimeoutExpired):
            self._close_watcher()
            if self._watcher is not None:
                self._watcher.wait(timeout=2)

    def _close_watcher(self) -> None:
        if self._watcher is not None and self._watcher.stdin is not None:
            with suppress(OSError):
                self._watcher.stdin.close()

    def _say(self, line: str) -> None:
        if self._watcher is not None and self._watcher.stdin is not None:
            with suppress(OSError):  # someone ended the watcher; the next command starts another
                self._watcher.stdin.write(line.encode())
                self._watcher.stdin.flush()


lifeline = Lifeline()
