"""What a job would see at every second it could start: the load under all its runs of the week."""

import numpy as np

from evenbeat.placement.beats import CELL, SLOT, WEEK, Box, Ints, Load
from evenbeat.placement.load import LoadModel

STRETCH = 21_600  # a quarter of a day


# Most schedules are made of half hours: what is free in each of them serves short intervals.
HALF_HOUR = 1800


def folded_peak(week: Load, fold: int) -> Load:
    """For every second of a fold, the highest value that its repetitions meet in the week."""
    rows = WEEK // fold
    highest: Load = week[: rows * fold].reshape(rows, fold).max(axis=0)
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


def _arc(week: Load, start: int, length: int) -> Load:
    start %= WEEK
    over = start + length - WEEK
    return week[start : start + length] if over <= 0 else np.append(week[start:], week[:over])


def calmest_stretch(model: LoadModel, box: Box) -> range:
    """Where to search: all of the fold, or of a long one the quarter of a day with least load."""
    if box.fold <= 2 * STRETCH:
        return range(box.fold)
    per_slot = model.cells.reshape(-1, SLOT // CELL).sum(axis=1)
    ahead = _sums_ahead(folded_sum(per_slot, box.fold, SLOT), STRETCH // SLOT)
    start = _middle(np.flatnonzero(ahead == ahead.min()), len(ahead)) * SLOT
    return range(start, start + STRETCH)


def best_start(model: LoadModel, box: Box, seen: Load, places: Ints) -> int:
    """Of the places (seconds of the fold) the one with the lowest peak, as given by `seen`; then
    the one that keeps most of the half hour free, the slot with the fewest starts, the least load.

    What still ties goes to the middle slot of the longest stretch of such slots, so that few jobs
    lie far apart; within the slot to its earliest second, so that runs follow back to back and
    leave room for long ones.
    """
    lowest = int(seen.min())
    ties = places[seen == lowest] % box.fold
    ties = _least(ties, _newly_taken(model.seconds, box, lowest), 1)
    ties = _least(ties, folded_sum(model.starts, box.fold, SLOT), SLOT)
    ties = _least(ties, _load_around(model.cells, box), CELL)
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
    chosen = _middle(np.unique(slots), -(-fold // SLOT))
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
