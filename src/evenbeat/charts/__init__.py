"""Charts as SVG text, drawn in Python, for the dashboard, the command line and the README.

Every function takes values and returns a whole `<svg>`. See `svg.py` for classes and colours, and
`timeline.py` for runs over time. `outcome_strip` and `heatmap` draw all marks of one colour as one
path: with a shape for each, a page of jobs or an uneven week would weigh 130 KB.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise
from typing import NamedTuple

from evenbeat.charts.svg import Drawing, amount, num, ticks, ticks_of_time
from evenbeat.humanize import count, duration

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SLOTS_A_DAY = 96

_LEVELS = 8
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 12.0, 14.0, 22.0


class Panel(NamedTuple):
    """The part of a drawing that holds values: where it is, and how high its scale goes."""

    x: float
    y: float
    width: float
    height: float
    top: float

    def y_of(self, value: float) -> float:
        """How far down a value lies."""
        return self.y + self.height * (1 - min(value, self.top) / self.top)

    @property
    def floor(self) -> float:
        return self.y + self.height


class DurationPoint(NamedTuple):
    """A run for `durations`: when it began and how long it took, in seconds."""

    at: float
    seconds: float
    ok: bool
    tip: str


def bars(
    values: Sequence[float],
    *,
    title: str,
    labels: Sequence[str],
    unit: str,
    width: float,
    height: float,
) -> str:
    """A bar for each value, the first of the highest in another colour with its figure."""
    drawing, most = Drawing("bars", title, width, height), max(values)
    if not most:
        return _nothing(drawing)
    peak = values.index(most)
    panel = _panel(drawing, most, (_LEFT, _TOP + 6, _RIGHT, _BOTTOM))
    step = panel.width / len(values)
    for n, value in enumerate(values):
        y = panel.y_of(value)
        box = (panel.x + step * (n + 0.1), y, step * 0.8, panel.floor - y)
        tip = f"{labels[n]}: {amount(value)} {unit}"
        drawing.rect("peak" if n == peak else "bar", box, tip, min(2.0, step / 6))
    at = panel.x + step * (peak + 0.5), panel.y_of(most) - 5
    drawing.text(at, amount(most), name="heading", anchor="middle")
    _label_axis(drawing, panel, labels)
    return str(drawing)


def stacked(
    ok: Sequence[float],
    failed: Sequence[float],
    *,
    title: str,
    labels: Sequence[str],
    links: Sequence[tuple[str, str]] = (),
) -> str:
    """What went well and, on top of it, what failed, for each hour; `links` lead to the runs of
    either."""
    drawing, top = Drawing("stacked", title, 720, 180), max(map(sum, zip(ok, failed, strict=True)))
    if not top:
        return _nothing(drawing)
    panel = _panel(drawing, top)
    step = panel.width / len(ok)
    for n, (good, bad) in enumerate(zip(ok, failed, strict=True)):
        x, wide = panel.x + step * (n + 0.1), step * 0.8
        tip = f"{labels[n]}: {amount(good)} ok, {amount(bad)} failed"
        low, high = panel.y_of(good), panel.y_of(good + bad)
        to_good, to_bad = links[n] if links else ("", "")
        if good:
            drawing.rect("ok", (x, low, wide, panel.floor - low), tip, href=to_good)
        if bad:
            drawing.rect("failed", (x, high, wide, max(1.5, low - high)), tip, href=to_bad)
    _label_axis(drawing, panel, labels)
    return str(drawing)


def before_after(
    before: Sequence[float],
    after: Sequence[float],
    *,
    title: str,
    notes: tuple[str, str],
    height: float = 470,
    alone: bool = False,
) -> str:
    """Two loads over the same time, one above the other and on one scale; `alone` for a file.

    Each column shows the highest value of its time, so that no spike is lost to the width.
    """
    drawing = Drawing("before-after", title, 960, height, alone)
    top = max([*before, *after], default=0)
    if not top:
        return _nothing(drawing)
    drawing.text((_LEFT, 24), title, name="heading", size=15)
    each = (height - 40) / 2
    for n, (name, load) in enumerate((("before", before), ("after", after))):
        y = 40 + each * n
        drawing.text((_LEFT, y + 16), notes[n], name="heading", size=12)
        panel = _panel(drawing, top, (_LEFT, y + 28, _RIGHT, height - y - each + _BOTTOM))
        _label_axis(drawing, panel, WEEKDAYS, between=True)
        columns = min(len(load), round(panel.width / 2))
        edges = [column * len(load) // columns for column in range(columns + 1)]
        step, last = panel.width / columns, -1.0
        outline = f"M{num(panel.x)} {num(panel.floor)}"
        for column, (low, high) in enumerate(pairwise(edges)):
            value = max(load[low:high])
            if value != last:
                outline += f"H{num(panel.x + column * step)}V{num(panel.y_of(value))}"
                last = value
        outline += f"H{num(panel.x + panel.width)}V{num(panel.floor)}Z"
        drawing.path(name, outline)
        mean = panel.y_of(sum(load) / len(load))
        drawing.line("mean", (panel.x, mean), (panel.x + panel.width, mean))
    return str(drawing)


def heatmap(week: Sequence[float], *, title: str, unit: str, now: int) -> str:
    """A week of 7 x 96 quarter hours from Monday midnight: the darker, the more. Pointing at it
    shows the figures by the hour; the slot `now` has a frame."""
    width, height, left, above = 1080.0, 238.0, 34.0, 18.0
    drawing, top = Drawing("heatmap", title, width, height), max(week)
    row, cell = (height - 46) / 7, (width - left - 4) / SLOTS_A_DAY
    shades: dict[int, list[str]] = {}
    for day, weekday in enumerate(WEEKDAYS):
        y = above + row * day
        drawing.text((left - 8, y + row / 2 + 4), weekday, anchor="end")
        slots = week[day * SLOTS_A_DAY :][:SLOTS_A_DAY]
        levels = [min(_LEVELS - 1, int(v / top * _LEVELS)) if top else 0 for v in slots]
        changes = [n for n, (one, next_) in enumerate(pairwise(levels), start=1) if one != next_]
        for first, end in pairwise([0, *changes, len(levels)]):
            wide = num(cell * (end - first))
            piece = f"M{num(left + cell * first)} {num(y + 1)}h{wide}v{num(row - 2)}h-{wide}z"
            shades.setdefault(levels[first], []).append(piece)
    for level, pieces in sorted(shades.items()):
        drawing.path(f"level-{level}", "".join(pieces))
    for n in range(7 * 24):
        day, hour = divmod(n, 24)
        most = amount(max(week[n * 4 : n * 4 + 4]))
        box = (left + cell * 4 * hour, above + row * day, cell * 4, row)
        drawing.rect("tip", box, f"{WEEKDAYS[day]} {hour:02d}:00: up to {most} {unit}")
    day, slot = divmod(now, SLOTS_A_DAY)
    drawing.rect("now", (left + cell * slot, above + row * day, cell, row))
    for hour in range(0, 24, 3):
        drawing.text((left + cell * 4 * hour, 12), f"{hour:02d}:00", size=10)
    words = f"{amount(top)} {unit}"
    x, y = width - 4 - 14 * _LEVELS - 6.2 * len(words) - 8, height - 14
    drawing.text((x - 6, y + 9), "0", anchor="end", size=10)
    for level in range(_LEVELS):
        drawing.rect(f"level-{level}", (x + 14 * level, y, 14, 10))
    drawing.text((x + 14 * _LEVELS + 6, y + 9), words, size=10)
    return str(drawing)


def score_line(points: Sequence[tuple[datetime, float]], zone: tzinfo) -> str:
    """The score from 0 to 1 over time, from (moment, score), with gaps where none was noted."""
    width, height, most, gap = 460.0, 150.0, 300, timedelta(hours=2)
    (first, _), (last, score) = points[0], points[-1]
    drawing = Drawing("score", f"The score since {first:%d %B}: now {score:.2f}", width, height)
    panel = _panel(drawing, 1, (30, 10, 10, 20), at=(0, 0.5, 1))
    across = panel.width / ((last - first).total_seconds() or 1)
    commands, before, place = [], None, (0.0, 0.0)
    for at, value in reversed(points[::-1][:: max(1, -(-len(points) // most))]):
        place = panel.x + (at - first).total_seconds() * across, panel.y_of(value)
        joined = before is not None and at - before <= gap
        commands.append(f"{'L' if joined else 'M'}{num(place[0])} {num(place[1])}")
        before = at
    drawing.path("line", "".join(commands))
    drawing.circle("peak", place, 3, f"{last.astimezone(zone):%d %b %H:%M}: {score:.2f}")
    for at, anchor, x in ((first, "start", panel.x), (last, "end", width - 10)):
        there = at.astimezone(zone)
        within_a_day = last - first < timedelta(days=1)
        words = f"{there:%H:%M}" if within_a_day else f"{there.day} {there:%b}"
        drawing.text((x, height - 4), words, anchor=anchor, size=10)
    return str(drawing)


def durations(
    points: Sequence[DurationPoint],
    *,
    title: str,
    lines: Mapping[str, float],
    labels: Sequence[str],
) -> str:
    """A dot for each run at its time and duration, failures larger and on top, and a line with its
    name for each of `lines`, in seconds and from the lowest."""
    drawing = Drawing("durations", title, 720, 200)
    top = max(*(point.seconds for point in points), *lines.values(), 1e-3) * 1.08
    margins = _LEFT + 6, _TOP, 88.0 if lines else _RIGHT, _BOTTOM
    panel = _panel(drawing, top, margins, duration, ticks_of_time(top))
    _label_axis(drawing, panel, labels, between=True)
    begin, end = min(p.at for p in points), max(p.at for p in points)
    across = panel.width / (end - begin or 1)
    for point in sorted(points, key=lambda point: not point.ok):
        centre = (panel.x + (point.at - begin) * across, panel.y_of(point.seconds))
        name, radius = ("ok", 2.6) if point.ok else ("failed", 3.6)
        drawing.circle(name, centre, radius, point.tip)
    right, label_y = panel.x + panel.width, drawing.height
    for name, value in lines.items():
        y = panel.y_of(value)
        drawing.line(name, (panel.x, y), (right, y))
        label_y = min(y + 4, label_y - 12)
        drawing.text((right + 5, label_y), f"{name} {duration(value)}", size=10)
    return str(drawing)


def outcome_strip(outcomes: Sequence[str], most: int) -> str:
    """Marks for the last runs, the newest on the right; failed ones are taller. Small enough for
    fifty of them on one page, so it is drawn without a `Drawing`."""
    shown = outcomes[-most:]
    marks: dict[str, list[str]] = {}
    for place, outcome in enumerate(shown, start=most - len(shown)):
        name = {"completed": "ok", "failed": "failed"}.get(outcome, "other")
        top = 0 if name == "failed" else 4
        marks.setdefault(name, []).append(f"M{place * 6 + 1} {top}h4V16h-4z")
    paths = "".join(f'<path class="{name}" d="{"".join(d)}"/>' for name, d in marks.items())
    title = f"{count(len(shown), 'run')}, {shown.count('failed')} failed"
    return (
        f'<svg class="strip" viewBox="0 0 {most * 6} 16" role="img" aria-label="{title}">'
        f"<title>{title}</title>{paths}</svg>"
    )


def _panel(
    drawing: Drawing,
    top: float,
    margins: tuple[float, float, float, float] = (_LEFT, _TOP, _RIGHT, _BOTTOM),
    words: Callable[[float], str] = amount,
    at: Sequence[float] = (),
) -> Panel:
    """A panel between these margins, with lines at round values and their figures."""
    left, above, right, below = margins
    size = drawing.width - left - right, drawing.height - above - below
    panel = Panel(left, above, *size, top)
    for value in at or ticks(top):
        y = panel.y_of(value)
        drawing.line("axis" if value == 0 else "grid", (left, y), (left + panel.width, y))
        drawing.text((left - 6, y + 4), words(value) if value else "0", anchor="end", size=10)
    return panel


def _label_axis(
    drawing: Drawing, panel: Panel, labels: Sequence[str], *, between: bool = False
) -> None:
    """Labels under the panel: one for each bar as far as they fit, or for equal parts of it."""
    if not labels:
        return
    step = panel.width / len(labels)
    room = max(len(label) for label in labels) * 6.5 + 8
    every = max(1, -(-room // step)) if not between else 1
    for n, label in enumerate(labels):
        if n % every == 0:
            x = panel.x + step * (n + 0.5)
            drawing.text((x, panel.floor + 15), label, anchor="middle", size=10)
        if between and n:
            x = panel.x + step * n
            drawing.line("grid", (x, panel.y), (x, panel.floor))


def _nothing(drawing: Drawing) -> str:
    middle = drawing.width / 2, drawing.height / 2 + 4
    drawing.text(middle, "Nothing to show yet", anchor="middle")
    return str(drawing)
