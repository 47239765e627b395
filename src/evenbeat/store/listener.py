"""Hearing the hints that other processes send: jobs due, runs cancelled."""

import selectors
import socket
import time
from contextlib import suppress
from typing import NamedTuple, Self

import psycopg
from psycopg import sql

from evenbeat.errors import DatabaseUnavailable, StoreError
from evenbeat.store.database import Connection, Database
from evenbeat.store.pool import OUTAGES, unreachable

QUIET_SECONDS = 15.0
"""A connection that has brought nothing for so long is asked whether it still lives."""


class Signal(NamedTuple):
    """A hint: `due` names a queue; `waiting` and `ended` a job; `cancel` a job or one run."""

    kind: str
    subject: str


class CannotListen(StoreError):
    """The connection leads through a pooler, which lends each transaction another session."""


class Listener:
    """One listening connection. It does not reconnect: who owns it makes a new one, and then
    looks for work at once, because hints sent meanwhile are gone."""

    def __init__(self, database: Database, *, ends: bool = False) -> None:
        self._database = database
        channel = database.ends_channel if ends else database.channel
        listen = sql.SQL("LISTEN {}").format(sql.Identifier(channel))
        self.connection: Connection = database.connect()
        self.connection.add_notify_handler(lambda hint: self._hints.setdefault(hint.payload))
        self._hints: dict[str, None] = {}
        self._heard_at = time.monotonic()
        self._readable = selectors.DefaultSelector()
        self._readable.register(self.connection.fileno(), selectors.EVENT_READ)
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._readable.register(self._woken, selectors.EVENT_READ)
        if self.connection.prepare_threshold is None:
            self.close()
            raise CannotListen("Behind a pooler, nobody can listen: set EVENBEAT_LISTEN_URL.")
        try:
            self.connection.execute(listen)
        except OUTAGES as error:
            self.close()
            raise DatabaseUnavailable(unreachable(error)) from error

    @property
    def claims_on(self) -> Connection | None:
        """The connection, if it surely leads to the server that all else goes to."""
        return None if self._database.listen_url else self.connection

    def wait(self, timeout: float) -> list[Signal]:
        """The signals that came within `timeout` seconds; returns as soon as there is one, and
        tells those that came together and are alike once.

        The driver's own wait wakes ten times a second, in every worker that has nothing to do."""
        if self.connection.closed:  # a statement on it found the server gone
            raise DatabaseUnavailable("The listening connection is closed.")
        self._collect()
        try:
            ready = () if self._hints else self._readable.select(timeout)
            if any(key.fileobj is self._woken for key, _ in ready):
                self._woken.recv(4096)
                return []
            if not self._hints and ready:
                self.connection.pgconn.consume_input()
                self._collect()
                self._heard_at = time.monotonic()
            elif time.monotonic() - self._heard_at > QUIET_SECONDS:
                self.connection.execute("SELECT", prepare=False)
                self._heard_at = time.monotonic()
        except psycopg.OperationalError as error:
            raise DatabaseUnavailable(unreachable(error)) from error
        hints, self._hints = self._hints, {}
        return [Signal(*hint.partition(":")[::2]) for hint in hints]

    def _collect(self) -> None:
        """What has arrived; with the answer to a statement, as well."""
        while notify := self.connection.pgconn.notifies():
            self._hints[notify.extra.decode()] = None

    def wake(self) -> None:
        """End a wait in another thread."""
        with suppress(OSError):  # closed meanwhile
            self._waker.send(b".")

    def close(self) -> None:
        """Stop listening."""
        self._readable.close()
        self._waker.close()
        self._woken.close()
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
