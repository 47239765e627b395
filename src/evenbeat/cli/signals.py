"""Signals as something to wait for."""

import select
import signal
import socket
from collections.abc import Callable, Collection, Sequence
from types import FrameType, TracebackType
from typing import Any, Self

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """While entered, the signals given end up here instead of ending the process.

    The handler does next to nothing, as it may interrupt any line of the main thread, one that
    holds a lock included: what follows from a signal is done by whoever waits. Only a signal to
    stop that comes a second time is acted upon at once, by calling `on_second`.
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
        self._stops = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._ours, self._wakeup = socket.socketpair()
        self._ours.setblocking(False)
        self._wakeup.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in self._numbers:
            self._before[number] = signal.signal(number, self._arrive)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
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
        taken, self._arrived = self._arrived, []
        return taken

    def _arrive(self, number: int, _frame: FrameType | None) -> None:
        arrived = signal.Signals(number)
        self._arrived.append(arrived)
        if arrived in STOP_SIGNALS:
            self._stops += 1
            if self._stops > 1:
                self._on_second(arrived)
