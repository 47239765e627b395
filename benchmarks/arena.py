"""Where contenders run: a virtual environment, a backend and processes for each."""

import ast
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from peers.redis_server import redis_server

from evenbeat import embedded

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
STAGE = HERE / "peers" / "stage.py"
VENVS = HERE / ".venvs"
TICKS = os.sysconf("SC_CLK_TCK")
OURS = ("evenbeat_", "floor")
"""Adapters that run this checkout."""


class Failed(Exception):
    """A contender did not do what was asked; the message goes into the report."""


# ---------------------------------------------------------------- adapters and environments


def facts(adapter: str) -> dict[str, Any]:
    """The plain constants of an adapter, read without importing what it adapts."""
    found: dict[str, Any] = {}
    for node in ast.parse((HERE / "peers" / f"{adapter}.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with suppress(ValueError):
                found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


def adapters() -> dict[str, str]:
    """Every adapter by its name: one more file is one more contender."""
    modules = sorted(path.stem for path in (HERE / "peers").glob("*.py"))
    named = {facts(module).get("NAME"): module for module in modules}
    return {name: module for name, module in named.items() if name}


def environment(adapter: str, *, here: bool = False) -> Path:
    """The Python of a contender, installed on first use; ours is installed anew each time."""
    if here and adapter in OURS:
        return Path(sys.executable)
    ours = adapter in OURS
    wanted = ["evenbeat"] if ours else list(facts(adapter)["REQUIREMENTS"])
    mark = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:8]
    place = VENVS / f"{'evenbeat' if ours else adapter.rstrip('_')}-{mark}"
    python, ready = place / "bin" / "python", place / ".ready"
    VENVS.mkdir(exist_ok=True)
    (VENVS / ".gitignore").write_text("*\n")
    if not ready.exists():
        _quiet([sys.executable, "-m", "venv", "--clear", str(place)])
        dependencies = ["-c", str(ROOT / "constraints.txt"), str(ROOT)] if ours else wanted
        _pip(python, *dependencies)
        ready.touch()
    elif ours:
        _pip(python, "--force-reinstall", "--no-deps", str(ROOT))
    return python


def _pip(python: Path, *what: str) -> None:
    options = ("--quiet", "--disable-pip-version-check", "--no-input")
    _quiet([str(python), "-m", "pip", "install", *options, *what])


def _quiet(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"cannot be installed: {_last_line(done.stderr)}")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


# ---------------------------------------------------------------- one contender


@dataclass
class Contender:
    """A peer with everything it needs to run."""

    name: str
    adapter: str
    python: Path
    url: str
    home: Path
    server_pid: int | None = None
    stage: Path = STAGE
    about: dict[str, Any] = field(default_factory=dict)

    def call(
        self, command: str, *, log: Path | None = None, within: float = 60, **more: Any
    ) -> Any:
        """Run a command to its end; its answer."""
        with self.start(command, log=log, **more) as process:
            return process.answer(within)

    def analyze(self) -> None:
        """Give the planner fresh statistics, as autovacuum would have within a minute."""
        if self.url.startswith("postgresql:"):
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("ANALYZE")

    def start(
        self,
        command: str,
        *,
        log: Path | None = None,
        extra: Mapping[str, str] | None = None,
        **more: Any,
    ) -> "Process":
        """Set a command going, in a session of its own so that all it starts can be found."""
        arguments = more if command == "about" else {"url": self.url} | more
        line = [str(self.python), str(self.stage), self.adapter, command, json.dumps(arguments)]
        environ = {k: v for k, v in os.environ.items() if not k.startswith("EVENBEAT_")}
        environ |= {"STAGE_LOG": str(log or self.home / "unused"), **(extra or {})}
        return Process(line, environ, self.home)


class Process:
    """A started command. Leaving the block ends it with everything it started."""

    def __init__(self, line: list[str], environ: dict[str, str], home: Path) -> None:
        self.output = tempfile.TemporaryFile("w+", dir=home)  # noqa: SIM115  closed by `kill`
        self.errors = tempfile.TemporaryFile("w+", dir=home)  # noqa: SIM115
        self.popen = subprocess.Popen(
            line,
            env=environ,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.errors,
            start_new_session=True,
        )

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def answer(self, within: float) -> Any:
        """Wait for the JSON on its last line."""
        try:
            self.popen.wait(within)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done within {within:.0f} s") from None
        if self.popen.returncode:
            raise Failed(self.complaint())
        self.output.seek(0)
        return json.loads(self.output.read().strip().splitlines()[-1])

    def complaint(self) -> str:
        """The last thing it said on standard error."""
        self.errors.seek(0)
        return _last_line(self.errors.read())

    @property
    def ended(self) -> bool:
        return self.popen.poll() is not None

    def kill(self) -> None:
        """Like a machine that loses its power: all of its processes at once."""
        if not self.ended or _session(self.popen.pid):
            with suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self.output.close()
        self.errors.close()

    def end(self) -> None:
        """Ask, wait a little, kill."""
        if not self.ended:
            with suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(3)
        self.kill()

    # -- what it uses ----------------------------------------------------------------------------

    def cpu_seconds(self) -> float:
        """Processor time of its whole session so far."""
        return sum(_cpu(pid) for pid in _session(self.popen.pid))

    def resident_mb(self) -> float:
        """Resident memory: the first process whole, of the others what they do not share."""
        total = 0.0
        for pid in _session(self.popen.pid):
            with suppress(OSError, ValueError):
                total += _resident(pid) if pid == self.popen.pid else _private(pid)
        return total / 1024


def server_cpu_seconds(pid: int | None) -> float:
    """Processor time of a database server and its children, those that have ended included."""
    if pid is None:
        return 0.0
    children = [other for other, parent, _ in _processes() if parent == pid]
    return _cpu(pid) + sum(_cpu(child) for child in children)


def _processes() -> Iterator[tuple[int, int, int]]:
    """(pid, parent, session) of everything that runs."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                yield int(entry.name), int(fields[1]), int(fields[3])


def _session(leader: int) -> list[int]:
    return [pid for pid, _, session in _processes() if session == leader]


def _cpu(pid: int) -> float:
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS
    return 0.0


def _resident(pid: int) -> float:
    return float(_line(Path(f"/proc/{pid}/status"), "VmRSS:"))


def _private(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup")
    return float(_line(rollup, "Private_Clean:")) + float(_line(rollup, "Private_Dirty:"))


def _line(path: Path, name: str) -> str:
    lines = path.read_text().splitlines()
    return next((line.split()[1] for line in lines if line.startswith(name)), "0")


# ---------------------------------------------------------------- the arena


class Arena:
    """One PostgreSQL server for all, a database for each; a Redis for each that needs one."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.home, self._stack = home, stack
        server = stack.enter_context(embedded.start(home / "pg"))
        self.url = server.url
        first_line = (home / "pg" / "pgdata" / "postmaster.pid").read_text().split()[0]
        self.postmaster = int(first_line)

    def admit(
        self,
        name: str,
        adapter: str,
        *,
        here: bool = False,
        python: Path | None = None,
        stage: Path = STAGE,
    ) -> Contender:
        """A contender with an empty backend, installed unless its Python is given."""
        python = python or environment(adapter, here=here)
        home = self.home / name
        home.mkdir()
        needs = facts(adapter)["NEEDS"]
        url, pid = self._backend(needs, name, home)
        contender = Contender(name, adapter, python, url, home, pid, stage)
        contender.about = contender.call("about") | {"needs": needs}
        return contender

    def _backend(self, needs: str, name: str, home: Path) -> tuple[str, int | None]:
        if needs == "postgres":
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(f'CREATE DATABASE "bench_{name}"')
            parts = urlsplit(self.url)
            return urlunsplit(parts._replace(path=f"/bench_{name}")), self.postmaster
        if needs == "redis":
            before = set(_children())
            url = self._stack.enter_context(redis_server())
            return url, next(iter(set(_children()) - before), None)
        return str(home), None

    def rest(self) -> None:
        """Nothing left to write back before the next measurement begins."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")

    def server_settings(self) -> dict[str, str]:
        """What decides how durable and how fast the server is."""
        names = (
            "server_version",
            "fsync",
            "synchronous_commit",
            "full_page_writes",
            "shared_buffers",
            "max_wal_size",
            "wal_compression",
            "autovacuum",
        )
        with psycopg.connect(self.url, autocommit=True) as connection:
            rows = [connection.execute(f"SHOW {name}").fetchone() for name in names]
        return {name: row[0] for name, row in zip(names, rows, strict=True) if row}


@contextmanager
def arena() -> Iterator[Arena]:
    """Open one; everything in it ends with the block."""
    with (
        tempfile.TemporaryDirectory(prefix="eb-bench-", ignore_cleanup_errors=True) as home,
        ExitStack() as stack,
    ):
        yield Arena(Path(home), stack)


def _children() -> list[int]:
    return [pid for pid, parent, _ in _processes() if parent == os.getpid()]


def wait_until(condition: Any, within: float, *, every: float = 0.05) -> bool:
    """Look again and again; whether it came true in time."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True
