"""Hearing the hints that other processes send: jobs due, runs cancelled."""

from types import TracebackType
from typing import NamedTuple, Self

import psycopg
from psycopg import sql

from evenbeat.errors import DatabaseUnavailable
from evenbeat.store.database import Connection, Database


class Signal(NamedTuple):
    """A hint: `due` names a queue, `cancel` a job."""

    kind: str
    subject: str


class Listener:
    """One listening connection. It does not reconnect: who owns it makes a new one, and then
    looks for work at once, because hints sent meanwhile are gone."""

    def __init__(self, database: Database) -> None:
        listen = sql.SQL("LISTEN {}").format(sql.Identifier(database.channel))
        self.connection: Connection = database.connect()
        try:
            self.connection.execute(listen)
        except psycopg.OperationalError as error:
            self.connection.close()
            raise DatabaseUnavailable(f"The listening connection broke: {error}") from error

    def wait(self, timeout: float) -> list[Signal]:
        """The signals that came within `timeout` seconds; returns as soon as there is one."""
        try:
            notifies = self.connection.notifies(timeout=timeout, stop_after=1)
            return [Signal(*notify.payload.partition(":")[::2]) for notify in notifies]
        except psycopg.OperationalError as error:
            raise DatabaseUnavailable(f"The listening connection broke: {error}") from error

    def close(self) -> None:
        """Stop listening."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
