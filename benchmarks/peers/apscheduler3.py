"""APScheduler 3 in memory, as it comes: a clock inside one process, not a queue."""

from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.blocking import BlockingScheduler
from peers import stage

NAME = "apscheduler3"
TITLE = "APScheduler 3 (memory)"
PACKAGES = ("APScheduler",)
REQUIREMENTS = ("APScheduler==3.11.3",)
NEEDS = "none"
DURABLE = False
NOTE = "MemoryJobStore and 10 threads, its defaults; everything is forgotten with its process"
RHYTHM = "seconds"

_NO_QUEUE = "its jobs live in the memory of the process that adds them: there is no queue"
UNSUPPORTED = {
    "bulk": _NO_QUEUE,
    "single": _NO_QUEUE,
    "drain": _NO_QUEUE,
    "pickup": _NO_QUEUE,
    "load": _NO_QUEUE,
    "crash": "jobs and schedules are gone with their process",
    "memory": "no worker to look at; its memory with the schedules is among the recurring figures",
}


def setup(url: str) -> None:
    """Nothing is kept."""


def schedule_many(url: str, idle: int, firing: int) -> None:
    """Nothing: schedules live in memory."""


def scheduler(url: str, idle: int, firing: int) -> None:  # noqa: ARG001
    """One process that has every schedule."""
    clock = BlockingScheduler(timezone=UTC)
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    for i in range(firing):
        clock.add_job(stage.fired, "interval", (i,), seconds=1, start_date=first)
    for i in range(firing, firing + idle):
        clock.add_job(stage.fired, "interval", (i,), days=150)
    clock.start()
