"""A PgBouncer or a Pgpool before the test's server."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from waiting import wait_for

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
PGBOUNCER = shutil.which("pgbouncer", path=_PATH)
PGPOOL = shutil.which("pgpool", path=_PATH)


class Pooler:
    """Lends sessions of the server to its clients: a PgBouncer for a transaction or for a session
    each, a Pgpool for a session."""

    def __init__(self, server_url: str, mode: str, home: Path) -> None:
        where = conninfo_to_dict(server_url)
        self._user = str(where.get("user", "postgres"))
        self._end = signal.SIGINT if mode == "pgpool" else signal.SIGKILL  # Pgpool has children
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        host, port = where.get("host", "127.0.0.1"), where.get("port", 5432)
        if mode == "pgpool":
            command = [str(PGPOOL), "-n", "-f", f"{home}/pgpool.conf", "-a", f"{home}/hba"]
            (home / "pgpool.conf").write_text(
                f"backend_clustering_mode = 'streaming_replication'\nload_balance_mode = off\n"
                f"backend_hostname0 = '{host}'\nbackend_port0 = {port}\n"
                f"backend_flag0 = 'ALWAYS_PRIMARY|DISALLOW_TO_FAILOVER'\nsr_check_period = 0\n"
                f"listen_addresses = '127.0.0.1'\nport = {self._port}\nnum_init_children = 20\n"
                f"pcp_listen_addresses = ''\npcp_socket_dir = '{home}'\n"
                f"socket_dir = '{home}'\nunix_socket_directories = '{home}'\n"  # older, newer
                f"pid_file_name = '{home}/pid'\n"
                f"logdir = '{home}'\nenable_pool_hba = on\npool_passwd = '{home}/passwords'\n"
            )
            (home / "hba").write_text("host all all 127.0.0.1/32 trust\n")
            (home / "passwords").write_text(f"{self._user}:TEXT{where.get('password', '')}\n")
        else:
            command = [str(PGBOUNCER), f"{home}/pgbouncer.ini"]
            password = f" password={where['password']}" if "password" in where else ""
            (home / "pgbouncer.ini").write_text(
                f"[databases]\n* = host={host} port={port} user={self._user}{password}\n"
                f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\n"
                f"unix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
                f"max_client_conn = 500\ndefault_pool_size = 20\nserver_check_query =\n"
                f"logfile = {home}/log\npidfile =\n"
            )
        user = group = None
        if os.getuid() == 0:
            socket_file = Path(str(where.get("host", "")), f".s.PGSQL.{port}")
            owner = socket_file.stat().st_uid if socket_file.exists() else 0
            lesser = pwd.getpwuid(owner) if owner else pwd.getpwnam("nobody")
            user, group = lesser.pw_uid, lesser.pw_gid
            os.chown(home, user, group)
        self._process = subprocess.Popen(
            command, user=user, group=group, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(self._listens, f"the pooler ({mode}) listens")

    def url(self, database: str) -> str:
        """A database of the server, through the pooler."""
        return f"postgresql://{quote(self._user)}@127.0.0.1:{self._port}/{database}"

    def close(self) -> None:
        self._process.send_signal(self._end)
        self._process.wait()

    def _listens(self) -> bool:
        assert self._process.poll() is None, "the pooler ended"
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def pooler(server_url: str, mode: str = "transaction") -> Iterator[Pooler]:
    """A pooler that is gone afterwards."""
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
    # Pgpool lends a session only to clients that ask for it with the same options as its first.
    options: dict[str, Any] = {"prepare_threshold": None, "client_encoding": "utf8"}
    connections = [psycopg.connect(url, **options) for _ in range(sessions)]
    try:
        return {
            tuple(str(c.execute(f"SHOW {name}").fetchall()[0][0]) for name in names)
            for c in connections
        }
    finally:
        for connection in connections:
            connection.close()
