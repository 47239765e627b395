"""Fair turns: how long the few jobs of a small tenant wait, alone, beside the many of a large one,
and beside them without a fair key; and what a claim touches with many tenants.

    python benchmarks/fair_turns.py [--jobs 100000] [--few 100] [--work-ms 10] [--rounds 5]
                                    [--quick]

One worker with its defaults, of async tasks that take `work-ms` each, on an embedded server as in
production. The small tenant's jobs are added a second after the worker has begun with the large
one's. A wait lasts from when a job is due until its handler begins.
"""

import argparse
import asyncio
import statistics
import threading
import time

import psycopg
from common import empty, fresh_store
from psycopg import sql

from evenbeat import Evenbeat
from evenbeat.store.fair import FEW, MOST_LANES
from evenbeat.store.statements import load_statements
from evenbeat.store.store import Store

BUSY_SECONDS = 1.0
WAITS = """
SELECT e.wait_ms FROM evenbeat.executions e JOIN evenbeat.jobs j ON j.id = e.job_id
WHERE j.payload @> '{"tenant": "small"}' AND e.status = 'completed'"""


def waits(store: Store, jobs: int, few: int, seconds: float, *, fair: bool) -> list[float]:
    """How long each job of the small tenant waited, in ms, beside so many of the large one."""
    empty(store)
    app = Evenbeat(store.database.url)

    async def work(tenant: str) -> None:  # noqa: ARG001 - its key is made of it
        await asyncio.sleep(seconds)

    task = app.task(fair_key="{tenant}")(work) if fair else app.task(work)
    if jobs:
        app.enqueue_many(task.job("large") for _ in range(jobs))
    stopping = threading.Event()
    worker = app.worker()
    thread = threading.Thread(target=worker.run, args=(stopping,))
    thread.start()
    time.sleep(BUSY_SECONDS)
    app.enqueue_many(task.job("small") for _ in range(few))
    while len(rows := store.database.query("waits", WAITS, {})) < few:
        time.sleep(0.05)
    stopping.set()
    thread.join()
    app.close()
    return [wait for (wait,) in rows]


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def look_pages(store: Store, tenants: int) -> int:
    """Pages that a claim touches to find whose turn it is, with ten jobs of each tenant."""
    empty(store)
    app = Evenbeat(store.database.url)

    @app.task(fair_key="{tenant}")
    async def work(tenant: str) -> None: ...

    app.enqueue_many(work.job(f"tenant-{n % tenants}") for n in range(10 * tenants))
    app.close()
    given = {
        "from_queue": "", "from_key": "", "is_over": True, "keys": FEW, "lanes": MOST_LANES,
        "queues": ["default"], "tasks": [work.name],
    }  # fmt: skip
    statement = load_statements("evenbeat")["fair_turns"]
    with psycopg.connect(store.database.url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE evenbeat.jobs")
        values = [given.get(name) for name in statement.names]
        connection.execute(f"PREPARE look AS {statement.numbered.decode()}", prepare=False)
        call = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE look ({})")
        plan = connection.execute(call.format(sql.SQL(", ").join(map(sql.Literal, values))))
        top = plan.fetchall()[0][0][0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--work-ms", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few jobs, one round")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.jobs, chosen.rounds = 5_000, 1
    seconds, few = chosen.work_ms / 1000, chosen.few
    with fresh_store() as store:
        alone, beside = [], []
        for _ in range(chosen.rounds):
            alone.append(p95(waits(store, 0, few, seconds, fair=True)))
            beside.append(p95(waits(store, chosen.jobs, few, seconds, fair=True)))
        unfair = p95(waits(store, chosen.jobs, few, seconds, fair=False))
        print(f"p95 of the waits of {few} jobs, ms (median of {chosen.rounds} rounds; each)")
        for name, waited in (("alone", alone), ("in fair turns", beside), ("without", [unfair])):
            each = " ".join(f"{wait:.0f}" for wait in waited)
            print(f"  {name:<14}{statistics.median(waited):8.0f}   {each}")
        ratio = statistics.median(beside) / statistics.median(alone)
        print(f"in fair turns beside {chosen.jobs:,} to alone: {ratio:.2f}")
        for tenants in (10, 1_000, 1_000 if chosen.quick else 10_000):
            print(f"{tenants:,} tenants: {look_pages(store, tenants)} pages to find the next {FEW}")


if __name__ == "__main__":
    main()
