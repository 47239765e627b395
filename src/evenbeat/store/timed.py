"""Connections that notice when no answer will come. A proxy may hold the connection of a server
that is gone, or have lost it without a word: to TCP all is well, and a caller would wait for ever.
"""

import time
from asyncio import Semaphore
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

import psycopg
from greenlet import getcurrent
from psycopg import abc, waiting

from evenbeat.store.on_loop import ON_LOOP, aside, wait_here

Row = tuple[Any, ...]
_Result = TypeVar("_Result")

ASK_SECONDS = 3
ASK_AGAIN_SECONDS = 0.1


@dataclass(slots=True)
class Asker:
    """Somebody who waits for what is being read, until then at most."""

    until: float
    gone: bool = False

    @property
    def waits_no_more(self) -> bool:
        return self.gone or time.monotonic() > self.until


asker: ContextVar[Asker | None] = ContextVar("asker", default=None)
"""Who waits for the reports that are read here and now, if that is one request."""


class TimedConnection(psycopg.Connection[Row]):
    """Waits so long for an answer; a `patient` one also for as long as the server is at work on
    it, as a report may take its time, unless nobody waits for that any more."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.answer_seconds = inf
        self.patient = False
        self.turn: Semaphore | None = None
        """Of the event loop's callers, as long as it is lent to one of them."""
        self.given_up = False
        """Closed by us, in the middle of a statement that nobody waits for any more."""

    def wait(self, gen: abc.PQGen[_Result], *args: Any, **options: Any) -> _Result:
        """The driver's wait, with an end; on an event loop others go on meanwhile."""
        gen = self._in_time(gen)
        try:
            if hasattr(getcurrent(), ON_LOOP):
                return self._wait_here(gen)
            return super().wait(gen, *args, **options)
        except psycopg.InternalError as error:
            if not self.closed:
                raise
            raise self.outage_if_closed(error) from error

    def _wait_here(self, gen: abc.PQGen[_Result]) -> _Result:
        try:
            waits_for = next(gen)
            while True:
                ready = waiting.wait_async(_once(waits_for), self.pgconn.socket, ASK_AGAIN_SECONDS)
                waits_for = gen.send(wait_here(ready))
        except StopIteration as end:
            result: _Result = end.value
            return result
        except BaseException as error:
            if not isinstance(error, psycopg.Error):  # cancelled: an answer will come that nobody
                self.given_up = True  # reads
                self.close()
            raise

    def outage_if_closed(self, error: psycopg.Error) -> psycopg.Error:
        """Pgpool calls it an internal error when it has lost the server, and hangs up."""
        is_outage = isinstance(error, psycopg.InternalError) and self.closed
        return psycopg.OperationalError(str(error)) if is_outage else error

    def _in_time(self, gen: abc.PQGen[_Result]) -> abc.PQGen[_Result]:
        deadline, reader = time.monotonic() + self.answer_seconds, asker.get()
        try:
            waits_for = next(gen)
            while True:
                ready = yield waits_for
                if not ready and self.patient and reader is not None and reader.waits_no_more:
                    reader = None  # the server says of itself that it has stopped
                    with suppress(psycopg.Error):
                        self.cancel_safe(timeout=1.0)
                if not ready and time.monotonic() > deadline:
                    aside(self._give_up_unless_at_work)
                    deadline = time.monotonic() + self.answer_seconds
                waits_for = gen.send(ready)
        except StopIteration as end:
            result: _Result = end.value
            return result

    def _give_up_unless_at_work(self) -> None:
        with suppress(psycopg.Error):
            if not self.patient:
                self.cancel_safe(timeout=1.0)  # it should not go on there unseen
            elif self._is_at_work():
                return
        self.close()
        raise psycopg.OperationalError(f"no answer for {self.answer_seconds:g} s")

    def _is_at_work(self) -> bool:
        """Ask the server on another connection."""
        options: dict[str, Any] = {"password": self.info.password or None}
        with TimedConnection.connect(
            self.info.dsn, connect_timeout=ASK_SECONDS, **options
        ) as other:
            other.answer_seconds = ASK_SECONDS
            busy = (
                "SELECT FROM pg_stat_activity WHERE pid = %s AND state = 'active' "
                "AND wait_event_type IS DISTINCT FROM 'Client'"
            )
            return other.execute(busy, (self.info.backend_pid,)).rowcount == 1


def _once(waits_for: waiting.Wait) -> abc.PQGen[int]:
    return (yield waits_for)
