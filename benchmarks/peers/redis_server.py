"""A Redis of our own for the peers that need one: free port, private directory, kept on disk.

Redis is held to what its own documentation advises for data one wants to keep: the append-only
file, synced once a second. (A PostgreSQL commit is on disk before it returns; Redis may lose the
last second. That is how these peers are run in practice, and it is said beside their figures.)
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SETTINGS = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}
DURABILITY = "Redis with appendonly yes, appendfsync everysec: up to a second may be lost"


class RedisMissing(Exception):
    """No redis-server and no way to get one; the peers that need it are skipped."""


@contextmanager
def redis_server() -> Iterator[str]:
    """The URL of an empty Redis that ends with the block."""
    program = find_program()
    home = Path(tempfile.mkdtemp(prefix="eb-redis-"))
    port = free_port()
    process = subprocess.Popen(
        [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(home), *options()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_answer(process, port)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(home, ignore_errors=True)


def find_program() -> str:
    """The server on the PATH, else the one of Debian's package, which root may install."""
    if found := shutil.which("redis-server"):
        return found
    apt = shutil.which("apt-get")
    if apt and os.geteuid() == 0:
        install(apt)
        if found := shutil.which("redis-server"):
            return found
    raise RedisMissing(
        "no redis-server on the PATH; install it (Debian: apt-get install redis-server) "
        "to measure the peers that need Redis"
    )


def install(apt: str) -> None:
    """Debian's package, without starting its service; a failure is left to the caller to see."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    settings = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    command = [apt, "install", "-y", "--no-install-recommends", "redis-server"]
    if subprocess.run(command, env=settings, check=False, **quiet).returncode != 0:
        subprocess.run([apt, "update"], env=settings, check=False, **quiet)
        subprocess.run(command, env=settings, check=False, **quiet)


def options() -> list[str]:
    return [part for name, value in SETTINGS.items() for part in (f"--{name}", value)]


def version() -> str:
    """As the server names itself, for the report."""
    line = subprocess.run([find_program(), "--version"], capture_output=True, text=True, check=True)
    return next(word[2:] for word in line.stdout.split() if word.startswith("v="))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_answer(process: "subprocess.Popen[bytes]", port: int, timeout: float = 20) -> None:
    """Until the server answers a PING; its early end is an error with a name."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RedisMissing(f"redis-server ended at once with status {process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(16).startswith(b"+PONG"):
                    return
        except OSError:
            time.sleep(0.05)
    raise RedisMissing(f"redis-server did not answer within {timeout:.0f} seconds")
