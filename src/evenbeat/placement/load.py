"""The load model: how many runs are expected at once, for every second of the coming week.

Load adds up, so the model keeps the sum and no list of jobs: four arrays of fixed size hold a
million jobs as well as one. It is counted in units of 1/1024 of a run: whole numbers make adding
and removing exact in any order, so two nodes that know the same jobs compute the same load to the
bit. Jobs are placed by seconds; cells (minutes) and slots are for display.

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
from functools import lru_cache
from itertools import chain
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenbeat.domain.load_entry import CronEntry, LoadEntry
from evenbeat.domain.moments import EPOCH, at_second, epoch_second
from evenbeat.domain.schedule import Cron
from evenbeat.errors import InvalidInput
from evenbeat.placement.windowed import Hours, open_spans, starts_inside, weekly_runs

WEEK = 604_800
CELL = 60
SLOT = 900
RUN = 1024  # units: one run, throughout one second
HALF = RUN // 2
UNKNOWN_MS = 60_000.0  # the assumed duration of a job until its first run has been measured
LONGEST_MS = 2**53  # longer than any interval, and still exact as a float
GOLDEN = 0.618_033_988_749_894_9  # multiples of it, modulo one, lie evenly without a memory

_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)
_CHUNK = 2_000_000
# Up to so many jobs of one period, adding one by one is faster than summing up a whole cycle.
_FEW = 16

Ints = NDArray[np.int64]
Load = NDArray[np.int32]


class Beat(NamedTuple):
    """A job as placement sees it: its interval, any moment at which a plan is due (seconds since
    1970), its duration, its window, and whether its times are somebody's choice."""

    period: int
    phase: int
    duration_ms: int
    hours: Hours | None = None
    is_fixed: bool = False


class RunShape(NamedTuple):
    """What a run adds to the week: `height` for `whole` seconds, then `part` for one.

    It repeats every `cycle` seconds: the interval, or the week if that is shorter.
    """

    cycle: int
    whole: int
    part: int
    height: int

    @classmethod
    def of(cls, period: int, duration_ms: int, run: int = RUN) -> "RunShape":
        """One job never overlaps itself, so a run fills its interval at most. An interval longer
        than a week counts in every week, weighted by how often it falls into one."""
        cycle = min(period, WEEK)
        height = max(1, round(run * cycle / period))
        whole, rest = divmod(min(duration_ms, cycle * 1000), 1000)
        return cls(cycle, whole, -(-rest * height // 1000), height)

    @property
    def seconds(self) -> int:
        return self.whole + (self.part > 0)


def duration_ms(cost_ms: float | None) -> int:
    """The expected duration in whole milliseconds, at least one."""
    return max(1, round(UNKNOWN_MS if cost_ms is None else cost_ms))


# ---------------------------------------------------------------- intervals


def add_runs(week: Load, shape: RunShape, start: int, count: int) -> None:
    """Add the runs of `count` equal jobs to the seconds of a week, in place."""
    cycle = shape.cycle
    rows = WEEK // cycle
    body, tail = week[: rows * cycle].reshape(rows, cycle), week[rows * cycle :]
    start %= cycle
    end = (start + shape.whole) % cycle
    over = max(0, start + shape.whole - cycle)  # what passes the end of a cycle goes around
    for low, high, value in (
        (start, start + shape.whole - over, shape.height),
        (0, over, shape.height),
        (end, end + 1, shape.part),
    ):
        body[:, low:high] += value * count
        tail[low:high] += value * count


def cycle_load(starts: Ints, durations_ms: Ints, shape: RunShape, counts: Ints | int = 1) -> Load:
    """The load of many jobs of one period over one cycle; all have the height of `shape`."""
    cycle = shape.cycle
    whole, rest = np.divmod(np.minimum(durations_ms, cycle * 1000), 1000)
    height = np.broadcast_to(shape.height * counts, starts.shape)
    part = -(-rest * shape.height // 1000) * counts
    ends = starts + whole
    places = np.concatenate([starts, ends, ends + 1])
    values = np.concatenate([height, part - height, -part])
    changes = np.zeros(cycle, np.int64)
    _add_at(changes, places % cycle, values)
    # What begins in one cycle and ends in the next is already running when a cycle begins.
    changes[0] += values[places < cycle].sum()
    # Sums may leave 32 bits on the way, but they return: the load itself fits.
    level: Load = np.cumsum(changes.astype(np.int32), dtype=np.int32)
    return level


def add_cycle(week: Load, level: Load) -> None:
    """Add the load of a cycle to the whole week, in place."""
    cycle = len(level)
    rows = WEEK // cycle
    week[: rows * cycle].reshape(rows, cycle)[:] += level
    tail = week[rows * cycle :]
    tail += level[: len(tail)]


def _add_at(sums: NDArray[Any], places: Ints, values: Ints) -> None:
    """Add each value at its place, whichever way is faster for so many."""
    if 8 * len(places) < len(sums):
        np.add.at(sums, places, values)
    else:
        added = np.bincount(places, weights=values, minlength=len(sums))
        sums += added.astype(sums.dtype, copy=False)


# ---------------------------------------------------------------- cron


@lru_cache(maxsize=256)
def cron_starts(cron: Cron, since: int) -> Ints:
    """Every plan of a cron job in the week from `since`, in seconds from there, preceded by the
    one before. Plans are whole minutes, so there are 10,080 at most."""
    begin, end = at_second(since) - _SECOND, at_second(since + WEEK) - _SECOND
    before = cron.latest_until(begin) or begin + _SECOND - timedelta(days=36_500)
    plans = [before, *cron.preview(begin, cron.count(begin, end))]
    return np.array([epoch_second(plan) - since for plan in plans], np.int64)


def add_cron_changes(
    changes: NDArray[np.float64], starts: Ints, durations_ms: Sequence[int], run: int = RUN
) -> None:
    """Note where cron jobs that share their plans, one duration for each job, change the load of
    the week; `level_of` adds up. That way many expressions cost one pass over the week."""
    gaps = np.append(np.diff(starts), WEEK)
    rows = max(1, _CHUNK // len(starts))  # so many jobs at a time fit into memory
    for first in range(0, len(durations_ms), rows):
        durations = np.array(durations_ms[first : first + rows], np.int64)
        lasting = np.minimum(durations[:, None], gaps[None, :] * 1000)
        begin = np.broadcast_to(starts, lasting.shape)
        end = begin + lasting // 1000
        part = -(-(lasting % 1000) * run // 1000)
        for places, values in ((begin, run + 0 * part), (end, part - run), (end + 1, -part)):
            _add_at(changes, np.clip(places, 0, WEEK).ravel(), values.ravel())


def level_of(changes: NDArray[np.float64]) -> Load:
    """The load of the week by its changes, which are whole numbers."""
    level: Load = np.cumsum(changes)[:WEEK].astype(np.int32)
    return level


# ---------------------------------------------------------------- the model


class CronLoad(NamedTuple):
    cron: Cron
    duration_ms: int
    window: str | None = None

    def starts(self, since: int) -> Ints:
        """Its real starts in the week from `since`, preceded by the one before."""
        plans = cron_starts(self.cron, since)
        if self.window is None:
            return plans
        inside, _ = starts_inside(plans[None, :], None, open_spans(self.window, since))
        return np.concatenate([plans[:1], inside])


def beat_of(job: LoadEntry) -> Beat:
    """The beat of an interval job: the phase of its next run, or of its anchor without one. One
    with a window starts elsewhere than its plans are due; there these count."""
    phase, hours = job.next_run_at or job.plan_time or job.anchor_at or EPOCH, None
    is_balanced = job.placement in (None, "balanced")
    if job.execution_window is not None:
        hours = Hours(job.execution_window, job.placement == "balanced")
        phase = (job.plan_time or job.anchor_at or EPOCH) + timedelta(seconds=job.delay_seconds)
    lasting = duration_ms(job.cost_ms)
    return Beat(job.interval_seconds or 1, epoch_second(phase), lasting, hours, not is_balanced)


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
            loads[str(job.id)] = CronLoad(cron, duration_ms(job.cost_ms), job.execution_window)
    return loads


class LoadModel:
    """Expected load over the week from `since` (the start of a slot). Not thread-safe."""

    def __init__(self, since: datetime) -> None:
        self.since = epoch_second(since) // SLOT * SLOT
        self.jobs = 0
        self.seconds: Load = np.zeros(WEEK, np.int32)
        self.uncertain_load: Load = np.zeros(WEEK, np.int32)
        self.fixed_load: Load = np.zeros(WEEK, np.int32)
        self.cells: Ints = np.zeros(WEEK // CELL, np.int64)
        self.starts: Ints = np.zeros(WEEK // SLOT, np.int64)
        self.crons: dict[str, CronLoad] = {}
        self.intervals: dict[int, tuple[int, int]] = {}
        """How many jobs have an interval, and how many milliseconds their runs take together. Each
        start of a cron job, or in a window, counts as a job of its own every week."""

    @classmethod
    def of(cls, snapshot: Iterable[LoadEntry], now: datetime) -> "LoadModel":
        """The model of everything in the snapshot that is not paused."""
        active = [job for job in snapshot if job.status != "paused"]
        model = cls(now)
        intervals = [job for job in active if job.interval_seconds is not None]
        for is_fixed in (False, True):
            some = [
                job
                for job in intervals
                if job.execution_window is None
                and (job.placement not in (None, "balanced")) is is_fixed
            ]
            model.add_table(table_of(some)[0], is_fixed=is_fixed)
        model.add_many([beat_of(job) for job in intervals if job.execution_window is not None])
        model.add_crons(cron_loads(job for job in active if job.cron_expression is not None))
        return model

    def copy(self) -> "LoadModel":
        """One to try something on."""
        other = LoadModel(at_second(self.since))
        other.become(self)
        for name, value in vars(self).items():
            if not isinstance(value, int):
                setattr(other, name, value.copy())
        return other

    def become(self, other: "LoadModel") -> None:
        """Take over what was tried."""
        self.__dict__.update(other.__dict__)

    def add(self, beat: Beat, count: int = 1) -> None:
        """Count in a job, or several alike; the cost does not depend on how many are known."""
        if beat.hours is not None:
            self.add_many([beat], [count])
            return
        self._note_interval(beat.period, count, count * beat.duration_ms)
        shape, start = RunShape.of(beat.period, beat.duration_ms), beat.phase - self.since
        add_runs(self.seconds, shape, start, count)
        if beat.is_fixed:
            add_runs(self.fixed_load, shape, start, count)
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
        if not beats:
            return
        numbers = np.ones(len(beats), np.int64) if counts is None else np.array(counts, np.int64)
        flat = chain.from_iterable(beat[:3] for beat in beats)
        table = np.fromiter(flat, np.int64, 3 * len(beats)).reshape(-1, 3)
        alike: dict[tuple[bool, Hours | None, int], list[int]] = defaultdict(list)
        for n, beat in enumerate(beats):
            period = 0 if beat.hours is None else beat.period
            alike[beat.is_fixed, beat.hours, period].append(n)
        for (is_fixed, hours, _), rows in alike.items():
            if hours is None:
                self.add_table(table[rows], numbers[rows], is_fixed=is_fixed)
                continue
            runs, owners = weekly_runs(table[rows], hours, self.since)
            self.add_table(runs, numbers[rows][owners], is_fixed=is_fixed)
            self.jobs += int(numbers[rows].sum() - numbers[rows][owners].sum())

    def add_table(self, table: Ints, counts: Ints | None = None, *, is_fixed: bool = False) -> None:
        """The same for rows (period, phase, duration in ms)."""
        numbers = np.ones(len(table), np.int64) if counts is None else counts
        order = np.argsort(table[:, 0], kind="stable")
        edges = np.flatnonzero(np.diff(table[order, 0])) + 1
        for of_period in np.split(order, edges):
            rows, number = table[of_period], numbers[of_period]
            if len(rows) <= _FEW:
                for row, count in zip(rows.tolist(), number.tolist(), strict=True):
                    self.add(Beat(row[0], row[1], row[2], None, is_fixed), count)
                continue
            period, lasting = int(rows[0, 0]), rows[:, 2]
            self._note_interval(period, int(number.sum()), int((lasting * number).sum()))
            shape, half = RunShape.of(period, 1), RunShape.of(period, 1, HALF)
            starts = (rows[:, 1] - self.since) % shape.cycle
            level = cycle_load(starts, lasting, shape, number)
            add_cycle(self.seconds, level)
            if is_fixed:
                add_cycle(self.fixed_load, level)
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
        durations: dict[CronLoad, list[int]] = defaultdict(list)
        for job in jobs.values():
            durations[job._replace(duration_ms=0)].append(job.duration_ms)
        changes = np.zeros((3, WEEK + 1))
        begun = np.zeros(WEEK, np.int64)
        for alike, lasting in durations.items():
            starts = alike.starts(self.since)
            uncertain = [-(-ms // 2) for ms in lasting] + [2 * ms for ms in lasting]
            add_cron_changes(changes[0], starts, lasting)
            add_cron_changes(changes[1], starts, uncertain, HALF)
            if alike.cron.slack is None:
                add_cron_changes(changes[2], starts, lasting)
            begun[starts[1:]] += RUN * len(lasting)
            weekly = len(starts) - 1
            self._note_interval(WEEK, weekly * len(lasting), weekly * sum(lasting))
        self.seconds += level_of(changes[0])
        self.fixed_load += level_of(changes[2])
        self.uncertain_load += level_of(changes[1])
        self._add_starts(begun)
        self.jobs += len(jobs)
        self._sum_cells()

    def _note_interval(self, period: int, jobs: int, milliseconds: int) -> None:
        before = self.intervals.get(period, (0, 0))
        self.intervals[period] = before[0] + jobs, before[1] + milliseconds

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
    def workers_needed(self) -> int:
        """How many slots workers need for nothing to wait."""
        return ceil(self.peak)

    @property
    def workers_sufficient(self) -> int:
        """How many no schedule of these jobs could do without: as many as are busy on average, and
        as many as the jobs need whose times are fixed."""
        return max(ceil(self.mean), -(-int(self.fixed_load.max()) // RUN))

    @property
    def score(self) -> float:
        return score(self.workers_sufficient, self.workers_needed)


def score(sufficient: int, needed: int) -> float:
    """The part of the needed workers that would suffice: 1.0 is as even as these jobs can be."""
    return min(1.0, max(1, sufficient) / max(1, needed))
