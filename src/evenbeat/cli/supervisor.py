"""Several worker processes: started, restarted when they die, stopped together.

Each child holds one end of a socket. It says there when it is at work; and when the other end
closes, however the supervisor came to its end, the child stops. The supervisor never imports the
application, so nothing that user code does can bring it down.
"""

import logging
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from evenbeat.cli.signals import STOP_SIGNALS, Signals

logger = logging.getLogger("evenbeat.supervisor")

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 30.0
STEADY_SECONDS = 60.0
"""A child that lived this long has earned a quick restart."""

LAST_SECONDS = 5.0
"""How long children may take to end at once before they are killed."""


@dataclass(slots=True)
class _Child:
    """One of the processes, or the pause before the next try at it."""

    process: subprocess.Popen[bytes] | None = None
    link: socket.socket | None = None
    ready: bool = False
    started_at: float = 0.0
    pause: float = FIRST_PAUSE
    start_at: float = 0.0
    own: Sequence[str] = ()


class Supervisor:
    """Keeps `count` processes of `command` running until SIGTERM or SIGINT.

    The first one goes ahead: when it cannot start, its complaint is the only one and its exit code
    is ours. `first_only` are arguments for that first start alone, `of_each` those that each
    process has for itself.
    """

    def __init__(
        self,
        count: int,
        command: Sequence[str],
        first_only: Sequence[str] = (),
        *,
        of_each: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self._command = list(command)
        self._first_only = list(first_only)
        self._children = [_Child(own=own) for own in of_each or [()] * count]
        self._proven = False
        self._stops: list[signal.Signals] = []
        self._kill_at: float | None = None
        self._refused: int | None = None

    def run(self) -> int:
        """Supervise; returns the exit code."""
        with Signals([*STOP_SIGNALS, signal.SIGCHLD]) as signals:
            while not self._is_over():
                self._start_due()
                links = [child.link for child in self._children if child.link and not child.ready]
                self._note_ready(signals.wait(*links, timeout=self._time_to_next()))
                for number in signals.take():
                    if number in STOP_SIGNALS:
                        self._stop(number)
                self._bury_dead()
                self._kill_late()
        return self._exit_code()

    # -- starting --------------------------------------------------------------------------------

    def _start_due(self) -> None:
        if self._stops:
            return
        wanted = self._children if self._proven else self._children[:1]
        for child in wanted:
            if child.process is None and child.start_at <= time.monotonic():
                self._start(child)

    def _start(self, child: _Child) -> None:
        ours, theirs = socket.socketpair()
        extra = [] if self._proven else self._first_only
        with theirs:
            child.process = subprocess.Popen(  # noqa: S603 - ourselves
                [*self._command, *child.own, *extra, f"--supervisor-fd={theirs.fileno()}"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Out of reach of the terminal's Ctrl-C: it would come twice, and mean "at once".
                process_group=0,
            )
        ours.setblocking(False)
        child.link, child.ready, child.started_at = ours, False, time.monotonic()
        logger.info("Started worker process", extra={"pid": child.process.pid})

    def _note_ready(self, links: Sequence[socket.socket]) -> None:
        for child in self._children:
            if child.link is not None and child.link in links:
                with suppress(OSError):  # it died while saying so
                    child.ready = bool(child.link.recv(1))
                self._proven = self._proven or child.ready

    # -- ending ----------------------------------------------------------------------------------

    def _bury_dead(self) -> None:
        for child in self._children:
            if child.process is not None and child.process.poll() is not None:
                self._bury(child, child.process)

    def _bury(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        code = process.returncode
        if child.link is not None:
            child.link.close()
        child.process = child.link = None
        if self._stops:
            return
        if not self._proven and code > 0:
            self._refused = code
            return
        self._plan_restart(child)
        logger.error(
            "Worker process died",
            extra={
                "pid": process.pid,
                "exit": f"signal {-code}" if code < 0 else code,
                "restart_in": f"{child.start_at - time.monotonic():.2g}s",
            },
        )

    def _plan_restart(self, child: _Child) -> None:
        now = time.monotonic()
        if now - child.started_at >= STEADY_SECONDS:
            child.pause = FIRST_PAUSE
        child.start_at = now + child.pause
        child.pause = min(child.pause * 2, LONGEST_PAUSE)

    def _stop(self, number: signal.Signals) -> None:
        """Forward it: the first asks for grace, the second for haste."""
        self._stops.append(number)
        for process in self._running():
            with suppress(ProcessLookupError):
                process.send_signal(number)
        if len(self._stops) > 1:
            self._kill_at = time.monotonic() + LAST_SECONDS

    def _kill_late(self) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            for process in self._running():
                process.kill()

    # --------------------------------------------------------------------------------------------

    def _running(self) -> list[subprocess.Popen[bytes]]:
        return [child.process for child in self._children if child.process is not None]

    def _is_over(self) -> bool:
        return self._refused is not None or (bool(self._stops) and not self._running())

    def _time_to_next(self) -> float | None:
        """Seconds until something is to be done without being asked."""
        moments = [self._kill_at] if self._kill_at is not None else []
        if not self._stops:
            wanted = self._children if self._proven else self._children[:1]
            moments += [child.start_at for child in wanted if child.process is None]
        if not moments:
            return None
        return max(0.0, min(moments) - time.monotonic())

    def _exit_code(self) -> int:
        if self._refused is not None:
            return self._refused
        return 128 + self._stops[1] if len(self._stops) > 1 else 0
