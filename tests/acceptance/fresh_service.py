"""`evenbeat serve`, started as on a new machine: nothing configured, an empty data directory."""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from real_processes import Running, without_failed_runs

from waiting import wait_for

USUAL_PORT = 8060


class FreshService:
    """A directory in which somebody has just started Evenbeat, and a shell in it."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self._tokens: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """That of a new user whose `evenbeat` and `python` are those of this test run."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("EVENBEAT_", "PYTEST"))}
        return kept | {
            "EVENBEAT_DATA_DIR": str(self.directory / "data"),
            "CURL_HOME": str(self.directory),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "200",
        }

    def here(self, text: str) -> str:
        """The text with the port that is really listened on."""
        return text.replace(f":{USUAL_PORT}", f":{self.port}")

    def shell(self, script: str, **environment: str) -> str:
        """What a script prints; it must succeed."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.here(script)],
            cwd=self.directory,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def token(self, role: str) -> str:
        """A token for the role, made by the command the first time."""
        if role not in self._tokens:
            made = self.shell(f"evenbeat token create --role {role} --expires 1h")
            self._tokens[role] = made.strip()
        return self._tokens[role]


@contextmanager
def fresh_service(directory: Path, *serve: str) -> Iterator[FreshService]:
    """`evenbeat serve` with these arguments in this directory, on the usual port if that is free.
    It is stopped, and its database with it, when the block ends."""
    with _port() as port, _served(FreshService(directory, port), *serve) as service:
        yield service


@contextmanager
def _served(service: FreshService, *serve: str) -> Iterator[FreshService]:
    directory = service.directory
    log = directory / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "evenbeat", "serve", *serve, "--port", str(service.port)],
            cwd=directory,
            env=service.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    running = Running(process, log)
    try:
        wait_for(lambda: "Dashboard" in running.text or process.poll() is not None)
        assert process.poll() is None, running.text
        yield service
        assert running.stop() == 0, running.text
        assert "Traceback" not in without_failed_runs(running.text), running.text
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        shutil.rmtree(directory / "data", ignore_errors=True)


@contextmanager
def _port() -> Iterator[int]:
    """The usual port if it is free, held against other test processes; else any that is free."""
    with (Path(tempfile.gettempdir()) / f"evenbeat-test-{USUAL_PORT}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = _is_free(USUAL_PORT)
        except BlockingIOError:
            free = None
        yield free or _is_free(0) or 0


def _is_free(port: int) -> int | None:
    """The port, or the one that was found for 0, unless somebody listens there."""
    with socket.socket() as trial:
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return None
        return int(trial.getsockname()[1])
