"""Worker processes that tests start, kill, freeze and stop; and what really happened in them."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psutil  # type: ignore[import-untyped]

from evenbeat import embedded
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.retry import RetryPolicy
from evenbeat.store.store import Store
from waiting import PATIENCE, wait_for

FULL = os.environ.get("EVENBEAT_CHAOS") == "full"
"""Default settings and full sizes (`make chaos`), or short versions (`make test`)."""

SHORT_LEASE: dict[str, Any] = {
    "lease_seconds": 3,
    "renew_seconds": 1,
    "reap_seconds": 1,
    "poll_seconds": 1,
}
PATIENT = RetryPolicy(max_retries=100, delays=(timedelta(seconds=0.2),))
WORKER = Path(__file__).with_name("worker_process.py")
T = TypeVar("T")


def while_true(what: str, check: Callable[[], object], seconds: float) -> None:
    """Ask again and again for that long; every answer must be true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = check()
        assert found, f"no longer true: {what} ({found!r})"
        time.sleep(0.02)


def job(
    task: str,
    payload: dict[str, Any] | None = None,
    *,
    retry: RetryPolicy = PATIENT,
    start: timedelta | None = None,
    **spec: Any,
) -> NewJob:
    return NewJob(JobSpec(task, retry=retry, **spec), payload or {}, start=start)


class WorkerProcess:
    """One worker, by its pid."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self.log = log
        self.died_at: float | None = None

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """`kill -9`; returns when the process is gone."""
        self.process.kill()
        self.process.wait()
        self.died_at = time.monotonic()

    def terminate(self) -> None:
        """SIGTERM: stop with grace."""
        self.process.terminate()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def wait(self, seconds: float = PATIENCE) -> int:
        code = self.process.wait(seconds)
        self.died_at = time.monotonic()
        return code

    def said(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Stretch:
    """One run of a handler as it really was; no end: it was cut off."""

    job: str
    token: str
    pid: int
    start: float
    end: float | None = None


class Ledger:
    """What handlers wrote while they ran."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self, mark: str | None = None) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        lines = self.path.read_text().split("\n")[:-1]  # a reader may see half of the last one
        found = [json.loads(line) for line in lines]
        return [entry for entry in found if mark is None or entry["mark"] == mark]

    def of(self, job_id: UUID, mark: str) -> list[dict[str, Any]]:
        return [entry for entry in self.entries(mark) if entry["job"] == str(job_id)]

    def stretches(self) -> list[Stretch]:
        begun: dict[str, Stretch] = {}
        for entry in self.entries():
            if entry["mark"] == "start":
                assert entry["token"] not in begun, "one claim was started twice"
                begun[entry["token"]] = Stretch(
                    entry["job"], entry["token"], entry["pid"], entry["at"]
                )
            elif entry["mark"] == "end":
                begun[entry["token"]].end = entry["at"]
        return list(begun.values())


@dataclass
class Fleet:
    """Workers of one test on one database."""

    url: str
    home: Path
    workers: list[WorkerProcess] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.home / "ledger")

    def start(
        self,
        *,
        queues: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        **settings: object,
    ) -> WorkerProcess:
        """Start a worker with these settings; it is at work when it shows in the registry."""
        log = self.home / f"worker-{len(self.workers)}.log"
        variables = {f"EVENBEAT_{name.upper()}": str(value) for name, value in settings.items()}
        variables |= {
            "EVENBEAT_DATABASE_URL": self.url,
            "CHAOS_LEDGER": str(self.ledger.path),
            "CHAOS_QUEUES": ",".join(queues),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(WORKER)],
                env=os.environ | variables | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.home,
            )
        self.workers.append(WorkerProcess(process, log))
        return self.workers[-1]

    def start_many(self, count: int, **options: Any) -> list[WorkerProcess]:
        return [self.start(**options) for _ in range(count)]

    def overlaps(self) -> list[tuple[Stretch, Stretch]]:
        """Runs of one job that were at work at the same time, as the handlers themselves saw it."""
        deaths = {worker.pid: worker.died_at for worker in self.workers}
        by_job: dict[str, list[Stretch]] = defaultdict(list)
        for stretch in self.ledger.stretches():
            if stretch.end is None:
                stretch.end = deaths.get(stretch.pid) or float("inf")
            by_job[stretch.job].append(stretch)
        return [
            (one, other)
            for runs in by_job.values()
            for ordered in [sorted(runs, key=lambda run: run.start)]
            for one, other in itertools.pairwise(ordered)
            if other.start < (one.end or 0.0)
        ]

    def close(self) -> None:
        """End what is left, each by its own pid, with the isolated runs below it."""
        for worker in self.workers:
            if worker.alive:
                below = psutil.Process(worker.pid).children(recursive=True)
                worker.process.kill()
                worker.process.wait()
                end(child.pid for child in below)
        end(pid for entry in self.ledger.entries() for pid in entry.get("pids", []))


def end(pids: Iterable[int]) -> None:
    for pid in pids:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Server:
    """A private server that can be shot."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._shares = [embedded.start(home)]
        self.url = self._shares[0].url

    def go_down(self, number: signal.Signals) -> None:
        """SIGKILL of the postmaster, or SIGQUIT: the immediate shutdown, without a checkpoint."""
        pid = int((self._home / "pgdata" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, number)
        wait_for(lambda: not is_alive(pid), "the postmaster is gone")

    def come_back(self) -> None:
        self._shares.append(embedded.start(self._home))
        assert self._shares[-1].url == self.url

    def stop(self) -> None:
        for share in self._shares:
            share.stop()


# -- what the database says ----------------------------------------------------------------------


class Story:
    """The tables, as a test wants to read them."""

    def __init__(self, store: Store) -> None:
        self._database = store.database

    def counts(self) -> dict[str, int]:
        return dict(self._rows("SELECT status, count(*) FROM evenbeat.jobs GROUP BY status"))

    def all_completed(self, count: int) -> bool:
        return self.counts() == {"completed": count}

    def completions(self) -> dict[UUID, int]:
        """How many completed executions each job has."""
        return dict(
            self._rows(
                "SELECT job_id, count(*) FROM evenbeat.executions "
                "WHERE status = 'completed' GROUP BY job_id"
            )
        )

    def completed_runs(self) -> list[UUID]:
        """Their lease tokens."""
        rows = self._rows("SELECT id FROM evenbeat.executions WHERE status = 'completed'")
        return [row[0] for row in rows]

    def executions(self, job_id: UUID) -> list[tuple[str, str | None]]:
        """Status and error code of a job's runs, in order."""
        return self._rows(
            "SELECT status, error_code FROM evenbeat.executions "
            "WHERE job_id = %(id)s ORDER BY execution_number",
            id=job_id,
        )

    def overlapping_executions(self) -> int:
        """Pairs of executions of one job that, by the table, ran at the same time."""
        (count,) = self._rows(
            "SELECT count(*) FROM (SELECT started_at < lag(completed_at) OVER (PARTITION BY job_id "
            "ORDER BY execution_number) AS early FROM evenbeat.executions) e WHERE early"
        )
        return int(count[0])

    def error_codes(self) -> dict[str | None, int]:
        return dict(
            self._rows("SELECT error_code, count(*) FROM evenbeat.executions GROUP BY error_code")
        )

    def _rows(self, text: Any, **params: Any) -> list[Any]:
        return self._database.query("chaos", text, params)
