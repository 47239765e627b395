"""One run in this process: a claimed job, its task, and how it is stopped."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any
from uuid import UUID

from evenbeat.domain.job import JobRecord
from evenbeat.errors import InvalidInput, LeaseLost
from evenbeat.tasks.context import Context, current_run
from evenbeat.tasks.registry import TaskDefinition


class StopReason(StrEnum):
    """Why a run is ended before its handler has."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    SHUTDOWN = "shutdown"


class Run:
    """A run from its claim to its outcome. The runner sets `interrupt` to what ends the handler."""

    __slots__ = (
        "claimed_at",
        "context",
        "cpu_ms",
        "ended",
        "interrupt",
        "job",
        "leased_at",
        "started_at",
        "stop_reason",
        "task",
        "token",
        "unfit",
        "value",
    )

    def __init__(
        self, job: JobRecord, task: TaskDefinition, context: Context, leased_at: float | None = None
    ) -> None:
        self.job = job
        self.token = context.execution_id
        self.task = task
        self.context = context
        self.claimed_at = time.monotonic()
        self.leased_at = self.claimed_at if leased_at is None else leased_at
        """When its claim was sent: from then on its lease may have run."""
        self.started_at: float | None = None
        self.cpu_ms: float | None = None
        """Of a handler that has a thread to itself; on an event loop nobody can tell."""
        self.stop_reason: StopReason | None = None
        self.interrupt: Callable[[], object] | None = None
        self.ended = False
        self.value: Any = None
        self.unfit = False

    def arguments(self) -> dict[str, Any]:
        """The handler's arguments from the payload, with the context where it asks for one. From
        here on the present code is the run's, with the context variables that the job carries. A
        run that was stopped while it waited for its slot does not start."""
        if self.stop_reason is not None:
            raise LeaseLost("The run was stopped before it started.")
        current_run.set(self.context)
        if self.job.memory_limit or self.job.cpu_limit_seconds:
            self.task.check_run()
        signature = self.task.signature
        try:
            values = signature.decode(self.job.payload)
        except InvalidInput:
            self.unfit = True
            raise
        if signature.context_name is not None:
            values[signature.context_name] = self.context
        self.task.hooks.restore(self.job.metadata)
        return values

    def stop(self, reason: StopReason) -> None:
        """Ask the run to end. The first reason counts; a run that has ended is left alone."""
        if self.ended or self.stop_reason is not None:
            return
        self.stop_reason = reason
        self.context.cancel()
        if self.interrupt is not None:
            self.interrupt()

    @property
    def queued_ms(self) -> float:
        """How long it waited in this process for its slot."""
        return ((self.started_at or time.monotonic()) - self.claimed_at) * 1000

    @property
    def duration_ms(self) -> float:
        """How long the handler has run."""
        return 0.0 if self.started_at is None else (time.monotonic() - self.started_at) * 1000


AWAITED_SECONDS = 60.0
"""How long a worker remembers that somebody waits for a job; who waits longer says it again."""
MOST_AWAITED = 10_000


class ActiveRuns:
    """The runs whose leases this worker holds: from the claim until the end is written."""

    def __init__(self) -> None:
        self._by_token: dict[UUID, Run] = {}
        self.lost: deque[UUID | None] = deque(maxlen=10_000)
        """Leases that were given up lately, without a word in the database."""
        self.awaited: dict[str, float] = {}
        """Jobs that somebody waits for, which may run here; and until when to remember that."""
        self._lock = threading.Lock()

    def add(self, runs: Iterable[Run]) -> None:
        """Leases just taken."""
        with self._lock:
            self._by_token.update((run.token, run) for run in runs)

    def remove(self, runs: Iterable[Run]) -> None:
        """Leases given back or lost."""
        with self._lock:
            for run in runs:
                self._by_token.pop(run.token, None)

    def all(self) -> list[Run]:
        """A snapshot."""
        with self._lock:
            return list(self._by_token.values())

    def named(self, id_: str) -> list[Run]:
        """The run that has this id or belongs to the job that has it, by the id's text."""
        return [run for run in self.all() if id_ in (str(run.token), str(run.job.id))]

    def expect_end(self, job_id: str) -> None:
        """Somebody waits for the end of this job, which may run here."""
        now = time.monotonic()
        if len(self.awaited) >= MOST_AWAITED:
            self.awaited = {id_: until for id_, until in self.awaited.items() if until > now}
        if len(self.awaited) < MOST_AWAITED:
            self.awaited[job_id] = now + AWAITED_SECONDS

    def no_longer_awaited(self, ended: Iterable[UUID]) -> list[str]:
        """Those of these ended jobs that somebody waits for. Once."""
        return [id_ for id_ in map(str, ended) if self.awaited.pop(id_, None)]

    def __contains__(self, token: UUID | None) -> bool:
        return token in self._by_token

    def __len__(self) -> int:
        return len(self._by_token)
