"""Placing jobs: the phase at which their runs meet the least load.

Placing one by one costs a third of a millisecond each. Many jobs alike are placed together: their
interval is cut into blocks as long as a run, and the calmest blocks are filled, in one calculation,
up to the lowest level at which all of them fit.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

import numpy as np

from evenbeat.domain.moments import at_second, epoch_second
from evenbeat.placement.load import (
    CELL,
    GOLDEN,
    RUN,
    SLOT,
    WEEK,
    Beat,
    Ints,
    Load,
    LoadModel,
    RunShape,
    duration_ms,
)
from evenbeat.placement.windowed import Hours, held_until, open_spans, phases_inside

# From so many equal jobs on, placing them together is worth it.
MANY = 24
# A run that fills more of its interval than this meets about the same load wherever it begins.
_FEWEST_BLOCKS = 8
_CLOSED = np.iinfo(np.int32).max
_SECOND = timedelta(seconds=1)
_STRETCH = 21_600  # a quarter of a day
_HALF_HOUR, _HOUR = 1800, 3600  # most schedules are made of these
_RUNS_TO_COME = (30, 120, 600, 1800)  # lengths in seconds that there should stay room for
_SHORT = 60  # a run this short fits nearly anywhere, so such starts can be even from slot to slot
_FEW_AT_ONCE = 4  # up to here a whole run more or less counts for more than uncertain durations

_Week = TypeVar("_Week", Load, Ints)


class Rhythm(NamedTuple):
    """What is to be placed: how often it runs, how long it is expected to take, and when it may."""

    every: timedelta
    cost_ms: float | None = None
    window: str | None = None
    delay: timedelta = timedelta(0)

    @property
    def delay_seconds(self) -> int:
        """From a plan until it is due, in whole seconds."""
        return -(-self.delay // _SECOND)

    def beat(self, first_due: int) -> Beat:
        hours = None if self.window is None else Hours(self.window)
        return Beat(self.every // _SECOND, first_due, duration_ms(self.cost_ms), hours)


class Placed(NamedTuple):
    """Where a job goes: its first plan, the beat to `add` to the model, the load it meets there."""

    at: datetime
    beat: Beat
    load: float


def place(model: LoadModel, job: Rhythm, now: datetime) -> Placed:
    """Choose the first plan, later than `now` by one interval at most. The model stays as it is."""
    shape = RunShape.of(job.every // _SECOND, duration_ms(job.cost_ms))
    if job.window is None:
        stretch = calmest_stretch(model, shape)
        ahead = load_ahead(model.seconds, shape, stretch)
    else:
        stretch, ahead = range(shape.cycle), load_inside(model, shape, job.window)
    start = best_start(model, shape, stretch, ahead)
    return _placed(model, job, np.array([start]), [float(ahead.min()) / RUN], now)[0]


def place_many(model: LoadModel, jobs: Sequence[Rhythm], now: datetime) -> list[Placed]:
    """A place for each job, longest interval first, counted in the model one after the other."""
    alike: dict[Rhythm, list[int]] = defaultdict(list)
    for number, job in enumerate(jobs):
        alike[job._replace(cost_ms=duration_ms(job.cost_ms))].append(number)
    places: dict[int, Placed] = {}
    hardest = sorted(alike, key=lambda job: (job[:2], job.window is not None), reverse=True)
    for job in hardest:
        numbers = alike[job]
        if len(numbers) >= MANY:
            places.update(zip(numbers, _place_alike(model, job, len(numbers), now), strict=True))
            continue
        for number in numbers:
            places[number] = place(model, job, now)
            model.add(places[number].beat)
    return [places[number] for number in range(len(jobs))]


def _place_alike(model: LoadModel, job: Rhythm, count: int, now: datetime) -> list[Placed]:
    shape = RunShape.of(job.every // _SECOND, duration_ms(job.cost_ms))
    if job.window is None:
        ahead = load_ahead(model.seconds, shape, range(shape.cycle))
    else:
        ahead = load_inside(model, shape, job.window)
    allowed = np.flatnonzero(ahead < _CLOSED)
    if len(allowed) // shape.seconds >= _FEWEST_BLOCKS:
        starts = _level_starts(ahead, shape, count, allowed)
    else:
        starts = allowed[(np.arange(count) * GOLDEN % 1 * len(allowed)).astype(np.int64)]
    places = _placed(model, job, starts, (ahead[starts] / RUN).tolist(), now)
    model.add_many([placed.beat for placed in places])
    return places


def _level_starts(ahead: Load, shape: RunShape, count: int, allowed: Ints) -> Ints:
    """Starts of `count` jobs that raise the lowest blocks of the seconds where they are allowed to
    a common level, which is as low as it can be."""
    length, height = len(allowed), shape.height
    blocks = length // shape.seconds
    edges = np.arange(blocks) * length // blocks
    levels = ahead[allowed[edges]].astype(np.int64)
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
    whole = (edges[None, :] + shifts[:, None]).ravel() % length
    starts: Ints = allowed[np.concatenate([whole, np.repeat(edges, filled - layers)])]
    return starts


def _placed(
    model: LoadModel, job: Rhythm, starts: Ints, loads: list[float], now: datetime
) -> list[Placed]:
    """The first plan for each start that is later than now. In which of a long interval's weeks
    that is follows a low-discrepancy sequence, which keeps the weeks even without a memory."""
    period, delay = job.every // _SECOND, job.delay_seconds
    following = epoch_second(now) + 1
    firsts = following + (starts + model.since - delay - following) % min(period, WEEK)
    number = model.jobs + np.arange(len(starts))
    weeks = (number * GOLDEN % 1 * max(1, period // WEEK)).astype(np.int64)
    plans = (firsts + weeks * WEEK).tolist()
    return [
        Placed(at_second(plan), job.beat(plan + delay), load)
        for plan, load in zip(plans, loads, strict=True)
    ]


# ---------------------------------------------------------------- where in its cycle a job starts


def folded_peak(week: _Week, cycle: int) -> _Week:
    """For every second of a cycle, the highest value that its repetitions meet in the week."""
    rows = WEEK // cycle
    highest: _Week = week[: rows * cycle].reshape(rows, cycle).max(axis=0)
    tail = week[rows * cycle :]
    np.maximum(highest[: len(tail)], tail, out=highest[: len(tail)])
    return highest


def highest_ahead(circle: Load, width: int) -> Load:
    """For every position on a circle, the highest of the `width` values from there on."""
    width = min(width, len(circle))
    ahead, reached = np.append(circle, circle[: width - 1]), 1
    while reached < width:
        step = min(reached, width - reached)
        ahead = np.maximum(ahead[:-step], ahead[step:])
        reached += step
    return ahead


def load_ahead(week: Load, shape: RunShape, stretch: range) -> Load:
    """For every second of a stretch of the cycle, the highest load that a run starting there would
    meet. A part of the cycle costs as little as it is short."""
    if len(stretch) == shape.cycle:
        return highest_ahead(folded_peak(week, shape.cycle), shape.seconds)
    length, arcs = min(len(stretch) + shape.seconds, shape.cycle), []
    for shift in range(0, WEEK, shape.cycle):
        start = (stretch.start + shift) % WEEK
        over = max(0, start + length - WEEK)
        arc = week[start : start + length]
        arcs.append(np.append(arc, week[:over]) if over else arc)
    return highest_ahead(np.maximum.reduce(arcs), shape.seconds)[: len(stretch)]


def load_inside(model: LoadModel, shape: RunShape, window: str) -> Load:
    """The same for a job with a window, for the whole cycle: what it meets in its hours, with its
    plans that are held back. Above every load where its plans would fall outside."""
    cycle, spans = shape.cycle, open_spans(window, model.since)
    allowed = np.flatnonzero(phases_inside(window, cycle, model.since))
    inside = folded_peak(open_week(model.seconds, spans, shape.seconds), cycle)
    ahead, anywhere = highest_ahead(inside, shape.seconds)[allowed], None
    for n in np.flatnonzero((spans[:, 0] >= 0) & (spans[:, 0] < WEEK)).tolist():
        distance = (allowed - spans[n, 0]) % cycle
        is_held = cycle - distance <= spans[n, 0] - spans[n - 1, 1]
        if is_held.any():
            if anywhere is None:
                anywhere = highest_ahead(model.seconds, shape.seconds)
            held = held_until(spans, np.full(len(allowed), n), distance) % WEEK
            ahead = np.maximum(ahead, np.where(is_held, anywhere[held], 0))
    load = np.full(cycle, _CLOSED, np.int32)
    load[allowed] = ahead
    return load


def open_week(week: _Week, spans: Ints, longer: int = 0) -> _Week:
    """The week with nothing in it while a window is closed, and has been for a while."""
    inside = np.zeros_like(week)
    for begin, end, _ in np.clip(spans + np.array([0, longer, 0]), 0, WEEK).tolist():
        inside[begin:end] = week[begin:end]
    return inside


def calmest_stretch(model: LoadModel, shape: RunShape) -> range:
    """Where to search: the whole cycle, or of a long one the quarter of a day with least load."""
    if shape.cycle <= 2 * _STRETCH:
        return range(shape.cycle)
    per_slot = model.cells.reshape(-1, SLOT // CELL).sum(axis=1)
    ahead = _sums_ahead(_folded_sum(per_slot, shape.cycle, SLOT), _STRETCH // SLOT)
    start = middle(np.flatnonzero(ahead == ahead.min()), len(ahead)) * SLOT
    return range(start, start + _STRETCH)


def best_start(model: LoadModel, shape: RunShape, stretch: range, ahead: Load) -> int:
    """The start with the lowest peak. How ties are settled depends on how much runs there.

    Where few run at once, whole runs are coarse, and a long run that comes later finds no room
    between short ones: the start that blocks the fewest starts of later runs, for short runs in
    a slot with few starts. Where many run, overruns add up: the start with the lowest uncertain
    load, then the least load around, the fewest starts.

    What still ties goes to the middle slot of the longest stretch of such slots, so that few jobs
    lie far apart; within the slot to its earliest second, so that runs follow back to back and
    leave room for long ones.
    """
    cycle, lowest = shape.cycle, int(ahead.min())
    good = ahead == lowest
    few = lowest < _FEW_AT_ONCE * RUN
    if not few:
        longer = shape._replace(whole=min(cycle, 2 * shape.seconds), part=0)
        uncertain = load_ahead(model.uncertain_load, longer, stretch)
        good &= uncertain == uncertain[good].min()
    ties = (np.flatnonzero(good) + stretch.start) % cycle
    starts = _folded_sum(model.starts, cycle, SLOT)
    if few:
        if shape.seconds <= _SHORT:  # slots with the fewest starts, give or take one
            begun = starts[ties // SLOT % len(starts)]
            ties = ties[begun <= begun.min() + RUN * (WEEK // cycle)]
        ties = _least(ties, _blocked_starts(model.seconds, shape, lowest), 1)
    else:
        cells = _folded_sum(model.cells, cycle, CELL)
        around = _sums_ahead(cells, min(len(cells), shape.seconds // CELL + 2))
        ties = _least(_least(ties, around, CELL), starts, SLOT)
    slots = ties // SLOT
    slot = middle(np.flatnonzero(np.bincount(slots)), -(-cycle // SLOT))
    return int(ties[slots == slot].min())


def middle(positions: Ints, length: int) -> int:
    """The middle of the longest stretch of neighbours on a circle of `length`."""
    if len(positions) == length:
        return int(positions[length // 2])
    breaks = np.flatnonzero(np.diff(positions, append=positions[0] + length) > 1)
    first = np.roll(breaks, 1) + 1
    sizes = (breaks - first) % len(positions) + 1
    longest = int(sizes.argmax())
    return int(positions[(first[longest] + sizes[longest] // 2) % len(positions)])


def _least(ties: Ints, values: Ints, width: int) -> Ints:
    """The ties with the lowest value; each value stands for `width` seconds."""
    of_ties = values[ties // width % len(values)]
    least: Ints = ties[of_ties == of_ties.min()]
    return least


def _blocked_starts(seconds: Load, shape: RunShape, lowest: int) -> Ints:
    """For every second of the hour: at how many starts a later half-hourly or hourly run, short or
    long, could then no longer stay below the level that a run starting there reaches.

    So short runs lie end to end, and a weekly run, which takes its seconds away from every
    half-hourly one, lies where other rare runs do: at another time but at the same minutes.
    """
    total = np.zeros(_HOUR, np.int64)
    for cycle in (_HALF_HOUR, _HOUR):
        taken = np.flatnonzero(folded_peak(seconds, cycle) >= lowest + shape.height)
        here = np.arange(cycle)
        if len(taken):
            free = np.append(taken, taken[0] + cycle)[np.searchsorted(taken, here)] - here
        else:
            free = np.full(cycle, cycle)
        for width in _RUNS_TO_COME:
            span = min(cycle, shape.seconds + width - 1)
            blocked = np.roll(_sums_ahead((free >= width).astype(np.int64), span), width - 1)
            if shape.cycle < cycle and cycle % shape.cycle == 0:  # all its runs within the circle
                blocked = blocked.reshape(-1, shape.cycle).sum(axis=0)
            total += np.resize(blocked, _HOUR) * (_HOUR // cycle)
    return total


def _folded_sum(week: Ints, cycle: int, width: int) -> Ints:
    """For every cell or slot (of `width` seconds) of a cycle, the sum over its repetitions.

    Repetitions cut off by the week's end are left out: a phase that by chance occurs once more in
    this week must not look worse for it.
    """
    size, shifts = max(1, cycle // width), np.arange(0, WEEK - cycle + 1, cycle) // width
    if cycle % width == 0:
        total: Ints = week[: len(shifts) * size].reshape(-1, size).sum(axis=0)
    else:
        total = week[(shifts[:, None] + np.arange(size)) % len(week)].sum(axis=0)
    return total


def _sums_ahead(circle: Ints, width: int) -> Ints:
    reach = np.concatenate([[0], np.cumsum(np.concatenate([circle, circle[:width]]))])
    sums: Ints = reach[width : width + len(circle)] - reach[: len(circle)]
    return sums
