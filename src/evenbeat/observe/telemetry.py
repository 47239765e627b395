"""What the engine says of itself: the seam between it and whoever keeps count.

The engine calls a telemetry once for each batch, never for each job, and knows nothing of how the
figures are kept or shown.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID


class Ended:
    """How a run was over for its worker. Plain texts: they are hashed for every job, and an enum's
    members take ten times as long."""

    COMPLETED: Final = "completed"
    FAILED: Final = "failed"
    CANCELLED: Final = "cancelled"
    LOST: Final = "lost"
    RELEASED: Final = "released"


class Ending(NamedTuple):
    """One run that is over. `duration` and `wait` (due until start) are seconds, None when the
    run's end was not its worker's to write."""

    task: str
    ended: str
    duration: float | None = None
    wait: float | None = None
    retried: bool = False
    timed_out: bool = False
    skipped: int = 0


class RunnerStatus(NamedTuple):
    """A runner at this moment. `lag` is how late its event loop is, None without a loop."""

    place: str
    slots: int
    running: int
    waiting: int
    lag: float | None = None


class WorkerStatus(NamedTuple):
    """A worker at this moment. The ages are seconds since the last claim and the last beat that
    went well; `trouble` says why it should not count as ready, if it should not."""

    runners: list[RunnerStatus]
    leases: int
    backlog: int
    claim_age: float
    beat_age: float
    trouble: str | None = None


class Telemetry(Protocol):
    """What the engine calls. Every call is cheap and raises nothing."""

    def watch(self, worker_id: UUID, status: Callable[[], WorkerStatus]) -> None:
        """A worker of this process is at work; its status can be asked for at any time."""

    def unwatch(self, worker_id: UUID) -> None:
        """It is gone."""

    def claimed(self, jobs: int, seconds: float) -> None:
        """A claim came back with so many jobs."""

    def finished(self, runs: int, seconds: float) -> None:
        """The ends of so many runs were written in one go."""

    def ended(self, endings: Sequence[Ending]) -> None:
        """These runs are over."""

    def renewed(self, leases: int, seconds: float) -> None:
        """So many leases were renewed in one go."""

    def reaped(self, leases: int) -> None:
        """Expired leases were cleared."""

    def skipped(self, task: str, plans: int) -> None:
        """A catch-up policy gave plans up before they started."""

    def chore_done(self, name: str, seconds: float) -> None:
        """A chore was this worker's to do, and is done."""

    def database_failed(self, during: str) -> None:
        """The database did not answer a step of the engine."""


class NoTelemetry:
    """A telemetry that keeps nothing."""

    def watch(self, worker_id: UUID, status: Callable[[], WorkerStatus]) -> None: ...

    def unwatch(self, worker_id: UUID) -> None: ...

    def claimed(self, jobs: int, seconds: float) -> None: ...

    def finished(self, runs: int, seconds: float) -> None: ...

    def ended(self, endings: Sequence[Ending]) -> None: ...

    def renewed(self, leases: int, seconds: float) -> None: ...

    def reaped(self, leases: int) -> None: ...

    def skipped(self, task: str, plans: int) -> None: ...

    def chore_done(self, name: str, seconds: float) -> None: ...

    def database_failed(self, during: str) -> None: ...


NO_TELEMETRY: Telemetry = NoTelemetry()
