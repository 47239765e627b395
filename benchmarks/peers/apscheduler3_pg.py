"""APScheduler 3 with its job store in PostgreSQL: one process at a time may use it."""

import time
from datetime import UTC, datetime, timedelta

import psycopg
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.schedulers.blocking import BlockingScheduler
from peers import stage

NAME = "apscheduler3_pg"
TITLE = "APScheduler 3 (PostgreSQL)"
PACKAGES = ("APScheduler", "SQLAlchemy", "psycopg")
REQUIREMENTS = ("APScheduler==3.11.3", "SQLAlchemy==2.1.8", "psycopg[binary]==3.3.8")
NEEDS = "postgres"
DURABLE = True
NOTE = (
    "SQLAlchemyJobStore, 10 threads (default); queued: jobs that are due at once, with "
    "misfire_grace_time=None so that none is skipped; recurring: the defaults, which skip a run "
    "that is a second late"
)
RHYTHM = "seconds"

_ONE_PROCESS = (
    "a running scheduler does not see what another process adds to its store "
    "(its FAQ: job stores cannot be shared among processes)"
)
UNSUPPORTED = {"pickup": _ONE_PROCESS, "load": _ONE_PROCESS}


def ran(i: int, sent_at: float) -> None:
    stage.ran(i, sent_at)


def sleeps(i: int, seconds: float) -> None:
    time.sleep(stage.began(i, seconds))


def fires(i: int) -> None:
    stage.fired(i)


def configure(it: BaseScheduler, url: str, threads: int = 10) -> None:
    """The store, and so many threads."""
    sqlalchemy_url = url.replace("postgresql://", "postgresql+psycopg://", 1)
    it.configure(
        jobstores={"default": SQLAlchemyJobStore(url=sqlalchemy_url)},
        executors={"default": ThreadPoolExecutor(threads)},
        timezone=UTC,
    )


def setup(url: str) -> None:
    """No table: the store makes it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS apscheduler_jobs")
    client = Client(url)
    client.open()
    client.close()


class Client:
    """A scheduler that is paused, so that it only writes."""

    def __init__(self, url: str) -> None:
        self.clock = BackgroundScheduler()
        configure(self.clock, url)

    def open(self) -> None:
        self.clock.start(paused=True)

    def send(self, i: int, sent_at: float) -> None:
        self.clock.add_job(ran, args=(i, sent_at), misfire_grace_time=None)

    def send_sleeps(self, i: int, seconds: float) -> None:
        self.clock.add_job(sleeps, args=(i, seconds), misfire_grace_time=None)

    def close(self) -> None:
        self.clock.shutdown()


def worker(url: str, concurrency: int | None) -> None:
    """One process; it removes a job from the store when it has handed it to a thread."""
    clock = BlockingScheduler()
    configure(clock, url, concurrency or 10)
    stage.ready()
    clock.start()


def schedule_many(url: str, idle: int, firing: int) -> None:
    """One row each."""
    client = Client(url)
    client.open()
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    for i in range(firing, firing + idle):
        client.clock.add_job(fires, "interval", (i,), days=150)
    for i in range(firing):
        client.clock.add_job(fires, "interval", (i,), seconds=1, start_date=first)
    client.close()


def scheduler(url: str, idle: int, firing: int) -> None:  # noqa: ARG001  they are rows
    """One process that runs what is due."""
    worker(url, None)
