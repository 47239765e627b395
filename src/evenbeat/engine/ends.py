"""Waiting for the ends of jobs, for callers who want results."""

import os
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from uuid import UUID

from evenbeat.engine.loop import Loop
from evenbeat.engine.run import AWAITED_SECONDS
from evenbeat.errors import DatabaseUnavailable
from evenbeat.store.listener import CannotListen, Listener
from evenbeat.store.store import Store

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
IDLE_SECONDS = 15.0
"""How long the thread and its connection stay when nobody waits any more."""


class EndWatch(Loop):
    """Completes a future when a job has ended. It tells the workers which jobs are waited for, they
    tell it when one has ended, and in between it asks the database: any of the notifications may
    get lost, or nobody can listen. One thread and one connection, while anybody waits."""

    name = "ends"

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._guard = threading.Lock()
        self._watched: dict[UUID, list[Future[None]]] = {}
        self._announced: dict[UUID, float] = {}
        self._hinted: set[UUID] = set()
        self._pause = FIRST_PAUSE
        self._poll_at = 0.0
        self._listener: Listener | None = None
        self._is_deaf = False
        self._pid = os.getpid()
        self._parents: Listener | None = None
        self._busy_at = 0.0
        self._closed = False

    def trouble(self) -> str:
        return f"cannot see whether {len(self._watched)} jobs have ended"

    def watch(self, job_id: UUID) -> Future[None]:
        """A future that is done when the job has ended or is gone."""
        future: Future[None] = Future()
        with self._guard:
            if self._closed:
                raise DatabaseUnavailable("This application has closed its database.")
            if self._pid != os.getpid():  # forked: thread and connection are the parent's
                self._pid, self._thread = os.getpid(), None
                self._parents, self._listener = self._listener, None  # kept: closing it ends theirs
                self._watched, self._announced = {}, {}
            self._watched.setdefault(job_id, []).append(future)
            self._pause, self._poll_at = FIRST_PAUSE, 0.0
            if self._thread is None:
                self.start()
            listener = self._listener
        self.wake()
        if listener is not None:
            listener.wake()
        return future

    def forget(self, job_id: UUID, future: Future[None]) -> None:
        """Nobody waits for this one any more."""
        with self._guard:
            futures = self._watched.get(job_id, [])
            if future in futures:
                futures.remove(future)
            if not futures:
                self._watched.pop(job_id, None)

    def close(self) -> None:
        """Wait no longer; who waits gets an error."""
        with self._guard:
            self._closed = True
            watched, self._watched = self._watched, {}
            listener = self._listener
        self.stop()
        if listener is not None:
            listener.wake()
        for future in (future for futures in watched.values() for future in futures):
            if future.set_running_or_notify_cancel():
                error = DatabaseUnavailable("This application has closed its database.")
                future.set_exception(error)
        self.join(LONGEST_PAUSE)

    def has_work(self) -> bool:
        """Until nobody has waited for a while."""
        with self._guard:
            now = self._monotonic()
            if self._watched:
                self._busy_at = now
            if not self._stopping and now - self._busy_at < IDLE_SECONDS:
                return True
            self._hang_up()
            self._thread = None
            return False

    def run_once(self) -> float:
        """Tell the workers what is new, ask what has ended, and listen for a moment."""
        try:
            if self._listener is None and not self._is_deaf:
                try:
                    self._listener = self._store.listen(ends=True)
                except CannotListen:
                    self._is_deaf = True
            self._announce()
            now = self._monotonic()
            with self._guard:
                is_due = now >= self._poll_at
                ids = set(self._watched) if is_due else self._hinted & self._watched.keys()
                if is_due:
                    self._poll_at = now + (self._pause if self._watched else IDLE_SECONDS)
                    self._pause = min(2 * self._pause, LONGEST_PAUSE)
            if ids:
                self._complete(ids - self._store.unended(ids))
            pause = max(0.0, self._poll_at - self._monotonic())
            if self._listener is None:
                return pause
            heard = self._listener.wait(pause)
            self._hinted = {UUID(hint.subject) for hint in heard if hint.kind == "ended"}
        except Exception:
            self._hang_up()
            raise
        return 0.0

    def _announce(self) -> None:
        """Tell the workers for which jobs somebody waits, and again before they forget it."""
        now = self._monotonic()
        with self._guard:
            self._announced = {id_: self._announced.get(id_, 0.0) for id_ in self._watched}
        due = [id_ for id_, until in self._announced.items() if now > until]
        if due and self._listener is not None:
            self._store.notify(*(f"waiting:{id_}" for id_ in due))
            self._announced |= dict.fromkeys(due, now + AWAITED_SECONDS / 2)

    def _complete(self, ids: Iterable[UUID]) -> None:
        with self._guard:
            futures = [future for id_ in ids for future in self._watched.pop(id_, ())]
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def _hang_up(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
