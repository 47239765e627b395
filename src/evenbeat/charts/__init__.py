"""Charts as SVG text, drawn in Python once, for the dashboard, the command line and the README.

Every function takes values and gives a whole `<svg>`. Times are in UTC. See `svg.py` for classes
and colours; `alone=True` makes a picture for a file.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from evenbeat.charts.svg import LEVELS, Drawing, amount, finite, num, ticks, ticks_of_time
from evenbeat.humanize import duration

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SLOTS_A_DAY = 96

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
        """Where zero lies."""
        return self.y + self.height


class DurationPoint(NamedTuple):
    """A run for `durations`: when it began and how long it took, in seconds."""

    at: float
    seconds: float
    ok: bool = True
    tip: str = ""


# ---------------------------------------------------------------- bars


def bars(
    values: Sequence[float],
    *,
    title: str,
    labels: Sequence[str] = (),
    peak_index: int | None = None,
    unit: str = "jobs",
    width: float = 720,
    height: float = 200,
    alone: bool = False,
) -> str:
    """A bar for each value, the peak (by itself the highest) in another colour with its figure."""
    drawing = Drawing("bars", title, width, height, alone)
    heights = finite(values)
    if not any(heights):
        return _nothing(drawing)
    peak = heights.index(max(heights)) if peak_index is None else peak_index
    panel = _panel(drawing, max(heights), above=_TOP + 6)
    step = panel.width / len(heights)
    for n, value in enumerate(heights):
        y = panel.y_of(value)
        tip = f"{_label(labels, n)}: {amount(value)} {unit}"
        box = (panel.x + step * (n + 0.1), y, step * 0.8, panel.floor - y)
        drawing.rect("peak" if n == peak else "bar", box, tip, min(2.0, step / 6))
    x = panel.x + step * (peak + 0.5)
    y = panel.y_of(heights[peak]) - 5
    drawing.text((x, y), amount(heights[peak]), name="heading", anchor="middle")
    _below(drawing, panel, labels)
    return str(drawing)


def stacked(
    ok: Sequence[float],
    failed: Sequence[float],
    *,
    title: str,
    labels: Sequence[str] = (),
    width: float = 720,
    height: float = 180,
    alone: bool = False,
) -> str:
    """What went well and, on top of it, what failed, for each hour."""
    drawing = Drawing("stacked", title, width, height, alone)
    pairs = list(zip(finite(ok), finite(failed), strict=True))
    top = max((good + bad for good, bad in pairs), default=0)
    if not top:
        return _nothing(drawing)
    panel = _panel(drawing, top)
    step = panel.width / len(pairs)
    for n, (good, bad) in enumerate(pairs):
        x, wide = panel.x + step * (n + 0.1), step * 0.8
        tip = f"{_label(labels, n)}: {amount(good)} ok, {amount(bad)} failed"
        low, high = panel.y_of(good), panel.y_of(good + bad)
        if good:
            drawing.rect("ok", (x, low, wide, panel.floor - low), tip)
        if bad:
            drawing.rect("failed", (x, high, wide, max(1.5, low - high)), tip)
    _below(drawing, panel, labels)
    return str(drawing)


# ---------------------------------------------------------------- load over time


def curve(
    values: Sequence[float],
    *,
    title: str,
    labels: Sequence[str] = (),
    width: float = 720,
    height: float = 200,
    alone: bool = False,
) -> str:
    """Load as a line over a filled area, with its mean; many values are shown by their peaks."""
    drawing = Drawing("curve", title, width, height, alone)
    load = finite(values)
    if not any(load):
        return _nothing(drawing)
    panel = _panel(drawing, max(load))
    _below(drawing, panel, labels, between=True)
    points = _columns(load, round(panel.width / 2), max)
    drawing.path("area", _outline(panel, points))
    drawing.path("line", _trace(panel, points), 1.5)
    _mean_line(drawing, panel, sum(load) / len(load))
    return str(drawing)


def before_after(
    before: Sequence[float],
    after: Sequence[float],
    *,
    title: str,
    notes: tuple[str, str] = ("before", "after"),
    labels: Sequence[str] = WEEKDAYS,
    width: float = 960,
    height: float = 470,
    alone: bool = False,
) -> str:
    """Two loads over the same time, one above the other and on one scale.

    Each column shows the highest value of its time, so that no spike is lost to the width.
    """
    drawing = Drawing("before-after", title, width, height, alone)
    both = finite(before), finite(after)
    top = max([*both[0], *both[1]], default=0)
    if not top:
        return _nothing(drawing)
    drawing.text((_LEFT, 24), title, name="heading", size=15)
    each = (height - 40) / 2
    for n, (name, load) in enumerate(zip(("before", "after"), both, strict=True)):
        y = 40 + each * n
        drawing.text((_LEFT, y + 16), notes[n], name="heading", size=12)
        inner = (_LEFT, y + 28, width - _LEFT - _RIGHT, each - 28 - _BOTTOM)
        panel = _grid(drawing, Panel(*inner, top))
        _below(drawing, panel, labels, between=True)
        points = _columns(load, round(panel.width / 2), max)
        drawing.path(name, _outline(panel, points, steps=True))
        _mean_line(drawing, panel, sum(load) / len(load))
    return str(drawing)


def heatmap(
    week: Sequence[float],
    *,
    title: str,
    unit: str = "at once",
    width: float = 960,
    height: float = 214,
    alone: bool = False,
) -> str:
    """A week of 7 x 96 quarter hours from Monday midnight: the darker, the more runs at once."""
    drawing = Drawing("heatmap", title, width, height, alone)
    load = finite(week)
    top = max(load, default=0)
    if not top:
        return _nothing(drawing)
    row, cell = (height - 46) / 7, (width - _LEFT - _RIGHT) / SLOTS_A_DAY
    for day in range(7):
        y = 20 + row * day
        drawing.text((_LEFT - 8, y + row / 2 + 4), WEEKDAYS[day], anchor="end")
        for first, count in _alike(load[day * SLOTS_A_DAY : (day + 1) * SLOTS_A_DAY], top):
            part = load[day * SLOTS_A_DAY + first :][:count]
            tip = f"{WEEKDAYS[day]} {_clock(first)} to {_clock(first + count)}: "
            tip += f"up to {amount(max(part))} {unit}"
            box = (_LEFT + cell * first, y + 1, cell * count, row - 2)
            drawing.rect(f"level-{_level(part[0], top)}", box, tip)
    for hour in range(0, 24, 3):
        drawing.text((_LEFT + cell * 4 * hour, 13), f"{hour:02d}:00", size=10)
    _legend(drawing, top, unit)
    return str(drawing)


def _alike(day: Sequence[float], top: float) -> list[tuple[int, int]]:
    """Stretches of neighbouring slots of one shade: (first, how many)."""
    stretches: list[tuple[int, int]] = []
    for n, value in enumerate(day):
        same = n and _level(value, top) == _level(day[n - 1], top)
        first, count = stretches.pop() if same else (n, 0)
        stretches.append((first, count + 1))
    return stretches


def _level(value: float, top: float) -> int:
    return min(LEVELS - 1, int(value / top * LEVELS))


def _clock(slot: int) -> str:
    return f"{slot // 4:02d}:{slot % 4 * 15:02d}"


def _legend(drawing: Drawing, top: float, unit: str) -> None:
    x, y = drawing.width - _RIGHT - 14 * LEVELS - 70, drawing.height - 14
    drawing.text((x - 6, y + 9), "0", anchor="end", size=10)
    for level in range(LEVELS):
        drawing.rect(f"level-{level}", (x + 14 * level, y, 14, 10))
    drawing.text((x + 14 * LEVELS + 6, y + 9), f"{amount(top)} {unit}", size=10)


# ---------------------------------------------------------------- runs


def durations(
    points: Sequence[DurationPoint],
    *,
    title: str,
    median: float | None = None,
    p95: float | None = None,
    labels: Sequence[str] = (),
    width: float = 720,
    height: float = 220,
    alone: bool = False,
) -> str:
    """A dot for each run at its time and duration, failures filled and larger."""
    drawing = Drawing("durations", title, width, height, alone)
    if not points:
        return _nothing(drawing)
    lasting = finite([point.seconds for point in points])
    right = 66.0 if median is not None or p95 is not None else _RIGHT
    top = max(*lasting, median or 0, p95 or 0, 1e-3) * 1.08
    inner = (_LEFT + 6, _TOP, width - _LEFT - 6 - right, height - _TOP - _BOTTOM)
    panel = _grid(drawing, Panel(*inner, top), duration, ticks_of_time(top))
    _below(drawing, panel, labels, between=True)
    begin, end = min(p.at for p in points), max(p.at for p in points)
    across = panel.width / (end - begin or 1)
    for point, seconds in sorted(
        zip(points, lasting, strict=True), key=lambda pair: not pair[0].ok
    ):
        centre = (panel.x + (point.at - begin) * across, panel.y_of(seconds))
        tip = point.tip or f"{duration(seconds)}, {'ok' if point.ok else 'failed'}"
        drawing.circle("ok" if point.ok else "failed", centre, 2.6 if point.ok else 3.6, tip)
    _marks(drawing, panel, median, p95)
    return str(drawing)


def _marks(drawing: Drawing, panel: Panel, median: float | None, p95: float | None) -> None:
    lowest_label = panel.floor + 4
    for name, words, value in (("mean", "median", median), ("p95", "p95", p95)):
        if value is None:
            continue
        y = panel.y_of(value)
        drawing.line(name, (panel.x, y), (panel.x + panel.width, y))
        lowest_label = min(y + 4, lowest_label - 12) if name == "p95" else y + 4
        drawing.text(
            (panel.x + panel.width + 5, lowest_label), f"{words} {duration(value)}", size=10
        )


def outcome_strip(
    outcomes: Sequence[str], *, title: str = "", most: int = 20, alone: bool = False
) -> str:
    """The last runs as small marks, the newest on the right: full for ok, red for failed."""
    shown = list(outcomes)[-most:]
    good = sum(outcome in _GOOD for outcome in shown)
    title = title or f"{good} of the last {len(shown)} runs completed"
    drawing = Drawing("strip", title, most * 6.0, 16, alone)
    for n, outcome in enumerate(shown, start=most - len(shown)):
        name = "ok" if outcome in _GOOD else "failed" if outcome in _BAD else "other"
        low = 0 if name == "failed" else 4
        drawing.rect(name, (n * 6.0 + 1, low, 4, 16 - low), outcome, 1)
    return str(drawing)


_GOOD = frozenset({"ok", "completed", "success"})
_BAD = frozenset({"failed", "timeout", "lost", "error"})


# ---------------------------------------------------------------- axes


def _panel(drawing: Drawing, top: float, above: float = _TOP) -> Panel:
    size = drawing.width - _LEFT - _RIGHT, drawing.height - above - _BOTTOM
    return _grid(drawing, Panel(_LEFT, above, *size, top))


def _grid(
    drawing: Drawing,
    panel: Panel,
    words: Callable[[float], str] = amount,
    at: Sequence[float] = (),
) -> Panel:
    """Lines at round values, with their figures."""
    for value in at or ticks(panel.top):
        y = panel.y_of(value)
        name = "grid" if value else "axis"
        drawing.line(name, (panel.x, y), (panel.x + panel.width, y))
        drawing.text((panel.x - 6, y + 4), words(value) if value else "0", anchor="end", size=10)
    return panel


def _below(drawing: Drawing, panel: Panel, labels: Sequence[str], between: bool = False) -> None:
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


def _mean_line(drawing: Drawing, panel: Panel, mean: float) -> None:
    y = panel.y_of(mean)
    drawing.line("mean", (panel.x, y), (panel.x + panel.width, y))


def _label(labels: Sequence[str], n: int) -> str:
    return labels[n] if n < len(labels) else str(n)


def _nothing(drawing: Drawing) -> str:
    middle = drawing.width / 2, drawing.height / 2 + 4
    drawing.text(middle, "Nothing to show yet", anchor="middle")
    return str(drawing)


# ---------------------------------------------------------------- lines


def _columns(
    values: Sequence[float], most: int, of: Callable[[Sequence[float]], float]
) -> list[float]:
    """At most so many values, each standing for an equal part of the given ones."""
    if len(values) <= most:
        return list(values)
    edges = [n * len(values) // most for n in range(most + 1)]
    return [of(values[low:high]) for low, high in pairwise(edges)]


def _trace(panel: Panel, values: Sequence[float]) -> str:
    step = panel.width / max(1, len(values) - 1)
    points = (
        f"{num(panel.x + n * step)} {num(panel.y_of(value))}" for n, value in enumerate(values)
    )
    return "M" + "L".join(points)


def _outline(panel: Panel, values: Sequence[float], steps: bool = False) -> str:
    """The area under values: along a line, or in steps as wide as each value's time."""
    if not steps:
        left, right = num(panel.x), num(panel.x + panel.width)
        return f"{_trace(panel, values)}L{right} {num(panel.floor)}L{left} {num(panel.floor)}Z"
    step, commands, last = panel.width / len(values), [f"M{num(panel.x)} {num(panel.floor)}"], -1.0
    for n, value in enumerate(values):
        if value != last:
            x = num(panel.x + n * step)
            commands.append(f"H{x}V{num(panel.y_of(value))}")
            last = value
    return "".join(commands) + f"H{num(panel.x + panel.width)}V{num(panel.floor)}Z"
