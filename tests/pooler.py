"""A PgBouncer before the test's server."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from waiting import wait_for

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Pooler:
    """Lends sessions of the server to its clients, for a transaction or for a session each."""

    def __init__(self, server_url: str, mode: str, home: Path) -> None:
        where = conninfo_to_dict(server_url)
        self._user = str(where.get("user", "postgres"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        password = f" password={where['password']}" if "password" in where else ""
        ini = home / "pgbouncer.ini"
        ini.write_text(
            f"[databases]\n"
            f"* = host={where.get('host', '127.0.0.1')} port={where.get('port', 5432)} "
            f"user={self._user}{password}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\n"
            f"unix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
            f"max_client_conn = 500\ndefault_pool_size = 20\nserver_check_query =\n"
            f"logfile = {home}/log\npidfile =\n"
        )
        for path in (home, ini):
            path.chmod(0o755)
        (home / "log").touch()
        (home / "log").chmod(0o666)
        command = [str(PGBOUNCER), str(ini)]
        if os.getuid() == 0:
            socket_file = Path(str(where.get("host", "")), f".s.PGSQL.{where.get('port', 5432)}")
            owner = socket_file.stat().st_uid if socket_file.exists() else None
            command += ["-u", pwd.getpwuid(owner).pw_name if owner else "nobody"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(self._listens, "PgBouncer listens")

    def url(self, database: str) -> str:
        """A database of the server, through the pooler."""
        return f"postgresql://{quote(self._user)}@127.0.0.1:{self._port}/{database}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def pooler(server_url: str, mode: str = "transaction") -> Iterator[Pooler]:
    """A PgBouncer that is gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="eb-pooler-"))
    started = Pooler(server_url, mode, home)
    try:
        yield started
    finally:
        started.close()
        shutil.rmtree(home, ignore_errors=True)


def settings_of_foreign_sessions(url: str, sessions: int = 20) -> set[tuple[str, ...]]:
    """What another application that uses the same pooler finds set in the sessions it is lent."""
    names = (
        "enable_seqscan", "enable_hashjoin", "plan_cache_mode", "jit", "statement_timeout",
        "lock_timeout", "idle_in_transaction_session_timeout",
    )  # fmt: skip
    connections = [psycopg.connect(url, prepare_threshold=None) for _ in range(sessions)]
    try:
        return {
            tuple(str(c.execute(f"SHOW {name}").fetchall()[0][0]) for name in names)
            for c in connections
        }
    finally:
        for connection in connections:
            connection.close()
