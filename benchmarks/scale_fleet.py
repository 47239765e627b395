"""Real worker processes on one database, and what they and the server cost while they work."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import psutil
import psycopg
from common import meanwhile
from scale_app import CALL

from evenbeat.store.store import Store

HERE = Path(__file__).parent
START_SECONDS = 60


class Call(NamedTuple):
    """A call of the handler `tick`."""

    job: bytes
    plan: float
    began: float


class Told(NamedTuple):
    """What workers have counted: claims, those in vain, jobs got; seconds spent on each chore."""

    asked: int
    in_vain: int
    jobs: int
    chores: dict[str, float]


class Fleet:
    """So many processes of `evenbeat worker` with default settings. Leaving the block stops them
    with grace; those that do not go are killed."""

    def __init__(self, url: str, workers: int) -> None:
        self._files = tempfile.TemporaryDirectory(prefix="eb-fleet-")  # gone with the fleet
        self.home = Path(self._files.name)
        self._url = url
        self._told = [self.home / f"told-{n}" for n in range(workers)]
        self._processes: list[psutil.Popen] = []

    def __enter__(self) -> Self:
        for n, told in enumerate(self._told):
            self._processes.append(self._start(n, told))
        try:
            self._await_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(60)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait()

    def cpu_seconds(self) -> float:
        """What the processes have used since they began."""
        return sum(sum(process.cpu_times()[:2]) for process in self._processes)

    def resident_mib(self) -> float:
        """The resident memory of the largest of them."""
        return max(process.memory_info().rss for process in self._processes) / 2**20

    def told(self) -> Told:
        """What the workers have counted since they began."""
        for told, process in zip(self._told, self._processes, strict=True):
            told.unlink(missing_ok=True)
            process.send_signal(signal.SIGUSR1)
        all_told = [json.loads(_awaited(told)) for told in self._told]
        chores: Counter[str] = Counter()
        for one in all_told:
            chores.update(one["chores"])
        asked, in_vain, jobs = (
            int(sum(one[name] for one in all_told)) for name in ("asked", "in_vain", "jobs")
        )
        return Told(asked, in_vain, jobs, dict(chores))

    def calls(self) -> list[Call]:
        """What the handlers noted; complete once the fleet has stopped."""
        logs = [self.home / f"calls-{n}" for n in range(len(self._told))]
        return [
            Call(*entry)
            for log in logs
            if log.exists()
            for entry in CALL.iter_unpack(log.read_bytes())
        ]

    def complaints(self) -> list[str]:
        """What the workers warned of."""
        logs = [self.home / f"log-{n}" for n in range(len(self._told))]
        return [line for log in logs for line in log.read_text().splitlines()]

    def _start(self, n: int, told: Path) -> psutil.Popen:
        command = [sys.executable, "-m", "evenbeat", "worker", "--app", f"{HERE}/scale_app.py:app"]
        command += ["--log-level", "warning"]
        settings = {
            "EVENBEAT_DATABASE_URL": self._url,
            "SCALE_LOG": str(self.home / f"calls-{n}"),
            "SCALE_TOLD": str(told),
        }
        with (self.home / f"log-{n}").open("w") as log:
            return psutil.Popen(
                command,
                env=os.environ | settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _await_ready(self) -> None:
        """Until every worker stands in the registry."""
        deadline, wanted = time.monotonic() + START_SECONDS, set(self.pids)
        with psycopg.connect(self._url, autocommit=True) as connection:
            while wanted:
                rows = connection.execute("SELECT pid FROM evenbeat.workers").fetchall()
                wanted -= {pid for (pid,) in rows}
                if any(process.poll() is not None for process in self._processes):
                    raise RuntimeError("A worker has ended: " + "\n".join(self.complaints()))
                if time.monotonic() > deadline:
                    raise RuntimeError(f"Not every worker came up within {START_SECONDS} s.")
                time.sleep(0.05)


def server_cpu_seconds(url: str) -> float:
    """What the database server has used since it began, connections that have ended included."""
    with psycopg.connect(url) as connection:
        ((backend,),) = connection.execute("SELECT pg_backend_pid()").fetchall()
        postmaster = psutil.Process(backend).parent()
        total = sum(postmaster.cpu_times()[:4])
        for child in postmaster.children():
            try:
                total += sum(child.cpu_times()[:2])
            except psutil.NoSuchProcess:  # its time is the postmaster's children's by now
                continue
        return total


@contextmanager
def waits_sampled(url: str, every: float = 0.02) -> Iterator[Counter[str]]:
    """What active connections waited for, looked at every so often; `running` waited for nothing,
    `(looks)` says how often it was looked."""
    seen: Counter[str] = Counter()

    def sample() -> None:
        rows = connection.execute(
            "SELECT wait_event_type, wait_event FROM pg_stat_activity "
            "WHERE state = 'active' AND pid <> pg_backend_pid()"
            "  AND backend_type = 'client backend'"
        ).fetchall()
        seen["(looks)"] += 1
        seen.update("running" if kind is None else f"{kind}: {on}" for kind, on in rows)

    with psycopg.connect(url, autocommit=True) as connection, meanwhile(every, sample):
        yield seen


@contextmanager
def commits_timed(url: str, every: float = 0.1) -> Iterator[list[float]]:
    """How many milliseconds small commits beside the workers take. A disk that stalls shows in
    them, a worker that oversleeps does not."""
    took: list[float] = []

    def commit() -> None:
        begun = time.perf_counter()
        connection.execute("SELECT pg_logical_emit_message(true, 'commit', 'timed')")
        took.append((time.perf_counter() - begun) * 1000)

    with psycopg.connect(url, autocommit=True) as connection, meanwhile(every, commit):
        yield took


class Conflicts(NamedTuple):
    """What the server counts of quarrels in a database."""

    deadlocks: int
    conflicts: int
    rollbacks: int


def conflicts(url: str) -> Conflicts:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT deadlocks, conflicts, xact_rollback FROM pg_stat_database "
            "WHERE datname = current_database()"
        ).fetchone()
        return Conflicts(*(row or (0, 0, 0)))


def beside(store: Store, name: str) -> Store:
    """A migrated store in another database of the same server, made anew."""
    with psycopg.connect(store.database.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
    other = Store(urlsplit(store.database.url)._replace(path=f"/{name}").geturl())
    other.migrate()
    return other


def percentile(values: list[float], share: float) -> float:
    """The value that this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def _awaited(file: Path) -> str:
    """The text of a file that another process is about to write."""
    deadline = time.monotonic() + START_SECONDS
    while not file.exists():
        if time.monotonic() > deadline:
            raise RuntimeError("A worker does not answer.")
        time.sleep(0.01)
    return file.read_text()
