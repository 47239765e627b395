"""The scaffold of the engine's threads: start, stop, rest, back off and survive errors, once."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from evenbeat.errors import DatabaseUnavailable, StoreError
from evenbeat.observe.telemetry import NO_TELEMETRY, Telemetry

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Loop(ABC):
    """Calls `run_once()` on a thread of its own until it is stopped. A database that does not
    answer is tried again after ever longer pauses; any other error is logged, and the loop goes on.
    """

    name: ClassVar[str]
    """Of its thread."""

    during: ClassVar[str | None] = None
    """What `evenbeat_database_errors_total` calls its step; None: it is not counted."""

    longest_pause = LONGEST_PAUSE

    def __init__(
        self,
        telemetry: Telemetry = NO_TELEMETRY,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._telemetry = telemetry
        self._monotonic = monotonic
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    @abstractmethod
    def run_once(self) -> float:
        """Do what there is to do now; returns how many seconds to rest, unless woken."""

    @abstractmethod
    def trouble(self) -> str:
        """What it cannot do while the database does not answer, for the log."""

    def start(self) -> None:
        """Go to work."""
        self._thread = threading.Thread(target=self.run, name=f"evenbeat-{self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the present step; returns at once."""
        self._stopping = True
        self.wake()

    def join(self, timeout: float) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join(timeout)

    def wake(self) -> None:
        """Rest no longer."""
        self._wake.set()

    def rest(self, seconds: float) -> None:
        """Wait until woken."""
        self._wake.wait(seconds)
        self._wake.clear()

    def has_work(self) -> bool:
        """Whether to go on: until stopped, or until what is left has been done."""
        return not self._stopping

    def run(self) -> None:
        """The thread's main function."""
        pause = FIRST_PAUSE
        while self.has_work():
            try:
                seconds = self.run_once()
                pause = FIRST_PAUSE
            except Exception as error:
                self.failed(error)
                seconds, pause = pause, min(pause * 2, self.longest_pause)
            if seconds > 0:
                self.rest(seconds)

    def failed(self, error: Exception) -> None:
        """Say what went wrong."""
        if isinstance(error, StoreError):
            # The store has told that the database is away; this is one of those who notice.
            level = logging.DEBUG if isinstance(error, DatabaseUnavailable) else logging.WARNING
            logger.log(level, "%s: %s", self.trouble(), error)
            if self.during is not None:
                self._telemetry.database_failed(self.during)
        else:
            logger.error("%s: an unexpected error, going on", self.trouble(), exc_info=error)
