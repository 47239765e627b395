"""The dashboard on a large database: how long each page takes, and what its statements do.

    python benchmarks/pages_at_scale.py [jobs] [executions] [rounds]

A real server (uvicorn on loopback) on an embedded database of its own, filled first; every page is
asked for by HTTP in interleaved rounds. The first answer of each page, with nothing warm, stands in
a column of its own. With `--plans FILE`, the plans of all that the pages read are written there.
"""

import argparse
import logging
import statistics
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
import uvicorn
from common import fresh_store
from fill import fill
from reads_at_scale import count

from evenbeat import Evenbeat
from evenbeat.api.auth.tokens import Access
from evenbeat.asgi import asgi
from evenbeat.store import database
from evenbeat.store.database import Connection
from evenbeat.store.lists import JobFilter
from evenbeat.store.statements import Statement
from evenbeat.store.store import Store

PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "jobs, one state and queue": "/jobs?status=scheduled&queue=queue-3",
    "jobs, search": "/jobs?search=-99990",
    "job with 5,000 runs": "/jobs/{busiest}",
    "job with a few runs": "/jobs/{other}",
    "runs": "/runs",
    "runs, failed in 24 h": "/runs?status=failed&since=24h",
    "runs, one task, 7 d": "/runs?task=task_7&since=7d",
    "runs, a rare task": "/runs?task=seldom",
    "runs, an error, text": "/runs?error_code=lease_expired&search=no",
    "runs, running": "/runs?status=running",
    "distribution": "/distribution",
    "timeline": "/timeline",
    "workers": "/workers",
}


def served(app: Evenbeat) -> tuple[uvicorn.Server, str]:
    """The service on a free loopback port, answering."""
    config = uvicorn.Config(
        asgi(app, access=Access.open()), port=0, log_level="error", lifespan="off"
    )
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    return server, f"http://127.0.0.1:{port}"


def pages_of(store: Store) -> dict[str, str]:
    """The addresses, with two jobs of this database in them."""
    busiest = store.read.ids(JobFilter(), limit=1)[0]
    other = store.read.jobs(JobFilter(kinds=["interval"])).jobs[0].id
    return {name: path.format(busiest=busiest, other=other) for name, path in PAGES.items()}


def ask(client: httpx.Client, path: str) -> float:
    begun = time.perf_counter()
    answer = client.get(path)
    took = (time.perf_counter() - begun) * 1000
    assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])
    return took


def measure(client: httpx.Client, pages: dict[str, str], rounds: int) -> None:
    first = {name: ask(client, path) for name, path in pages.items()}
    time.sleep(20)  # the distribution of a million jobs is read aside
    times: dict[str, list[float]] = {name: [] for name in pages}
    for _ in range(rounds):
        for name, path in pages.items():
            times[name].append(ask(client, path))
    print("| page | first ms | p50 ms | p99 ms | slowest ms |\n|---|---:|---:|---:|---:|")
    for name, measured in times.items():
        measured.sort()
        p99 = measured[min(len(measured) - 1, int(len(measured) * 0.99))]
        p50 = statistics.median(measured)
        print(f"| {name} | {first[name]:.0f} | {p50:.0f} | {p99:.0f} | {measured[-1]:.0f} |")


def explain(client: httpx.Client, pages: dict[str, str], file: Path) -> None:
    """Ask for each page once more, with every statement it reads by explained beside it."""
    plain, plans = database._execute, []

    def explained(connection: Connection, statement: Statement, params: Mapping[str, Any]) -> Any:
        if not statement.writes:
            with suppress(psycopg.Error), connection.transaction():  # not all can be explained
                text = "EXPLAIN (ANALYZE, BUFFERS) " + statement.text
                lines = connection.execute(text, params, prepare=False).fetchall()
                plans.append(f"### {statement.name}\n\n" + "\n".join(line for (line,) in lines))
        return plain(connection, statement, params)

    database._execute = explained
    with file.open("w") as out:
        for name, path in pages.items():
            plans.clear()
            ask(client, path)
            out.write(f"## {name}\n\n" + "\n\n".join(plans) + "\n\n")
    database._execute = plain


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("jobs", type=int, nargs="?", default=1_000_000)
    options.add_argument("executions", type=int, nargs="?", default=5_000_000)
    options.add_argument("rounds", type=int, nargs="?", default=30)
    options.add_argument("--plans", type=Path, help="Write the plans of all statements here.")
    given = options.parse_args()
    logging.disable(logging.WARNING)
    with fresh_store() as store:
        with psycopg.connect(store.database.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET max_wal_size = '8GB'")
            connection.execute("SELECT pg_reload_conf()")
        fill(store.database.url, given.jobs, given.executions)
        count(store)
        app = Evenbeat(store.database.url)
        server, url = served(app)
        pages = pages_of(store)
        print(f"\n{given.jobs:,} jobs, {given.executions:,} executions, {given.rounds} rounds")
        with httpx.Client(base_url=url, timeout=120) as client:
            measure(client, pages, given.rounds)
            if given.plans:
                explain(client, pages, given.plans)
        server.should_exit = True
        app.close()


if __name__ == "__main__":
    main()
