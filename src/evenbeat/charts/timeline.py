"""Runs as bars in lanes over time.

An outcome is shown by shape as well as by colour: a full bar has completed, a hatched one has
failed, an arrow is still running, a dashed outline was cancelled, a plain outline is to come. The
picture is hidden from screen readers, who get the same as a table.
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

_HATCH = (
    '<defs><pattern id="run-hatch" width="4" height="4" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect class="hatch" width="4" height="4"/>'
    '<path class="hatch-lines" d="M0 0V4"/></pattern></defs>'
)


class TimelinePeriod(NamedTuple):
    """What is shown: from, to, the present in between, and the time zone of the labels."""

    since: datetime
    until: datetime
    now: datetime
    zone: tzinfo

    def x(self, moment: datetime) -> float:
        """How far to the right a moment lies, within the picture."""
        room = WIDTH - _LABELS - _RIGHT
        per_second = room / (self.until - self.since).total_seconds()
        seconds = (moment - self.since).total_seconds()
        return _LABELS + min(max(seconds * per_second, 0), room)


class Lane(NamedTuple):
    """A row of the picture; `href` is where its label leads, if anywhere."""

    key: str
    label: str
    href: str = ""


class Bar(NamedTuple):
    """One run: its lane, from when to when, how it ended, its tooltip, where it leads.
    Or several neighbours, which share all of that and have each its own place in `parts`."""

    lane: str
    start: datetime
    end: datetime
    outcome: str
    tip: str
    href: str
    parts: tuple[tuple[datetime, datetime], ...] = ()

    @classmethod
    def merged(cls, group: Sequence["Bar"], zone: tzinfo) -> "Bar":
        first, number = group[0], len(group)
        if number == 1:
            return first
        end = max(bar.end for bar in group)
        runs = "runs to come" if first.outcome == "planned" else f"{first.outcome} runs"
        since, until = first.start.astimezone(zone), end.astimezone(zone)
        tip = f"{number} {runs}, {since:%H:%M} to {until:%H:%M}"
        parts = tuple((bar.start, bar.end) for bar in group)
        return first._replace(end=end, tip=tip, href="", parts=parts)

    def extents(self, period: TimelinePeriod) -> list[tuple[float, float]]:
        """Left edge and width of each part, wide enough to be seen; what cannot be told apart in
        the picture is one."""
        extents: list[tuple[float, float]] = []
        for start, end in self.parts or ((self.start, self.end),):
            left, right = period.x(start), period.x(end)
            wide = max(_NARROWEST, right - left)
            if self.outcome == "running":  # it ends at the present, not beyond
                wide = max(wide, 2 * _NARROWEST)
                left = right - wide
            left = min(left, WIDTH - _RIGHT - wide)
            if extents and left < extents[-1][0] + extents[-1][1] + 0.75:
                first, before = extents.pop()
                extents.append((first, max(first + before, left + wide) - first))
            else:
                extents.append((left, wide))
        return extents

    def svg(self, period: TimelinePeriod, y: float) -> str:
        """The bar as a path, linked if it leads anywhere."""
        shape = ""
        for x, wide in self.extents(period):
            point = min(5.0, wide) if self.outcome == "running" else 0
            if point:
                half, body, tip = num(_ROW / 2), num(wide - point), num(point)
                shape += f"M{num(x)} {num(y)}h{body}l{tip} {half}l-{tip} {half}h-{body}z"
            else:
                shape += f"M{num(x)} {num(y)}h{num(wide)}v{num(_ROW)}h-{num(wide)}z"
        hatch = ' fill="url(#run-hatch)"' if self.outcome == "failed" else ""
        title = f"<title>{clean(self.tip)}</title>"
        path = f'<path class="run-{self.outcome}"{hatch} d="{shape}">{title}</path>'
        return f'<a href="{clean(self.href)}" tabindex="-1">{path}</a>' if self.href else path


def together(bars: Sequence[Bar], most: int, period: TimelinePeriod) -> list[Bar]:
    """At most about so many bars: where there are more, neighbours of one lane and one outcome
    become one shape in several parts, the nearest first."""
    if len(bars) <= most:
        return list(bars)
    placed = [(period.x(bar.start), bar) for bar in sorted(bars, key=lambda one: one.start)]
    rows: dict[tuple[str, str], list[list[Bar]]] = {}
    for near in _NEAR:
        rows = {}
        first_x: dict[tuple[str, str], float] = {}
        for x, bar in placed:
            key = bar.lane, bar.outcome
            groups = rows.setdefault(key, [])
            if groups and x - first_x[key] <= near:
                groups[-1].append(bar)
            else:
                groups.append([bar])
                first_x[key] = x
        if sum(map(len, rows.values())) <= most:
            break
    return [Bar.merged(group, period.zone) for groups in rows.values() for group in groups]


def draw(lanes: Sequence[Lane], bars: Iterable[Bar], period: TimelinePeriod) -> tuple[str, int]:
    """An SVG of all lanes, each as high as its runs overlap, and how many bars had no room."""
    by_lane: dict[str, list[Bar]] = {lane.key: [] for lane in lanes}
    for bar in bars:
        if bar.lane in by_lane:
            by_lane[bar.lane].append(bar)
    drawn: list[str] = []
    y, crowded_out = _TOP, 0
    for n, lane in enumerate(lanes):
        ends: list[float] = []  # where the bars of each row end so far
        shapes = []
        for bar in sorted(by_lane[lane.key], key=lambda one: one.start):
            left, wide = bar._replace(parts=()).extents(period)[0]
            row = next((n for n, end in enumerate(ends) if end < left), len(ends))
            if row == _MOST_ROWS:
                crowded_out += 1
                continue
            ends[row : row + 1] = [left + wide + 0.5]
            shapes.append(bar.svg(period, y + _PADDING + row * (_ROW + _GAP)))
        height = 2 * _PADDING + max(1, len(ends)) * (_ROW + _GAP) - _GAP
        label = lane.label
        if len(label) > _LONGEST_LABEL:
            label = label[: _LONGEST_LABEL - 1] + "…"
        text = f'<text x="4" y="{num(y + _PADDING + 9)}">{clean(label)}</text>'
        if lane.href:
            text = f'<a href="{clean(lane.href)}" tabindex="-1">{text}</a>'
        box = f'x="0" y="{num(y)}" width="{num(WIDTH)}" height="{num(height)}"'
        drawn += [f'<rect class="lane{" lane-even" if n % 2 == 0 else ""}" {box}/>{text}', *shapes]
        y += height
    now = period.x(period.now)
    svg = (
        f'<svg class="lanes" viewBox="0 0 {num(WIDTH)} {num(y + 4)}" aria-hidden="true" '
        f'font-family="{FONT}" font-size="11">{_HATCH}{"".join(drawn)}'
        f'<rect class="future" x="{num(now)}" y="{num(_TOP)}" width="{num(WIDTH - _RIGHT - now)}" '
        f'height="{num(y - _TOP)}"/>{_ticks(period, y)}'
        f'<path class="now" d="M{num(now)} {num(_TOP - 4)}V{num(y)}"/>'
        f'<text class="now-words" x="{num(now)}" y="{num(_TOP - 8)}" text-anchor="middle">'
        "now</text></svg>"
    )
    return svg, crowded_out


def _ticks(period: TimelinePeriod, floor: float) -> str:
    """Lines at round times of day, as many as there is room for."""
    minutes = (period.until - period.since) / timedelta(minutes=1)
    step = timedelta(minutes=next((s for s in _STEPS if minutes / s <= _MOST_TICKS), _STEPS[-1]))
    there = period.since.astimezone(period.zone)
    midnight = there.replace(hour=0, minute=0, second=0, microsecond=0)
    at = midnight + step * ((there - midnight) // step + 1)
    now, lines, words = period.x(period.now), [], []
    while at < period.until:
        x = period.x(at)
        lines.append(f"M{num(x)} {num(_TOP)}V{num(floor)}")
        if abs(x - now) > 30:
            words.append(
                f'<text class="tick" x="{num(x)}" y="{num(_TOP - 8)}" text-anchor="middle">'
                f"{at:%H:%M}</text>"
            )
        at += step
    return f'<path class="ticks" d="{"".join(lines)}"/>{"".join(words)}'
