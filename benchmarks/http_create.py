"""Jobs over HTTP: 8 clients add 10,000 while workers run them; then lists, also at a million jobs.

.venv/bin/python benchmarks/http_create.py [--jobs 10000] [--rows 1000000] [--write FILE]
"""

import argparse
import concurrent.futures
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
from common import fresh_store
from fill import fill

CLIENTS = 8
APPLICATION = """
from evenbeat import Evenbeat

app = Evenbeat()


@app.task
async def deliver(number: int) -> None: ...
"""
LISTS: dict[str, dict[str, Any]] = {
    "newest 50": {},
    "one state": {"status": "failed"},
    "a queue and a task": {"queue": "queue-3", "task": "task_3"},
    "a rare queue": {"queue": "rare"},
    "a tag": {"tag": "team-30"},
    "by next run": {"sort": "next_run_at", "status": "scheduled"},
    "a part of the name": {"search": "Tenant-77"},
    "page 1000": {"offset": 50_000},
}


@contextlib.contextmanager
def service(url: str, folder: Path, *, worker: bool = True) -> Iterator[str]:
    """`evenbeat serve` with its worker, and a worker of its own beside it."""
    (folder / "app.py").write_text(APPLICATION)
    environment = os.environ | {"EVENBEAT_DATABASE_URL": url, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "evenbeat"]
    app = ["--app", f"{folder / 'app.py'}:app", "--log-level", "error"]
    serve = [*command, "serve", *app, "--no-auth", "--port", "0"]
    started = []
    try:
        server = subprocess.Popen(
            serve if worker else [*serve, "--no-worker"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(server)
        if worker:
            started.append(subprocess.Popen([*command, "worker", *app], env=environment))
        assert server.stdout is not None
        for line in server.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found[0]
                break
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(timeout=60)


def add_some(url: str, first: int, count: int) -> tuple[list[str], list[float], int]:
    """One client's share: the ids it was given, how long each request took, and its errors."""
    ids, times, errors = [], [], 0
    with httpx.Client(base_url=url, timeout=60) as client:
        for number in range(first, first + count):
            begun = time.perf_counter()
            response = client.post(
                "/api/v1/jobs", json={"task": "deliver", "payload": {"number": number}}
            )
            times.append(time.perf_counter() - begun)
            if response.status_code == 201:
                ids.append(response.json()["id"])
            else:
                errors += 1
    return ids, times, errors


def milliseconds(times: list[float]) -> str:
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"{statistics.median(ordered) * 1000:.1f} | {p99 * 1000:.1f}"


def create(url: str, database: str, jobs: int) -> Iterator[str]:
    each = jobs // CLIENTS
    with concurrent.futures.ProcessPoolExecutor(CLIENTS) as pool:
        list(pool.map(abs, range(CLIENTS)))  # started before the clock is
        begun = time.perf_counter()
        shares = list(pool.map(add_some, [url] * CLIENTS, range(0, jobs, each), [each] * CLIENTS))
        took = time.perf_counter() - begun
    given = [id_ for ids, _, _ in shares for id_ in ids]
    times = [one for _, share, _ in shares for one in share]
    errors = sum(count for _, _, count in shares)
    with psycopg.connect(database, autocommit=True) as connection:
        while time.perf_counter() - begun < 300:
            row = connection.execute(
                "SELECT count(*), count(*) FILTER (WHERE status = 'completed'), "
                "count(DISTINCT payload ->> 'number') FROM evenbeat.jobs"
            ).fetchone()
            if row and row[1] == len(given):
                break
            time.sleep(0.1)
        done = time.perf_counter() - begun
        runs = connection.execute("SELECT count(*) FROM evenbeat.executions").fetchone()
    assert row is not None
    assert runs is not None
    p50, p99 = milliseconds(times).split(" | ")
    yield f"- {len(given):,} jobs added by {CLIENTS} clients in {took:.1f} s:"
    yield f"  **{len(given) / took:,.0f} jobs/s**, {errors} errors."
    yield f"- In the database: {row[0]:,} jobs, {row[2]:,} distinct, {row[1]:,} completed by"
    yield f"  {runs[0]:,} runs, {done:.1f} s after the first request."
    yield f"- Lost: {len(given) - row[0]}. A request took {p50} ms (p50), {p99} ms (p99)."
    assert errors == 0
    assert row == (jobs, jobs, jobs)
    assert runs == (jobs,)


def lists(url: str, rounds: int) -> Iterator[str]:
    yield "| list | p50 ms | p99 ms | total |"
    yield "|---|---|---|---|"
    with httpx.Client(base_url=url, timeout=60) as client:
        for name, query in LISTS.items():
            times = []
            for _ in range(rounds):
                begun = time.perf_counter()
                response = client.get("/api/v1/jobs", params=query)
                times.append(time.perf_counter() - begun)
                response.raise_for_status()
            page = response.json()
            about = "about " if page["total_is_estimate"] else ""
            yield f"| {name} | {milliseconds(times)} | {about}{page['total']:,} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--write", type=Path)
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    lines = [f"# Jobs over HTTP, {datetime.now(UTC):%Y-%m-%d}", ""]
    with tempfile.TemporaryDirectory(prefix="eb-http-") as folder, fresh_store() as store:
        database = store.database.url
        with service(database, Path(folder)) as url:
            lines += [f"## {chosen.jobs:,} jobs, added while two workers run them", ""]
            lines += create(url, database, chosen.jobs)
            lines += ["", f"## Lists of {chosen.jobs:,} jobs", "", *lists(url, chosen.rounds)]
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("TRUNCATE evenbeat.jobs, evenbeat.executions")
        fill(database, chosen.rows, chosen.rows)
        store.upkeep.count_jobs()
        with service(database, Path(folder), worker=False) as url:
            lines += ["", f"## Lists of {chosen.rows:,} jobs", "", *lists(url, chosen.rounds)]
    lines += [
        "",
        f"Load of the machine (2 cores): {load:.1f} before, {os.getloadavg()[0]:.1f} after.",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if chosen.write:
        chosen.write.write_text(text)


if __name__ == "__main__":
    main()
