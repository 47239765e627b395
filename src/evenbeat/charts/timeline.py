"""Runs as bars in lanes over time: what lies where. The template `timeline.html` draws it.

An outcome is shown by shape as well as by colour: a full bar has completed, a hatched one has
failed, an arrow is still running, a dashed outline was cancelled, a plain outline is to come. The
picture is hidden from screen readers, who get the same as a table.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from evenbeat.charts.svg import num

LEFT, RIGHT, TOP = 180.0, 990.0, 24.0
"""Where the bars are, in a picture 1000 wide; the labels are to the left of them."""

_ROW, _GAP, _PADDING = 10.0, 3.0, 6.0
_MOST_ROWS = 10
_NARROWEST = 3.0
_STEPS = (5, 10, 15, 30, 60, 120, 180, 240, 360)  # minutes
_MOST_TICKS = 9


class TimelinePeriod(NamedTuple):
    """What is shown: from, to, the present in between, and the time zone of the labels."""

    since: datetime
    until: datetime
    now: datetime
    zone: tzinfo

    def x(self, moment: datetime) -> float:
        """How far to the right a moment lies, within the picture."""
        share = (moment - self.since) / (self.until - self.since)
        return LEFT + (RIGHT - LEFT) * min(max(share, 0.0), 1.0)

    def ticks(self) -> list[datetime]:
        """Round times of day, as many as there is room for."""
        minutes = (self.until - self.since) / timedelta(minutes=1)
        step = timedelta(
            minutes=next((s for s in _STEPS if minutes / s <= _MOST_TICKS), _STEPS[-1])
        )
        there = self.since.astimezone(self.zone)
        midnight = there.replace(hour=0, minute=0, second=0, microsecond=0)
        first = midnight + step * ((there - midnight) // step + 1)
        return [first + step * n for n in range(-((first - self.until) // step))]


class Lane(NamedTuple):
    """A row of the picture; `href` is where its label leads, if anywhere."""

    key: str
    label: str
    href: str = ""


class Bar(NamedTuple):
    """A run in its lane: from when to when, how it ended, its tooltip, where it leads. Or several
    neighbours, which share all of that but their times."""

    lane: str
    outcome: str
    times: Sequence[tuple[datetime, datetime]]
    tip: str
    href: str

    def extents(self, period: TimelinePeriod) -> list[tuple[float, float]]:
        """Left edge and width of each run, wide enough to be seen; what cannot be told apart in
        the picture is one."""
        extents: list[tuple[float, float]] = []
        for start, end in self.times:
            left, right = period.x(start), period.x(end)
            wide = max(_NARROWEST, right - left)
            if self.outcome == "running":  # it ends at the present, not beyond
                wide = max(wide, 2 * _NARROWEST)
                left = right - wide
            left = min(left, RIGHT - wide)
            if extents and left < sum(extents[-1]) + 1.5:
                first, before = extents.pop()
                left, wide = first, max(before, left + wide - first)
            extents.append((left, wide))
        return extents

    def path(self, period: TimelinePeriod, y: float) -> str:
        """The shape of the bar, as commands of an SVG path."""
        shape = ""
        for x, wide in self.extents(period):
            point = min(5.0, wide) if self.outcome == "running" else 0.0
            body, half = num(wide - point), num(_ROW / 2)
            side = f"l{num(point)} {half}l-{num(point)} {half}" if point else f"v{num(_ROW)}"
            shape += f"M{num(x)} {num(y)}h{body}{side}h-{body}z"
        return shape


def together(bars: Iterable[Bar], most: int, period: TimelinePeriod) -> list[Bar]:
    """At most about so many bars: where there are more, neighbours of one lane and one outcome
    become one shape in several parts, the nearest first."""
    ordered = sorted(bars, key=lambda bar: bar.times[0])
    groups, near = [[bar] for bar in ordered], 4.0
    while len(groups) > most and near < RIGHT - LEFT:
        by_place = defaultdict(list)
        for bar in ordered:
            by_place[bar.lane, bar.outcome, period.x(bar.times[0][0]) // near].append(bar)
        groups, near = list(by_place.values()), near * 2
    return [group[0] if len(group) == 1 else _merged(group, period.zone) for group in groups]


def _merged(group: Sequence[Bar], zone: tzinfo) -> Bar:
    first, times = group[0], [one for bar in group for one in bar.times]
    runs = "runs to come" if first.outcome == "planned" else f"{first.outcome} runs"
    since, until = times[0][0].astimezone(zone), max(end for _, end in times).astimezone(zone)
    tip = f"{len(times)} {runs}, {since:%H:%M} to {until:%H:%M}"
    return first._replace(times=times, tip=tip, href="")


class DrawnLane(NamedTuple):
    """A lane as high as its runs overlap, the shapes of its bars, and how many had no room."""

    lane: Lane
    y: float
    height: float
    shapes: list[tuple[Bar, str]]
    crowded_out: int


def arrange(
    lanes: Sequence[Lane], bars: Iterable[Bar], period: TimelinePeriod
) -> Iterable[DrawnLane]:
    """Each lane with its bars, from the top."""
    by_lane = defaultdict(list)
    for bar in sorted(bars, key=lambda bar: bar.times[0]):
        by_lane[bar.lane].append(bar)
    y = TOP
    for lane in lanes:
        ends: list[float] = []  # where the bars of each row end so far
        shapes, crowded_out = [], 0
        for bar in by_lane[lane.key]:
            extents = bar.extents(period)
            row = next((n for n, end in enumerate(ends) if end < extents[0][0]), len(ends))
            if row == _MOST_ROWS:
                crowded_out += 1
                continue
            ends[row : row + 1] = [sum(extents[-1]) + 0.5]
            shapes.append((bar, bar.path(period, y + _PADDING + row * (_ROW + _GAP))))
        height = 2 * _PADDING + max(1, len(ends)) * (_ROW + _GAP) - _GAP
        yield DrawnLane(lane, y, height, shapes, crowded_out)
        y += height
