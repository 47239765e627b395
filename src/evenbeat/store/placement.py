"""Placement as the store sees it: who is asked for a place, and the records of rebalances."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from psycopg.types.json import Jsonb

from evenbeat.domain.first_run import FirstRun, first_run, unanchored
from evenbeat.domain.job import JobRecord, JobSpec, Placement, spec_of
from evenbeat.domain.load_entry import CronEntry, LoadEntry, SlackCron
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.domain.states import JobStatus
from evenbeat.domain.window import ALL_DAY_OFF_PEAK, ExecutionWindow
from evenbeat.errors import Conflict
from evenbeat.store.audit import AuditLog
from evenbeat.store.database import Connection
from evenbeat.store.on_loop import aside
from evenbeat.store.part import StorePart

_CHUNK = 10_000
_MOST_AT_ONCE = 1_000
_MILLISECOND = timedelta(milliseconds=1)


# ---------------------------------------------------------------- asking for a place


class PlacementRequest(NamedTuple):
    """A job that wants a place in its interval: a `new` one, or one to `reschedule`."""

    job_id: UUID
    every: timedelta
    cost_ms: float | None
    kind: str
    window: str | None = None
    delay: timedelta = timedelta(0)
    task: str = ""


class Placer(Protocol):
    """Knows the load. It never fails: at worst it has no place to suggest."""

    def refresh(self, now: datetime | None) -> None:
        """Catch up with the database; call it outside of transactions."""

    def off_peak(self) -> ExecutionWindow:
        """The hours that `off_peak` means now."""

    def place(self, requests: Sequence[PlacementRequest], now: datetime) -> list[datetime | None]:
        """The first run of each, later than now by one interval at most; None: no suggestion."""

    def place_crons(self, crons: Sequence[SlackCron], now: datetime) -> list[Cron]:
        """The crons with a place in their slack."""

    def confirm(
        self, stored: Iterable[UUID], dropped: Iterable[UUID] = (), *, committed: bool = True
    ) -> None:
        """Say which jobs were stored and which were not. Not `committed`: in a transaction of the
        caller's, which may stay open for a while."""


PlacerFactory = Callable[[], Placer]
"""Gives the placer when it is needed, as making one takes a while."""


class NoPlacer:
    """Has no place to suggest: every interval begins one interval from now."""

    def refresh(self, now: datetime | None) -> None: ...

    def off_peak(self) -> ExecutionWindow:
        return ALL_DAY_OFF_PEAK

    def place(self, requests: Sequence[PlacementRequest], now: datetime) -> list[datetime | None]:  # noqa: ARG002
        return [None for _ in requests]

    def place_crons(self, crons: Sequence[SlackCron], now: datetime) -> list[Cron]:  # noqa: ARG002
        return [one.cron for one in crons]

    def confirm(
        self, stored: Iterable[UUID], dropped: Iterable[UUID] = (), *, committed: bool = True
    ) -> None: ...


class PlacedAside:
    """Asks a placer in a thread, for callers on an event loop: it reads, under locks."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer

    def refresh(self, now: datetime | None) -> None:
        aside(lambda: self._placer.refresh(now))

    def off_peak(self) -> ExecutionWindow:
        return aside(self._placer.off_peak)

    def place(self, requests: Sequence[PlacementRequest], now: datetime) -> list[datetime | None]:
        return aside(lambda: self._placer.place(requests, now))

    def place_crons(self, crons: Sequence[SlackCron], now: datetime) -> list[Cron]:
        return aside(lambda: self._placer.place_crons(crons, now))

    def confirm(
        self, stored: Iterable[UUID], dropped: Iterable[UUID] = (), *, committed: bool = True
    ) -> None:
        aside(lambda: self._placer.confirm(stored, dropped, committed=committed))


def asks_load(spec: JobSpec) -> bool:
    """Whether the load decides a part of it: the hours of `off_peak`, the place in its slack."""
    if isinstance(spec.schedule, Cron) and spec.schedule.wants_place:
        return True
    return spec.window is not None and spec.window.off_peak


def with_load(
    placer: PlacerFactory, specs: Sequence[tuple[str | None, JobSpec]], now: datetime
) -> list[JobSpec]:
    """Named specs with what the load decides: see `asks_load`."""
    decided, crons = [spec for _, spec in specs], {}
    for n, (name, spec) in enumerate(specs):
        if spec.window is not None and spec.window.off_peak:
            decided[n] = replace(spec, window=placer().off_peak())
        if isinstance(spec.schedule, Cron) and spec.schedule.wants_place:
            cost = None if spec.cost is None else spec.cost / _MILLISECOND
            crons[n] = SlackCron(name or spec.task, spec.schedule, cost, spec.task)
    placed = placer().place_crons(list(crons.values()), now) if crons else ()
    for n, cron in zip(crons, placed, strict=True):
        decided[n] = replace(decided[n], schedule=cron)
    return decided


def placement_request(
    job_id: UUID, spec: JobSpec, start: datetime | timedelta | None
) -> PlacementRequest | None:
    """The request of a new job: that of a balanced interval without a beginning of its own."""
    schedule = spec.schedule
    if start is not None or not isinstance(schedule, Interval) or schedule.anchor is not None:
        return None
    if spec.placement is not Placement.BALANCED:
        return None
    cost = None if spec.cost is None else spec.cost / _MILLISECOND
    window = None if spec.window is None else str(spec.window)
    every, delay = schedule.every, spec.schedule_delay
    return PlacementRequest(job_id, every, cost, "new", window, delay, spec.task)


def resume_request(job: JobRecord, now: datetime) -> PlacementRequest | None:
    """The request of a paused job that is to run again and has no place of its own yet: the others
    keep their rhythm. One that has begun an occurrence, or whose plan has come and waits for its
    delay or window, stays: moved, that run would never happen."""
    if job.status != JobStatus.PAUSED or job.current_retry_count or job.release_count:
        return None
    if job.placed_at is not None:
        return None
    plan, due = job.plan_time, job.next_run_at
    if plan is not None and due is not None and plan <= now < due:
        return None
    request = placement_request(job.id, unanchored(spec_of(job)), None)
    return None if request is None else rescheduled(job, request)


def rescheduled(job: JobRecord, request: PlacementRequest) -> PlacementRequest:
    """The same request of a job that exists: what it costs may be known by its runs."""
    cost = job.average_duration_ms if request.cost_ms is None else request.cost_ms
    return request._replace(cost_ms=cost, kind="reschedule")


def places_for(
    placer: PlacerFactory, requests: Sequence[PlacementRequest], now: datetime
) -> dict[UUID, datetime | None]:
    """Where these jobs should begin, by their ids."""
    places = placer().place(requests, now) if requests else ()
    return {request.job_id: place for request, place in zip(requests, places, strict=True)}


def placed_run(spec: JobSpec, at: datetime | None, now: datetime) -> FirstRun:
    """The first run of a job at the place that the placer suggests; without one, one interval from
    now."""
    return first_run(spec, at, now)._replace(placed_at=None if at is None else now)


# ---------------------------------------------------------------- what is read and written


class PlacedJob(NamedTuple):
    """An interval job that was placed recently; not `live`: paused or ended."""

    id: UUID
    interval_seconds: int
    second: int
    cost_ms: float | None
    execution_window: str | None
    is_balanced: bool
    live: bool


class RebalanceRecord(NamedTuple):
    """A rebalance as it is remembered; `skipped` counts the jobs that stayed, by reason."""

    id: UUID
    created_at: datetime
    created_by: str | None
    moved: int
    skipped: dict[str, int]
    old_score: float
    new_score: float
    old_peak: float
    new_peak: float
    undone_at: datetime | None
    undone_by: str | None
    restored: int | None


class MoveRecord(NamedTuple):
    job_id: UUID
    name: str | None
    old_time: datetime
    new_time: datetime
    restored: bool


class LeftAlone(NamedTuple):
    """A job that an undo did not put back, and why."""

    job_id: UUID
    name: str | None
    reason: str


class UndoResult(NamedTuple):
    id: UUID
    undone_at: datetime
    restored: list[UUID]
    left_alone: list[LeftAlone]


class PlacementTotals(NamedTuple):
    """Totals for metrics. `placements` by type: `new` and `reschedule` count what this process has
    placed, `rebalance` every move in this database; the store knows only that one."""

    placements: Mapping[str, int]
    rebalances: int
    last_moved: int | None
    last_skipped: int | None


class DistributionPoint(NamedTuple):
    at: datetime
    score: float
    peak_load: float
    mean_load: float
    total_jobs: int


class Placements(StorePart):
    """What the load model reads, and what rebalances write."""

    def load_snapshot(self, now: datetime | None = None) -> list[LoadEntry]:
        """Every recurring job that will run again, for a rebalance."""
        return self._all(LoadEntry._make, "load_snapshot", {"now": now})

    def interval_counts(
        self, *, until: datetime
    ) -> list[tuple[int, int, float | None, str | None, bool, int]]:
        """The interval jobs that were placed up to a moment: how many share an interval, the second
        at which they are due, their cost, their window and who places them, which come first."""
        return self._all(tuple, "interval_counts", {"until": until})

    def cron_jobs(self) -> list[CronEntry]:
        """The cron jobs that are not paused."""
        return self._all(CronEntry._make, "cron_loads")

    def placed_jobs(self, *, since: datetime) -> list[PlacedJob]:
        """The interval jobs that were placed after a moment, on any node."""
        return self._all(PlacedJob._make, "placed_since", {"since": since})

    def task_durations(self) -> dict[str, float]:
        """How many milliseconds the runs of each task took on average."""
        return {task: float(ms) for task, ms in self._database.rows("task_durations", {})}

    def off_peak_jobs(self, hours: ExecutionWindow, now: datetime | None = None) -> list[UUID]:
        """Off-peak jobs that wait for a plan to come, in other hours than these."""
        params = {"hours": str(hours), "limit": _MOST_AT_ONCE, "now": now}
        return [row[0] for row in self._database.rows("off_peak_jobs", params)]

    # -- after an outage -------------------------------------------------------------------------

    def late_jobs(self, late: timedelta, now: datetime | None = None) -> list[JobRecord]:
        """The recurring jobs that have waited for a worker for so long, and were not put off."""
        params = {"late_seconds": late.total_seconds(), "now": now}
        return self._all(JobRecord._make, "late_jobs", params)

    def delay_late(
        self, starts: Sequence[tuple[JobRecord, datetime]], now: datetime | None = None
    ) -> int:
        """Let late jobs start later, with the same plans; says how many still waited."""
        params = {
            "ids": [job.id for job, _ in starts],
            "due_times": [job.next_run_at for job, _ in starts],
            "starts": [start for _, start in starts],
            "now": now,
        }
        return len(self._database.rows("delay_late", params))

    # -- rebalances ------------------------------------------------------------------------------

    def rebalance(
        self,
        rebalance_id: UUID,
        moves: Sequence[tuple[LoadEntry, datetime]],
        figures: dict[str, Any],
        connection: Connection,
        *,
        by: str | None = None,
        now: datetime | None = None,
    ) -> tuple[datetime, set[UUID]]:
        """Move the next runs of jobs that are as they were, and remember it; says when, and which.
        `complete_rebalance` finishes the record in the same transaction."""
        opening = {**figures, "id": rebalance_id, "created_by": by, "now": now}
        created_at = self._database.rows("add_rebalance", opening, connection)[0][0]
        moved: set[UUID] = set()
        for first in range(0, len(moves), _CHUNK):
            chunk = moves[first : first + _CHUNK]
            params = {
                "rebalance_id": rebalance_id,
                "ids": [job.id for job, _ in chunk],
                "old_times": [job.next_run_at for job, _ in chunk],
                "new_times": [new_time for _, new_time in chunk],
                "anchors": [job.anchor_at for job, _ in chunk],
                "versions": [job.schedule_version for job, _ in chunk],
                "channel": self._database.channel,
                "now": now,
            }
            moved |= {row[0] for row in self._database.rows("move_jobs", params, connection)}
        return created_at, moved

    def complete_rebalance(
        self,
        rebalance_id: UUID,
        moved: int,
        skipped: dict[str, int],
        figures: dict[str, Any],
        connection: Connection,
    ) -> None:
        params = {**figures, "id": rebalance_id, "moved": moved, "skipped": Jsonb(skipped)}
        self._database.rows("complete_rebalance", params, connection)
        AuditLog(self._database).add(
            "rebalance.apply", ids=[rebalance_id], after={"moved": moved}, connection=connection
        )

    def undo(
        self, rebalance_id: UUID, *, by: str | None = None, now: datetime | None = None
    ) -> UndoResult:
        """Put back what is still where a rebalance put it; once only."""
        rows = self._database.rows
        params = {"id": rebalance_id, "channel": self._database.channel, "now": now}

        def undo(connection: Connection) -> UndoResult:
            statement, make = "rebalance_for_update", RebalanceRecord._make
            record = self._get(make, statement, "rebalance", rebalance_id, connection=connection)
            if record.undone_at is not None:
                raise Conflict(
                    f"The rebalance {rebalance_id} was undone already, on "
                    f"{record.undone_at:%Y-%m-%d at %H:%M:%S} UTC. It can be undone only once; "
                    "preview another rebalance instead."
                )
            restored = [row[0] for row in rows("restore_jobs", params, connection)]
            left_alone = self._all(LeftAlone._make, "not_restored", params, connection)
            closing = {**params, "undone_by": by, "restored": len(restored)}
            undone_at = rows("close_undo", closing, connection)[0][0]
            AuditLog(self._database).add(
                "rebalance.undo",
                ids=[rebalance_id],
                after={"restored": len(restored)},
                connection=connection,
                now=now,
            )
            return UndoResult(rebalance_id, undone_at, restored, left_alone)

        return self._database.atomically(undo)

    def rebalances(self, limit: int) -> list[RebalanceRecord]:
        return self._all(RebalanceRecord._make, "rebalances", {"limit": limit})

    def moves_of(self, rebalance_id: UUID) -> list[MoveRecord]:
        """What one rebalance moved; remembered for 30 days."""
        return self._all(MoveRecord._make, "rebalance_moves", {"id": rebalance_id})

    def totals(self) -> PlacementTotals:
        """All rebalances so far in figures, and what the last one did."""
        rebalances, moves, *last = self._database.rows("rebalance_totals", {})[0]
        return PlacementTotals({"rebalance": moves}, rebalances, *last)

    # -- the history of the score ----------------------------------------------------------------

    def record_distribution(self, *, now: datetime | None = None, **figures: float) -> datetime:
        """Remember how even the schedule is now: the figures of a `DistributionPoint`."""
        at: datetime = self._database.rows("record_distribution", {**figures, "now": now})[0][0]
        return at

    def history(self, since: datetime | None = None) -> list[DistributionPoint]:
        """How even the schedule was, oldest first."""
        return self._all(DistributionPoint._make, "distribution_history", {"since": since})

    def prune(self, *, before: datetime) -> int:
        """Drop points and single moves older than a moment."""
        return int(self._database.rows("prune_placement", {"before": before})[0][0])
