"""The load as this process knows it: read from the database, refreshed, and kept between jobs.

A full reading counts what was placed up to a minute before it, and lists more recent placements by
id. Those are looked up again every few seconds, so that jobs placed on other nodes count soon;
everything else (pauses, deletions, measured durations) counts with the next full reading. Being
behind costs a little evenness, never a run.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from uuid import UUID

from evenbeat.domain.load_entry import SlackCron
from evenbeat.domain.moments import BEGIN
from evenbeat.domain.schedule import Cron
from evenbeat.domain.window import OFF_PEAK, ExecutionWindow, parse_window
from evenbeat.errors import DatabaseUnavailable, StoreError
from evenbeat.placement.load import Beat, LoadModel, cron_loads, duration_ms
from evenbeat.placement.off_peak import off_peak_hours
from evenbeat.placement.planner import Placed, Rhythm, place, place_crons, place_many
from evenbeat.placement.windowed import Hours
from evenbeat.store.placement import PlacedJob, PlacementRequest
from evenbeat.store.store import Store

logger = logging.getLogger("evenbeat.balance")

_Result = TypeVar("_Result")

REBUILD = timedelta(minutes=5)
LOOK_SECONDS = 5.0
# A report reads everything again if that is quick, otherwise at most a twentieth of the time. A few
# rows are always read again: if that took long, the machine was busy and the next time will not.
_QUICK = 0.25
_FEW_ROWS = 1_000
_QUICK_LOOK = 0.05
# Placements of transactions that are still open are waited for this long.
_OVERLAP = timedelta(minutes=1)


class Reservation(NamedTuple):
    """A place that was assigned recently. One assigned here has `placed` until it is certainly in
    the database, and the `request` that it answers until that is confirmed."""

    beat: Beat
    since: float
    placed: Placed | None = None
    request: PlacementRequest | None = None


class OffPeak(NamedTuple):
    """The off-peak hours as they were found last, since when, and as they would be found now."""

    present: ExecutionWindow
    since: datetime
    found: ExecutionWindow


class _Reading(NamedTuple):
    """One full reading of the database, and the placements more recent than it."""

    model: LoadModel
    names: dict[str, str]
    read_at: datetime
    recent_from: datetime
    reservations: dict[UUID, Reservation]
    off_peak: OffPeak | None = None
    task_durations: Mapping[str, float] = MappingProxyType({})

    def count_recent(self, jobs: Iterable[PlacedJob]) -> None:
        """Count recent placements as the database shows them."""
        moment, added = time.monotonic(), []
        for job in jobs:
            beat = _beat(*job[1:6])
            known = self.reservations.get(job.id)
            # A run in between changes neither the rhythm nor, much, its cost.
            if (
                known is not None
                and job.live
                and known.beat.period == beat.period
                and known.beat.hours == beat.hours
                and (known.beat.phase - beat.phase) % beat.period == 0
            ):
                continue
            self.release(job.id)
            if job.live:
                self.reservations[job.id] = Reservation(beat, moment)
                added.append(beat)
        self.model.add_many(added)

    def release(self, job_id: UUID) -> None:
        """Free the place of a job, if it has one."""
        reservation = self.reservations.pop(job_id, None)
        if reservation is not None:
            self.model.remove(reservation.beat)


def _beat(
    every: int, second: int, cost_ms: float | None, window: str | None, is_balanced: bool
) -> Beat:
    hours = None if window is None else Hours(window, is_balanced)
    return Beat(every, second, duration_ms(cost_ms), hours, not is_balanced)


class LoadCache:
    """The load model of this process; safe to use from many threads."""

    def __init__(self, store: Store, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._store = store
        self._look_seconds = look_seconds
        self._current: _Reading | None = None
        self._using = threading.Lock()
        self._reading = threading.Lock()
        self._looked_at = 0.0
        self._outdated = True
        self._read_at = 0.0
        self._read_pause = 0.0  # between readings of everything, where that takes long
        self._looked_until = BEGIN
        self._look_pause = 0.0

    # -- keeping up ------------------------------------------------------------------------------

    def read_again(self, now: datetime | None) -> None:
        """Read everything, unless that was done a moment ago and takes long."""
        with self._reading:
            if self._outdated or time.monotonic() - self._read_at > self._read_pause:
                self._read(self._store.clock(now))

    def refresh(self, now: datetime | None) -> bool:
        """Read what is due to be read; says whether that was everything. Only one caller at a time
        waits for it, and a database that cannot be read leaves things as they were."""
        if not self._reading.acquire(blocking=self._current is None):
            return False
        try:
            current, waited = self._current, time.monotonic() - self._looked_at
            if not self._outdated and current is not None:
                if now is None and waited < self._look_seconds:
                    return False
                moment = self._store.clock(now)
                if timedelta(0) <= moment - current.read_at < REBUILD:
                    if waited >= max(self._look_seconds, self._look_pause):
                        self._look_at_recent(current, moment)
                    return False
            if current is not None and self._read_pause:
                threading.Thread(target=self._read_aside, args=(now,), daemon=True).start()
                return False
            self._read(self._store.clock(now))
        except StoreError as error:
            logger.warning("The load could not be read, placing by what is known", exc_info=error)
        except Exception:
            logger.exception("The load could not be read, placing by what is known")
        else:
            return True
        finally:
            self._reading.release()
        return False

    def expire(self) -> None:
        """Much has changed: the next refresh reads everything."""
        self._outdated = True

    def _read_aside(self, now: datetime | None) -> None:
        """Read everything, which takes long, while jobs are placed by what is known."""
        if self._reading.acquire(timeout=1):
            try:
                self._read(self._store.clock(now))
            except Exception as error:
                logger.warning("The load could not be read in the background", exc_info=error)
            finally:
                self._reading.release()

    def _read(self, now: datetime) -> None:
        """Everything from the database, and our own placements that it does not show yet."""
        begun = self._looked_at = time.monotonic()
        self._outdated = False
        recent_from, placement = now - _OVERLAP, self._store.placement
        counted = placement.interval_counts(until=recent_from)
        crons, task_durations = placement.cron_jobs(), placement.task_durations()
        recent = placement.placed_jobs(since=recent_from)
        figure = self._store.upkeep.figures().get(OFF_PEAK)
        model = LoadModel(now)
        for later in (False, True):  # off-peak jobs last, as the others say when that is
            some = [row for row in counted if (row[3] or "").startswith(OFF_PEAK) is later]
            model.add_many([_beat(*row[:5]) for row in some], [row[5] for row in some])
            model.add_crons(
                cron_loads(
                    c for c in crons if (c.execution_window or "").startswith(OFF_PEAK) is later
                )
            )
            if not later:
                known = None if self._current is None else self._current.off_peak
                hours = None if known is None else known.present
                hours = hours if figure is None else parse_window(figure.value["hours"])
                found = off_peak_hours(model, hours)
                since = BEGIN if figure is None else figure.updated_at
                off_peak = OffPeak(hours or found, since, found)
        names = {str(c.id): c.name for c in crons}
        reading = _Reading(model, names, now, recent_from, {}, off_peak, task_durations)
        with self._using:
            reading.count_recent(recent)
            # Places assigned here a moment ago, whose transactions may still be open.
            shown, oldest = {job.id for job in recent}, time.monotonic() - _OVERLAP.total_seconds()
            for id_, own in self._current.reservations.items() if self._current else ():
                if own.placed is not None and id_ not in shown and own.since > oldest:
                    reading.reservations[id_] = own
                    model.add(own.beat)
            self._current = reading
        self._looked_until, self._look_pause = now, 0.0
        self._read_at = time.monotonic()
        took, rows = self._read_at - begun, len(counted) + len(crons) + len(recent)
        self._read_pause = 20 * took if took > _QUICK and rows > _FEW_ROWS else 0.0

    def _look_at_recent(self, current: _Reading, moment: datetime) -> None:
        """Count what was placed since the last look. After an import of many jobs even that takes
        long for a minute: then it may take a twentieth of the time."""
        begun = self._looked_at = time.monotonic()
        since = max(current.recent_from, self._looked_until - _OVERLAP)
        recent = self._store.placement.placed_jobs(since=since)
        with self._using:
            current.count_recent(recent)
        self._looked_until = moment
        took = time.monotonic() - begun
        self._look_pause = 20 * took if took > _QUICK_LOOK else 0.0

    # -- using it --------------------------------------------------------------------------------

    def reserve(self, requests: Sequence[PlacementRequest], now: datetime) -> list[Placed]:
        """A place for each, counted from now on."""
        with self._using:
            if self._current is None:
                self._current = _Reading(LoadModel(now), {}, now - REBUILD, now, {})
            current = self._current
            for request in requests:
                current.release(request.job_id)
            rhythms = []
            for own in requests:  # one that has not run yet is expected to take what its task takes
                cost = own.cost_ms or current.task_durations.get(own.task)
                is_rough = own.cost_ms is None
                rhythms.append(Rhythm(own.every, cost, own.window, own.delay, is_rough))
            places = place_many(current.model, rhythms, now)
            moment = time.monotonic()
            for request, placed in zip(requests, places, strict=True):
                reservation = Reservation(placed.beat, moment, placed, request)
                current.reservations[request.job_id] = reservation
            return places

    def place_crons(self, crons: Sequence[SlackCron], now: datetime) -> list[Cron]:
        """A place for each, counted until everything is read again."""
        with self._using:
            if self._current is None:
                return place_crons(LoadModel(now), crons)
            durations = self._current.task_durations
            known = [one._replace(cost_ms=one.cost_ms or durations.get(one.task)) for one in crons]
            return place_crons(self._current.model, known)

    def confirm(
        self, stored: Iterable[UUID], dropped: Iterable[UUID], *, committed: bool
    ) -> list[Reservation]:
        """Free the places of those dropped; returns those of the stored that were assigned here
        and not confirmed before."""
        with self._using:
            current, confirmed = self._current, []
            if current is None:
                return []
            for id_ in dropped:
                current.release(id_)
            for id_ in stored:
                own = current.reservations.get(id_)
                if own is not None and own.request is not None:
                    confirmed.append(own)
                    placed = None if committed else own.placed
                    current.reservations[id_] = Reservation(own.beat, own.since, placed)
            return confirmed

    def off_peak(self) -> OffPeak | None:
        """The off-peak hours, once the load is known."""
        return None if self._current is None else self._current.off_peak

    def where(self, job: Rhythm, now: datetime) -> Placed:
        """Where a job would be placed; nothing changes."""
        with self._using:
            return place(self._current.model if self._current else LoadModel(now), job, now)

    def query(self, question: Callable[[LoadModel, Mapping[str, str]], _Result]) -> _Result:
        """What a function returns for the model and the names of its cron jobs."""
        with self._using:
            if self._current is None:
                raise DatabaseUnavailable("The load could not be read from the database so far.")
            return question(self._current.model, self._current.names)
