"""A TCP proxy before the test's server that can fall silent, lose an answer, and lead elsewhere."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from waiting import wait_for


class Proxy:
    """Hands on bytes between its clients and the server that `url` names."""

    def __init__(self, url: str, port: int = 0) -> None:
        self.lead_to(url)
        self._listening = socket.create_server(("127.0.0.1", port))
        who = conninfo_to_dict(url)
        login = quote(str(who.get("user", "postgres")))
        if "password" in who:
            login += ":" + quote(str(who["password"]), safe="")
        self.port = self._listening.getsockname()[1]
        self.url = f"postgresql://{login}@127.0.0.1:{self.port}/{who['dbname']}"
        self._sockets: list[socket.socket] = []
        self._silent: set[socket.socket] = set()
        self._word: bytes | None = None
        self._without_answer: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def lead_to(self, url: str) -> None:
        """New connections lead to this server."""
        where = conninfo_to_dict(url)
        self._server = str(where.get("host") or "127.0.0.1"), int(where.get("port") or 5432)

    def fall_silent(self) -> None:
        """The connections there are stay open and carry nothing more; new ones work."""
        self._silent.update(self._sockets)

    def lose_answer_to(self, word: bytes) -> None:
        """The next request with this word in it is done, but its connection breaks before the
        answer comes."""
        self._word = word

    def break_all(self) -> None:
        """End all connections there are."""
        for end in list(self._sockets):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in (self._listening, *self._sockets):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for end in (self._listening, *self._sockets):
            end.close()

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._sockets.append(client)
            host, port = self._server
            try:
                if host.startswith("/"):
                    server = socket.socket(socket.AF_UNIX)
                    self._sockets.append(server)
                    server.connect(f"{host}/.s.PGSQL.{port}")
                else:
                    server = socket.create_connection((host, port))
                    self._sockets.append(server)
            except OSError:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                continue
            self._start(self._hand_on, client, server)
            self._start(self._hand_on, server, client)

    def _hand_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source in self._silent:
                    continue
                if source in self._without_answer:
                    break
                if self._word is not None and self._word in data:
                    self._without_answer.add(target)
                    self._word = None
                target.sendall(data)
        if source not in self._silent:
            for end in (source, target):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


@contextmanager
def read_only(url: str) -> Iterator[None]:
    """The server refuses writes, in the sessions that are open as well as in new ones."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
        wait_for(
            lambda: admin.execute("SHOW transaction_read_only").fetchone() == ("on",), "read-only"
        )
        try:
            yield
        finally:
            admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
            admin.execute("SELECT pg_reload_conf()")


def terminate_sessions(url: str) -> None:
    """End every other session of this database."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
