"""Placing jobs: the phase at which their runs meet the least load.

Placing one by one costs a third of a millisecond each. Many jobs alike are placed together: their
interval is cut into blocks as long as a run, and the calmest blocks are filled, in one calculation,
up to the lowest level at which all of them fit.

Jobs that come at once may be placed in any order (`place_many`). Where their durations are known,
they are packed, shortest interval first. Where they are guesses, each goes where overruns are
likely to do the least harm.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil, exp
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from evenbeat.domain.load_entry import SlackCron
from evenbeat.domain.moments import at_second, epoch_second
from evenbeat.domain.schedule import Cron
from evenbeat.placement.load import (
    CELL,
    GOLDEN,
    RUN,
    SLOT,
    WEEK,
    Beat,
    CronLoad,
    Ints,
    Load,
    LoadModel,
    RunShape,
    cron_starts,
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
_MOST_PACKED = 2000  # so many in all; of more, those that are left over hardly count
_STEEP = 3.0  # by how many powers of e a run more makes a second worse, among guesses
_FRESH = 64  # after so many jobs weights are computed anew, so that they stay within a float

Floats = NDArray[np.float64]
_Week = TypeVar("_Week", Load, Ints)
_Sums = TypeVar("_Sums", Ints, Floats)


class Rhythm(NamedTuple):
    """What is to be placed: how often it runs, how long it is expected to take, and when it may."""

    every: timedelta
    cost_ms: float | None = None
    window: str | None = None
    delay: timedelta = timedelta(0)
    is_rough: bool = False

    @property
    def is_guess(self) -> bool:
        """Whether its runs may well take half or twice as long as they are expected to."""
        return self.is_rough or self.cost_ms is None

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
    """A place for each of the jobs that come at once, all counted in the model."""
    free = [number for number, job in enumerate(jobs) if job.window is None]
    if not 1 < len(free) <= _MOST_PACKED:
        return _place_in_turn(model, jobs, now)
    is_rough = 2 * sum(jobs[number].is_guess for number in free) >= len(free)
    order = _place_guesses if is_rough else _pack
    packed = model.copy()
    places = dict(zip(free, order(packed, [jobs[n] for n in free], now), strict=True))
    held = [number for number, job in enumerate(jobs) if job.window is not None]
    in_turn = _place_in_turn(packed, [jobs[number] for number in held], now)
    places.update(zip(held, in_turn, strict=True))
    if not is_rough and packed.peak > max(model.peak, ceil(packed.mean)):
        trial = model.copy()
        in_turn = _place_in_turn(trial, jobs, now)
        if trial.peak <= packed.peak:
            packed, places = trial, dict(enumerate(in_turn))
    model.become(packed)
    return [places[number] for number in range(len(jobs))]


def _pack(model: LoadModel, jobs: Sequence[Rhythm], now: datetime) -> list[Placed]:
    """Shortest interval first, within it longest run first, each at the first start of its cycle
    with the least peak. What repeats often leaves gaps of one size only, so it must come first; and
    starting as early as possible leaves the others in one piece.

    Each further level begins to count at another second, so that not all workers start at once.
    """
    order = sorted(range(len(jobs)), key=lambda n: (jobs[n].every, -duration_ms(jobs[n].cost_ms)))
    places: dict[int, Placed] = {}
    for number in order:
        job = jobs[number]
        shape = RunShape.of(job.every // _SECOND, duration_ms(job.cost_ms))
        ahead = load_ahead(model.seconds, shape, range(shape.cycle))
        lowest = int(ahead.min())
        ties = np.flatnonzero(ahead == lowest)
        origin = int(lowest / RUN * GOLDEN % 1 * (jobs[order[0]].every // _SECOND))
        start = ties[np.searchsorted(ties, origin) % len(ties)]
        (placed,) = _placed(model, job, np.array([start]), [lowest / RUN], now)
        model.add(placed.beat)
        places[number] = placed
    return [places[number] for number in range(len(jobs))]


def _place_guesses(model: LoadModel, jobs: Sequence[Rhythm], now: datetime) -> list[Placed]:
    """Shortest interval first, each where its runs, half or twice as long, meet the least sum of
    weights that grow exponentially with the load: so the highest loads count most, and the next
    highest where those cannot be helped. Many alike are together as flat as they can be."""
    alike: dict[Rhythm, list[int]] = defaultdict(list)
    for number, job in enumerate(jobs):
        alike[job].append(number)
    places: dict[int, Placed] = {}
    singles: list[int] = []
    for _, numbers in sorted(alike.items(), key=lambda item: item[0].every, reverse=True):
        if len(numbers) < MANY:
            singles += numbers
        else:
            in_turn = _place_in_turn(model, [jobs[number] for number in numbers], now)
            places.update(zip(numbers, in_turn, strict=True))
    singles.sort(key=lambda n: (jobs[n].every, -duration_ms(jobs[n].cost_ms)))
    weights = np.empty(0)
    for turn, number in enumerate(singles):
        if turn % _FRESH == 0:
            load = model.uncertain_load.astype(np.float64)
            weights = np.exp((load - load.max()) * (_STEEP / RUN))
        job = jobs[number]
        lasting = duration_ms(job.cost_ms)
        shape = RunShape.of(job.every // _SECOND, lasting)
        cycle, folded = shape.cycle, _folded_sum(weights, shape.cycle, 1)
        short, long = (max(1, min(cycle, ms // 1000)) for ms in (lasting // 2, 2 * lasting))
        start = int((_sums_ahead(folded, short) + _sums_ahead(folded, long)).argmin())
        (placed,) = _placed(model, job, np.array([start]), [float(model.seconds[start]) / RUN], now)
        model.add(placed.beat)
        places[number] = placed
        factor = exp(_STEEP / 2 * shape.height / RUN)
        for seconds in (short, long):
            _multiply(weights, cycle, start, seconds, factor)
    return [places[number] for number in range(len(jobs))]


def _multiply(week: Floats, cycle: int, start: int, seconds: int, factor: float) -> None:
    """Multiply the seconds of runs that repeat in a cycle, in place."""
    rows = WEEK // cycle
    body, tail = week[: rows * cycle].reshape(rows, cycle), week[rows * cycle :]
    for low, high in ((start, min(cycle, start + seconds)), (0, max(0, start + seconds - cycle))):
        body[:, low:high] *= factor
        tail[low:high] *= factor


def _place_in_turn(model: LoadModel, jobs: Sequence[Rhythm], now: datetime) -> list[Placed]:
    """One after the other, longest interval first; many alike together."""
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


def place_crons(model: LoadModel, jobs: Sequence[SlackCron]) -> list[Cron]:
    """The crons with the minutes of their slack at which their runs meet the least load, all
    counted in the model: the least slack first, longest runs first."""
    order = sorted(range(len(jobs)), key=lambda n: (jobs[n].minutes, -duration_ms(jobs[n].cost_ms)))
    places: dict[int, Cron] = {}
    for number in order:
        name, cron, cost_ms, _ = jobs[number]
        places[number] = place_cron(model, cron, cost_ms)
        model.add_crons({name: CronLoad(places[number], duration_ms(cost_ms))})
    return [places[number] for number in range(len(jobs))]


def place_cron(model: LoadModel, cron: Cron, cost_ms: float | None) -> Cron:
    """The cron with the minute of its slack at which its runs meet the least load; where several
    are equally good, overruns decide. The model stays as it is."""
    slack = cron.slack
    if slack is None:
        return cron
    openings = cron_starts(cron.placed(None), model.since)[1:].tolist()
    is_rare = not openings
    if is_rare:  # of no day in this week: any day stands for it
        minute, hour, *_ = cron.placed(None).fields.split()
        openings = cron_starts(Cron(f"{minute} {hour} * * *", cron.timezone), model.since)[1:]
    width = max(1, -(-duration_ms(cost_ms) // 1000))
    minutes = np.arange(slack.minutes)
    for week, seconds in ((model.seconds, width), (model.uncertain_load, 2 * width)):
        length = slack.minutes * CELL + min(seconds, WEEK // 2)
        arcs = [_arc(week, start, length) for start in openings]
        ahead = highest_ahead(np.maximum.reduce(arcs), seconds)[: slack.minutes * CELL : CELL]
        minutes = minutes[ahead[minutes] == ahead[minutes].min()]
    if is_rare:  # their load is not seen, so they lie apart without a memory
        return cron.placed(int(minutes[int(model.jobs * GOLDEN % 1 * len(minutes))]))
    return cron.placed(middle(minutes, slack.minutes + 1))  # the ends are no neighbours


def _arc(week: Load, start: int, length: int) -> Load:
    """A part of the week, which goes on at its beginning."""
    arc = week[start : start + length]
    return np.append(arc, week[: length - len(arc)]) if len(arc) < length else arc


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
    length = min(len(stretch) + shape.seconds, shape.cycle)
    shifts = range(0, WEEK, shape.cycle)
    arcs = [_arc(week, (stretch.start + shift) % WEEK, length) for shift in shifts]
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


def _folded_sum(week: _Sums, cycle: int, width: int) -> _Sums:
    """For every cell or slot (of `width` seconds) of a cycle, the sum over its repetitions.

    Repetitions cut off by the week's end are left out: a phase that by chance occurs once more in
    this week must not look worse for it.
    """
    size, shifts = max(1, cycle // width), np.arange(0, WEEK - cycle + 1, cycle) // width
    if cycle % width == 0:
        total: _Sums = week[: len(shifts) * size].reshape(-1, size).sum(axis=0)
    else:
        total = week[(shifts[:, None] + np.arange(size)) % len(week)].sum(axis=0)
    return total


def _sums_ahead(circle: _Sums, width: int) -> _Sums:
    reach = np.concatenate([[0], np.cumsum(np.concatenate([circle, circle[:width]]))])
    sums: _Sums = reach[width : width + len(circle)] - reach[: len(circle)]
    return sums
