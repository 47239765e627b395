"""Dramatiq on Redis: its own program with one process of eight threads, its defaults."""

import os
import sys
import time
from datetime import UTC, datetime, timedelta

import dramatiq
from apscheduler.schedulers.blocking import BlockingScheduler
from dramatiq.brokers.redis import RedisBroker
from peers import stage
from peers.redis_server import DURABILITY
from redis import Redis

NAME = "dramatiq"
TITLE = "Dramatiq + Redis"
PACKAGES = ("dramatiq", "redis", "APScheduler")
REQUIREMENTS = ("dramatiq[redis]==2.2.1", "redis==8.1.0", "APScheduler==3.11.3")
NEEDS = "redis"
DURABLE = False
NOTE = (
    f"{DURABILITY}; one process (-p 1) of 8 threads, the default; a list is sent one by one, as "
    "its groups do; what a dead worker held comes back after a minute, when 1 of 1,000 fetches "
    "looks for it; recurring: it has none, its cookbook advises APScheduler, which sends here"
)
RHYTHM = "seconds"

URL = "PEER_DRAMATIQ_URL"


class TellReady(dramatiq.Middleware):
    """Tells when the worker process takes messages."""

    def after_worker_boot(self, broker: object, worker: object) -> None:  # noqa: ARG002
        stage.ready()


def broker_at(url: str) -> RedisBroker:
    """A broker with the middleware it comes with, and the three actors."""
    it = RedisBroker(url=url)
    it.add_middleware(TellReady())
    dramatiq.set_broker(it)
    for function in (ran, sleeps, fires):
        dramatiq.actor(function)
    return it


def ran(i: int, sent_at: float) -> None:
    stage.ran(i, sent_at)


def sleeps(i: int, seconds: float) -> None:
    time.sleep(stage.began(i, seconds))


def fires(i: int) -> None:
    stage.fired(i)


broker = broker_at(os.environ[URL]) if URL in os.environ else None


def setup(url: str) -> None:
    """An empty Redis."""
    Redis.from_url(url).flushall()


def left(url: str) -> int:
    """Messages that were not acknowledged yet."""
    global _looking  # noqa: PLW0603
    if _looking is None:
        _looking = Redis.from_url(url)
    return int(_looking.hlen("dramatiq:default.msgs"))


_looking: "Redis | None" = None


class Client:
    """An application that sends."""

    def __init__(self, url: str) -> None:
        self.broker = broker_at(url)
        self.ran = self.broker.get_actor("ran")
        self.sleeps = self.broker.get_actor("sleeps")

    def open(self) -> None:
        self.broker.client.ping()

    def send(self, i: int, sent_at: float) -> None:
        self.ran.send(i, sent_at)

    def send_many(self, numbers: list[int], sent_at: float) -> None:
        dramatiq.group([self.ran.message(i, sent_at) for i in numbers]).run()

    def send_sleeps(self, i: int, seconds: float) -> None:
        self.sleeps.send(i, seconds)

    def close(self) -> None:
        self.broker.close()


def worker(url: str, concurrency: int | None) -> None:
    """Turn this process into Dramatiq's own program, as one would start it by hand."""
    threads = [] if concurrency is None else ["--threads", str(concurrency)]
    line = [sys.executable, "-m", "dramatiq", "peers.dramatiq_:broker", "--processes", "1"]
    os.execve(sys.executable, [*line, *threads], {**os.environ, URL: url})  # noqa: S606


def schedule_many(url: str, idle: int, firing: int) -> None:
    """Nothing: APScheduler's schedules live in its memory."""


def scheduler(url: str, idle: int, firing: int) -> None:
    """APScheduler that sends, and a worker to run what it sends."""
    stage.spawn("dramatiq_", "worker", url=url, concurrency=None)
    send = broker_at(url).get_actor("fires").send
    clock = BlockingScheduler(timezone=UTC)
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    for i in range(firing):
        clock.add_job(send, "interval", (i,), seconds=1, start_date=first)
    for i in range(firing, firing + idle):
        clock.add_job(send, "interval", (i,), days=150)
    clock.start()
