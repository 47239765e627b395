"""The engine's port for measurements: what it did, and how its workers are.

It is called once for each batch, never for each job, and the engine knows nothing of how the
figures are stored or shown.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from evenbeat.domain.decision import RunEnd


class RunnerStatus(NamedTuple):
    """A runner at this moment. `lag` is how late its event loop is, None without a loop."""

    place: str
    slots: int
    running: int
    waiting: int
    lag: float | None = None


class WorkerStatus(NamedTuple):
    """A worker at this moment. The ages are seconds since the last successful claim and heartbeat;
    `trouble` says why it does not count as ready, if it does not."""

    runners: list[RunnerStatus]
    leases: int
    backlog: int
    claim_age: float
    beat_age: float
    trouble: str | None = None


class Telemetry:
    """What the engine calls, measuring nothing; `EngineCounters` counts. Calls are cheap and raise
    nothing."""

    def watch(self, worker_id: UUID, status: Callable[[], WorkerStatus]) -> None:
        """A worker of this process has started; its status may be asked for at any time."""

    def unwatch(self, worker_id: UUID) -> None:
        """It has stopped."""

    def claimed(self, jobs: int, seconds: float) -> None:
        """A claim came back with so many jobs."""

    def finished(self, runs: int, seconds: float) -> None:
        """The ends of so many runs were written in one statement."""

    def ended(self, ends: Sequence[RunEnd]) -> None:
        """These runs are over."""

    def renewed(self, leases: int, seconds: float) -> None:
        """So many leases were renewed in one statement."""

    def reaped(self, leases: int) -> None:
        """Expired leases were cleared."""

    def skipped(self, task: str, plans: int) -> None:
        """A catch-up policy gave up plans before they started."""

    def chore_done(self, name: str, seconds: float) -> None:
        """This worker has done a chore."""

    def database_failed(self, during: str) -> None:
        """The database did not answer during this step of the engine."""


NO_TELEMETRY = Telemetry()
