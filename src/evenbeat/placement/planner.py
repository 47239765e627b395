"""Placing one job: the phase at which its runs meet the least load."""

from datetime import datetime, timedelta
from typing import NamedTuple

from evenbeat.placement import periodic_load
from evenbeat.placement.load import LoadModel
from evenbeat.placement.periodic_load import RUN, WEEK, Beat
from evenbeat.placement.start_candidates import best_start, calmest_stretch, outlook_of

_GOLDEN = 0.618_033_988_749_894_9


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
    period = int(job.every.total_seconds())
    duration = periodic_load.duration_ms(job.cost_ms)
    box = periodic_load.box_of(period, duration)
    outlook = outlook_of(model.seconds, box, calmest_stretch(model, box))
    start = best_start(model, box, outlook)
    first = _first_after(now, model.since + start, box.fold) + _weeks_on(model.jobs, period)
    lowest = float(outlook.seen.min()) / RUN
    return Placed(periodic_load.at_second(first), Beat(period, first, duration), lowest)


def _first_after(now: datetime, second: int, fold: int) -> int:
    """The first repetition of a second that is later than now."""
    present = periodic_load.epoch_second(now)
    return present + 1 + (second - present - 1) % fold


def _weeks_on(jobs: int, period: int) -> int:
    """Which of an interval's weeks: a low-discrepancy sequence keeps them even without a memory."""
    weeks = max(1, period // WEEK)
    return int(jobs * _GOLDEN % 1 * weeks) * WEEK
