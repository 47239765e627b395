"""A worker that replaces itself by a fresh process, as the setting `recycle` allows."""

from datetime import timedelta
from pathlib import Path
from uuid import UUID

import psutil
from real_processes import Running, Start

from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.retry import RetryPolicy
from evenbeat.store.store import Store
from waiting import wait_for

APP = """
import threading
from evenbeat import Evenbeat

app = Evenbeat(name="shop")

@app.task(max_retries=0, timeout="1s")
def stubborn():
    threading.Event().wait()

@app.task
def greet(): pass
"""
WORKER = ("-m", "evenbeat", "worker", "--app", "shop:app")


def begin(start: Start, place: Path, url: str, *arguments: str, **settings: str) -> Running:
    (place / "shop.py").write_text(APP)
    running = start(*WORKER, *arguments, EVENBEAT_DATABASE_URL=url, **settings)
    running.wait_for_line("Starting interval scheduler")
    return running


def add(store: Store, task: str) -> UUID:
    spec = JobSpec(task, timeout=timedelta(seconds=1), retry=RetryPolicy(max_retries=0))
    return store.add(NewJob(spec)).id


def starts(running: Running) -> int:
    return running.text.count("Starting interval scheduler")


def test_threads_that_are_all_held_are_freed_by_a_fresh_process(
    start: Start, tmp_path: Path, store: Store, database_url: str
):
    running = begin(start, tmp_path, database_url, EVENBEAT_THREADS="2", EVENBEAT_RECYCLE="held")
    stuck = [add(store, "stubborn") for _ in "ab"]
    waiting = add(store, "greet")
    running.wait_for_line("all threads are held by runs that are over")
    wait_for(lambda: starts(running) == 2, "a second start")
    wait_for(lambda: store.read.job(waiting).status == "completed", "the waiting job to have run")
    assert [store.read.job(id_).status for id_ in stuck] == ["failed", "failed"]
    assert len(store.upkeep.workers()) == 1
    assert running.stop() == 0


def test_a_supervised_worker_keeps_its_process_and_its_supervisor(
    start: Start, tmp_path: Path, store: Store, database_url: str
):
    running = begin(start, tmp_path, database_url, "--processes=2", EVENBEAT_RECYCLE="runs=3")
    wait_for(lambda: starts(running) == 2, "both to be at work")
    children = {child.pid for child in psutil.Process(running.process.pid).children()}
    for _ in range(12):
        job = add(store, "greet")
        wait_for(lambda job=job: store.read.job(job).status == "completed", "a run")
    wait_for(lambda: "it has done" in running.text and starts(running) >= 3, "a fresh start")
    assert "Worker process died" not in running.text
    assert children <= {child.pid for child in psutil.Process(running.process.pid).children()}
    assert running.stop() == 0
