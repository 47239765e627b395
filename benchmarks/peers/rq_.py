"""RQ: the default worker, which forks for every job, and `rq cron` for what recurs."""

import ctypes
import os
import signal
import time

from peers import stage
from peers.redis_server import DURABILITY
from redis import Redis
from rq import Queue, Worker
from rq.cron import CronScheduler
from rq.registry import StartedJobRegistry

NAME = "rq"
TITLE = "RQ"
PACKAGES = ("rq", "redis")
REQUIREMENTS = ("rq==2.12.0", "redis==8.1.0")
NEEDS = "redis"
DURABLE = False
NOTE = (
    f"{DURABILITY}; its default Worker, which forks a process for every job and runs one at a "
    "time (fifty of them for crash recovery); recurring: its CronScheduler (beta) plus one worker"
)
RHYTHM = "phase"

PR_SET_PDEATHSIG = 1


def ran(i: int, sent_at: float) -> None:
    stage.ran(i, sent_at)


def sleeps(i: int, seconds: float) -> None:
    time.sleep(stage.began(i, seconds))


def fires(i: int) -> None:
    stage.fired(i)


def setup(url: str) -> None:
    """An empty Redis."""
    Redis.from_url(url).flushall()


def left(url: str) -> int:
    """Jobs that wait or run."""
    global _looking  # noqa: PLW0603
    if _looking is None:
        _looking = Queue(connection=Redis.from_url(url))
    running = StartedJobRegistry(queue=_looking).get_job_count(cleanup=False)
    return int(_looking.count) + int(running)


_looking: "Queue | None" = None


class Client:
    """One connection; a list is enqueued in one pipeline."""

    def __init__(self, url: str) -> None:
        self.queue = Queue(connection=Redis.from_url(url))

    def open(self) -> None:
        self.queue.connection.ping()

    def send(self, i: int, sent_at: float) -> None:
        self.queue.enqueue(ran, i, sent_at)

    def send_many(self, numbers: list[int], sent_at: float) -> None:
        self.queue.enqueue_many([Queue.prepare_data(ran, (i, sent_at)) for i in numbers])

    def send_sleeps(self, i: int, seconds: float) -> None:
        self.queue.enqueue(sleeps, i, seconds)

    def close(self) -> None:
        self.queue.connection.close()


class StageWorker(Worker):
    """The default worker, which tells when it has started."""

    def bootstrap(self, *arguments: object, **options: object) -> None:
        super().bootstrap(*arguments, **options)
        stage.ready()

    def main_work_horse(self, *arguments: object) -> None:
        """The forked process has a group of its own; a loss of power would end it all the same."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        super().main_work_horse(*arguments)


def worker(url: str, concurrency: int | None) -> None:
    """`rq worker`; several at once are several workers, each with its own process."""
    for _ in range((concurrency or 1) - 1):
        if os.fork() == 0:
            break
    queue = Queue(connection=Redis.from_url(url))
    StageWorker([queue], connection=queue.connection).work(logging_level="WARNING")


def schedule_many(url: str, idle: int, firing: int) -> None:
    """Nothing: what `rq cron` runs is registered by its code."""


def scheduler(url: str, idle: int, firing: int) -> None:
    """`rq cron`, and a worker to run what it enqueues."""
    stage.spawn("rq_", "worker", url=url, concurrency=None)
    clock = CronScheduler(connection=Redis.from_url(url), logging_level="WARNING")
    later = stage.months_away()
    for i in range(firing):
        clock.register(fires, "default", args=(i,), interval=1)
    for i in range(idle):
        when = f"{i % 60} {i // 60 % 24} {later.tm_mday} {later.tm_mon} *"
        clock.register(fires, "default", args=(firing + i,), cron=when)
    clock.start()
