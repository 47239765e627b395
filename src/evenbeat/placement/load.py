"""The load model: how many runs are expected at once, for every second of the coming week.

Load adds up, so the model keeps the sum and no list of jobs: four arrays of fixed size hold a
million jobs as well as one. Jobs are placed by seconds; cells (minutes) and slots are for display.

Durations are guesses. `uncertain_load` is the mean of what the load would be if every run took half
as long and if every run took twice as long. Where several starts are equally good, a job goes where
this one is lowest, so that an overrun meets room instead of the next run.

Intervals that divide the week stay exact. Others are exact for the week that starts at `since`;
their phase against the week drifts, so a model is rebuilt every few minutes.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

import numpy as np

from evenbeat.domain.load_entry import CronEntry, LoadEntry
from evenbeat.domain.moments import EPOCH
from evenbeat.domain.schedule import Cron
from evenbeat.errors import InvalidInput
from evenbeat.placement.periodic_load import (
    CELL,
    HALF,
    LONGEST_MS,
    RUN,
    SLOT,
    UNKNOWN_MS,
    WEEK,
    Beat,
    Ints,
    Load,
    RunShape,
    add_cron_changes,
    add_cycle,
    add_runs,
    cron_starts,
    cycle_load,
    duration_ms,
    epoch_second,
    level_of,
)

# Up to so many jobs of one period, adding one by one is faster than summing up a whole cycle.
_FEW = 16
_MICROSECOND = timedelta(microseconds=1)


class CronLoad(NamedTuple):
    cron: Cron
    duration_ms: int


def beat_of(job: LoadEntry) -> Beat:
    """The beat of an interval job: the phase of its next run, or of its anchor without one."""
    phase = job.next_run_at or job.plan_time or job.anchor_at or EPOCH
    return Beat(job.interval_seconds or 1, epoch_second(phase), duration_ms(job.cost_ms))


def table_of(jobs: Sequence[LoadEntry]) -> tuple[Ints, Ints]:
    """The beats of many interval jobs as rows (period, phase, duration in ms), and their phases in
    microseconds since 1970: the same as `beat_of`, in a fraction of the time."""
    count = len(jobs)
    phases = (job.next_run_at or job.plan_time or job.anchor_at or EPOCH for job in jobs)
    due = np.fromiter(((phase - EPOCH) // _MICROSECOND for phase in phases), np.int64, count)
    costs = (UNKNOWN_MS if job.cost_ms is None else job.cost_ms for job in jobs)
    lasting = np.clip(np.rint(np.fromiter(costs, np.float64, count)), 1, LONGEST_MS)
    every = np.fromiter((job.interval_seconds or 1 for job in jobs), np.int64, count)
    return np.column_stack([every, due // 1_000_000, lasting.astype(np.int64)]), due


def cron_loads(jobs: Iterable[CronEntry | LoadEntry]) -> dict[str, CronLoad]:
    """The loads of cron jobs by id. One that cannot be read here (its time zone may be newer than
    this machine's list of them) is left out, so that the others can still be placed."""
    loads = {}
    for job in jobs:
        with suppress(InvalidInput):
            cron = Cron(job.cron_expression or "", job.timezone)
            loads[str(job.id)] = CronLoad(cron, duration_ms(job.cost_ms))
    return loads


class LoadModel:
    """Expected load over the week from `since` (the start of a slot). Not thread-safe."""

    def __init__(self, since: datetime) -> None:
        self.since = epoch_second(since) // SLOT * SLOT
        self.jobs = 0
        self.seconds: Load = np.zeros(WEEK, np.int32)
        self.uncertain_load: Load = np.zeros(WEEK, np.int32)
        self.cells: Ints = np.zeros(WEEK // CELL, np.int64)
        self.starts: Ints = np.zeros(WEEK // SLOT, np.int64)
        self.crons: dict[str, CronLoad] = {}

    @classmethod
    def of(cls, snapshot: Iterable[LoadEntry], now: datetime) -> "LoadModel":
        """The model of everything in the snapshot that is not paused."""
        active = [job for job in snapshot if job.status != "paused"]
        model = cls(now)
        model.add_table(table_of([job for job in active if job.schedule_kind == "interval"])[0])
        model.add_crons(cron_loads(job for job in active if job.schedule_kind == "cron"))
        return model

    def add(self, beat: Beat, count: int = 1) -> None:
        """Count in a job, or several alike; the cost does not depend on how many are known."""
        shape, start = RunShape.of(beat.period, beat.duration_ms), beat.phase - self.since
        add_runs(self.seconds, shape, start, count)
        for uncertain in (-(-beat.duration_ms // 2), 2 * beat.duration_ms):
            half = RunShape.of(beat.period, uncertain, HALF)
            add_runs(self.uncertain_load, half, start, count)
        # Busy time up to a moment is known in closed form: whole cycles, then the open one.
        cycle, start = shape.cycle, start % shape.cycle
        cycles, within = np.divmod(np.arange(0, WEEK + 1, CELL) - start, cycle)
        busy = shape.whole * shape.height + shape.part
        self.cells += np.diff(cycles * busy + np.minimum(within * shape.height, busy)) * count
        begun = np.diff(-((start - np.arange(0, WEEK + 1, SLOT)) // cycle))
        self.starts += begun * shape.height * count
        self.jobs += count

    def remove(self, beat: Beat, count: int = 1) -> None:
        """Undo `add` exactly; give the same beat."""
        self.add(beat, -count)

    def add_many(self, beats: Sequence[Beat], counts: Sequence[int] | None = None) -> None:
        """Count in many jobs; with `counts`, the rows of a grouped query."""
        if beats:
            numbers = None if counts is None else np.array(counts, np.int64)
            flat = np.fromiter(chain.from_iterable(beats), np.int64, 3 * len(beats))
            self.add_table(flat.reshape(-1, 3), numbers)

    def add_table(self, table: Ints, counts: Ints | None = None) -> None:
        """The same for rows (period, phase, duration in ms)."""
        numbers = np.ones(len(table), np.int64) if counts is None else counts
        order = np.argsort(table[:, 0], kind="stable")
        edges = np.flatnonzero(np.diff(table[order, 0])) + 1
        for of_period in np.split(order, edges):
            rows, number = table[of_period], numbers[of_period]
            if len(rows) <= _FEW:
                for row, count in zip(rows.tolist(), number.tolist(), strict=True):
                    self.add(Beat(*row), count)
                continue
            period, lasting = int(rows[0, 0]), rows[:, 2]
            shape, half = RunShape.of(period, 1), RunShape.of(period, 1, HALF)
            starts = (rows[:, 1] - self.since) % shape.cycle
            add_cycle(self.seconds, cycle_load(starts, lasting, shape, number))
            for uncertain in (-(-lasting // 2), 2 * lasting):
                add_cycle(self.uncertain_load, cycle_load(starts, uncertain, half, number))
            begun = np.bincount(starts, weights=shape.height * number, minlength=shape.cycle)
            self._add_starts(np.resize(begun.astype(np.int64), WEEK))
            self.jobs += int(number.sum())
        self._sum_cells()

    def add_crons(self, jobs: dict[str, CronLoad]) -> None:
        """Count in cron jobs at their real plans of the week, by the labels that name them in
        reports; those with the same expression share their walk of the week."""
        self.crons |= jobs
        durations: dict[Cron, list[int]] = defaultdict(list)
        for job in jobs.values():
            durations[job.cron].append(job.duration_ms)
        changes = np.zeros((2, WEEK + 1))
        begun = np.zeros(WEEK, np.int64)
        for cron, lasting in durations.items():
            starts = cron_starts(cron, self.since)
            uncertain = [-(-ms // 2) for ms in lasting] + [2 * ms for ms in lasting]
            add_cron_changes(changes[0], starts, lasting)
            add_cron_changes(changes[1], starts, uncertain, HALF)
            begun[starts[1:]] += RUN * len(lasting)
        self.seconds += level_of(changes[0])
        self.uncertain_load += level_of(changes[1])
        self._add_starts(begun)
        self.jobs += len(jobs)
        self._sum_cells()

    def _add_starts(self, per_second: Ints) -> None:
        self.starts += per_second.reshape(-1, SLOT).sum(axis=1)

    def _sum_cells(self) -> None:
        self.cells = self.seconds.reshape(-1, CELL).sum(axis=1, dtype=np.int64)

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
        return score(self.mean, self.peak)


def score(mean: float, peak: float) -> float:
    """Mean load over peak load: 1.0 is perfectly even. Runs are whole, so neither counts as less
    than one: a few short jobs that never meet are as even as can be."""
    return min(1.0, max(1.0, mean) / max(1.0, peak))
