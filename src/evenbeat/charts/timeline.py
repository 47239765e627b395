"""Runs as bars in lanes over time, as SVG. Pure.

An outcome is told by shape as well as by colour: a full bar has completed, a hatched one has
failed, an arrow still runs, a dashed outline was cancelled, a plain outline is to come. The picture
is hidden from screen readers, who get the same as a table.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from evenbeat.charts.svg import FONT, clean, num

WIDTH = 1000.0
_LABELS, _RIGHT, _TOP = 180.0, 10.0, 24.0
_ROW, _GAP, _PADDING = 10.0, 3.0, 6.0
_MOST_ROWS = 10
_NARROWEST = 3.0
_LONGEST_LABEL = 28
_STEPS = (5, 10, 15, 30, 60, 120, 180, 240, 360)  # minutes
_MOST_TICKS = 9
_NEAR = (4.0, 8.0, 12.0, 18.0, 26.0, 40.0, 70.0, 120.0, 250.0)
"""How near in the picture neighbours are when they become one."""


class Bar(NamedTuple):
    """One run: its lane, from when to when, how it ended, what is told of it, where it leads.
    Or several neighbours, which share all of that and have each its own place in `parts`."""

    lane: str
    start: datetime
    end: datetime
    outcome: str
    tip: str
    href: str
    parts: tuple[tuple[datetime, datetime], ...] = ()

    @property
    def number(self) -> int:
        """How many runs it stands for."""
        return len(self.parts) or 1


class Lane(NamedTuple):
    """A row of the picture; `href` is where its label leads, if anywhere."""

    key: str
    label: str
    href: str = ""


class TimelinePeriod(NamedTuple):
    """What is shown: from, to, the present in between, and the time zone of the labels."""

    since: datetime
    until: datetime
    now: datetime
    zone: tzinfo


class Picture(NamedTuple):
    """The SVG, and how many bars found no room in it."""

    svg: str
    crowded_out: int


def draw(lanes: Sequence[Lane], bars: Iterable[Bar], period: TimelinePeriod) -> Picture:
    """A picture of all lanes, each as high as its runs overlap."""
    scale = _Scale(period)
    by_lane: dict[str, list[Bar]] = {lane.key: [] for lane in lanes}
    for bar in bars:
        if bar.lane in by_lane:
            by_lane[bar.lane].append(bar)
    rows: list[str] = []
    y, crowded_out = _TOP, 0
    for n, lane in enumerate(lanes):
        packed, high, left = _packed(by_lane[lane.key], scale)
        crowded_out += left
        height = 2 * _PADDING + high * (_ROW + _GAP) - _GAP
        rows.append(_lane(lane, y, height, even=n % 2 == 0))
        rows += [_bar(bar, scale, y + _PADDING + row * (_ROW + _GAP)) for bar, row in packed]
        y += height
    return Picture(_svg(rows, scale, y), crowded_out)


def together(bars: Sequence[Bar], most: int, period: TimelinePeriod) -> list[Bar]:
    """At most about so many bars: where there are more, neighbours of one lane and one outcome
    become one shape in several parts, the nearest first. It is told of as a whole."""
    found = list(bars)
    scale = _Scale(period)
    for near in _NEAR:
        if len(found) <= most:
            break
        found = _joined(bars, near, scale)
    return found


def _joined(bars: Sequence[Bar], near: float, scale: "_Scale") -> list[Bar]:
    groups: dict[tuple[str, str], list[list[Bar]]] = {}
    for bar in sorted(bars, key=lambda one: one.start):
        row = groups.setdefault((bar.lane, bar.outcome), [])
        if row and scale.x(bar.start) - scale.x(row[-1][0].start) <= near:
            row[-1].append(bar)
        else:
            row.append([bar])
    return [_one(group, scale.period) for row in groups.values() for group in row]


def _one(group: list[Bar], period: TimelinePeriod) -> Bar:
    first, number = group[0], len(group)
    if number == 1:
        return first
    end = max(bar.end for bar in group)
    said = "runs to come" if first.outcome == "planned" else f"{first.outcome} runs"
    since, until = first.start.astimezone(period.zone), end.astimezone(period.zone)
    tip = f"{number} {said}, {since:%H:%M} to {until:%H:%M}"
    parts = tuple((bar.start, bar.end) for bar in group)
    return first._replace(end=end, tip=tip, href="", parts=parts)


class _Scale:
    """Moments as places from left to right."""

    def __init__(self, period: TimelinePeriod) -> None:
        self.period = period
        span = (period.until - period.since).total_seconds()
        self._per_second = (WIDTH - _LABELS - _RIGHT) / span

    def x(self, moment: datetime) -> float:
        seconds = (moment - self.period.since).total_seconds()
        return _LABELS + min(max(seconds * self._per_second, 0), WIDTH - _LABELS - _RIGHT)

    def extent(self, start: datetime, end: datetime, outcome: str) -> tuple[float, float]:
        """Left edge and width, wide enough to be seen."""
        left, right = self.x(start), self.x(end)
        wide = max(_NARROWEST, right - left)
        if outcome == "running":  # it ends at the present, not beyond
            wide = max(wide, 2 * _NARROWEST)
            left = right - wide
        return min(left, WIDTH - _RIGHT - wide), wide


def _packed(bars: list[Bar], scale: _Scale) -> tuple[list[tuple[Bar, int]], int, int]:
    """Each bar in the first row where it is free, the rows used, and how many found none."""
    ends: list[float] = []
    placed, left_out = [], 0
    for bar in sorted(bars, key=lambda one: one.start):
        left, wide = scale.extent(bar.start, bar.end, bar.outcome)
        row = next((n for n, end in enumerate(ends) if end < left), len(ends))
        if row == _MOST_ROWS:
            left_out += 1
            continue
        ends[row : row + 1] = [left + wide + 0.5]
        placed.append((bar, row))
    return placed, max(1, len(ends)), left_out


# -- pieces ----------------------------------------------------------------------------------------


def _lane(lane: Lane, y: float, height: float, *, even: bool) -> str:
    label = lane.label
    if len(label) > _LONGEST_LABEL:
        label = label[: _LONGEST_LABEL - 1] + "…"
    text = f'<text x="4" y="{num(y + _PADDING + 9)}">{clean(label)}</text>'
    if lane.href:
        text = f'<a href="{clean(lane.href)}" tabindex="-1">{text}</a>'
    box = f'x="0" y="{num(y)}" width="{num(WIDTH)}" height="{num(height)}"'
    return f'<rect class="lane{" lane-even" if even else ""}" {box}/>{text}'


def _bar(bar: Bar, scale: _Scale, y: float) -> str:
    hatch = ' fill="url(#run-hatch)"' if bar.outcome == "failed" else ""
    draw_one = _arrow if bar.outcome == "running" else _box
    places = _apart([scale.extent(*part, bar.outcome) for part in _parts(bar)])
    shape = "".join(draw_one(x, y, wide) for x, wide in places)
    drawn = (
        f'<path class="run-{bar.outcome}"{hatch} d="{shape}"><title>{clean(bar.tip)}</title></path>'
    )
    return f'<a href="{clean(bar.href)}" tabindex="-1">{drawn}</a>' if bar.href else drawn


def _parts(bar: Bar) -> tuple[tuple[datetime, datetime], ...]:
    return bar.parts or ((bar.start, bar.end),)


def _apart(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same area without overlaps: what cannot be told apart is one."""
    found: list[tuple[float, float]] = []
    for x, wide in places:
        if found and x < found[-1][0] + found[-1][1] + 0.75:
            left, before = found.pop()
            found.append((left, max(left + before, x + wide) - left))
        else:
            found.append((x, wide))
    return found


def _box(x: float, y: float, wide: float) -> str:
    return f"M{num(x)} {num(y)}h{num(wide)}v{num(_ROW)}h-{num(wide)}z"


def _arrow(x: float, y: float, wide: float) -> str:
    tip, half = min(5.0, wide), num(_ROW / 2)
    body, point = num(wide - tip), num(tip)
    return f"M{num(x)} {num(y)}h{body}l{point} {half}l-{point} {half}h-{body}z"


def _svg(rows: Sequence[str], scale: _Scale, floor: float) -> str:
    now = scale.x(scale.period.now)
    behind = (
        f'<rect class="future" x="{num(now)}" y="{num(_TOP)}" width="{num(WIDTH - _RIGHT - now)}" '
        f'height="{num(floor - _TOP)}"/>'
    )
    line = (
        f'<path class="now" d="M{num(now)} {num(_TOP - 4)}V{num(floor)}"/>'
        f'<text class="now-words" x="{num(now)}" y="{num(_TOP - 8)}" text-anchor="middle">'
        "now</text>"
    )
    hatch = (
        '<defs><pattern id="run-hatch" width="4" height="4" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect class="hatch" width="4" height="4"/>'
        '<path class="hatch-lines" d="M0 0V4"/></pattern></defs>'
    )
    return (
        f'<svg class="lanes" viewBox="0 0 {num(WIDTH)} {num(floor + 4)}" aria-hidden="true" '
        f'font-family="{FONT}" font-size="11">{hatch}{"".join(rows)}{behind}{_ticks(scale, floor)}'
        f"{line}</svg>"
    )


def _ticks(scale: _Scale, floor: float) -> str:
    """Lines at round times of day, as many as there is room for."""
    period = scale.period
    minutes = (period.until - period.since) / timedelta(minutes=1)
    step = next((step for step in _STEPS if minutes / step <= _MOST_TICKS), _STEPS[-1])
    there = period.since.astimezone(period.zone)
    midnight = there.replace(hour=0, minute=0, second=0, microsecond=0)
    at = midnight + step * timedelta(minutes=1) * (
        (there - midnight) // timedelta(minutes=step) + 1
    )
    now, lines, words = scale.x(period.now), [], []
    while at < period.until:
        x = scale.x(at)
        lines.append(f"M{num(x)} {num(_TOP)}V{num(floor)}")
        if abs(x - now) > 30:
            words.append(
                f'<text class="tick" x="{num(x)}" y="{num(_TOP - 8)}" text-anchor="middle">'
                f"{at:%H:%M}</text>"
            )
        at += timedelta(minutes=step)
    return f'<path class="ticks" d="{"".join(lines)}"/>{"".join(words)}'
