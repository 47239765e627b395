"""The load model: how many runs are expected at once, for every second of the coming week.

Load adds up, so the model keeps the sum and no list of jobs: four arrays of fixed size hold a
million jobs as well as one. Seconds serve to place, cells (minutes) and slots to look at.

Durations are guesses. `uncertain_load` is the mean of what the load would be if every run took half
as long and if every run took twice as long. Where several starts are equally good, a job goes where
this one is lowest, so that an overrun meets room instead of the next run.

Intervals that divide the week are exact for ever. Others are exact for the week that starts at
`since`; their beat against the week drifts, so a model is rebuilt every few minutes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from evenbeat.domain.moments import EPOCH
from evenbeat.domain.schedule import Cron
from evenbeat.errors import InvalidInput
from evenbeat.placement import periodic_load
from evenbeat.placement.periodic_load import CELL, FEW, HALF, RUN, SLOT, WEEK, Beat, Ints, Load

_CHUNK = 2_000_000


class SnapshotJob(Protocol):
    """A recurring job as the store describes it; `LoadEntry` is one."""

    @property
    def id(self) -> UUID: ...
    @property
    def name(self) -> str | None: ...
    @property
    def schedule_kind(self) -> str: ...
    @property
    def interval_seconds(self) -> int | None: ...
    @property
    def cron_expression(self) -> str | None: ...
    @property
    def timezone(self) -> str: ...
    @property
    def anchor_at(self) -> datetime | None: ...
    @property
    def plan_time(self) -> datetime | None: ...
    @property
    def next_run_at(self) -> datetime | None: ...
    @property
    def status(self) -> str: ...
    @property
    def placement(self) -> str | None: ...
    @property
    def placed_at(self) -> datetime | None: ...
    @property
    def cost_ms(self) -> float | None: ...
    @property
    def execution_window(self) -> object:
        """Anything but None says that the job runs at certain hours only."""


class CronLoad(NamedTuple):
    """A cron job in the model."""

    cron: Cron
    duration_ms: int


def beat_of(entry: SnapshotJob) -> Beat:
    """The beat of an interval job: the phase of its next run, or else of its anchor."""
    phase = entry.next_run_at or entry.plan_time or entry.anchor_at
    cost = periodic_load.duration_ms(entry.cost_ms)
    return Beat(entry.interval_seconds or 1, periodic_load.epoch_second(phase or EPOCH), cost)


def table_of(entries: Sequence[SnapshotJob]) -> tuple[Ints, Ints]:
    """The beats of many interval jobs as rows (period, phase, duration in ms), and their phases in
    microseconds since 1970: what `beat_of` says, in a fraction of the time."""
    count = len(entries)
    phases = (e.next_run_at or e.plan_time or e.anchor_at or EPOCH for e in entries)
    due = np.fromiter((periodic_load.epoch_microsecond(phase) for phase in phases), np.int64, count)
    costs = (periodic_load.UNKNOWN_MS if e.cost_ms is None else e.cost_ms for e in entries)
    lasting = np.clip(np.rint(np.fromiter(costs, np.float64, count)), 1, periodic_load.LONGEST_MS)
    every = np.fromiter((e.interval_seconds or 1 for e in entries), np.int64, count)
    return np.column_stack([every, due // 1_000_000, lasting.astype(np.int64)]), due


class CronJob(Protocol):
    """As much of a cron job as its load needs."""

    @property
    def id(self) -> UUID: ...
    @property
    def cron_expression(self) -> str | None: ...
    @property
    def timezone(self) -> str: ...
    @property
    def cost_ms(self) -> float | None: ...


def cron_of(entry: CronJob) -> CronLoad:
    """The load of a cron job."""
    cron = Cron(entry.cron_expression or "", entry.timezone)
    return CronLoad(cron, periodic_load.duration_ms(entry.cost_ms))


def crons_of(entries: Iterable[CronJob]) -> dict[str, CronLoad]:
    """The loads of cron jobs by id. One that cannot be read here (its time zone may be newer than
    this machine's list of them) is left out: it must not cost all others their place."""
    loads = {}
    for entry in entries:
        with suppress(InvalidInput):
            loads[str(entry.id)] = cron_of(entry)
    return loads


class LoadModel:
    """Expected load over the week from `since` (the start of a slot). Not thread-safe."""

    def __init__(self, since: datetime) -> None:
        self.since = periodic_load.epoch_second(since) // SLOT * SLOT
        self.jobs = 0
        self.seconds: Load = np.zeros(WEEK, np.int32)
        self.uncertain_load: Load = np.zeros(WEEK, np.int32)
        self.cells: Ints = np.zeros(WEEK // CELL, np.int64)
        self.starts: Ints = np.zeros(WEEK // SLOT, np.int64)
        self.crons: dict[str, CronLoad] = {}

    @classmethod
    def of(cls, snapshot: Iterable[SnapshotJob], now: datetime) -> "LoadModel":
        """The model of everything in the snapshot that is not paused."""
        active = [entry for entry in snapshot if entry.status != "paused"]
        model = cls(now)
        model.add_table(table_of([e for e in active if e.schedule_kind == "interval"])[0])
        model.add_crons(crons_of(entry for entry in active if entry.schedule_kind == "cron"))
        return model

    # ------------------------------------------------------------ one job

    def add(self, beat: Beat, count: int = 1) -> None:
        """Count in a job, or several alike; the cost does not depend on how many are known."""
        box, start = periodic_load.box_of(beat.period, beat.duration_ms), beat.phase - self.since
        periodic_load.add_beat(self.seconds, box, start, count)
        for in_doubt in (-(-beat.duration_ms // 2), 2 * beat.duration_ms):
            periodic_load.add_beat(
                self.uncertain_load, periodic_load.box_of(beat.period, in_doubt, HALF), start, count
            )
        self.cells += _cells_of(box, start) * count
        self.starts += periodic_load.per_slot(box.fold, start, box.height) * count
        self.jobs += count

    def remove(self, beat: Beat, count: int = 1) -> None:
        """Undo `add` exactly; give the same beat."""
        self.add(beat, -count)

    def move(self, old: Beat, new: Beat) -> None:
        """Count a job at its new beat."""
        self.remove(old)
        self.add(new)

    def add_cron(self, label: str, job: CronLoad) -> None:
        """Count in a cron job at its real plans of the week; the label names it in reports."""
        self.add_crons({label: job})

    def remove_cron(self, label: str) -> None:
        """Forget a cron job."""
        self._count_crons([self.crons.pop(label)], -1)

    # ------------------------------------------------------------ many at once

    def add_many(self, many: Sequence[Beat], counts: Sequence[int] | None = None) -> None:
        """Count in many jobs; with `counts`, the rows of a grouped query."""
        if many:
            number = None if counts is None else np.array(counts, np.int64)
            self.add_table(periodic_load.table_of(many), number)

    def add_table(self, table: Ints, counts: Ints | None = None) -> None:
        """The same for rows (period, phase, duration in ms)."""
        number = np.ones(len(table), np.int64) if counts is None else counts
        order = np.argsort(table[:, 0], kind="stable")
        table, number = table[order], number[order]
        edges = np.flatnonzero(np.diff(table[:, 0])) + 1
        for rows, of_each in zip(np.split(table, edges), np.split(number, edges), strict=True):
            self._add_period(rows, of_each)
        self._sum_cells()

    def _add_period(self, rows: Ints, counts: Ints) -> None:
        if len(rows) <= FEW:
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                self.add(Beat(*row), count)
            return
        box, starts, parts = boxes_of(rows, self.since)
        periodic_load.lay(self.seconds, _fold_of(starts, parts, counts, box.fold))
        for in_doubt in (-(-rows[:, 2] // 2), 2 * rows[:, 2]):
            _, _, uncertain_load = boxes_of(
                np.column_stack([rows[:, :2], in_doubt]), self.since, HALF
            )
            periodic_load.lay(
                self.uncertain_load, _fold_of(starts, uncertain_load, counts, box.fold)
            )
        begun = np.bincount(starts, weights=parts[2] * counts, minlength=box.fold)
        self.starts += _per_slot(np.resize(begun.astype(np.int64), WEEK))
        self.jobs += int(counts.sum())

    def add_crons(self, jobs: dict[str, CronLoad]) -> None:
        """Count in many cron jobs; those with the same expression share their walk of the week."""
        self.crons |= jobs
        self._count_crons(list(jobs.values()), 1)

    def _count_crons(self, jobs: Sequence[CronLoad], sign: int) -> None:
        durations: dict[Cron, list[int]] = defaultdict(list)
        for job in jobs:
            durations[job.cron].append(job.duration_ms)
        changes = np.zeros((2, WEEK + 1))
        begun = np.zeros(WEEK, np.int64)
        for cron, lasting in durations.items():
            starts = periodic_load.cron_starts(cron, self.since)
            doubted = [-(-ms // 2) for ms in lasting] + [2 * ms for ms in lasting]
            for row, each, run in ((0, lasting, RUN), (1, doubted, HALF)):
                for chunk in _chunks(each, len(starts)):
                    periodic_load.change(changes[row], starts, chunk, run)
            begun[starts[1:]] += RUN * len(lasting) * sign
        self.seconds += periodic_load.level_of(changes[0]) * np.int32(sign)
        self.uncertain_load += periodic_load.level_of(changes[1]) * np.int32(sign)
        self.starts += _per_slot(begun)
        self.jobs += sign * len(jobs)
        if jobs:
            self._sum_cells()

    def cron_seconds(self, cron: Cron, durations: Sequence[int], run: int = RUN) -> Load:
        """The load of cron jobs that share an expression."""
        starts = periodic_load.cron_starts(cron, self.since)
        changes = np.zeros(WEEK + 1)
        for chunk in _chunks(durations, len(starts)):
            periodic_load.change(changes, starts, chunk, run)
        return periodic_load.level_of(changes)

    def _sum_cells(self) -> None:
        self.cells = self.seconds.reshape(-1, CELL).sum(axis=1, dtype=np.int64)

    # ------------------------------------------------------------ what it says

    @property
    def peak(self) -> float:
        """The most runs expected at once: the number of slots that workers need."""
        return float(self.seconds.max()) / RUN

    @property
    def mean(self) -> float:
        """How many runs are expected at once on average."""
        return float(self.cells.sum()) / RUN / WEEK

    @property
    def score(self) -> float:
        """How even the load is; see `score`."""
        return score(self.mean, self.peak)

    def per_cell(self) -> NDArray[np.float64]:
        """Expected concurrency in each minute of the week."""
        return self.cells / (RUN * CELL)


def _chunks(durations: Sequence[int], plans: int) -> Iterator[Ints]:
    """Durations, so many at a time that with so many plans each they fit into memory."""
    rows, each = max(1, _CHUNK // plans), np.array(durations, np.int64)
    return (each[n : n + rows] for n in range(0, len(each), rows))


def score(mean: float, peak: float) -> float:
    """Mean load over peak load: 1.0 is perfectly even. Runs are whole, so neither counts as less
    than one: a few short jobs that never meet are as even as can be."""
    return min(1.0, max(1.0, mean) / max(1.0, peak))


def boxes_of(rows: Ints, since: int, run: int = RUN) -> tuple[periodic_load.Box, Ints, list[Ints]]:
    """The boxes of beats (period, phase, duration) that share a period: their starts within the
    fold, and (whole, part, height) as arrays."""
    box = periodic_load.box_of(int(rows[0, 0]), 1, run)
    lasting = np.minimum(rows[:, 2], box.fold * 1000)
    whole, rest = np.divmod(lasting, 1000)
    part = -(-rest * box.height // 1000)
    return box, (rows[:, 1] - since) % box.fold, [whole, part, np.full_like(part, box.height)]


def _fold_of(starts: Ints, parts: list[Ints], counts: Ints, fold: int) -> Load:
    return periodic_load.fold_load(starts, [parts[0], parts[1] * counts, parts[2] * counts], fold)


def _cells_of(box: periodic_load.Box, start: int) -> Ints:
    # Busy time up to a moment is known in closed form: whole folds, then the open one.
    edges = np.arange(0, WEEK + 1, CELL) - start % box.fold
    folds, within = np.divmod(edges, box.fold)
    each = box.whole * box.height + box.part
    busy: Ints = np.diff(folds * each + np.minimum(within * box.height, each))
    return busy


def _per_slot(begun: Ints) -> Ints:
    slots: Ints = begun.reshape(-1, SLOT).sum(axis=1)
    return slots
