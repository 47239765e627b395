"""What the benchmarks share: a private server with production settings, and interleaved rounds."""

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from evenbeat import embedded
from evenbeat.store.store import Store


@contextmanager
def fresh_store() -> Iterator[Store]:
    """A migrated store on an embedded server of its own, durable as in production."""
    home = Path(tempfile.mkdtemp(prefix="eb-bench-"))
    try:
        with embedded.start(home / "pg") as server:
            store = Store(server.url)
            store.migrate()
            yield store
            store.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def empty(store: Store) -> None:
    """Back to no jobs and no history, with nothing left to vacuum or to write back."""
    with psycopg.connect(store.database.url, autocommit=True) as connection:
        connection.execute("TRUNCATE evenbeat.jobs, evenbeat.executions")
        connection.execute("CHECKPOINT")


@contextmanager
def meanwhile(every: float, look: Callable[[], object]) -> Iterator[None]:
    """Look every so many seconds, on a thread of its own, until the block ends."""
    over = threading.Event()

    def again_and_again() -> None:
        while not over.wait(every):
            look()

    thread = threading.Thread(target=again_and_again, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def seconds(work: Callable[[], object]) -> float:
    """How long a call takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def rates(times: dict[str, list[float]], count: int) -> dict[str, float]:
    """Median rate of each contender over its rounds."""
    return {name: count / statistics.median(rounds) for name, rounds in times.items()}
