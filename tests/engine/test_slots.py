"""A worker's concurrency is one number, whatever its handlers are; and every kind has its turn."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from evenbeat import Evenbeat
from waiting import wait_for


class Mixed:
    """An app with an async task and a plain one, which count how many of them run at once."""

    def __init__(self, app: Evenbeat) -> None:
        self.running = self.most = 0
        self.seconds = 0.0
        self.ended: list[str] = []
        self.gate = threading.Event()
        self._lock = threading.Lock()

        @app.task
        async def on_loop() -> None:
            with self._counted("loop"):
                await asyncio.sleep(self.seconds)

        @app.task
        def in_thread() -> None:
            with self._counted("thread"):
                time.sleep(self.seconds)

        @app.task
        async def held() -> None:
            with self._counted("held"):
                while not self.gate.is_set():
                    await asyncio.sleep(0.01)

        self.on_loop, self.in_thread, self.held = on_loop, in_thread, held

    @contextmanager
    def _counted(self, kind: str) -> Iterator[None]:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            yield
        finally:
            with self._lock:
                self.running -= 1
                self.ended.append(kind)


def test_two_at_once_are_two_whatever_their_kind(database_url):
    app = Evenbeat(database_url, concurrency=2)
    mixed = Mixed(app)
    mixed.seconds = 0.05
    with app:
        app.enqueue_many([task.job() for task in (mixed.on_loop, mixed.in_thread) * 20])
        worker = app.worker()
        worker.start()
        wait_for(lambda: len(mixed.ended) == 40, "all to end")
        worker.stop()
    assert mixed.most == 2


def test_a_backlog_of_one_kind_does_not_keep_out_the_other(database_url):
    app = Evenbeat(database_url, concurrency=2)
    mixed = Mixed(app)
    with app:
        app.enqueue_many([mixed.on_loop.job() for _ in range(5000)])
        app.enqueue_many([mixed.in_thread.job() for _ in range(20)])
        worker = app.worker()
        worker.start()
        wait_for(lambda: mixed.ended.count("thread") == 20, "the threads to have had their turns")
        loop_runs = mixed.ended.count("loop")
        wait_for(lambda: len(mixed.ended) == 5020, "all to end")
        worker.stop()
    assert loop_runs < 4500


def test_what_finds_every_slot_taken_is_not_claimed(database_url):
    app = Evenbeat(database_url, concurrency=2)
    mixed = Mixed(app)
    with app:
        worker = app.worker()
        worker.start()
        app.enqueue_many([mixed.held.job() for _ in range(2)])
        wait_for(lambda: mixed.running == 2, "both slots to be taken")
        job = mixed.in_thread.enqueue()
        time.sleep(1.5)  # longer than a claimed run waits for a slot before it is handed back
        assert app.store.read.executions_of(job.id).executions == []
        mixed.gate.set()
        wait_for(lambda: mixed.ended.count("thread") == 1, "the job to run when a slot is free")
        worker.stop()
    assert mixed.most == 2


def test_fewer_threads_and_processes_by_name(database_url):
    app = Evenbeat(database_url, concurrency=8, threads=1, child_processes=3)
    mixed = Mixed(app)
    app.task(_isolated, name="isolated", isolate=True)
    mixed.seconds = 0.02
    with app:
        worker = app.worker()
        assert {r.place: r.slots for r in worker.runners} == {"loop": 8, "thread": 1, "process": 3}
        app.enqueue_many([mixed.in_thread.job() for _ in range(10)])
        worker.start()
        wait_for(lambda: len(mixed.ended) == 10, "all to end")
        (seen,) = app.store.upkeep.workers()
        worker.stop()
    assert mixed.most == 1
    assert seen.concurrency == 8


def _isolated() -> None: ...
