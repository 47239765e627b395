"""How even a schedule is, in figures and in words."""

from collections import defaultdict
from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

import numpy as np

from evenbeat.domain.schedule import Cron
from evenbeat.placement import periodic_load
from evenbeat.placement.load import LoadModel
from evenbeat.placement.periodic_load import CELL, RUN, SLOT, WEEK, Load

ACCEPTABLE = 0.7
_NAMED = 3
_SLOTS_A_DAY = 96
_SLOTS_A_WEEK = 672
_EPOCH_WEEKDAY = 3  # 1970 began on a Thursday


class Distribution(NamedTuple):
    """A model in figures. Starts and hours tell of the coming 24 hours, load of the whole week.

    Hours and slots are those of the day in UTC: slot 0 starts at midnight. `week_load`, `week_peak`
    and `week_starts` have 7 x 96 slots from Monday midnight: the mean and the highest load of each,
    and how many runs start in it.
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
    score: float
    suggestion: str
    week_load: tuple[float, ...] = ()
    week_peak: tuple[float, ...] = ()
    week_starts: tuple[int, ...] = ()


def distribution(model: LoadModel, names: Mapping[str, str] | None = None) -> Distribution:
    """Describe a model; `names` gives readable names to the labels of its cron jobs."""
    week_starts = np.round(model.starts / RUN).astype(np.int64)
    starts = _by_time_of_day(model, week_starts[:_SLOTS_A_DAY])
    hours = starts.reshape(24, 4).sum(axis=1)
    load = model.cells.reshape(-1, SLOT // CELL).sum(axis=1) / (RUN * SLOT)
    highest = model.seconds.reshape(-1, SLOT).max(axis=1) / RUN
    return Distribution(
        total_jobs=model.jobs,
        jobs_per_hour=tuple(hours.tolist()),
        starts_per_slot=tuple(starts.tolist()),
        load_per_slot=tuple(_by_time_of_day(model, load[:_SLOTS_A_DAY]).tolist()),
        peak_hour=int(hours.argmax()),
        peak_count=int(hours.max()),
        mean_load=model.mean,
        peak_load=model.peak,
        workers_needed=ceil(model.peak),
        score=model.score,
        suggestion=suggestion(model, names or {}),
        week_load=tuple(_by_weekday(model, load).tolist()),
        week_peak=tuple(_by_weekday(model, highest).tolist()),
        week_starts=tuple(_by_weekday(model, week_starts).tolist()),
    )


def _by_time_of_day(model: LoadModel, slots: np.ndarray) -> np.ndarray:
    return np.roll(slots, model.since // SLOT % _SLOTS_A_DAY)


def _by_weekday(model: LoadModel, slots: np.ndarray) -> np.ndarray:
    monday = model.since // SLOT + _EPOCH_WEEKDAY * _SLOTS_A_DAY
    return np.roll(slots, monday % _SLOTS_A_WEEK)


# ---------------------------------------------------------------- in words


def suggestion(model: LoadModel, names: Mapping[str, str]) -> str:
    """What to do, if anything: nothing, move cron jobs off the peak, or rebalance."""
    # Whole runs cannot be spread thinner: one above the mean is as even as few jobs can be.
    if model.score >= ACCEPTABLE or model.peak <= ceil(model.mean) + 1:
        return "Distribution is acceptable"
    second = int(model.seconds.argmax())
    culprits = _crons_at(model, second)
    of_cron = sum(int(load[second]) for load in culprits.values())
    if 2 * of_cron >= model.seconds[second]:
        return _about_crons(model, second, culprits, names)
    return (
        f"Up to {ceil(model.peak)} jobs run at once, {_when(model, second)}, where "
        f"{_mean(model)} would do on average. Preview a rebalance to see what moving jobs gains"
    )


def _crons_at(model: LoadModel, second: int) -> dict[Cron, Load]:
    """The cron expressions whose jobs run at this second, with their load over the week."""
    durations: dict[Cron, list[int]] = defaultdict(list)
    for job in model.crons.values():
        durations[job.cron].append(job.duration_ms)
    loads = {}
    for cron, lasting in durations.items():
        load = model.cron_seconds(cron, lasting)
        if load[second] > 0:
            loads[cron] = load
    return loads


def _about_crons(
    model: LoadModel, second: int, culprits: Mapping[Cron, Load], names: Mapping[str, str]
) -> str:
    labels = [label for label, job in model.crons.items() if job.cron in culprits]
    shown = ", ".join(names.get(label, label) for label in labels[:_NAMED])
    more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    one = len(labels) == 1
    return (
        f"Up to {ceil(model.peak)} jobs run at once, {_when(model, second)}, because of the cron "
        f"job{'' if one else 's'} {shown}{more}. As {'a balanced interval' if one else 'balanced '}"
        f"{'' if one else 'intervals'}, about {_without(model, culprits)} would"
    )


def _without(model: LoadModel, culprits: Mapping[Cron, Load]) -> int:
    """The peak to expect if these were spread: the others' peak plus their own mean."""
    total = np.sum(list(culprits.values()), axis=0)
    others = int((model.seconds - total).max())
    return max(1, ceil((others + float(total.sum()) / WEEK) / RUN))


def _when(model: LoadModel, second: int) -> str:
    return f"{periodic_load.at_second(model.since + second):%A at %H:%M} UTC"


def _mean(model: LoadModel) -> str:
    return f"{model.mean:.1f}" if model.mean >= 0.1 else "less than 0.1"
