"""One command as a process group of its own, watched from an event loop without a thread."""

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import IO

import psutil  # type: ignore[import-untyped]

from evenbeat.external.lifeline import lifeline
from evenbeat.external.output import HeadAndTail

GRACE_SECONDS = 3.0
"""Between asking a group to end and ending it; less than what a stopping worker waits for."""
DRAIN_SECONDS = 1.0
"""How long output is read on after the command itself has ended."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    stdin: str | None
    keep: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How it went; `exit_code` is minus the signal's number when one ended it."""

    exit_code: int
    stdout: HeadAndTail
    stderr: HeadAndTail


async def run(launch: Launch, told: Callable[[int], None] = lambda _size: None) -> Ended:
    """Start a command and wait for its end; `told` hears how much it has printed so far.

    Cancelled, it ends the whole group before it goes. Processes that the command leaves behind when
    it ends by itself go on, as they do under cron. Raises OSError when it cannot be started.
    """
    process = _start(launch)
    lifeline.hold(process.pid)
    size, streams = _Sum(told), list[_Stream]()
    try:
        for pipe in (process.stdout, process.stderr):
            streams.append(await _Stream.of(pipe, launch.keep, size))
        await _exited(process)
        await _drained(streams)
    except BaseException:
        await _end_group(process)
        raise
    finally:
        for stream in streams:
            stream.close()
        # While the process is not reaped, its number is nobody else's: until here it may be named.
        lifeline.release(process.pid)
        process.poll()
    return Ended(process.returncode, *(stream.kept for stream in streams))


@asynccontextmanager
async def started(launch: Launch) -> AsyncIterator["subprocess.Popen[bytes]"]:
    """A command whose output the block reads for itself. When the block ends, however it does, so
    has the whole group; and when this process is killed, the lifeline ends it."""
    process = _start(launch)
    lifeline.hold(process.pid)
    try:
        yield process
    finally:
        try:
            await _end_group(process)
        finally:
            lifeline.release(process.pid)
            process.poll()


def _start(launch: Launch) -> "subprocess.Popen[bytes]":
    with _input(launch.stdin) as stdin:
        return subprocess.Popen(  # noqa: S603 - the operator's list has been asked
            launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


def _input(text: str | None) -> IO[bytes]:
    """Standard input as a file: no one needs to feed it."""
    if text is None:
        return open(os.devnull, "rb")  # noqa: PTH123 - the caller closes it
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(text.encode("utf-8", "replace"))
    file.seek(0)
    return file


class _Sum:
    def __init__(self, told: Callable[[int], None]) -> None:
        self._told = told
        self._size = 0

    def add(self, size: int) -> None:
        self._size += size
        self._told(self._size)


class _Stream(asyncio.Protocol):
    """One of the command's outputs."""

    def __init__(self, keep: int, size: _Sum) -> None:
        self.kept = HeadAndTail(keep)
        self.over = asyncio.Event()
        self._size = size
        self._transport: asyncio.BaseTransport | None = None

    @classmethod
    async def of(cls, pipe: IO[bytes] | None, keep: int, size: _Sum) -> "_Stream":
        loop = asyncio.get_running_loop()
        _, stream = await loop.connect_read_pipe(lambda: cls(keep, size), pipe)
        return stream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.kept.add(data)
        self._size.add(len(data))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.over.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


# -- the end -------------------------------------------------------------------------------------


async def _exited(process: "subprocess.Popen[bytes]") -> None:
    """Until the process has ended. It is not reaped yet: see `run`."""
    handle = _handle(process.pid)
    if handle is None:
        while _running(process):
            await asyncio.sleep(0.05)
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(handle, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def _handle(pid: int) -> int | None:
    """What tells of a process's end without asking, where the system has it."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _running(process: "subprocess.Popen[bytes]") -> bool:
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, flags) is None


async def _drained(streams: Sequence[_Stream]) -> None:
    waits = [stream.over.wait() for stream in streams]
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*waits), DRAIN_SECONDS)


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
    return any(pid != group and _group_of(pid) == group for pid in psutil.pids())


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
