"""Batches: a drain of jobs that are one batch beside a drain of as many that are none, in turns,
and what adding a large batch in one call takes.

    python benchmarks/batches.py [--jobs 100000] [--rounds 5] [--add 1000000] [--quick]

One worker with its defaults, of no-op async tasks, on an embedded server as in production. The
drain of a batch counts until its callback has run. Adding is measured in a process of its own: its
peak of memory beyond what it had before the call.
"""

import argparse
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import empty, fresh_store, seconds

from evenbeat import Evenbeat
from evenbeat.store.store import Store


def application(url: str) -> Evenbeat:
    app = Evenbeat(url)

    @app.task
    async def nothing(number: int) -> int:
        return number

    @app.task
    async def after_all() -> None: ...

    app.nothing, app.after_all = nothing, after_all  # type: ignore[attr-defined]
    return app


def drain(store: Store, jobs: int, *, is_batch: bool) -> float:
    """Jobs per second of a worker that finds them waiting, its callback included."""
    empty(store)
    app = application(store.database.url)
    made = (app.nothing.job(number) for number in range(jobs))  # type: ignore[attr-defined]
    last: Callable[[], bool]
    if is_batch:
        callback = app.batch(made, then=app.after_all).callback  # type: ignore[attr-defined]
        last = lambda: callback.status() == "completed"  # noqa: E731
    else:
        app.enqueue_many(made)
        last = lambda: not store.database.query("left", LEFT, {})  # noqa: E731
    stopping = threading.Event()
    worker = app.worker()
    thread = threading.Thread(target=worker.run, args=(stopping,))
    begun = time.perf_counter()
    thread.start()
    while not last():
        time.sleep(0.02)
    took = time.perf_counter() - begun
    stopping.set()
    thread.join()
    app.close()
    return jobs / took


LEFT = """SELECT 1 FROM evenbeat.jobs
WHERE status = ANY ('{pending,scheduled,running,paused}') LIMIT 1"""


def peak_mb() -> float:
    """The most memory that this process has had. (On Linux; what `getrusage` says begins with the
    size of the process that started this one.)"""
    status = Path("/proc/self/status").read_text(encoding="ascii").split()
    return int(status[status.index("VmHWM:") + 1]) / 1024


def add(url: str, jobs: int, answer: Any) -> None:
    """Add one batch; seconds, and megabytes before and at the peak."""
    app = application(url)
    app.batch(app.nothing.job(number) for number in range(1000))  # type: ignore[attr-defined]
    before = peak_mb()
    made = (app.nothing.job(number) for number in range(jobs))  # type: ignore[attr-defined]
    took = seconds(lambda: app.batch(made))
    answer.put((took, before, peak_mb()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--add", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="10,000 jobs, 3 rounds, add 100,000")
    options = parser.parse_args()
    if options.quick:
        options.jobs, options.rounds, options.add = 10_000, 3, 100_000
    rates: dict[bool, list[float]] = {False: [], True: []}
    with fresh_store() as store:
        for turn in range(options.rounds):
            for is_batch in (False, True) if turn % 2 == 0 else (True, False):
                rates[is_batch].append(drain(store, options.jobs, is_batch=is_batch))
            plain, batch = rates[False][-1], rates[True][-1]
            print(f"round {turn + 1}: {plain:,.0f} jobs/s, as a batch {batch:,.0f}", flush=True)
        ratios = [b / a for a, b in zip(rates[False], rates[True], strict=True)]
        print(
            f"drain of {options.jobs:,} as a batch: {statistics.median(ratios):.2f} of the rate "
            f"without ({min(ratios):.2f} to {max(ratios):.2f})"
        )
        empty(store)
        spawn = multiprocessing.get_context("spawn")
        answer = spawn.SimpleQueue()
        process = spawn.Process(target=add, args=(store.database.url, options.add, answer))
        process.start()
        took, before, peak = answer.get()
        process.join()
        print(
            f"added {options.add:,} jobs in one call: {took:.1f} s ({options.add / took:,.0f}/s), "
            f"{peak - before:.1f} MB of memory beyond the {before:.0f} MB that it had"
        )


if __name__ == "__main__":
    main()
