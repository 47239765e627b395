"""One command with all that it starts, under a supervisor (`supervisor.py`), watched from an event
loop without a thread. It ends with the worker even if the worker is killed."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from evenbeat.external import HeadAndTail, supervisor

GRACE_SECONDS = 3.0
"""Between asking a command to end and ending it; less than what a stopping worker waits for."""
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
    memory_limit: int | None = None
    cpu_limit: float | None = None


class Ending(NamedTuple):
    """How a command ended and what it took together with all that it started, as far as they have
    ended. `exit_code` is minus the signal's number if one ended it."""

    exit_code: int
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    exceeded: str | None = None
    """The limit for which it was ended."""


Measured = Callable[[float, int], None]
"""Is told what a command has taken: seconds of CPU time, and the most bytes of memory."""


class CommandResult(NamedTuple):
    """How it went, and what it printed."""

    ending: Ending
    stdout: HeadAndTail
    stderr: HeadAndTail


@dataclass(slots=True)
class StartedCommand:
    """A command under way. It waits when nobody reads what it prints."""

    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    ending: "asyncio.Future[Ending]"
    """How it ended, once it has."""


async def run(
    launch: Launch,
    on_output: Callable[[int], None] = lambda _size: None,
    measured: Measured = lambda _seconds, _bytes: None,
) -> CommandResult:
    """Start a command and wait for its end; `on_output` gets how much it has printed so far.

    Cancelled, it ends the whole tree first. Raises OSError when it cannot be started.
    """
    outputs = HeadAndTail(launch.keep), HeadAndTail(launch.keep)

    async def collect(stream: asyncio.StreamReader, output: HeadAndTail) -> None:
        while data := await stream.read(65536):
            output.add(data)
            on_output(sum(one.total for one in outputs))

    async with started(launch, measured) as command:
        reading = [
            asyncio.ensure_future(collect(command.stdout, outputs[0])),
            asyncio.ensure_future(collect(command.stderr, outputs[1])),
        ]
        await asyncio.wait([command.ending])
        await asyncio.wait(reading, timeout=DRAIN_SECONDS)
    return CommandResult(command.ending.result(), *outputs)


@asynccontextmanager
async def started(
    launch: Launch, measured: Measured = lambda _seconds, _bytes: None
) -> AsyncIterator[StartedCommand]:
    """A command for as long as the block lasts: when the block fails or is done before the command,
    the command is ended with all that it started, and when this process is killed, the supervisor
    does so. Processes that a command leaves behind when it ends by itself go on, as they do under
    cron. `measured` is called whatever has ended it. Raises OSError when it cannot be
    started."""
    ours, theirs = socket.socketpair()
    # Standard input is a file: no one needs to feed it.
    with ours, theirs, tempfile.TemporaryFile() as stdin:
        stdin.write((launch.stdin or "").encode("utf-8", "replace"))
        stdin.seek(0)
        process = subprocess.Popen(  # noqa: S603 - the operator's list has been asked
            [sys.executable, "-I", "-S", supervisor.__file__, str(theirs.fileno())],
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL if launch.stdin is None else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        line = ours.dup()
    loop = asyncio.get_running_loop()
    with ExitStack() as pipes:
        answers, orders = await asyncio.open_connection(sock=line)
        try:
            streams = []
            for pipe in (process.stdout, process.stderr):
                streams.append(asyncio.StreamReader(limit=_LONGEST_LINE))
                protocol = partial(asyncio.StreamReaderProtocol, streams[-1])
                transport, _ = await loop.connect_read_pipe(protocol, pipe)
                pipes.callback(transport.close)
            request = {name: getattr(launch, name) for name in _REQUEST}
            orders.write(json.dumps(request).encode() + b"\n")
            start = json.loads(await answers.readline() or _NO_ANSWER)
            if "started" not in start:
                raise OSError(start["errno"], start["reason"], start["where"])
            ending = asyncio.ensure_future(_end_of(answers))
            try:
                yield StartedCommand(streams[0], streams[1], ending)
            finally:
                if not ending.done():
                    orders.write(f"end {GRACE_SECONDS}\n".encode())
                await asyncio.wait([ending], timeout=GRACE_SECONDS + 3)
                if not ending.cancel() and (end := ending.result()).memory_bytes:
                    measured(end.cpu_seconds, end.memory_bytes)
        finally:
            orders.close()  # whatever has happened: without its line the supervisor ends the rest
            with suppress(asyncio.CancelledError):
                while process.poll() is None:
                    await asyncio.sleep(0.002)


_REQUEST = ("argv", "env", "cwd", "memory_limit", "cpu_limit")
_NO_ANSWER = '{"errno": 0, "reason": "its supervisor was ended", "where": ""}'


async def _end_of(answers: asyncio.StreamReader) -> Ending:
    """What the supervisor reports. One that was killed takes its command along."""
    line = await answers.readline()
    return Ending(**json.loads(line)) if line else Ending(-signal.SIGKILL)
