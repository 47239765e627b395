"""The load as this process knows it: read from the database, refreshed, and kept between jobs.

A full reading counts what was placed up to a minute before it, and lists the younger placements by
id. Those are looked up again every few seconds, so that jobs placed on other nodes count soon;
everything else (pauses, deletions, measured durations) counts with the next full reading. Being
behind costs a little evenness, never a run.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar
from uuid import UUID

from evenbeat.balance.batch import place_many
from evenbeat.domain.moments import BEGIN
from evenbeat.errors import DatabaseUnavailable, StoreError
from evenbeat.placement import Beat, LoadModel, Placed, Rhythm, crons_of, place
from evenbeat.placement.periodic_load import duration_ms
from evenbeat.store.placement import PlacedJob, PlacementRequest
from evenbeat.store.store import Store

logger = logging.getLogger("evenbeat.balance")

_Told = TypeVar("_Told")

REBUILD = timedelta(minutes=5)
LOOK_SECONDS = 5.0
# A report reads everything anew if that is quick, else at most a twentieth of the time.
_QUICK = 0.25
_QUICK_LOOK = 0.05
# Placements of transactions that are still open are waited for this long.
_OVERLAP = timedelta(minutes=1)


class Reservation(NamedTuple):
    """A place that was given lately. One given here has `placed` until it is surely in the
    database, and the `request` that it answers until that is settled."""

    beat: Beat
    since: float
    placed: Placed | None = None
    request: PlacementRequest | None = None


class _Known(NamedTuple):
    """One full reading, and the placements that are younger than it."""

    model: LoadModel
    names: dict[str, str]
    read_at: datetime
    young_from: datetime
    seats: dict[UUID, Reservation]


class LoadCache:
    """The load model of this process; safe to use from many threads."""

    def __init__(self, store: Store, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._store = store
        self._look_seconds = look_seconds
        self._known: _Known | None = None
        self._using = threading.Lock()
        self._reading = threading.Lock()
        self._looked_at = 0.0
        self._outdated = True
        self._read_at = 0.0
        self._patience = 0.0
        self._seen_until = BEGIN
        self._look_patience = 0.0

    # -- keeping up ------------------------------------------------------------------------------

    def reread(self, now: datetime | None) -> None:
        """Read everything, unless that was done a moment ago and takes long."""
        with self._reading:
            if self._outdated or time.monotonic() - self._read_at > self._patience:
                self._read(self._store.clock(now))

    def refresh(self, now: datetime | None) -> bool:
        """Read what is due to be read; says whether that was everything. Only one caller at a time
        waits for it, and a database that cannot be read leaves things as they were."""
        if not self._reading.acquire(blocking=self._known is None):
            return False
        try:
            return self._refresh(now)
        except StoreError as error:
            logger.warning("The load could not be read, placing by what is known", exc_info=error)
        except Exception:
            logger.exception("The load could not be read, placing by what is known")
        finally:
            self._reading.release()
        return False

    def expire(self) -> None:
        """Much has changed: the next refresh reads everything."""
        self._outdated = True

    def _refresh(self, now: datetime | None) -> bool:
        known, waited = self._known, time.monotonic() - self._looked_at
        if not self._outdated and known is not None:
            if now is None and waited < self._look_seconds:
                return False
            moment = self._store.clock(now)
            if timedelta(0) <= moment - known.read_at < REBUILD:
                if waited >= max(self._look_seconds, self._look_patience):
                    self._look_at_young(known, moment)
                return False
        if known is not None and self._patience:
            threading.Thread(target=self._read_beside, args=(now,), daemon=True).start()
            return False
        self._read(self._store.clock(now))
        return True

    def _read_beside(self, now: datetime | None) -> None:
        """Read everything while jobs are placed by what is known: it takes long."""
        if self._reading.acquire(timeout=1):
            try:
                self._read(self._store.clock(now))
            except Exception as error:
                logger.warning("The load could not be read beside", exc_info=error)
            finally:
                self._reading.release()

    def _read(self, now: datetime) -> None:
        """Everything from the database, and our own placements that it does not show yet."""
        begun = self._looked_at = time.monotonic()
        self._outdated = False
        young_from, placement = now - _OVERLAP, self._store.placement
        counted = placement.beats(until=young_from)
        crons = placement.crons()
        young = placement.placed(since=young_from)
        model = LoadModel(now)
        model.add_many(
            [Beat(b.interval_seconds, b.second, duration_ms(b.cost_ms)) for b in counted],
            [b.jobs for b in counted],
        )
        model.add_crons(crons_of(crons))
        known = _Known(model, {str(c.id): c.name for c in crons}, now, young_from, {})
        with self._using:
            _take_seats(known, young)
            _keep_own(known, self._known, {job.id for job in young})
            self._known = known
        self._seen_until, self._look_patience = now, 0.0
        self._read_at = time.monotonic()
        took = self._read_at - begun
        self._patience = 20 * took if took > _QUICK else 0.0

    def _look_at_young(self, known: _Known, moment: datetime) -> None:
        """Count what was placed since the last look. After an import of many jobs even that takes
        long for a minute: then it may take a twentieth of the time."""
        begun = self._looked_at = time.monotonic()
        since = max(known.young_from, self._seen_until - _OVERLAP)
        young = self._store.placement.placed(since=since)
        with self._using:
            _take_seats(known, young)
        self._seen_until = moment
        took = time.monotonic() - begun
        self._look_patience = 20 * took if took > _QUICK_LOOK else 0.0

    # -- using it --------------------------------------------------------------------------------

    def reserve(self, requests: Sequence[PlacementRequest], now: datetime) -> list[Placed]:
        """A place for each, counted from now on."""
        with self._using:
            known = self._known or _nothing(now)
            self._known = known
            for request in requests:
                _leave(known, request.job_id)
            rhythms = [Rhythm(request.every, request.cost_ms) for request in requests]
            placed = place_many(known.model, rhythms, now)
            moment = time.monotonic()
            for request, place_ in zip(requests, placed, strict=True):
                known.seats[request.job_id] = Reservation(place_.beat, moment, place_, request)
            return placed

    def confirm(
        self, stored: Iterable[UUID], dropped: Iterable[UUID], *, committed: bool
    ) -> list[Reservation]:
        """Give back the places of those dropped; returns those of the stored that were given here
        and not settled before."""
        with self._using:
            known, settled = self._known, []
            if known is None:
                return []
            for id_ in dropped:
                _leave(known, id_)
            for id_ in stored:
                seat = known.seats.get(id_)
                if seat is not None and seat.request is not None:
                    settled.append(seat)
                    placed = None if committed else seat.placed
                    known.seats[id_] = Reservation(seat.beat, seat.since, placed)
            return settled

    def look(self, job: Rhythm, now: datetime) -> Placed:
        """Where a job would be placed; nothing changes."""
        with self._using:
            return place(self._known.model if self._known else LoadModel(now), job, now)

    def told(self, tell: Callable[[LoadModel, Mapping[str, str]], _Told]) -> _Told:
        """What `tell` says of the model and the names of its cron jobs."""
        with self._using:
            if self._known is None:
                raise DatabaseUnavailable("The load could not be read from the database so far.")
            return tell(self._known.model, self._known.names)


def _nothing(now: datetime) -> _Known:
    return _Known(LoadModel(now), {}, now - REBUILD, now, {})


def _take_seats(known: _Known, young: Iterable[PlacedJob]) -> None:
    """Count young placements as the database shows them."""
    moment, added = time.monotonic(), []
    for job in young:
        beat = Beat(job.interval_seconds, job.second, duration_ms(job.cost_ms))
        seat = known.seats.get(job.id)
        if seat is not None and job.live and _same(seat.beat, beat):
            continue
        _leave(known, job.id)
        if job.live:
            known.seats[job.id] = Reservation(beat, moment)
            added.append(beat)
    known.model.add_many(added)


def _same(one: Beat, other: Beat) -> bool:
    """Whether two beats are one rhythm; a run in between changes neither it nor, much, its cost."""
    return one.period == other.period and (one.phase - other.phase) % one.period == 0


def _keep_own(known: _Known, before: _Known | None, shown: set[UUID]) -> None:
    """Places given here a moment ago, whose transactions may not be over."""
    if before is None:
        return
    oldest = time.monotonic() - _OVERLAP.total_seconds()
    for id_, seat in before.seats.items():
        if seat.placed is not None and id_ not in shown and seat.since > oldest:
            known.seats[id_] = seat
            known.model.add(seat.beat)


def _leave(known: _Known, id_: UUID) -> None:
    seat = known.seats.pop(id_, None)
    if seat is not None:
        known.model.remove(seat.beat)
