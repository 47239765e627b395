"""A ranking as SVG: one bar a contender, on a logarithmic scale, in the look of our own charts."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from evenbeat.svg import Drawing, amount

WIDTH, LEFT, RIGHT, TOP, ROW = 760.0, 190.0, 120.0, 46.0, 26.0


class Bar(NamedTuple):
    """A contender's value; `second`, if any, is drawn behind it (a p99 behind a median)."""

    label: str
    value: float
    ours: bool = False
    second: float = math.nan
    remark: str = ""


def ranking(title: str, unit: str, bars: Sequence[Bar], *, lowest_first: bool = False) -> str:
    """The bars in order, the best on top. Those without a value are left out."""
    known = [bar for bar in bars if math.isfinite(bar.value) and bar.value > 0]
    known.sort(key=lambda bar: bar.value, reverse=not lowest_first)
    height = TOP + ROW * max(1, len(known)) + 26
    drawing = Drawing("ranking", title, WIDTH, height, alone=True)
    drawing.text((12, 22), title, name="heading", size=14)
    drawing.text((WIDTH - 12, 22), "logarithmic scale", anchor="end")
    if not known:
        drawing.text((12, TOP + 12), "nothing was measured")
        return str(drawing)
    numbers = [n for bar in known for n in (bar.value, bar.second) if math.isfinite(n) and n > 0]
    low, high = _decades(numbers)
    _scale(drawing, low, high, height, unit)
    for row, bar in enumerate(known):
        _row(drawing, bar, TOP + ROW * row, low, high)
    return str(drawing)


def _decades(numbers: Sequence[float]) -> tuple[int, int]:
    """Whole powers of ten around all values; the smallest bar keeps some length."""
    low = math.floor(math.log10(min(numbers) / 1.5))
    return low, max(low + 1, math.ceil(math.log10(max(numbers))))


def _x(value: float, low: int, high: int) -> float:
    share = (math.log10(value) - low) / (high - low)
    return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, share))


def _scale(drawing: Drawing, low: int, high: int, height: float, unit: str) -> None:
    for power in range(low, high + 1):
        x = _x(10.0**power, low, high)
        drawing.line("grid", (x, TOP - 6), (x, height - 20))
        words = f"{amount(10.0**power)}{' ' + unit if power == high else ''}"
        drawing.text((x, height - 6), words, anchor="middle")


def _row(drawing: Drawing, bar: Bar, y: float, low: int, high: int) -> None:
    name = "heading" if bar.ours else "label"
    drawing.text((LEFT - 8, y + 14), bar.label, name=name, anchor="end", size=12)
    end = _x(bar.value, low, high)
    words = amount(bar.value)
    if math.isfinite(bar.second) and bar.second > bar.value:
        further = _x(bar.second, low, high)
        drawing.rect("area", (end, y + 3, further - end, ROW - 10), f"p99 {amount(bar.second)}", 2)
        words, edge = f"{words} to {amount(bar.second)}", further
    else:
        edge = end
    drawing.rect("after" if bar.ours else "bar", (LEFT, y + 3, end - LEFT, ROW - 10), words, 2)
    told = f"{words} {bar.remark}".strip()
    drawing.text((edge + 6, y + 14), told, name=name)
