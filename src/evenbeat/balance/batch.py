"""Placing many jobs at once: those that are alike fill the calmest places like water.

Placing one by one costs a third of a millisecond each; ten thousand jobs alike need not wait for
that. Their interval is cut into blocks as long as a run, and the calmest blocks are filled, in one
calculation, up to the lowest level at which everybody is in.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np

from evenbeat.placement import Beat, LoadModel, Placed, Rhythm, place
from evenbeat.placement.periodic_load import (
    RUN,
    WEEK,
    Box,
    Ints,
    Load,
    at_second,
    box_of,
    duration_ms,
    epoch_second,
)
from evenbeat.placement.start_candidates import seen_peak

# From so many jobs alike on, levelling is worth its while.
MANY = 24
# A run that fills more of its interval than this meets about the same load wherever it begins.
_FEWEST_BLOCKS = 8

_GOLDEN = 0.618_033_988_749_894_9


def place_many(model: LoadModel, jobs: Sequence[Rhythm], now: datetime) -> list[Placed]:
    """A place for each job, longest interval first, counted in the model as they are found."""
    alike: dict[tuple[timedelta, int], list[int]] = defaultdict(list)
    for number, job in enumerate(jobs):
        alike[job.every, duration_ms(job.cost_ms)].append(number)
    found: dict[int, Placed] = {}
    for (every, lasting), numbers in sorted(alike.items(), reverse=True):
        places = _place_alike(model, Rhythm(every, lasting), len(numbers), now)
        found.update(zip(numbers, places, strict=True))
    return [found[number] for number in range(len(jobs))]


def _place_alike(model: LoadModel, job: Rhythm, count: int, now: datetime) -> list[Placed]:
    if count < MANY:
        return [_placed(model, job, now) for _ in range(count)]
    box = box_of(int(job.every.total_seconds()), duration_ms(job.cost_ms))
    seen = seen_peak(model.seconds, box)
    starts = _levelled(seen, box, count) if _fits_often(box) else _spread(box.fold, count)
    firsts = _first_after(epoch_second(now), starts + model.since, box.fold)
    firsts += _weeks_on(model.jobs, count, job.every)
    places = [
        Placed(at_second(first), Beat.at(job.every, at_second(first), job.cost_ms), load)
        for first, load in zip(firsts.tolist(), (seen[starts] / RUN).tolist(), strict=True)
    ]
    model.add_many([placed.beat for placed in places])
    return places


def _placed(model: LoadModel, job: Rhythm, now: datetime) -> Placed:
    placed = place(model, job, now)
    model.add(placed.beat)
    return placed


def _fits_often(box: Box) -> bool:
    return box.fold // box.seconds >= _FEWEST_BLOCKS


def _levelled(seen: Load, box: Box, count: int) -> Ints:
    """Starts that raise the lowest blocks of the fold to a common level."""
    blocks = box.fold // box.seconds
    edges = np.arange(blocks) * box.fold // blocks
    filled = _fill(seen[edges].astype(np.int64), box.height, count)
    # Layers that cover the whole fold may begin anywhere: each begins at another second.
    layers = int(filled.min())
    shifts = (np.arange(layers) * _GOLDEN % 1 * box.seconds).astype(np.int64)
    whole = (edges[None, :] + shifts[:, None]).ravel() % box.fold
    return np.concatenate([whole, np.repeat(edges, filled - layers)])


def _fill(levels: Ints, height: int, count: int) -> Ints:
    """How many of `count` go into each block so that the highest level is as low as it can be."""

    def room(target: int) -> Ints:
        return np.maximum(0, (target - levels) // height)

    low, high = int(levels.min()), int(levels.min()) + count * height
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if room(middle).sum() >= count else (middle + 1, high)
    filled: Ints = room(low)
    brimming = np.flatnonzero((filled > 0) & ((low - levels) % height == 0))
    spare = int(filled.sum()) - count
    filled[brimming[np.arange(spare) * len(brimming) // max(1, spare)]] -= 1
    return filled


def _spread(fold: int, count: int) -> Ints:
    return (np.arange(count) * _GOLDEN % 1 * fold).astype(np.int64)


def _first_after(present: int, seconds: Ints, fold: int) -> Ints:
    """The first repetition of each second that is later than the present."""
    firsts: Ints = present + 1 + (seconds - present - 1) % fold
    return firsts


def _weeks_on(jobs: int, count: int, every: timedelta) -> Ints:
    """Which of a long interval's weeks, evenly."""
    weeks = max(1, int(every.total_seconds()) // WEEK)
    return ((jobs + np.arange(count)) * _GOLDEN % 1 * weeks).astype(np.int64) * WEEK
