"""DBOS: workflows on a queue without limits, polled as often as by default."""

import asyncio
import threading
from datetime import datetime

import psycopg
import sqlalchemy
from dbos import DBOS, DBOSClient
from peers import stage

NAME = "dbos"
TITLE = "DBOS"
PACKAGES = ("dbos", "sqlalchemy", "psycopg")
REQUIREMENTS = ("dbos==3.3.0", "psycopg[binary]==3.3.8", "sqlalchemy==2.1.8")
NEEDS = "postgres"
DURABLE = True
NOTE = (
    "a queue without limits, polled once a second as by default; async workflows; many are "
    "enqueued in one transaction; every workflow stays in its history; recurring: each schedule "
    "has a thread of its own in the process, idle or not"
)
RHYTHM = "planned"

QUEUE = "bench"


@DBOS.workflow(name="ran")
async def ran(i: int, sent_at: float) -> None:
    stage.ran(i, sent_at)


@DBOS.workflow(name="sleeps")
async def sleeps(i: int, seconds: float) -> None:
    await asyncio.sleep(stage.began(i, seconds))


@DBOS.workflow(name="fires")
async def fires(planned: datetime, i: int) -> None:
    stage.fired(i, planned.timestamp())


def setup(url: str) -> None:
    """Its schema anew."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS dbos CASCADE")
    _launch(url)
    DBOS.destroy()


def left(url: str) -> int:
    """Workflows that wait or run."""
    global _looking  # noqa: PLW0603
    if _looking is None:
        _looking = psycopg.connect(url, autocommit=True)
    found = _looking.execute(
        "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"
    ).fetchone()
    return int(found[0]) if found else 0


_looking: "psycopg.Connection | None" = None


class Client:
    """Its client for other programs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self) -> None:
        self.client = DBOSClient(system_database_url=self.url)
        self.engine = sqlalchemy.create_engine(
            self.url.replace("postgresql:", "postgresql+psycopg:")
        )

    def send(self, i: int, sent_at: float) -> None:
        self.client.enqueue({"queue_name": QUEUE, "workflow_name": "ran"}, i, sent_at)

    def send_many(self, numbers: list[int], sent_at: float) -> None:
        with self.engine.begin() as transaction:
            for i in numbers:
                self.client.enqueue_in_transaction(
                    transaction, {"queue_name": QUEUE, "workflow_name": "ran"}, i, sent_at
                )

    def send_sleeps(self, i: int, seconds: float) -> None:
        self.client.enqueue({"queue_name": QUEUE, "workflow_name": "sleeps"}, i, seconds)

    def close(self) -> None:
        self.client.destroy()
        self.engine.dispose()


def worker(url: str, concurrency: int | None) -> None:  # noqa: ARG001  there is no limit
    """One process."""
    _launch(url)
    stage.ready()
    threading.Event().wait()


def schedule_many(url: str, idle: int, firing: int) -> None:
    """Schedules are rows, applied all at once."""
    later = stage.months_away()
    crons = ["* * * * * *"] * firing
    crons += [f"0 {i % 60} {i // 60 % 24} {later.tm_mday} {later.tm_mon} *" for i in range(idle)]
    _launch(url)
    DBOS.apply_schedules(
        [
            {"schedule_name": f"{i}", "workflow_fn": fires, "schedule": cron, "context": i}
            for i, cron in enumerate(crons)
        ]
    )
    DBOS.destroy()


def scheduler(url: str, idle: int, firing: int) -> None:  # noqa: ARG001  they are rows
    """The same process."""
    worker(url, None)


def _launch(url: str) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "application_version": "bench",
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    DBOS.register_queue(QUEUE)
