"""`off_peak`: the hours of the day with the least load of the jobs that may run at any time."""

from datetime import time

import numpy as np

from evenbeat.domain.window import EVERY_DAY, ExecutionWindow
from evenbeat.placement.load import CELL, LoadModel

HOURS = 4
_WORTH_MOVING = 0.8
"""Other hours are taken when they have less than this much of the load of the present ones."""


def off_peak_hours(model: LoadModel, present: ExecutionWindow | None) -> ExecutionWindow:
    """The quietest hours by a model without off-peak jobs, which would chase themselves; whole
    hours of the day in UTC, over the coming week. The present ones stay unless others are much
    quieter."""
    day = model.cells.reshape(7, -1).sum(axis=0)
    by_hour = np.roll(day, model.since // CELL).reshape(24, -1).sum(axis=1)
    load = sum(np.roll(by_hour, -later) for later in range(HOURS))
    quietest = int(np.argmin(load))
    if present is not None and load[quietest] >= _WORTH_MOVING * load[present.start.hour]:
        return present
    end = time((quietest + HOURS) % 24)
    return ExecutionWindow(EVERY_DAY, time(quietest), end, off_peak=True)
