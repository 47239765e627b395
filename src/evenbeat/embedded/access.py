"""Who may reach the embedded server: its directory, its socket, the system user it runs as.

The server trusts anyone who can open its socket. So the socket lies in a directory of mode 0700
that belongs to the server's user, and nobody but that user and root gets there.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from evenbeat.errors import EmbeddedUnavailable

if sys.platform != "win32":
    import pwd

SYSTEM_USER = "pgserver"  # PostgreSQL refuses to run as root; this is who runs it then
PORT = 5432  # only a part of the socket's name
SOCKET_PATH_LIMIT = 103  # bytes that fit into sun_path on macOS, the shortest of our platforms

INSTEAD = (
    "Set EVENBEAT_DATABASE_URL to a PostgreSQL server of your own, "
    "for example postgresql://user:password@localhost:5432/mydatabase."
)


class Account(NamedTuple):
    """The system user that the server runs as when root starts it."""

    uid: int
    gid: int


def prepare(home: Path, binaries: Path) -> Account | None:
    """Make `home` a private directory that the server can use; returns its user if we are root."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
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


def socket_dir(home: Path, account: Account | None) -> Path:
    """`home` itself; if its path does not suit a socket, a short directory just as private."""
    if _suits_socket(home):
        return home
    name = f"evenbeat-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
    short = Path(tempfile.gettempdir()) / name
    if not _suits_socket(short):
        short = Path("/tmp") / name  # noqa: S108 - refused if somebody else made it
    short.mkdir(mode=0o700, exist_ok=True)
    status = short.lstat()
    if account and status.st_uid == 0:
        os.chown(short, *account, follow_symlinks=False)
        status = short.lstat()
    ours = status.st_uid == (account.uid if account else os.geteuid())
    if not ours or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o077:
        raise EmbeddedUnavailable(
            f"The socket needs {short} as a private directory, but somebody else made it. "
            "Remove it, or set EVENBEAT_DATA_DIR to a shorter path."
        )
    return short


def _suits_socket(directory: Path) -> bool:
    """Short enough, and free of what `unix_socket_directories` takes for a list or a quote."""
    path = os.fsencode(directory / f".s.PGSQL.{PORT}")
    return len(path) <= SOCKET_PATH_LIMIT and not re.search(rb'[,"\n]', path)


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
    with suppress(KeyError):
        return Account(*pwd.getpwnam(SYSTEM_USER)[2:4])
    useradd = shutil.which("useradd") or "/usr/sbin/useradd"
    command = [useradd, "--system", "--no-create-home", "--shell", "/bin/false", SYSTEM_USER]
    reason = f"there is no {useradd}"
    with suppress(FileNotFoundError):
        added = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
        reason = added.stderr.strip()
    try:  # Asked again even after a failure: another process may have made it just now.
        return Account(*pwd.getpwnam(SYSTEM_USER)[2:4])
    except KeyError:
        raise EmbeddedUnavailable(
            f"PostgreSQL does not run as root, and the user {SYSTEM_USER!r} to run it as cannot be "
            f"made: {reason}. Run Evenbeat as an ordinary user. {INSTEAD}"
        ) from None
