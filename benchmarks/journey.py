"""A job's way, measured: drain rate beside the bare statements, and idle pickup.

    python benchmarks/journey.py [jobs] [rounds]

The floor is the same `claim` and `finish` statements with no engine around them, one after the
other on one thread. The worker does the same work plus everything else, and may overlap the two.
"""

import statistics
import subprocess
import sys
import threading
import time
from uuid import uuid4

from common import empty, fresh_store

from evenbeat import Evenbeat
from evenbeat.domain.decision import Decision, EndKind, RunEnd
from evenbeat.domain.execution import Outcome
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.states import JobStatus
from evenbeat.store.store import Store

SPEC = JobSpec("noop")


def floor_rate(store: Store, count: int, batch: int) -> float:
    """Jobs per second through the bare statements."""
    fill(store, count)
    done, worker = Decision(JobStatus.COMPLETED), uuid4()
    begun = time.perf_counter()
    while jobs := store.claim(worker, batch, tasks=["noop"]):
        store.finish(
            [RunEnd(job, EndKind.COMPLETED, Outcome(duration_ms=0.1), done) for job in jobs]
        )
    return count / (time.perf_counter() - begun)


def drain_rate(store: Store, count: int) -> float:
    """Jobs per second through a worker of default settings, from its start to the last finish."""
    fill(store, count)
    app = Evenbeat(store.database.url)
    left = threading.Semaphore(0)

    @app.task
    async def noop() -> None:
        pass

    worker = app.worker()
    report = worker.pipeline._report

    def counted(ends: list[RunEnd]) -> None:
        report(ends)
        left.release(len(ends))

    worker.pipeline._report = counted  # type: ignore[method-assign]
    begun = time.perf_counter()
    worker.start()
    for _ in range(count):
        left.acquire()
    rate = count / (time.perf_counter() - begun)
    worker.stop(grace=0)
    app.close()
    return rate


def pickup_ms(store: Store, samples: int) -> list[float]:
    """Milliseconds from before `enqueue` in another process to the handler of an idle worker."""
    empty(store)
    delays: list[float] = []
    app = Evenbeat(store.database.url)

    @app.task
    async def ping(sent_at: float) -> None:
        delays.append((time.monotonic() - sent_at) * 1000)

    worker = app.worker()
    worker.start()
    enqueuer = [sys.executable, __file__, "--enqueue", store.database.url, str(samples)]
    subprocess.run(enqueuer, check=True)
    deadline = time.monotonic() + 10
    while len(delays) < samples and time.monotonic() < deadline:
        time.sleep(0.01)
    worker.stop(grace=1)
    app.close()
    return delays


def enqueue(url: str, samples: int) -> None:
    """The other process: a job every 20 ms. The steady clock is the same for all processes."""
    with Evenbeat(url) as app:

        @app.task
        async def ping(sent_at: float) -> None: ...

        for _ in range(samples):
            ping.enqueue(time.monotonic())
            time.sleep(0.02)


def fill(store: Store, count: int) -> None:
    empty(store)
    store.add_many([NewJob(SPEC) for _ in range(count)])


def main(count: int = 20_000, rounds: int = 3) -> None:
    rates: dict[str, list[float]] = {
        "floor, 100 a batch": [],
        "floor, 1000 a batch": [],
        "worker": [],
    }
    pickups: list[float] = []
    with fresh_store() as store:
        for _ in range(rounds):
            rates["floor, 100 a batch"].append(floor_rate(store, count, 100))
            rates["worker"].append(drain_rate(store, count))
            rates["floor, 1000 a batch"].append(floor_rate(store, count, 1000))
            pickups += pickup_ms(store, 200)
    print(f"drain of {count:,} no-op jobs with history, median of {rounds} interleaved rounds")
    best = max(statistics.median(r) for name, r in rates.items() if name != "worker")
    for name, measured in rates.items():
        rate = statistics.median(measured)
        print(f"  {name:<20}{rate:>9,.0f} jobs/s   {rate / best:5.2f} of the floor")
    pickups.sort()
    p50, p99 = statistics.median(pickups), pickups[int(len(pickups) * 0.99)]
    print(f"idle pickup, enqueue to handler: p50 {p50:.2f} ms, p99 {p99:.2f} ms ({len(pickups)})")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--enqueue"]:
        enqueue(sys.argv[2], int(sys.argv[3]))
    else:
        main(*map(int, sys.argv[1:]))
