"""Execution windows as the load model sees them: when such jobs really start, and at which phases
their plans fall inside.

A job with a window does not add the same load to each of its intervals. So it is counted start by
start, as cron is: every start of the coming week is a run of its own that recurs weekly.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenbeat.domain.moments import at_second, epoch_second
from evenbeat.domain.window import parse_window, usable

WEEK = 604_800
_YEAR = 366 * 86_400
_BEFORE = 9 * 86_400  # every window was open once in that time
_CHUNK = 2_000_000
_NEARLY_ALWAYS = 0.9

Ints = NDArray[np.int64]


class Hours(NamedTuple):
    """A job's window, and whether it is balanced: then its plans that are held back are spread."""

    window: str
    is_balanced: bool = True


@lru_cache(maxsize=64)
def open_spans(window: str, since: int, until: int = WEEK + _BEFORE) -> Ints:
    """The times at which a window is open as rows (opening, closing, the last second at which runs
    are placed), in seconds from `since`, beginning well before it."""
    hours, spans, moment = parse_window(window), [], since - _BEFORE
    while moment < since + until:
        opening, closing = hours.open_span(at_second(moment))
        latest = epoch_second(opening + usable(closing - opening))
        spans.append((epoch_second(opening), moment := epoch_second(closing), latest))
    return np.array(spans, np.int64) - since


@lru_cache(maxsize=32)
def phases_inside(window: str, cycle: int, since: int) -> NDArray[np.bool_]:
    """For each second of a cycle, whether plans there fall inside as often as plans can, over the
    coming year: a phase that is right in winter only is no good place."""
    spans = open_spans(window, since, _YEAR)
    spans = spans[spans[:, 0] >= 0]
    if (spans[:, 1] - spans[:, 0]).max() >= cycle:  # some plan falls inside at any phase
        return np.ones(cycle, np.bool_)
    starts = spans[:, 0] % cycle
    changes = np.zeros(2 * cycle + 1, np.int64)
    np.add.at(changes, starts, 1)
    np.add.at(changes, starts + spans[:, 2] - spans[:, 0], -1)
    twice = np.cumsum(changes[:-1])
    often = twice[:cycle] + twice[cycle:]
    inside: NDArray[np.bool_] = often >= _NEARLY_ALWAYS * often.max()
    return inside


def held_until(spans: Ints, opening: Ints, ahead: Ints) -> Ints:
    """When plans start that are held back until these spans, if the job's own next one comes so
    many seconds after the opening. The same rule as `due_at`."""
    begin, end, latest = (spans[opening, column] for column in range(3))
    starts: Ints = begin + np.where(ahead < end - begin, ahead // 2, ahead % (latest - begin))
    return starts


def starts_inside(plans: Ints, cycle: int | None, spans: Ints) -> tuple[Ints, Ints]:
    """The real starts of rows of plans in the week, and to which row each belongs; plans of one row
    that are held back together start once. Without a cycle they start as the window opens."""
    plans = np.where(plans < spans[-1, 1], plans, spans[-1, 1] - 1)
    span = np.searchsorted(spans[:, 1], plans, side="right")
    begin = spans[span, 0]
    held = begin if cycle is None else held_until(spans, span, (plans - begin) % cycle)
    starts = np.where(plans < begin, held, plans)
    once = np.diff(starts, append=starts[:, -1:] + 1) > 0
    rows, columns = np.nonzero(once & (starts >= 0) & (starts < WEEK))
    return starts[rows, columns], rows


def weekly_runs(table: Ints, hours: Hours, since: int) -> tuple[Ints, Ints]:
    """What windowed jobs of one period, as rows (period, phase, duration in ms), run in the week
    from `since`: the same kind of rows, one a start, each weekly; and to which job each belongs."""
    period = int(table[0, 0])
    cycle, spans = min(period, WEEK), open_spans(hours.window, since)
    steps = np.arange(-(-(WEEK + _BEFORE) // cycle)) * cycle - _BEFORE
    runs, owners, size = [], [], max(1, _CHUNK // len(steps))
    for first in range(0, len(table), size):
        rows = table[first : first + size]
        plans = (rows[:, 1:2] - since + _BEFORE) % cycle + steps
        starts, owner = starts_inside(plans, cycle if hours.is_balanced else None, spans)
        # A job never overlaps itself: a run lasts until its next one at most.
        gaps = np.where(np.diff(owner, append=-1) == 0, np.diff(starts, append=0), cycle)
        lasting = np.minimum(rows[owner, 2], gaps * 1000)
        weekly = np.full(len(starts), max(period, WEEK))
        runs.append(np.column_stack([weekly, starts + since, lasting]))
        owners.append(owner + first)
    return np.concatenate(runs), np.concatenate(owners)


def reach(window: str, cycle: int, at: int) -> tuple[int, int] | None:
    """Between which seconds (since 1970) a plan inside the window may move so that it stays inside
    the same opening, and later ones in theirs. None for a plan that is outside."""
    day = at // 86_400 * 86_400
    spans = open_spans(window, day) + day
    span = spans[np.searchsorted(spans[:, 1], at, side="right")]
    if at < span[0]:
        return None
    return _reach(window, cycle, int(span[0]), int(span[2]))


@lru_cache(maxsize=1024)
def _reach(window: str, cycle: int, begin: int, latest: int) -> tuple[int, int] | None:
    inside = phases_inside(window, cycle, begin)
    good = np.flatnonzero(np.resize(inside, latest - begin))
    if not len(good):
        return None
    ends = np.flatnonzero(np.diff(good, append=good[-1] + 2) > 1)
    return begin + int(good[0]), begin + int(good[ends[0]])
