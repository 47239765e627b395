"""The balancer: finds jobs their place, tells how even the schedule is, and makes it more even."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from math import ceil
from uuid import UUID

from evenbeat.balance.load_cache import LOOK_SECONDS, LoadCache, Reservation
from evenbeat.balance.rebalancer import Rebalancer, checked_moves
from evenbeat.balance.results import Counters, PlanPreview, Rebalance
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.schedule import Interval
from evenbeat.errors import InvalidInput
from evenbeat.events import BalanceEvent, EventBus, EventKind
from evenbeat.placement import Distribution, LoadModel, Placed, Rhythm, distribution
from evenbeat.placement.periodic_load import SLOT, at_second, epoch_second
from evenbeat.settings import Settings
from evenbeat.store.placement import (
    DistributionPoint,
    MoveRecord,
    PlacementRequest,
    RebalanceRecord,
    UndoResult,
)
from evenbeat.store.store import Store

logger = logging.getLogger("evenbeat.balance")

FIGURE = "distribution"
HISTORY = timedelta(days=30)
_MOST_LINES = 20
_MOST_LISTED = 1000

Observer = Callable[[str, float], None]


class Balancer:
    """One for each process, safe to use from many threads.

    Placing never fails and never waits for more than one reading of the database; the job goes in
    even when nothing is known. `on_placement` is called with the type of each placement (`new`,
    `reschedule`) and how many seconds it took.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        override: Callable[[], datetime | None] = lambda: None,
        events: EventBus | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.on_placement: list[Observer] = []
        self._store = store
        self._settings = settings
        self._override = override
        self._events = events or EventBus()
        self._load = LoadCache(store, look_seconds=look_seconds)
        self._applying = Rebalancer(store, override)
        self._counting = threading.Lock()
        self._placements: Counter[str] = Counter(new=0, reschedule=0)

    # -- placing (what the store asks for) -------------------------------------------------------

    def refresh(self, now: datetime | None) -> None:
        """Bring the known load up to date if that is due. Call it outside of transactions."""
        if self._load.refresh(now):
            with _only_told("The load was read, but could not be described"):
                self._load.told(_tell_read)

    def place(self, requests: Sequence[PlacementRequest], now: datetime) -> list[datetime | None]:
        """Where each job should begin, later than now by one interval at most. The places are
        taken at once; `confirm` says which of them were needed."""
        begun = time.perf_counter()
        try:
            placed = self._load.reserve(requests, now)
        except Exception:
            # A job without advice runs an interval from now; one that is not added runs never.
            logger.exception("Placing failed; jobs begin one interval from now")
            return [None] * len(requests)
        each = (time.perf_counter() - begun) / max(1, len(requests))
        with _only_told("Whoever watches placements failed"):
            for observe in self.on_placement:
                for request in requests:
                    observe(request.kind, each)
        return [place.at for place in placed]

    def confirm(
        self, stored: Iterable[UUID], dropped: Iterable[UUID] = (), *, committed: bool = True
    ) -> None:
        """Count and tell what was placed; free the places of jobs that were not stored."""
        # The jobs are stored: an error now would make the caller store them again.
        with _only_told("Counting what was placed failed"):
            settled = self._load.confirm(stored, dropped, committed=committed)
            with self._counting:
                self._placements.update(
                    seat.request.kind for seat in settled if seat.request is not None
                )
            _tell_placed(settled)

    def where(self, every: timedelta | float | str, cost_ms: float | None = None) -> Placed:
        """Where a new job with this interval would begin, and the load that it would meet."""
        interval = Interval(parse_duration(every, field="every"))
        if cost_ms is not None and not 0 < cost_ms < 1e12:
            raise InvalidInput(f"cost_ms must be above zero, got {cost_ms!r}.", field="cost_ms")
        override = self._override()
        self.refresh(override)
        return self._load.look(Rhythm(interval.every, cost_ms), self._store.clock(override))

    # -- how even it is --------------------------------------------------------------------------

    def distribution(self) -> Distribution:
        """How even the schedule is now, read from the database."""
        self._load.reread(self._override())
        return self._load.told(distribution)

    def history(self, since: datetime | None = None) -> list[DistributionPoint]:
        """How even it was, a point every five minutes for thirty days, oldest first."""
        return self._store.placement.history(since)

    def watch(self) -> int:
        """Note how even the schedule is, and speak up once when it has become uneven."""
        now, told = self._override(), self.distribution()
        at = self._store.placement.note(
            score=told.score,
            peak_load=told.peak_load,
            mean_load=told.mean_load,
            total_jobs=told.total_jobs,
            now=now,
        )
        forgotten = self._store.placement.forget(before=at - HISTORY)
        figure = _figure(told, self.is_low(told))
        if self._store.webhooks.note_balance(FIGURE, figure, _alert(told), now=now):
            self._tell_low(told, at)
        return 1 + forgotten

    def is_low(self, told: Distribution) -> bool:
        """Whether the score is below the one to be alerted at, and not just for want of jobs:
        whole runs cannot be spread thinner than one above the mean."""
        alert = self._settings.balance_alert_score
        return told.score < alert and told.peak_load > ceil(told.mean_load) + 1

    # -- making it more even ---------------------------------------------------------------------

    def preview(self, max_moves: int | None = None) -> PlanPreview:
        """What a rebalance would do. Writes nothing."""
        return self._applying.preview(checked_moves(max_moves))

    def rebalance(
        self, max_moves: int | None = None, *, by: str | None = None, plan_id: str | None = None
    ) -> Rebalance:
        """Move jobs so that fewer run at once; with a preview's `plan_id`, those of its moves that
        still hold. A job that has changed since it was looked at is left alone."""
        done = self._applying.rebalance(checked_moves(max_moves), by=by, plan_id=plan_id)
        self._load.expire()
        _tell_rebalance(done)
        return done

    def undo(self, rebalance_id: UUID, *, by: str | None = None) -> UndoResult:
        """Put back every job that is still where a rebalance put it. Once only: `Conflict` the
        second time, `NotFound` for an unknown one."""
        undone = self._store.placement.undo(rebalance_id, by=by, now=self._override())
        self._load.expire()
        logger.info(
            "Rebalance undone",
            extra={
                "rebalance_id": str(rebalance_id),
                "restored": len(undone.restored),
                "left_alone": len(undone.left_alone),
            },
        )
        return undone

    def rebalances(self, limit: int = 20) -> list[RebalanceRecord]:
        """The newest rebalances."""
        if type(limit) is not int or not 1 <= limit <= _MOST_LISTED:
            raise InvalidInput(
                f"limit must be a whole number from 1 to {_MOST_LISTED}, got {limit!r}.",
                field="limit",
            )
        return self._store.placement.rebalances(limit)

    def moves_of(self, rebalance_id: UUID) -> list[MoveRecord]:
        """The single moves of a rebalance, kept for thirty days."""
        return self._store.placement.moves_of(rebalance_id)

    def counters(self) -> Counters:
        """Totals for metrics."""
        totals = self._store.placement.totals()
        with self._counting:
            placements = {**self._placements, "rebalance": totals.moves}
        return Counters(placements, totals.rebalances, totals.last_moved, totals.last_skipped)

    def _tell_low(self, told: Distribution, at: datetime) -> None:
        logger.warning(
            "Distribution is uneven",
            extra={
                "distribution_score": round(told.score, 2),
                "peak_load": round(told.peak_load, 1),
                "mean_load": round(told.mean_load, 1),
                "suggestion": told.suggestion,
            },
        )
        self._events.emit(
            BalanceEvent(
                EventKind.BALANCE_LOW,
                at,
                score=told.score,
                peak_load=told.peak_load,
                mean_load=told.mean_load,
                suggestion=told.suggestion,
            )
        )


@contextmanager
def _only_told(trouble: str) -> Iterator[None]:
    """What goes wrong here is logged, and nobody's job fails for it."""
    try:
        yield
    except Exception:
        logger.exception(trouble)


def _tell_read(model: LoadModel, _names: Mapping[str, str]) -> None:
    logger.info(
        "Bucket map rebuilt",
        extra={"job_count": model.jobs, "distribution_score": round(model.score, 2)},
    )


def _figure(told: Distribution, low: bool) -> dict[str, object]:
    """What metrics and the dashboard show without computing it."""
    return {
        "score": told.score,
        "peak_load": told.peak_load,
        "mean_load": told.mean_load,
        "total_jobs": told.total_jobs,
        "jobs_per_hour": list(told.jobs_per_hour),
        "peak_hour": told.peak_hour,
        "peak_count": told.peak_count,
        "workers_needed": told.workers_needed,
        "suggestion": told.suggestion,
        "low": low,
    }


def _alert(told: Distribution) -> dict[str, object]:
    """What webhooks tell of a low balance."""
    return {
        "score": round(told.score, 4),
        "peak_load": round(told.peak_load, 3),
        "mean_load": round(told.mean_load, 3),
        "total_jobs": told.total_jobs,
        "suggestion": told.suggestion,
    }


def _tell_placed(settled: Sequence[Reservation]) -> None:
    if not settled or not logger.isEnabledFor(logging.INFO):
        return
    for seat in settled[:_MOST_LINES]:
        request, placed = seat.request, seat.placed
        if request is not None and placed is not None:
            slot = at_second(epoch_second(placed.at) // SLOT * SLOT)
            logger.info(
                "Placed new job" if request.kind == "new" else "Placed job anew",
                extra={
                    "job_id": str(request.job_id),
                    "slot": f"{slot:%Y-%m-%dT%H:%M:%SZ}",
                    "load": round(placed.load, 2),
                },
            )
    if len(settled) > _MOST_LINES:
        logger.info("Placed more jobs", extra={"count": len(settled) - _MOST_LINES})


def _tell_rebalance(done: Rebalance) -> None:
    for skipped in done.skipped[:_MOST_LINES]:
        logger.warning(
            "Job skipped during rebalance",
            extra={"job_id": str(skipped.job_id), "reason": skipped.reason},
        )
    if len(done.skipped) > _MOST_LINES:
        reasons = Counter(skipped.reason for skipped in done.skipped[_MOST_LINES:])
        logger.warning("More jobs skipped during rebalance", extra=dict(sorted(reasons.items())))
    logger.info(
        "Full rebalance completed",
        extra={
            "rebalance_id": str(done.id),
            "moved": len(done.moved),
            "skipped": len(done.skipped),
            "old_score": round(done.old_score, 2),
            "new_score": round(done.new_score, 2),
        },
    )
