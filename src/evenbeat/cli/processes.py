"""What the processes of workers share: signals as something to wait for, settings of the
interpreter, and a supervisor that starts several, restarts those that die and stops all together.

Each child holds one end of a socket. It says there when it is at work; and when the other end
closes, however the supervisor came to its end, the child stops. The supervisor never imports the
application, so nothing that user code does can bring it down.
"""

import gc
import logging
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

logger = logging.getLogger("evenbeat.supervisor")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 30.0
STEADY_SECONDS = 60.0
"""A child that lived this long has earned a quick restart."""

ONE_STOP_SECONDS = 0.5
LAST_SECONDS = 5.0
"""How long children may take to end at once before they are killed."""


class Signals:
    """While entered, the signals given end up here instead of ending the process.

    The handler does next to nothing, as it may interrupt any line of the main thread, one that
    holds a lock included: the waiting thread acts on signals. Only a signal to stop that comes a
    second time is acted upon at once, by calling `on_second`.
    """

    def __init__(
        self,
        numbers: Collection[signal.Signals] = STOP_SIGNALS,
        *,
        on_second: Callable[[signal.Signals], None] = lambda _number: None,
    ) -> None:
        self._numbers = numbers
        self._on_second = on_second
        self._arrived: list[signal.Signals] = []
        self._stopped_at: float | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._ours, self._wakeup = socket.socketpair()
        self._ours.setblocking(False)
        self._wakeup.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in self._numbers:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._ours.close()
        self._wakeup.close()

    def wait(self, *others: socket.socket, timeout: float | None = None) -> Sequence[socket.socket]:
        """Until a signal comes, one of the other sockets can be read (these are returned), or the
        time is up."""
        readable, _, _ = select.select([self._ours, *others], [], [], timeout)
        if self._ours in readable:
            self._ours.recv(4096)
            readable.remove(self._ours)
        return readable

    def take(self) -> list[signal.Signals]:
        """The signals that came since the last call."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        arrived = signal.Signals(number)
        self._arrived.append(arrived)
        if arrived in STOP_SIGNALS:
            # Some send a stop twice at once, to the process and to its group: that is one.
            now = time.monotonic()
            self._stopped_at = self._stopped_at or now
            if now - self._stopped_at > ONE_STOP_SECONDS:
                self._on_second(arrived)


def tune_process() -> None:
    """Collect garbage less often, ignore what the imports created, and let threads take turns
    sooner. Call it when everything is loaded.

    Each run allocates some twenty small objects, and with Python's defaults the collector takes a
    fifth of a busy worker's time to find that they are gone already. A handler that writes to a
    file or a socket gives up the interpreter, and gets it back after another thread's turn: 5 ms by
    default, a hundred times what the handler took. A worker inside another program's process
    leaves that process as it is.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    sys.setswitchinterval(0.0005)


@dataclass(slots=True)
class _Child:
    """One of the processes, or the pause before the next attempt at it."""

    arguments: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None
    link: socket.socket | None = None
    is_ready: bool = False
    started_at: float = 0.0
    pause: float = FIRST_PAUSE
    start_at: float = 0.0


class Supervisor:
    """Keeps one process of `command` for each entry of `arguments` running until SIGTERM or SIGINT.

    The first one goes ahead: when it cannot start, its complaint is the only one and its exit code
    is ours. `first_only` are arguments for that first start alone.
    """

    def __init__(
        self,
        command: Sequence[str],
        arguments: Sequence[Sequence[str]],
        *,
        first_only: Sequence[str] = (),
    ) -> None:
        self._command = list(command)
        self._first_only = list(first_only)
        self._children = [_Child(own) for own in arguments]
        self._proven = False  # whether one process has come to work
        self._stops: list[signal.Signals] = []
        self._kill_at: float | None = None
        self._refused: int | None = None

    def run(self) -> int:
        with Signals([*STOP_SIGNALS, signal.SIGCHLD]) as signals:
            while self._refused is None and (self._running() or not self._stops):
                for child in self._startable():
                    if child.start_at <= time.monotonic():
                        self._start(child)
                links = [
                    child.link for child in self._children if child.link and not child.is_ready
                ]
                readable = signals.wait(*links, timeout=self._time_to_next())
                for child in self._children:
                    if child.link is not None and child.link in readable:
                        with suppress(OSError):  # it died while saying so
                            child.is_ready = bool(child.link.recv(1))
                        self._proven = self._proven or child.is_ready
                for number in signals.take():
                    if number in STOP_SIGNALS:
                        self._stop(number)
                for child in self._children:
                    if child.process is not None and child.process.poll() is not None:
                        self._clean_up(child, child.process)
                if self._kill_at is not None and time.monotonic() >= self._kill_at:
                    for process in self._running():
                        process.kill()
        if self._refused is not None:
            return self._refused
        return 128 + self._stops[1] if len(self._stops) > 1 else 0

    def _running(self) -> list[subprocess.Popen[bytes]]:
        return [child.process for child in self._children if child.process is not None]

    def _startable(self) -> list[_Child]:
        """Those without a process; at first, only the one that goes ahead."""
        if self._stops:
            return []
        candidates = self._children if self._proven else self._children[:1]
        return [child for child in candidates if child.process is None]

    def _time_to_next(self) -> float | None:
        """Seconds until something is to be done without a signal."""
        moments = [child.start_at for child in self._startable()]
        if self._kill_at is not None:
            moments.append(self._kill_at)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _start(self, child: _Child) -> None:
        ours, theirs = socket.socketpair()
        extra = [] if self._proven else self._first_only
        with theirs:
            child.process = subprocess.Popen(  # noqa: S603 - ourselves
                [*self._command, *child.arguments, *extra, f"--supervisor-fd={theirs.fileno()}"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Out of reach of the terminal's Ctrl-C: it would come twice, and mean "at once".
                process_group=0,
            )
        ours.setblocking(False)
        child.link, child.is_ready, child.started_at = ours, False, time.monotonic()
        logger.info("Started worker process", extra={"pid": child.process.pid})

    def _stop(self, number: signal.Signals) -> None:
        """Forward it: the first asks for grace, the second for haste."""
        self._stops.append(number)
        for process in self._running():
            with suppress(ProcessLookupError):
                process.send_signal(number)
        if len(self._stops) > 1:
            self._kill_at = time.monotonic() + LAST_SECONDS

    def _clean_up(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        """After a process has ended: plan the next one, unless we stop or cannot start at all."""
        code, now = process.returncode, time.monotonic()
        if child.link is not None:
            child.link.close()
        child.process = child.link = None
        if self._stops:
            return
        if not self._proven and code > 0:
            self._refused = code
            return
        if now - child.started_at >= STEADY_SECONDS:
            child.pause = FIRST_PAUSE
        logger.error(
            "Worker process died",
            extra={
                "pid": process.pid,
                "exit": f"signal {-code}" if code < 0 else code,
                "restart_in": f"{child.pause:.2g}s",
            },
        )
        child.start_at = now + child.pause
        child.pause = min(child.pause * 2, LONGEST_PAUSE)
