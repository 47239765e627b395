"""Hints from other processes: jobs due, runs cancelled. Every hint may be lost without harm."""

import logging
import threading
from collections.abc import Callable

from evenbeat.errors import StoreError
from evenbeat.store.database import Connection
from evenbeat.store.listener import Listener, Signal
from evenbeat.store.store import Store

logger = logging.getLogger(__name__)

WAIT_SECONDS = 1.0


class HintListener:
    """Listens on a connection of its own and makes a new one when it breaks. After that it reports
    a `due` for every queue, because hints sent meanwhile are gone. With each signal goes the
    connection that brought it: it is awake, and free until the call returns."""

    def __init__(self, store: Store, heard: Callable[[Signal, Connection | None], None]) -> None:
        self._store = store
        self._heard = heard

    def run(self, stopping: threading.Event) -> None:
        """Listen until told to stop."""
        pause = 0.1
        while not stopping.is_set():
            try:
                with self._store.listen() as listener:
                    self._heard(Signal("due", "*"), None)
                    pause = 0.1
                    self._listen(listener, stopping)
            except StoreError as error:
                logger.warning("cannot listen for hints, polling meanwhile: %s", error)
            except Exception:
                logger.exception("listening for hints failed, polling meanwhile")
            else:
                continue
            stopping.wait(pause)
            pause = min(pause * 2, 5.0)

    def _listen(self, listener: Listener, stopping: threading.Event) -> None:
        while not stopping.is_set():
            for signal in listener.wait(WAIT_SECONDS):
                self._heard(signal, listener.connection)
