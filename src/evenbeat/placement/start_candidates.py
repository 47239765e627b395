"""What a job would see at every second it could start: the load under all its runs of the week."""

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from evenbeat.placement.load import LoadModel
from evenbeat.placement.periodic_load import CELL, RUN, SLOT, WEEK, Box, Ints, Load

STRETCH = 21_600  # a quarter of a day
HALF_HOUR, HOUR = 1800, 3600  # most schedules are made of these
RUNS_TO_COME = (30, 120, 600, 1800)  # lengths in seconds that there should stay room for
SHORT = 60  # a run this short fits nearly anywhere, so such starts can be even from slot to slot
FEW_AT_ONCE = 4  # up to here a whole run more or less counts for more than doubt about durations
_BITS = 20  # enough for a second of the week

_Week = TypeVar("_Week", Load, Ints)


def folded_peak(week: _Week, fold: int) -> _Week:
    """For every second of a fold, the highest value that its repetitions meet in the week."""
    rows = WEEK // fold
    highest: _Week = week[: rows * fold].reshape(rows, fold).max(axis=0)
    tail = week[rows * fold :]
    np.maximum(highest[: len(tail)], tail, out=highest[: len(tail)])
    return highest


def folded_sum(week: Ints, fold: int, width: int) -> Ints:
    """For every cell or slot (of `width` seconds) of a fold, the sum over its repetitions.

    Repetitions cut off by the week's end are left out: a phase that by chance occurs once more in
    this week shall not look worse for it.
    """
    size, shifts = max(1, fold // width), np.arange(0, WEEK - fold + 1, fold) // width
    if fold % width == 0:
        total: Ints = week[: len(shifts) * size].reshape(-1, size).sum(axis=0)
    else:
        total = week[(shifts[:, None] + np.arange(size)) % len(week)].sum(axis=0)
    return total


def highest_ahead(circle: Load, width: int) -> Load:
    """For every position on a circle, the highest of the `width` values from there on."""
    width = min(width, len(circle))
    ahead, reached = np.append(circle, circle[: width - 1]), 1
    while reached < width:
        step = min(reached, width - reached)
        ahead = np.maximum(ahead[:-step], ahead[step:])
        reached += step
    return ahead


def seen_peak(week: Load, box: Box) -> Load:
    """For every second of the fold: the highest load that a run starting there would meet."""
    return highest_ahead(folded_peak(week, box.fold), box.seconds)


def seen_within(week: Load, box: Box, stretch: range) -> Load:
    """The same for the seconds of a stretch only, which costs as little as the stretch is short."""
    length = min(len(stretch) + box.seconds, box.fold)
    arcs = [_arc(week, stretch.start + shift, length) for shift in range(0, WEEK, box.fold)]
    return highest_ahead(np.maximum.reduce(arcs), box.seconds)[: len(stretch)]


def crowds_of(week: Load, since: int, table: Ints) -> list[tuple[float, int]]:
    """For each row (period, phase, duration in ms) the most that run at once during any of its
    runs, and the second (since 1970) at which they do."""
    if not len(table):
        return []
    found = np.zeros(len(table), np.int64)
    # The load and, below it, the second counted from the week's end: the highest has both.
    marked = (week.astype(np.int64) << _BITS) + np.arange(WEEK, 0, -1)
    for period in np.unique(table[:, 0]).tolist():
        rows = np.flatnonzero(table[:, 0] == period)
        fold = min(period, WEEK)
        starts = (table[rows, 1] - since) % fold
        lasting = np.clip(-(-table[rows, 2] // 1000), 1, fold)
        found[rows] = _highest_under(folded_peak(marked, fold), starts, lasting)
    seconds = since + WEEK - (found & ((1 << _BITS) - 1))
    return list(zip(((found >> _BITS) / RUN).tolist(), seconds.tolist(), strict=True))


def _highest_under(circle: Ints, starts: Ints, lasting: Ints) -> Ints:
    """The highest value in each arc; arcs in order of their starts cost little more than a walk."""
    order = np.argsort(starts, kind="stable")
    edges = np.column_stack([starts[order], starts[order] + lasting[order]]).ravel()
    twice = np.concatenate([circle, circle, circle[:1]])
    highest = np.empty_like(starts)
    highest[order] = np.maximum.reduceat(twice, edges)[::2]
    return highest


def _arc(week: Load, start: int, length: int) -> Load:
    start %= WEEK
    over = start + length - WEEK
    return week[start : start + length] if over <= 0 else np.append(week[start:], week[:over])


class Outlook(NamedTuple):
    """What a run would meet at each second of a stretch."""

    stretch: range
    seen: Load


def outlook_of(week: Load, box: Box, stretch: range) -> Outlook:
    """Look ahead from every second of a stretch, the whole fold or a part of it."""
    whole = len(stretch) == box.fold
    return Outlook(stretch, seen_peak(week, box) if whole else seen_within(week, box, stretch))


def calmest_stretch(model: LoadModel, box: Box) -> range:
    """Where to search: all of the fold, or of a long one the quarter of a day with least load."""
    if box.fold <= 2 * STRETCH:
        return range(box.fold)
    per_slot = model.cells.reshape(-1, SLOT // CELL).sum(axis=1)
    ahead = _sums_ahead(folded_sum(per_slot, box.fold, SLOT), STRETCH // SLOT)
    start = middle(np.flatnonzero(ahead == ahead.min()), len(ahead)) * SLOT
    return range(start, start + STRETCH)


def best_start(model: LoadModel, box: Box, outlook: Outlook) -> int:
    """The start with the lowest peak. How ties are settled depends on how much runs there.

    Where few run at once, whole runs are coarse, and a long run that comes later finds no room
    between short ones: the start that spoils the fewest places for runs to come, for short runs in
    a slot with few starts. Where many run, overruns add up: the start with the lowest peak in
    doubt, then the least load around, the fewest starts.

    What still ties goes to the middle slot of the longest stretch of such slots, so that few jobs
    lie far apart; within the slot to its earliest second, so that runs follow back to back and
    leave room for long ones.
    """
    lowest = int(outlook.seen.min())
    good = outlook.seen == lowest
    few = lowest < FEW_AT_ONCE * RUN
    if not few:
        longer = box._replace(whole=min(box.fold, 2 * box.seconds), part=0)
        in_doubt = outlook_of(model.uncertain_load, longer, outlook.stretch).seen
        good &= in_doubt == in_doubt[good].min()
    ties = (np.flatnonzero(good) + outlook.stretch.start) % box.fold
    if few:
        ties = _least(_in_calm_slots(ties, model, box), _spoilt(model.seconds, box, lowest), 1)
    else:
        ties = _least(ties, _load_around(model.cells, box), CELL)
        ties = _least(ties, folded_sum(model.starts, box.fold, SLOT), SLOT)
    return settled(ties, box.fold)


def _least(ties: Ints, values: Ints, width: int) -> Ints:
    found = values[ties // width % len(values)]
    least: Ints = ties[found == found.min()]
    return least


def _in_calm_slots(ties: Ints, model: LoadModel, box: Box) -> Ints:
    """For a short run the starts in slots with the fewest others, give or take one."""
    if box.seconds > SHORT:
        return ties
    begun = folded_sum(model.starts, box.fold, SLOT)
    found = begun[ties // SLOT % len(begun)]
    calm: Ints = ties[found <= found.min() + RUN * (WEEK // box.fold)]
    return calm


def _spoilt(seconds: Load, box: Box, lowest: int) -> Ints:
    """For every second of the hour: at how many starts a half-hourly or hourly run to come, short
    or long, would then no longer stay below the level that a run starting there reaches.

    So short runs lie end to end, and a weekly run, which takes its seconds away from every
    half-hourly one, lies where other rare runs do: at another time but at the same minutes.
    """
    total = np.zeros(HOUR, np.int64)
    for fold in (HALF_HOUR, HOUR):
        free = _free_ahead(folded_peak(seconds, fold) < lowest + box.height)
        for width in RUNS_TO_COME:
            span = min(fold, box.seconds + width - 1)
            lost = np.roll(_sums_ahead((free >= width).astype(np.int64), span), width - 1)
            total += np.resize(_of_all_runs(lost, box.fold), HOUR) * (HOUR // fold)
    return total


def _free_ahead(free: NDArray[np.bool_]) -> Ints:
    """For every second of a circle, how many from there on are free."""
    taken, here = np.flatnonzero(~free), np.arange(len(free))
    if not len(taken):
        return np.full(len(free), len(free))
    ahead: Ints = np.append(taken, taken[0] + len(free))[np.searchsorted(taken, here)] - here
    return ahead


def _of_all_runs(lost: Ints, period: int) -> Ints:
    """The sum over the runs that a short interval has within the circle."""
    several = period < len(lost) and len(lost) % period == 0
    return lost.reshape(-1, period).sum(axis=0) if several else lost


def settled(ties: Ints, fold: int) -> int:
    """One of several seconds that are equally good: the earliest of the middle slot."""
    slots = ties // SLOT
    chosen = middle(np.flatnonzero(np.bincount(slots)), -(-fold // SLOT))
    return int(ties[slots == chosen].min())


def _load_around(cells: Ints, box: Box) -> Ints:
    circle = folded_sum(cells, box.fold, CELL)
    return _sums_ahead(circle, min(len(circle), box.seconds // CELL + 2))


def _sums_ahead(circle: Ints, width: int) -> Ints:
    reach = np.concatenate([[0], np.cumsum(np.concatenate([circle, circle[:width]]))])
    sums: Ints = reach[width : width + len(circle)] - reach[: len(circle)]
    return sums


def middle(chosen: Ints, length: int) -> int:
    """The middle of the longest stretch of neighbours on a circle of `length`."""
    if len(chosen) == length:
        return int(chosen[length // 2])
    breaks = np.flatnonzero(np.diff(chosen, append=chosen[0] + length) > 1)
    first = np.roll(breaks, 1) + 1
    sizes = (breaks - first) % len(chosen) + 1
    longest = int(sizes.argmax())
    return int(chosen[(first[longest] + sizes[longest] // 2) % len(chosen)])
