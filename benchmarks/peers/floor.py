"""The floor: Evenbeat's own claim and finish, one after the other, with no engine around them."""

import os
import time
from uuid import uuid4

from peers import evenbeat_, stage

from evenbeat.domain.decision import Decision, EndKind, RunEnd
from evenbeat.domain.execution import Outcome
from evenbeat.domain.states import JobStatus
from evenbeat.store.store import Store

NAME = "floor"
TITLE = "the bare statements"
PACKAGES = ("psycopg",)
REQUIREMENTS = ()
NEEDS = "postgres"
DURABLE = True
NOTE = "the same claim and finish statements on one thread, in batches of 1,000"
UNSUPPORTED = dict.fromkeys(
    ("single", "pickup", "load", "recurring", "crash"),
    "not a contender: only its drain is measured",
)

setup, left, Client = evenbeat_.setup, evenbeat_.left, evenbeat_.Client

BATCH = int(os.environ.get("FLOOR_BATCH", "1000"))


def worker(url: str, concurrency: int | None) -> None:  # noqa: ARG001
    """Claim, run, finish; where nothing is due, look again."""
    store, name = Store(url), uuid4()
    done = Decision(JobStatus.COMPLETED)
    store.clock()
    stage.ready()
    while True:
        jobs = store.claim(name, BATCH, tasks=["ran"])
        if not jobs:
            time.sleep(0.001)
        for job in jobs:
            stage.ran(job.payload["i"], job.payload["sent_at"])
        store.finish(
            [RunEnd(job, EndKind.COMPLETED, Outcome(duration_ms=0.1), done) for job in jobs]
        )
