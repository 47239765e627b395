"""What the log costs a worker: `evenbeat worker`, started as a user starts it, drains no-op jobs
with its log as it is and with logging off, in turn, on one server. Prints the drains and the ratio.

    python benchmarks/worker_log.py [jobs] [rounds]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
from common import empty, fresh_store

from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.store.store import Store

APP = """
from evenbeat import Evenbeat

app = Evenbeat(name="bench")

@app.task
async def noop(): pass
"""
LEVELS = ("info", "critical")
_ENDED = """SELECT count(*), min(started_at), max(completed_at) FROM evenbeat.executions
            WHERE status = 'completed'"""


def drain(store: Store, jobs: int, level: str, place: Path) -> float:
    """Jobs a second, from the first start to the last end."""
    empty(store)
    store.add_many([NewJob(JobSpec("noop"))] * jobs)
    environment = os.environ | {"EVENBEAT_DATABASE_URL": store.database.url}
    command = [sys.executable, "-m", "evenbeat", "worker", "--app", "bench:app"]
    with (place / "log").open("wb") as log:
        worker = subprocess.Popen(
            [*command, "--log-level", level], cwd=place, env=environment, stderr=log
        )
        try:
            with psycopg.connect(store.database.url, autocommit=True) as connection:
                while True:
                    time.sleep(0.5)
                    number, begun, ended = connection.execute(_ENDED).fetchall()[0]
                    if number >= jobs:
                        return float(jobs / (ended - begun).total_seconds())
        finally:
            worker.terminate()
            worker.wait()


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    rates: dict[str, list[float]] = {level: [] for level in LEVELS}
    with fresh_store() as store, tempfile.TemporaryDirectory() as place:
        (Path(place) / "bench.py").write_text(APP)
        for _ in range(rounds):
            for level in LEVELS:
                rates[level].append(drain(store, jobs, level, Path(place)))
                print(f"--log-level {level:8} {rates[level][-1]:10,.0f} jobs/s", flush=True)
    as_it_is, off = (statistics.median(rates[level]) for level in LEVELS)
    print(f"as it is / off: {as_it_is / off:.2f}")


if __name__ == "__main__":
    main()
