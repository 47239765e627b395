"""Placing jobs: the phase at which their runs meet the least load.

Placing one by one costs a third of a millisecond each. Many jobs alike are placed together: their
interval is cut into blocks as long as a run, and the calmest blocks are filled, in one calculation,
up to the lowest level at which all of them fit.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from evenbeat.placement.load import LoadModel
from evenbeat.placement.periodic_load import (
    GOLDEN,
    RUN,
    WEEK,
    Beat,
    Ints,
    Load,
    RunShape,
    at_second,
    duration_ms,
    epoch_second,
)
from evenbeat.placement.start_candidates import best_start, calmest_stretch, load_ahead

# From so many equal jobs on, placing them together is worth it.
MANY = 24
# A run that fills more of its interval than this meets about the same load wherever it begins.
_FEWEST_BLOCKS = 8


class Rhythm(NamedTuple):
    """What is to be placed: how often it runs and how long it is expected to take."""

    every: timedelta
    cost_ms: float | None = None


class Placed(NamedTuple):
    """Where a job goes: its first run, the beat to `add` to the model, the load it meets there."""

    at: datetime
    beat: Beat
    load: float


def place(model: LoadModel, job: Rhythm, now: datetime) -> Placed:
    """Choose the first run, later than `now` by one interval at most. The model stays as it is."""
    period, duration = int(job.every.total_seconds()), duration_ms(job.cost_ms)
    shape = RunShape.of(period, duration)
    stretch = calmest_stretch(model, shape)
    ahead = load_ahead(model.seconds, shape, stretch)
    start = best_start(model, shape, stretch, ahead)
    (first,) = _first_runs(model, np.array([start]), period, now)
    return Placed(at_second(first), Beat(period, first, duration), float(ahead.min()) / RUN)


def place_many(model: LoadModel, jobs: Sequence[Rhythm], now: datetime) -> list[Placed]:
    """A place for each job, longest interval first, counted in the model one after the other."""
    alike: dict[tuple[timedelta, int], list[int]] = defaultdict(list)
    for number, job in enumerate(jobs):
        alike[job.every, duration_ms(job.cost_ms)].append(number)
    places: dict[int, Placed] = {}
    for (every, lasting), numbers in sorted(alike.items(), reverse=True):
        job = Rhythm(every, lasting)
        if len(numbers) >= MANY:
            places.update(zip(numbers, _place_alike(model, job, len(numbers), now), strict=True))
            continue
        for number in numbers:
            places[number] = place(model, job, now)
            model.add(places[number].beat)
    return [places[number] for number in range(len(jobs))]


def _place_alike(model: LoadModel, job: Rhythm, count: int, now: datetime) -> list[Placed]:
    period, lasting = int(job.every.total_seconds()), duration_ms(job.cost_ms)
    shape = RunShape.of(period, lasting)
    ahead = load_ahead(model.seconds, shape, range(shape.cycle))
    if shape.cycle // shape.seconds >= _FEWEST_BLOCKS:
        starts = _level_starts(ahead, shape, count)
    else:
        starts = (np.arange(count) * GOLDEN % 1 * shape.cycle).astype(np.int64)
    firsts = _first_runs(model, starts, period, now)
    places = [
        Placed(at_second(first), Beat(period, first, lasting), load)
        for first, load in zip(firsts, (ahead[starts] / RUN).tolist(), strict=True)
    ]
    model.add_many([placed.beat for placed in places])
    return places


def _level_starts(ahead: Load, shape: RunShape, count: int) -> Ints:
    """Starts of `count` jobs that raise the lowest blocks of the cycle to a common level, which is
    as low as it can be."""
    blocks, height = shape.cycle // shape.seconds, shape.height
    edges = np.arange(blocks) * shape.cycle // blocks
    levels = ahead[edges].astype(np.int64)
    low, high = int(levels.min()), int(levels.min()) + count * height
    while low < high:
        target = (low + high) // 2
        fits = np.maximum(0, (target - levels) // height).sum() >= count
        low, high = (low, target) if fits else (target + 1, high)
    filled = np.maximum(0, (low - levels) // height)
    full = np.flatnonzero((filled > 0) & ((low - levels) % height == 0))
    spare = int(filled.sum()) - count
    filled[full[np.arange(spare) * len(full) // max(1, spare)]] -= 1
    # Layers that cover the whole cycle may begin anywhere: each begins at another second.
    layers = int(filled.min())
    shifts = (np.arange(layers) * GOLDEN % 1 * shape.seconds).astype(np.int64)
    whole = (edges[None, :] + shifts[:, None]).ravel() % shape.cycle
    return np.concatenate([whole, np.repeat(edges, filled - layers)])


def _first_runs(model: LoadModel, starts: Ints, period: int, now: datetime) -> list[int]:
    """The first repetition of each start that is later than now. Which of a long interval's weeks
    that is follows a low-discrepancy sequence, which keeps the weeks even without a memory."""
    following, cycle = epoch_second(now) + 1, min(period, WEEK)
    firsts = following + (starts + model.since - following) % cycle
    number = model.jobs + np.arange(len(starts))
    weeks = (number * GOLDEN % 1 * max(1, period // WEEK)).astype(np.int64)
    first_runs: list[int] = (firsts + weeks * WEEK).tolist()
    return first_runs
