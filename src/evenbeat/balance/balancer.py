"""The balancer: places jobs, reports how even the schedule is, and makes it more even."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from uuid import UUID

from evenbeat.balance.load_cache import LOOK_SECONDS, LoadCache
from evenbeat.balance.rebalancer import PlanPreview, Rebalance, Rebalancer
from evenbeat.domain.catch_up import FEW, SKIP_GRACE
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.job import JobRecord, JobSpec, window_of
from evenbeat.domain.load_entry import SlackCron
from evenbeat.domain.moments import BEGIN, at_second, epoch_second
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.domain.window import ALL_DAY_OFF_PEAK, OFF_PEAK, ExecutionWindow, parse_window
from evenbeat.errors import DatabaseUnavailable, EvenbeatError, InvalidInput, NotFound
from evenbeat.events import BalanceEvent, EventBus, EventKind
from evenbeat.observe.single_flight import SingleFlight
from evenbeat.placement.advice import advice_for
from evenbeat.placement.distribution import Distribution, distribution
from evenbeat.placement.late import LateJob, spread_late
from evenbeat.placement.load import SLOT
from evenbeat.placement.planner import Placed, Rhythm
from evenbeat.settings import Settings
from evenbeat.store.placement import (
    DistributionPoint,
    MoveRecord,
    PlacementRequest,
    PlacementTotals,
    RebalanceRecord,
    UndoResult,
)
from evenbeat.store.store import Store

logger = logging.getLogger("evenbeat.balance")

FIGURE = "distribution"
HISTORY = timedelta(days=30)
OFF_PEAK_STAYS = timedelta(days=1)
_MOST_LINES = 20
_REBUILT = "the expected load of all recurring jobs was read anew"
_MOST_LISTED = 1000
# What metrics and the dashboard show without computing it.
_NOTED = (
    "score", "peak_load", "mean_load", "total_jobs", "jobs_per_hour", "peak_hour", "peak_count",
    "workers_needed", "workers_sufficient", "suggestion",
)  # fmt: skip

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
        self._rebalancer = Rebalancer(store, override)
        # Reading all recurring jobs takes seconds where there are a million.
        self._recent = SingleFlight(
            self._read, fresh_seconds=10.0, wait_seconds=0.1, wait_for_fresh=False
        )
        self._counting = threading.Lock()
        self._placements: Counter[str] = Counter(new=0, reschedule=0)

    # -- placing (what the store asks for) -------------------------------------------------------

    def refresh(self, now: datetime | None) -> None:
        """Bring the known load up to date if that is due. Call it outside of transactions."""
        if self._load.refresh(now):
            with _errors_logged("The load was read, but could not be described"):
                jobs, score = self._load.query(lambda model, _: (model.jobs, model.score))
                figures = {"job_count": jobs, "distribution_score": round(score, 2)}
                logger.info("Bucket map rebuilt", extra=figures | {"meaning": _REBUILT})

    def off_peak(self) -> ExecutionWindow:
        """The hours that `off_peak` means now; all day while nothing is known of the load."""
        known = self._load.off_peak()
        return ALL_DAY_OFF_PEAK if known is None else known.present

    def rebuild(self) -> None:
        """Read the load anew, for a scheduler that starts."""
        self._load.expire()
        self.refresh(self._override())

    def place(self, requests: Sequence[PlacementRequest], now: datetime) -> list[datetime | None]:
        """Where each job should begin, later than now by one interval at most. The places are
        reserved at once; `confirm` says which of them were needed."""
        begun = time.perf_counter()
        try:
            places = self._load.reserve(requests, now)
        except Exception:
            # A job that is not placed runs an interval from now; one that is not added never runs.
            logger.exception("Placing failed; jobs begin one interval from now")
            return [None] * len(requests)
        each = (time.perf_counter() - begun) / max(1, len(requests))
        with _errors_logged("An observer of placements failed"):
            for observe in self.on_placement:
                for request in requests:
                    observe(request.kind, each)
        return [placed.at for placed in places]

    def place_crons(self, crons: Sequence[SlackCron], now: datetime) -> list[Cron]:
        """Where in their slack cron jobs should run."""
        try:
            return self._load.place_crons(crons, now)
        except Exception:
            # A job that is not placed runs at its opening; one that is not added never runs.
            logger.exception("Placing failed; cron jobs run as their slack begins")
            return [one.cron for one in crons]

    def confirm(
        self, stored: Iterable[UUID], dropped: Iterable[UUID] = (), *, committed: bool = True
    ) -> None:
        """Count and log what was placed; free the places of jobs that were not stored."""
        # The jobs are stored: an error now would make the caller store them again.
        with _errors_logged("Counting what was placed failed"):
            confirmed = self._load.confirm(stored, dropped, committed=committed)
            requests = [(own.request, own.placed) for own in confirmed if own.request is not None]
            with self._counting:
                self._placements.update(request.kind for request, _ in requests)
            for request, placed in requests[:_MOST_LINES]:
                if placed is None:
                    continue
                slot = at_second(epoch_second(placed.at) // SLOT * SLOT)
                logger.info(
                    "Placed new job" if request.kind == "new" else "Placed job again",
                    extra={
                        "job_id": str(request.job_id),
                        "slot": f"{slot:%Y-%m-%dT%H:%M:%SZ}",
                        "load": round(placed.load, 2),
                    },
                )
            if len(requests) > _MOST_LINES:
                logger.info("Placed more jobs", extra={"count": len(requests) - _MOST_LINES})

    def where(
        self,
        every: timedelta | float | str,
        cost_ms: float | None = None,
        window: ExecutionWindow | str | None = None,
    ) -> Placed:
        """Where a new job with this interval would begin, and the load that it would meet."""
        interval = Interval(parse_duration(every, field="every"))
        if cost_ms is not None and not 0 < cost_ms < 1e12:
            raise InvalidInput(f"cost_ms must be above zero, got {cost_ms!r}.", field="cost_ms")
        override = self._override()
        self.refresh(override)
        hours = None if window is None else str(self.hours(parse_window(str(window))))
        return self._load.where(Rhythm(interval.every, cost_ms, hours), self._store.clock(override))

    def hint(self, spec: JobSpec) -> str | None:
        """Advice on the interval of a new job, by what is known of the load; it never fails."""
        if not isinstance(spec.schedule, Interval) or spec.window is not None:
            return None
        every, cost = int(spec.schedule.every.total_seconds()), spec.cost
        cost_ms = None if cost is None else cost.total_seconds() * 1000
        found = None
        with suppress(DatabaseUnavailable), _errors_logged("No advice on the interval"):
            found = self._load.query(lambda model, _: advice_for(model, every, cost_ms))
        return None if found is None else f"{found.text}."

    def hours(self, window: ExecutionWindow) -> ExecutionWindow:
        """The window, or if that is `off_peak`, the hours that this means now."""
        if window.off_peak:
            self.refresh(self._override())
            return self.off_peak()
        return window

    # -- after an outage -------------------------------------------------------------------------

    def spread_late(self) -> int:
        """Recurring jobs that are late start one after the other, the most urgent first, within
        `catch_up_spread_seconds`; a few start at once. Returns how many wait. Each is put off
        once at most, and keeps its plan: what runs or is given up is decided when it starts."""
        seconds, override = int(self._settings.catch_up_spread_seconds), self._override()
        if not seconds:
            return 0
        with self._store.upkeep.exclusive("catch_up"):
            now = self._store.clock(override)
            late: list[tuple[JobRecord, LateJob]] = []
            for job in self._store.placement.late_jobs(SKIP_GRACE, override):
                with suppress(InvalidInput):  # a schedule that this machine cannot read
                    if (one := LateJob.of(job, now)) is not None:
                        late.append((job, one))
            if len(late) <= FEW:
                return 0
            self.refresh(override)
            jobs = [one for _, one in late]
            offsets = self._load.query(
                lambda model, _: spread_late(model, epoch_second(now), jobs, seconds)
            )
            starts = [
                (job, now + timedelta(seconds=offset))
                for (job, _), offset in zip(late, offsets, strict=True)
                if offset
            ]
            windows = [window_of(job) for job, _ in starts]
            inside = [
                (job, start)
                for (job, start), window in zip(starts, windows, strict=True)
                if window is None or window.contains(start)
            ]
            waiting = self._store.placement.delay_late(inside, override)
        if waiting:
            figures = {"late": len(late), "put_off": waiting, "within_seconds": max(offsets)}
            logger.warning("Late jobs start one after the other", extra=figures)
        return waiting

    # -- how even it is --------------------------------------------------------------------------

    def distribution(self) -> Distribution:
        """How even the schedule is now, read from the database."""
        return self._recent.refresh()

    def recent_distribution(self) -> Distribution | None:
        """How even it was a few seconds ago, for callers that must not wait; None while it is
        being read for the first time."""
        recent = self._recent.get()
        if isinstance(recent.error, EvenbeatError):
            logger.warning("The distribution could not be read", extra={"error": str(recent.error)})
        return recent.value

    def _read(self) -> Distribution:
        self._load.read_again(self._override())
        return self._load.query(distribution)

    def history(self, since: datetime | None = None) -> list[DistributionPoint]:
        """How even it was, a point every five minutes for thirty days, oldest first."""
        return self._store.placement.history(since)

    def watch(self) -> int:
        """Note how even the schedule is, and speak up once when it has become uneven."""
        return self._note(self.distribution())

    def _note(self, current: Distribution) -> int:
        now = self._override()
        figures = {name: getattr(current, name) for name in _NOTED}
        history = {name: figures[name] for name in DistributionPoint._fields if name != "at"}
        at = self._store.placement.record_distribution(**history, now=now)
        pruned = self._store.placement.prune(before=at - HISTORY) + self._keep_off_peak(at)
        alert = {
            "score": round(current.score, 4),
            "peak_load": round(current.peak_load, 3),
            "mean_load": round(current.mean_load, 3),
            "total_jobs": current.total_jobs,
            "suggestion": current.suggestion,
        }
        low = {"low": self.is_low(current)}
        if self._store.webhooks.note_balance(FIGURE, figures | low, alert, now=now):
            logger.warning(
                "Distribution is uneven",
                extra={
                    "distribution_score": round(current.score, 2),
                    "peak_load": round(current.peak_load, 1),
                    "mean_load": round(current.mean_load, 1),
                    "suggestion": current.suggestion,
                },
            )
            load = (current.score, current.peak_load, current.mean_load)
            event = BalanceEvent(EventKind.BALANCE_LOW, at, *load, current.suggestion)
            self._events.emit(event)
        return 1 + pruned

    def _keep_off_peak(self, at: datetime) -> int:
        """Take other off-peak hours, once a day at most, if the load has moved; give every job that
        runs off-peak the hours of today. Returns how many jobs got others."""
        known, now = self._load.off_peak(), self._override()
        if known is None:
            return 0
        hours = known.present
        if at - known.since >= OFF_PEAK_STAYS:
            hours = known.found
            if hours != known.present or known.since == BEGIN:
                self._store.upkeep.save_figure(OFF_PEAK, {"hours": str(hours)}, now=now)
                self._load.expire()
                logger.info("Off-peak hours found", extra={"hours": str(hours)})
        elsewhere = self._store.placement.off_peak_jobs(hours, now)
        for job_id in elsewhere:
            with suppress(NotFound):  # deleted meanwhile
                self._store.control.update(job_id, now=now)
        return len(elsewhere)

    def is_low(self, current: Distribution) -> bool:
        """Whether the score is low enough for an alert, and not just because there are few jobs:
        one worker too many is as even as few jobs can be."""
        alert = self._settings.balance_alert_score
        return current.score < alert and current.workers_needed > current.workers_sufficient + 1

    # -- making it more even ---------------------------------------------------------------------

    def preview(self, max_moves: int | None = None) -> PlanPreview:
        """What a rebalance would do. Writes nothing."""
        return self._rebalancer.preview(max_moves)

    def rebalance(
        self, max_moves: int | None = None, *, by: str | None = None, plan_id: str | None = None
    ) -> Rebalance:
        """Move jobs so that fewer run at once; with a preview's `plan_id`, those of its moves that
        still hold. A job that has changed since it was looked at is left alone."""
        done = self._rebalancer.rebalance(max_moves, by=by, plan_id=plan_id)
        self._load.expire()
        with _errors_logged("The distribution after the rebalance could not be noted"):
            self._note(done.after)
        for skipped in done.skipped[:1]:  # one rebalance is one event, however many it leaves alone
            logger.warning(
                "Job skipped during rebalance",
                extra={"job_id": str(skipped.job_id), "reason": skipped.reason},
            )
        if len(done.skipped) > 1:
            reasons = Counter(skipped.reason for skipped in done.skipped[1:])
            logger.warning(
                "More jobs skipped during rebalance", extra=dict(sorted(reasons.items()))
            )
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
        return done

    def undo(self, rebalance_id: UUID, *, by: str | None = None) -> UndoResult:
        """Put back every job that is still where a rebalance put it. Once only: `Conflict` the
        second time, `NotFound` for an unknown one."""
        undone = self._store.placement.undo(rebalance_id, by=by, now=self._override())
        self._load.expire()
        with _errors_logged("The distribution after the undo could not be noted"):
            self.watch()
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
        if type(limit) is not int or not 1 <= limit <= _MOST_LISTED:
            raise InvalidInput(
                f"limit must be a whole number from 1 to {_MOST_LISTED}, got {limit!r}.",
                field="limit",
            )
        return self._store.placement.rebalances(limit)

    def moves_of(self, rebalance_id: UUID) -> list[MoveRecord]:
        """The single moves of a rebalance, kept for thirty days."""
        return self._store.placement.moves_of(rebalance_id)

    def counters(self) -> PlacementTotals:
        totals = self._store.placement.totals()
        with self._counting:
            return totals._replace(placements={**self._placements, **totals.placements})


@contextmanager
def _errors_logged(message: str) -> Iterator[None]:
    """What goes wrong here is logged, and no job fails because of it."""
    try:
        yield
    except Exception:
        logger.exception(message)
