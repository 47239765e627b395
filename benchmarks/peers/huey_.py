"""Huey on SQLite: its consumer with threads, its defaults for the database file."""

import os
import sys
import threading
import time
from pathlib import Path

from huey import SqliteHuey
from peers import stage

NAME = "huey"
TITLE = "Huey (SQLite)"
PACKAGES = ("huey",)
REQUIREMENTS = ("huey==3.5.4",)
NEEDS = "none"
DURABLE = True
NOTE = (
    "SQLite in WAL mode with synchronous=FULL, the default of both; one process with 4 worker "
    "threads (the default of 1 was slower here); an idle consumer polls after 0.1 s, then 15 % "
    "later each time up to 10 s, its defaults; a finished task leaves no trace"
)
UNSUPPORTED = {
    "recurring": "its periodic tasks are checked once a minute; none can fire every second"
}

FILE = "PEER_HUEY_FILE"

huey = SqliteHuey("peers", filename=os.environ[FILE]) if FILE in os.environ else None


def tasks(it: SqliteHuey) -> tuple:
    """The two tasks that a client enqueues, on the database of `it`."""

    @it.task(name="ran")
    def ran(i: int, sent_at: float) -> None:
        stage.ran(i, sent_at)

    @it.task(name="sleeps")
    def sleeps(i: int, seconds: float) -> None:
        time.sleep(stage.began(i, seconds))

    return ran, sleeps


_first = threading.Lock()


def ready() -> None:
    """Huey calls this in every worker thread; one of them tells."""
    if _first.acquire(blocking=False):
        stage.ready()


if huey is not None:
    tasks(huey)
    huey.on_startup()(ready)


def file_in(url: str) -> str:
    return str(Path(url) / "huey.db")


def setup(url: str) -> None:
    """A new file."""
    for path in Path(url).glob("huey.db*"):
        path.unlink()
    SqliteHuey("peers", filename=file_in(url))


def left(url: str) -> int:
    """Tasks in the queue; one that a worker has taken is not in the file any more."""
    global _looking  # noqa: PLW0603
    if _looking is None:
        _looking = SqliteHuey("peers", filename=file_in(url))
    return int(_looking.pending_count())


_looking: "SqliteHuey | None" = None


class Client:
    """An application that enqueues; its `map` for many is a loop of the same, a commit each."""

    def __init__(self, url: str) -> None:
        self.huey = SqliteHuey("peers", filename=file_in(url))
        self.ran, self.sleeps = tasks(self.huey)

    def open(self) -> None:
        self.huey.pending_count()

    def send(self, i: int, sent_at: float) -> None:
        self.ran(i, sent_at)

    def send_sleeps(self, i: int, seconds: float) -> None:
        self.sleeps(i, seconds)

    def close(self) -> None:
        self.huey.storage.close()


def worker(url: str, concurrency: int | None) -> None:
    """Turn this process into Huey's own consumer, as one would start it by hand."""
    line = [sys.executable, "-m", "huey.bin.huey_consumer", "peers.huey_.huey", "--quiet"]
    workers = ["--workers", str(concurrency or 4)]
    os.execve(sys.executable, [*line, *workers], {**os.environ, FILE: file_in(url)})  # noqa: S606
