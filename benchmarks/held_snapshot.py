"""A transaction that stays open: what becomes of pickup and drain while it holds its snapshot.

    python benchmarks/held_snapshot.py [minutes] [jobs]

One worker with default settings. A steady 500 jobs a second for so many minutes, then so many jobs
to drain, all beside one idle transaction. Prints the pickup of each minute and the rate of each
tenth of the drain, and the last tenth's rate beside the first's.
"""

import statistics
import sys
import threading
import time
from itertools import pairwise
from typing import Any

import psycopg
from common import empty, fresh_store

from evenbeat import Evenbeat
from evenbeat.domain.decision import RunEnd
from evenbeat.store.store import Store
from evenbeat.task import Task

PER_BATCH, BATCHES_PER_SECOND = 50, 10


def steady(app: Evenbeat, ping: Task[..., Any], delays: list[float], minutes: int) -> None:
    """500 jobs a second, and how long they waited for their handler, minute by minute."""
    for minute in range(1, minutes + 1):
        delays.clear()
        begun = time.monotonic()
        for batch in range(60 * BATCHES_PER_SECOND):
            time.sleep(max(0.0, begun + batch / BATCHES_PER_SECOND - time.monotonic()))
            app.enqueue_many(ping.job(sent_at=time.monotonic()) for _ in range(PER_BATCH))
        ordered = sorted(delays)
        p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
        print(f"minute {minute:>2}: pickup p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True)


def tenths(ended_at: list[float], begun: float) -> list[float]:
    """Jobs per second in each tenth of a drain."""
    size = len(ended_at) // 10
    marks = [begun, *ended_at[size - 1 :: size]]
    return [size / (after - before) for before, after in pairwise(marks)]


def main(minutes: int = 10, jobs: int = 500_000) -> None:
    with fresh_store() as store:
        run(store, minutes, jobs)


def run(store: Store, minutes: int, jobs: int) -> None:
    empty(store)
    app = Evenbeat(store.database.url)
    delays: list[float] = []

    @app.task
    async def ping(sent_at: float) -> None:
        delays.append((time.monotonic() - sent_at) * 1000)

    @app.task
    async def noop() -> None:
        pass

    with psycopg.connect(store.database.url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1 FROM evenbeat.jobs LIMIT 1")
        worker = app.worker()
        worker.start()
        steady(app, ping, delays, minutes)
        worker.stop(grace=5)
        for _ in range(jobs // 10_000):
            app.enqueue_many(noop.job() for _ in range(10_000))
        worker = app.worker()
        ended_at: list[float] = []
        report, done = worker.pipeline._report, threading.Event()

        def timed(ends: list[RunEnd]) -> None:
            report(ends)
            ended_at.extend([time.perf_counter()] * len(ends))
            if len(ended_at) >= jobs:
                done.set()

        worker.pipeline._report = timed  # type: ignore[method-assign]
        begun = time.perf_counter()
        worker.start()
        done.wait()
        worker.stop(grace=0)
        app.close()
        holder.rollback()
    speeds = tenths(ended_at, begun)
    print("drain, jobs per second in each tenth: " + ", ".join(f"{speed:,.0f}" for speed in speeds))
    print(f"last tenth to first: {speeds[-1] / speeds[0]:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
