"""The charts of the distribution that only the dashboard has: a week by slots, the score by days.

`charts.heatmap` draws a shape for each slot, which is 130 KB for an uneven week. Here the slots of
one shade are one path, and what shows on pointing is told by the hour.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from evenbeat.charts import SLOTS_A_DAY, WEEKDAYS
from evenbeat.charts.svg import LEVELS, Drawing, amount, clean, finite, num
from evenbeat.store.placement import DistributionPoint

_LEFT, _RIGHT = 34.0, 4.0
_HOURS = 24


class Mark(NamedTuple):
    """Where the present is in a week of slots."""

    slot: int


def heat(
    week: Sequence[float], *, title: str, unit: str, now: Mark | None = None, width: float = 1080
) -> str:
    """7 x 96 slots from Monday midnight: the darker, the more. The present slot has a frame."""
    height = 238.0
    drawing = Drawing("heatmap", title, width, height)
    load = finite(week)
    top = max(load, default=0.0)
    row, cell = (height - 46) / 7, (width - _LEFT - _RIGHT) / SLOTS_A_DAY
    shades: dict[int, list[str]] = {}
    for day in range(7):
        y = 18 + row * day
        drawing.text((_LEFT - 8, y + row / 2 + 4), WEEKDAYS[day], anchor="end")
        for first, count, level in _alike(load[day * SLOTS_A_DAY :][:SLOTS_A_DAY], top):
            x = num(_LEFT + cell * first)
            shades.setdefault(level, []).append(
                f"M{x} {num(y + 1)}h{num(cell * count)}v{num(row - 2)}h-{num(cell * count)}z"
            )
    for level, pieces in sorted(shades.items()):
        drawing.path(f"level-{level}", "".join(pieces), 0)
    _tips(drawing, load, row, cell, unit)
    if now is not None:
        left = _LEFT + cell * (now.slot % SLOTS_A_DAY)
        corner = f"M{num(left)} {num(18 + row * (now.slot // SLOTS_A_DAY))}"
        drawing.path("now", f"{corner}h{num(cell)}v{num(row)}h-{num(cell)}z", 1.5)
    for hour in range(0, _HOURS, 3):
        drawing.text((_LEFT + cell * 4 * hour, 12), f"{hour:02d}:00", size=10)
    _legend(drawing, top, unit)
    return str(drawing)


def _alike(day: Sequence[float], top: float) -> list[tuple[int, int, int]]:
    """Stretches of neighbouring slots of one shade: first, how many, which shade."""
    found: list[tuple[int, int, int]] = []
    for n, value in enumerate(day):
        level = min(LEVELS - 1, int(value / top * LEVELS)) if top else 0
        if found and found[-1][2] == level:
            first, count, _ = found.pop()
            found.append((first, count + 1, level))
        else:
            found.append((n, 1, level))
    return found


def _tips(drawing: Drawing, load: Sequence[float], row: float, cell: float, unit: str) -> None:
    """What each hour is, shown when pointed at."""
    for n in range(7 * _HOURS):
        day, hour = divmod(n, _HOURS)
        most = amount(max(load[n * 4 : n * 4 + 4], default=0))
        told = clean(f"{WEEKDAYS[day]} {hour:02d}:00: up to {most} {unit}")
        drawing.parts.append(
            f'<rect class="tip" x="{num(_LEFT + cell * 4 * hour)}" y="{num(18 + row * day)}" '
            f'width="{num(cell * 4)}" height="{num(row)}"><title>{told}</title></rect>'
        )


def _legend(drawing: Drawing, top: float, unit: str) -> None:
    words = f"{amount(top)} {unit}"
    x, y = drawing.width - _RIGHT - 14 * LEVELS - 6.2 * len(words) - 8, drawing.height - 14
    drawing.text((x - 6, y + 9), "0", anchor="end", size=10)
    for level in range(LEVELS):
        drawing.rect(f"level-{level}", (x + 14 * level, y, 14, 10))
    drawing.text((x + 14 * LEVELS + 6, y + 9), words, size=10)


# -- the score over time -------------------------------------------------------------------------


def score_line(points: Sequence[DistributionPoint], zone: tzinfo, *, width: float = 460) -> str:
    """The score from 0 to 1 over the time of the points; where none was noted there is a gap."""
    height, left, below = 150.0, 30.0, 20.0
    first, last = points[0].at, points[-1].at
    now = f"{points[-1].score:.2f}"
    drawing = Drawing("score", f"The score since {first:%d %B}: now {now}", width, height)
    across = (width - left - 10) / ((last - first).total_seconds() or 1)
    down = height - below - 10
    for value in (0, 0.5, 1):
        y = 10 + down * (1 - value)
        drawing.line("grid" if value else "axis", (left, y), (width - 10, y))
        drawing.text((left - 6, y + 4), f"{value:g}", anchor="end", size=10)
    places = [
        (
            left + (point.at - first).total_seconds() * across,
            10 + down * (1 - point.score),
            point.at,
        )
        for point in _thinned(points)
    ]
    drawing.path("line", _trace(places), 1.75)
    drawing.circle("peak", places[-1][:2], 3, f"{last.astimezone(zone):%d %b %H:%M}: {now}")
    for at, anchor, x in ((first, "start", left), (last, "end", width - 10)):
        drawing.text((x, height - 4), _day(at, first, last, zone), anchor=anchor, size=10)
    return str(drawing)


_MOST_POINTS = 300
_A_GAP = timedelta(hours=2)


def _thinned(points: Sequence[DistributionPoint]) -> list[DistributionPoint]:
    """At most so many, evenly, the last one among them."""
    every = max(1, -(-len(points) // _MOST_POINTS))
    return list(reversed(points[::-1][::every]))


def _trace(places: Sequence[tuple[float, float, datetime]]) -> str:
    commands, before = [], None
    for x, y, at in places:
        joined = before is not None and at - before <= _A_GAP
        commands.append(f"{'L' if joined else 'M'}{num(x)} {num(y)}")
        before = at
    return "".join(commands)


def _day(at: datetime, first: datetime, last: datetime, zone: tzinfo) -> str:
    there = at.astimezone(zone)
    return f"{there:%H:%M}" if last - first < timedelta(days=1) else f"{there.day} {there:%b}"
