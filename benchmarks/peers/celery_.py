"""Celery on Redis: one worker and, for what recurs, `celery beat` beside it."""

import os
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from celery import Celery
from celery.signals import worker_ready
from peers import stage
from peers.redis_server import DURABILITY
from redis import Redis

NAME = "celery"
TITLE = "Celery + Redis"
PACKAGES = ("celery", "kombu", "redis")
REQUIREMENTS = ("celery[redis]==5.7.0", "redis==8.1.0")
NEEDS = "redis"
DURABLE = False
NOTE = (
    f"{DURABILITY}; solo pool with a prefetch of 64 for throughput (faster here than the default "
    "prefork, -c 2 as there are cores, and than threads), results ignored, prefork with defaults "
    "for crash recovery; recurring: beat with its default file plus one such worker"
)
RHYTHM = "phase"

URL = "PEER_CELERY_URL"

app = Celery("peers.celery_", broker=os.environ.get(URL))
app.conf.task_ignore_result = True


@app.task
def ran(i: int, sent_at: float) -> None:
    stage.ran(i, sent_at)


@app.task
def sleeps(i: int, seconds: float) -> None:
    time.sleep(stage.began(i, seconds))


@app.task
def fires(i: int) -> None:
    stage.fired(i)


@worker_ready.connect
def _ready(**_: object) -> None:
    stage.ready()


def setup(url: str) -> None:
    """An empty Redis."""
    Redis.from_url(url).flushall()


def left(url: str) -> int:
    """Messages that wait, and those that a worker has not acknowledged."""
    global _looking  # noqa: PLW0603
    if _looking is None:
        _looking = Redis.from_url(url)
    return int(_looking.llen("celery")) + int(_looking.hlen("unacked"))


_looking: "Redis | None" = None


class Client:
    """An application that sends; a list goes through one producer, as its guide to calling says."""

    def __init__(self, url: str) -> None:
        app.conf.broker_url = url

    def open(self) -> None:
        with app.producer_or_acquire() as producer:
            producer.connection.ensure_connection()

    def send(self, i: int, sent_at: float) -> None:
        ran.apply_async((i, sent_at))

    def send_many(self, numbers: list[int], sent_at: float) -> None:
        with app.producer_or_acquire() as producer:
            for i in numbers:
                ran.apply_async((i, sent_at), producer=producer)

    def send_sleeps(self, i: int, seconds: float) -> None:
        sleeps.apply_async((i, seconds))

    def close(self) -> None:
        app.close()


def worker(url: str, concurrency: int | None) -> None:
    """`celery worker`."""
    pool = ["--pool=solo", "--prefetch-multiplier=64"]
    _become(url, "worker", *(pool if concurrency is None else [f"--concurrency={concurrency}"]))


def schedule_many(url: str, idle: int, firing: int) -> None:
    """Nothing: `beat_schedule` is part of the code."""


def scheduler(url: str, idle: int, firing: int) -> None:
    """`celery beat`, and a worker to run what it sends."""
    stage.spawn("celery_", "worker", url=url, concurrency=None)
    every_second, later = timedelta(seconds=1), timedelta(days=150)
    app.conf.broker_url = url
    app.conf.beat_schedule = {
        f"fires{i}": {
            "task": fires.name,
            "schedule": every_second if i < firing else later,
            "args": (i,),
        }
        for i in range(firing + idle)
    }
    with tempfile.TemporaryDirectory(prefix="eb-beat-") as home:
        app.Beat(schedule=str(Path(home) / "beat"), loglevel="ERROR", quiet=True).run()


def _become(url: str, command: str, *options: str) -> None:
    """Turn this process into Celery's own program, as one would start it by hand."""
    line = [sys.executable, "-m", "celery", "-A", "peers.celery_", command, "-l", "ERROR", *options]
    quiet = {"PYTHONWARNINGS": "ignore"}  # it warns root
    os.execve(sys.executable, line, {**os.environ, **quiet, URL: url})  # noqa: S606
