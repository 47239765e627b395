"""The cluster behind the embedded server: created, started, watched and stopped, from any state."""

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import psutil  # type: ignore[import-untyped]
import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from evenbeat.errors import EmbeddedUnavailable

if sys.platform != "win32":
    import fcntl

MAJOR_VERSION = 18
PORT = 5432  # only a part of the socket's name
SOCKET_PATH_LIMIT = 103  # bytes that fit into sun_path on macOS, the shortest of our platforms
DATABASE = "evenbeat"
SUPERUSER = "postgres"


class Account(NamedTuple):
    """The system user that the server runs as when root starts it."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Cluster:
    """One server directory. Everything but `locked` wants the lock held."""

    home: Path
    binaries: Path
    account: Account | None

    @property
    def pgdata(self) -> Path:
        return self.home / "pgdata"

    @property
    def pid_file(self) -> Path:
        return self.pgdata / "postmaster.pid"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process, and thread, from starting or stopping this server."""
        lock = self._open("lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            unlock(lock)

    def join(self) -> int:
        """Become a user; the descriptor holds the share."""
        users = self._open("users")
        fcntl.flock(users, fcntl.LOCK_SH)
        return users

    def _open(self, name: str) -> int:
        descriptor = os.open(self.home / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self.account:
            os.fchown(descriptor, *self.account)
        return descriptor

    # -- starting ------------------------------------------------------------------------------

    def ensure_running(self, deadline: float) -> str:
        """Bring the server and its database up, whatever state they are in; returns the URL."""
        if not self.pgdata.exists():
            self._initialise()
        version = (self.pgdata / "PG_VERSION").read_text().strip()
        if version != str(MAJOR_VERSION):
            raise EmbeddedUnavailable(
                f"{self.pgdata} was made by PostgreSQL {version}, but this Evenbeat carries "
                f"PostgreSQL {MAJOR_VERSION}. Dump the data with the Evenbeat that made it and "
                "restore it into a new directory, or set EVENBEAT_DATA_DIR to start an empty one."
            )
        if self.ping() == pq.Ping.NO_RESPONSE:
            self._clear_leftovers(deadline)
        if self.ping() == pq.Ping.NO_RESPONSE:
            self._launch(deadline)
        while self.ping() != pq.Ping.OK:
            if time.monotonic() > deadline:
                raise EmbeddedUnavailable(
                    f"The embedded PostgreSQL server in {self.home} is not ready yet. It may still "
                    f"be recovering from a crash: wait, then try again. It said:\n{self._log_end()}"
                )
            time.sleep(0.05)
        with psycopg.connect(self._conninfo(), autocommit=True) as connection:
            query = "SELECT 1 FROM pg_database WHERE datname = %s"
            if connection.execute(query, (DATABASE,)).fetchone() is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")
        host = quote(str(self._socket_dir()), safe="")
        return f"postgresql://{SUPERUSER}@/{DATABASE}?host={host}&port={PORT}"

    def _initialise(self) -> None:
        """Make the cluster beside its place, so that a start that dies halfway leaves no half."""
        for leftover in self.home.glob("pgdata.new.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        # A name of its own: the initdb of a killed starter may still be at work.
        staged = self.home / f"pgdata.new.{os.getpid()}"
        initdb = self._run(
            "initdb",
            *("-D", staged.name, "-U", SUPERUSER, "--no-instructions"),
            *("--auth-local=trust", "--auth-host=reject", "--encoding=UTF8"),
            # The builtin provider sorts alike on every machine, whatever locales it has.
            *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
        )
        if initdb.returncode != 0:
            shutil.rmtree(staged, ignore_errors=True)
            raise EmbeddedUnavailable(
                f"A new PostgreSQL cluster could not be made in {self.home}:\n"
                f"{_tail(initdb.stdout)}"
            )
        ours = staged / "evenbeat.conf"
        shutil.copyfile(Path(__file__).with_name("evenbeat.conf"), ours)
        ours.chmod(0o600)
        if self.account:
            os.chown(ours, *self.account)
        with (staged / "postgresql.conf").open("a") as configuration:
            line = "\ninclude 'evenbeat.conf'\n# Your own settings go below this line.\n"
            configuration.write(line)
        staged.rename(self.pgdata)
        directory = os.open(self.home, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _clear_leftovers(self, deadline: float) -> None:
        """Nobody answers: await a postmaster that is coming or going, clear up after a dead one."""
        leftover = self.postmaster()
        while leftover and self._is_postmaster(leftover):
            if self.ping() != pq.Ping.NO_RESPONSE:
                return
            if time.monotonic() > deadline:
                raise EmbeddedUnavailable(
                    f"PostgreSQL (process {leftover}) runs in {self.pgdata} but does not "
                    f"answer. End it with `kill -INT {leftover}`, then start again."
                )
            time.sleep(0.05)
        (self._socket_dir() / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)
        if leftover is None:
            self.pid_file.unlink(missing_ok=True)
        elif psutil.pid_exists(leftover):
            # Some other program has the dead postmaster's pid, and PostgreSQL would refuse to
            # start. Removing the file would also remove its guard against backends that outlived
            # their postmaster. So put our own pid in: PostgreSQL disregards its grandparent's.
            with suppress(FileNotFoundError):
                _, _, rest = self.pid_file.read_text().partition("\n")
                self.pid_file.write_text(f"{os.getpid()}\n{rest}")

    def _launch(self, deadline: float) -> None:
        options = f"-p {PORT} -k {shlex.quote(str(self._socket_dir()))}"
        while True:
            (self.home / "server.log").unlink(missing_ok=True)
            seconds = max(1, round(deadline - time.monotonic()))
            # Relative names, since pg_ctl hands them to a shell.
            start = self._run(
                "pg_ctl",
                *("start", "-w", "-t", str(seconds), "-D", self.pgdata.name),
                *("-l", "server.log", "-o", options),
            )
            if start.returncode == 0 or self.is_running():
                return
            # Backends of a killed postmaster leave when they next look up from their work.
            occupied = "shared memory block" in self._early_log()
            if not occupied or time.monotonic() > deadline:
                raise EmbeddedUnavailable(
                    f"The embedded PostgreSQL server in {self.home} does not start. "
                    f"It said:\n{self._log_end() or _tail(start.stdout)}"
                )
            time.sleep(0.1)

    # -- stopping ------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop the server if it runs. Its pid is used only when it is surely the postmaster's."""
        if self.postmaster() is None or not self.is_running():
            return
        for mode in ("fast", "immediate"):
            order = ("stop", "-w", "-t", "60", "-m", mode, "-D", self.pgdata.name)
            if self._run("pg_ctl", *order).returncode == 0:
                break
        if (socket_dir := self._socket_dir()) != self.home:
            with suppress(OSError):
                socket_dir.rmdir()

    # -- looking -------------------------------------------------------------------------------

    def postmaster(self) -> int | None:
        """The process that `postmaster.pid` names, true or stale."""
        try:
            return abs(int(self.pid_file.read_text().splitlines()[0]))
        except (FileNotFoundError, IndexError, ValueError):
            return None

    def is_running(self) -> bool:
        """True from a postmaster's first moment to its last, also while nobody can connect."""
        known = self.postmaster()
        alive = known is not None and self._is_postmaster(known)
        return alive or self.ping() != pq.Ping.NO_RESPONSE

    def ping(self) -> int:
        """Whether a server answers at the socket: the one sign that holds across pid namespaces."""
        return pq.PGconn.ping(self._conninfo().encode())

    def _is_postmaster(self, pid: int) -> bool:
        """A pid alone proves nothing, it may be another program's by now. A postmaster lives in
        its data directory."""
        try:
            process = psutil.Process(pid)
            return process.name() == "postgres" and Path(process.cwd()) == self.pgdata
        except psutil.Error:
            return False

    def _conninfo(self) -> str:
        host = str(self._socket_dir())
        return make_conninfo(
            host=host, port=PORT, user=SUPERUSER, dbname="postgres", connect_timeout=5
        )

    def _socket_dir(self) -> Path:
        """`home` itself; if its path does not suit a socket, a short directory just as private."""
        if _suits_socket(self.home):
            return self.home
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        short = Path(f"/tmp/evenbeat-{digest}")  # noqa: S108 - refused if somebody else made it
        short.mkdir(mode=0o700, exist_ok=True)
        status = short.lstat()
        if self.account and status.st_uid == 0:
            os.chown(short, *self.account, follow_symlinks=False)
            status = short.lstat()
        ours = status.st_uid == (self.account.uid if self.account else os.geteuid())
        if not ours or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o077:
            raise EmbeddedUnavailable(
                f"The socket needs {short} as a private directory, but somebody else made it. "
                "Remove it, or set EVENBEAT_DATA_DIR to a shorter path."
            )
        return short

    def _early_log(self) -> str:
        log = self.home / "server.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def _log_end(self) -> str:
        words = _tail(self._early_log())
        logs = sorted(self.pgdata.glob("log/*.log"), key=lambda log: log.stat().st_mtime)
        if logs and "logging collector" in words:
            words += "\n" + _tail(logs[-1].read_text(errors="replace"))
        return words

    def _run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a program of the wheel, in `home`, as the server's user; give code and output.

        The output goes to a file because a pipe would stay open for as long as the server runs, and
        PG* variables meant for other servers must not reach this one.
        """
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_"))}
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            done = subprocess.run(  # noqa: S603 - the wheel's own programs
                [self.binaries / program, *arguments],
                check=False,
                cwd=self.home,
                env=environment | {"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                user=self.account.uid if self.account else None,
                group=self.account.gid if self.account else None,
                extra_groups=[] if self.account else None,
                umask=0o077,
                start_new_session=True,  # Ctrl-C is for the caller, not for a server half started
            )
            output.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, stdout=output.read())


def _suits_socket(directory: Path) -> bool:
    """Short enough, and free of what `unix_socket_directories` takes for a list or a quote."""
    path = os.fsencode(directory / f".s.PGSQL.{PORT}")
    return len(path) <= SOCKET_PATH_LIMIT and not re.search(rb'[,"\n]', path)


def unlock(descriptor: int) -> None:
    # Closing alone would leave the lock with a forked child, which shares the open file.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-8:])
