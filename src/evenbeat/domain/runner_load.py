"""How full the runners of a worker are, as the registry knows it, and their words."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Self
from uuid import UUID

PLACES = {"async": "async slots", "thread": "threads", "process": "processes"}
"""What the slots of each runner are called."""

SETTINGS = {"async": "CONCURRENCY", "thread": "THREADS", "process": "CHILD_PROCESSES"}
"""The setting that says how many there are."""

STOPPING = {
    "async": "A run in progress ends at its next await.",
    "thread": "A run in progress is over for the job at once, but a plain function cannot be ended "
    "from outside: it goes on, and holds its thread, until it looks at ctx.cancelled or returns.",
    "process": "The process of a run in progress is ended, with all that it started.",
}
"""What stopping a run does to its handler."""


class HeldRun(NamedTuple):
    """A run that is over for its job, while its function still goes on in its thread: it was
    cancelled, timed out or lost its lease, and has not returned since then."""

    execution_id: UUID
    job_id: UUID
    task: str
    reason: str
    since: datetime

    @property
    def text(self) -> str:
        """What became of it."""
        how = {"cancelled": "cancelled", "timeout": "timed out"}.get(self.reason, "given up")
        return f"{how}, still running in its thread"


class RunnerLoad(NamedTuple):
    """A runner of a worker: its slots, how many are taken, and those that ended runs hold."""

    runner: str
    slots: int
    running: int
    held: Sequence[HeldRun] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From the registry."""
        held = [
            HeldRun(
                UUID(one["execution_id"]),
                UUID(one["job_id"]),
                one["task"],
                one["reason"],
                datetime.fromisoformat(one["since"]),
            )
            for one in document["held"]
        ]
        return cls(document["runner"], document["slots"], document["running"], held)

    @property
    def is_full(self) -> bool:
        """Whether it can start nothing."""
        return self.running >= self.slots

    @property
    def text(self) -> str:
        """ "3 of 10 threads"."""
        return f"{self.running:,} of {self.slots:,} {PLACES[self.runner]}"
