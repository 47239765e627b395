"""What a job would see at every second it could start: the load under all its runs of the week."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from evenbeat.placement.beats import CELL, RUN, SLOT, WEEK, Beat, Box, Ints, Load, table_of
from evenbeat.placement.load import LoadModel

STRETCH = 21_600  # a quarter of a day
HALF_HOUR = 1800  # most schedules are made of half hours
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


def crowds_of(week: Load, since: int, many: Sequence[Beat]) -> list[tuple[float, int]]:
    """For each beat the most that run at once during any of its runs, and the second (since 1970)
    at which they do."""
    if not many:
        return []
    table = table_of(many)
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
    return list(zip((found >> _BITS) / RUN, seconds.tolist(), strict=True))


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
    start = _middle(np.flatnonzero(ahead == ahead.min()), len(ahead)) * SLOT
    return range(start, start + STRETCH)


def best_start(model: LoadModel, box: Box, outlook: Outlook) -> int:
    """The start with the lowest peak. How ties are settled depends on how much runs there.

    Where few run at once, whole runs are coarse: the start that keeps most of the half hour free
    for what is to come, then the slot with the fewest starts, the least load around. Where many do,
    overruns add up: the start with the lowest peak in doubt, then the least load around, the
    fewest starts.

    What still ties goes to the middle slot of the longest stretch of such slots, so that few jobs
    lie far apart; within the slot to its earliest second, so that runs follow back to back and
    leave room for long ones.
    """
    lowest = int(outlook.seen.min())
    good = outlook.seen == lowest
    few = lowest < FEW_AT_ONCE * RUN
    if not few:
        longer = box._replace(whole=min(box.fold, 2 * box.seconds), part=0)
        in_doubt = outlook_of(model.hazy, longer, outlook.stretch).seen
        good &= in_doubt == in_doubt[good].min()
    ties = (np.flatnonzero(good) + outlook.stretch.start) % box.fold
    if few:
        ties = _least(ties, _newly_taken(model.seconds, box, lowest), 1)
        ties = _least(ties, folded_sum(model.starts, box.fold, SLOT), SLOT)
    ties = _least(ties, _load_around(model.cells, box), CELL)
    if not few:
        ties = _least(ties, folded_sum(model.starts, box.fold, SLOT), SLOT)
    return settled(ties, box.fold)


def _least(ties: Ints, values: Ints, width: int) -> Ints:
    found = values[ties // width % len(values)]
    least: Ints = ties[found == found.min()]
    return least


def _newly_taken(seconds: Load, box: Box, lowest: int) -> Ints:
    """For every second of the half hour: under how many seconds of a run starting there nothing
    had been as high in any half hour before.

    A weekly run takes its seconds away from every half-hourly job, so it should lie where other
    rare runs do, at another time but at the same minutes.
    """
    if box.fold <= HALF_HOUR:
        return np.zeros(1, np.int64)
    free = folded_peak(seconds, HALF_HOUR) < lowest + box.height
    return _sums_ahead(free.astype(np.int64), min(HALF_HOUR, box.seconds))


def settled(ties: Ints, fold: int) -> int:
    """One of several seconds that are equally good: the earliest of the middle slot."""
    slots = ties // SLOT
    chosen = _middle(np.flatnonzero(np.bincount(slots)), -(-fold // SLOT))
    return int(ties[slots == chosen].min())


def _load_around(cells: Ints, box: Box) -> Ints:
    circle = folded_sum(cells, box.fold, CELL)
    return _sums_ahead(circle, min(len(circle), box.seconds // CELL + 2))


def _sums_ahead(circle: Ints, width: int) -> Ints:
    reach = np.concatenate([[0], np.cumsum(np.concatenate([circle, circle[:width]]))])
    sums: Ints = reach[width : width + len(circle)] - reach[: len(circle)]
    return sums


def _middle(chosen: Ints, length: int) -> int:
    """The middle of the longest stretch of neighbours on a circle of `length`."""
    if len(chosen) == length:
        return int(chosen[length // 2])
    breaks = np.flatnonzero(np.diff(chosen, append=chosen[0] + length) > 1)
    first = np.roll(breaks, 1) + 1
    sizes = (breaks - first) % len(chosen) + 1
    longest = int(sizes.argmax())
    return int(chosen[(first[longest] + sizes[longest] // 2) % len(chosen)])
