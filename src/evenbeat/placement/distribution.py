"""How even a schedule is, in figures and in words."""

from collections import defaultdict
from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

import numpy as np

from evenbeat.domain.moments import at_second
from evenbeat.placement.advice import IntervalAdvice, advice
from evenbeat.placement.load import (
    CELL,
    RUN,
    SLOT,
    WEEK,
    CronLoad,
    LoadModel,
    add_cron_changes,
    level_of,
)

ACCEPTABLE = 0.7
_NAMED = 3
_SLOTS_A_DAY = 96
_SLOTS_A_WEEK = 672
_EPOCH_WEEKDAY = 3  # 1970 began on a Thursday


class Distribution(NamedTuple):
    """A model in figures. Starts and hours tell of the coming 24 hours, load of the whole week.

    Hours and slots are those of the day in UTC: slot 0 starts at midnight. `week_load`, `week_peak`
    and `week_starts` have 7 x 96 slots from Monday midnight: the mean and the highest load of each,
    and how many runs start in it. `advice` is on intervals that meet others and need not.
    """

    total_jobs: int
    jobs_per_hour: tuple[int, ...]
    starts_per_slot: tuple[int, ...]
    load_per_slot: tuple[float, ...]
    peak_hour: int
    peak_count: int
    mean_load: float
    peak_load: float
    workers_needed: int
    workers_sufficient: int
    score: float
    suggestion: str
    week_load: tuple[float, ...] = ()
    week_peak: tuple[float, ...] = ()
    week_starts: tuple[int, ...] = ()
    advice: tuple[IntervalAdvice, ...] = ()


def distribution(model: LoadModel, names: Mapping[str, str] | None = None) -> Distribution:
    """Describe a model; `names` gives readable names to the labels of its cron jobs."""
    first = model.since // SLOT
    monday = first + _EPOCH_WEEKDAY * _SLOTS_A_DAY
    week_starts = np.round(model.starts / RUN).astype(np.int64)
    starts = np.roll(week_starts[:_SLOTS_A_DAY], first % _SLOTS_A_DAY)
    hours = starts.reshape(24, 4).sum(axis=1)
    load = model.cells.reshape(-1, SLOT // CELL).sum(axis=1) / (RUN * SLOT)
    highest = model.seconds.reshape(-1, SLOT).max(axis=1) / RUN
    week_load, week_peak, week_starts = (
        np.roll(slots, monday % _SLOTS_A_WEEK) for slots in (load, highest, week_starts)
    )
    return Distribution(
        total_jobs=model.jobs,
        jobs_per_hour=tuple(hours.tolist()),
        starts_per_slot=tuple(starts.tolist()),
        load_per_slot=tuple(np.roll(load[:_SLOTS_A_DAY], first % _SLOTS_A_DAY).tolist()),
        peak_hour=int(hours.argmax()),
        peak_count=int(hours.max()),
        mean_load=model.mean,
        peak_load=model.peak,
        workers_needed=model.workers_needed,
        workers_sufficient=model.workers_sufficient,
        score=model.score,
        suggestion=_suggestion(model, names or {}),
        week_load=tuple(week_load.tolist()),
        week_peak=tuple(week_peak.tolist()),
        week_starts=tuple(week_starts.tolist()),
        advice=advice(model),
    )


def _suggestion(model: LoadModel, names: Mapping[str, str]) -> str:
    """What to do, if anything: nothing, move cron jobs off the peak, or rebalance."""
    needed, average = model.workers_needed, max(1, ceil(model.mean))
    # Whole runs cannot be spread thinner: one above the mean is as even as few jobs can be.
    if average / max(1, needed) >= ACCEPTABLE or needed <= average + 1:
        return "Distribution is acceptable"
    second = int(model.seconds.argmax())
    durations: dict[CronLoad, list[int]] = defaultdict(list)
    for job in model.crons.values():
        durations[job._replace(duration_ms=0)].append(job.duration_ms)
    crons, cron_load = set(), np.zeros(WEEK, np.int32)  # of the expressions that run at the peak
    for cron, lasting in durations.items():
        changes = np.zeros(WEEK + 1)
        add_cron_changes(changes, cron.starts(model.since), lasting)
        load = level_of(changes)
        if load[second] > 0:
            crons.add(cron)
            cron_load += load
    when = f"{at_second(model.since + second):%A at %H:%M} UTC"
    peak = f"{needed:,} workers are needed at once, {when}"
    if 2 * int(cron_load[second]) < model.seconds[second]:
        sufficient = model.workers_sufficient
        if 2 * int(model.fixed_load[second]) > model.seconds[second]:
            return (
                f"{peak}, because of jobs that are pinned to their times; {average:,} would suffice"
                " if they were balanced"
            )
        return (
            f"{peak}; {sufficient:,} would suffice. "
            "Preview a rebalance to see what moving jobs gains"
        )
    labels = [label for label, job in model.crons.items() if job._replace(duration_ms=0) in crons]
    shown = ", ".join(names.get(label, label) for label in labels[:_NAMED])
    more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    jobs, intervals = ("job", "it into a balanced interval")
    if len(labels) > 1:
        jobs, intervals = ("jobs", "them into balanced intervals")
    # The peak to expect if these were spread: the others' peak plus their own mean.
    others = int((model.seconds - cron_load).max())
    spread = max(1, ceil((others + float(cron_load.sum()) / WEEK) / RUN))
    return (
        f"{peak}, because of the cron {jobs} {shown}{more}. "
        f"Turning {intervals} would cut the peak to about {spread}"
    )
