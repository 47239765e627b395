"""Bars side by side as SVG, in the look of our own charts: a ranking of contenders, or a series."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from evenbeat.charts.svg import Drawing, amount

WIDTH, LEFT, RIGHT, TOP, ROW = 760.0, 190.0, 120.0, 46.0, 26.0


class Bar(NamedTuple):
    """A contender's value; `second`, if any, is drawn behind it (a p99 behind a median)."""

    label: str
    value: float
    ours: bool = False
    second: float = math.nan
    remark: str = ""


class Scale(NamedTuple):
    """Where values stand between the left and the right end, and which of them are marked."""

    place: Callable[[float], float]
    marks: Sequence[float]
    remark: str = ""


def ranking(title: str, unit: str, bars: Sequence[Bar], *, lowest_first: bool = False) -> str:
    """The bars by a logarithmic scale, the best on top. Those without a value are left out."""
    known = sorted(_known(bars), key=lambda bar: bar.value, reverse=not lowest_first)
    return _drawn(title, unit, known, _logarithmic)


def series(title: str, unit: str, bars: Sequence[Bar]) -> str:
    """The bars from zero, in the order given."""
    return _drawn(title, unit, _known(bars), _linear)


def _known(bars: Sequence[Bar]) -> list[Bar]:
    return [bar for bar in bars if math.isfinite(bar.value) and bar.value > 0]


def _drawn(
    title: str, unit: str, bars: Sequence[Bar], scaled: Callable[[Sequence[float]], Scale]
) -> str:
    height = TOP + ROW * max(1, len(bars)) + 26
    drawing = Drawing("ranking", title, WIDTH, height, alone=True)
    drawing.text((12, 22), title, name="heading", size=14)
    if not bars:
        drawing.text((12, TOP + 12), "nothing was measured")
        return str(drawing)
    numbers = [n for bar in bars for n in (bar.value, bar.second) if math.isfinite(n) and n > 0]
    scale = scaled(numbers)
    drawing.text((WIDTH - 12, 22), scale.remark, anchor="end")
    for mark in scale.marks:
        x = _x(mark, scale)
        drawing.line("grid", (x, TOP - 6), (x, height - 20))
        words = f"{amount(mark)}{' ' + unit if mark == scale.marks[-1] else ''}"
        drawing.text((x, height - 6), words, anchor="middle")
    for row, bar in enumerate(bars):
        _row(drawing, bar, TOP + ROW * row, scale)
    return str(drawing)


def _logarithmic(numbers: Sequence[float]) -> Scale:
    """Whole powers of ten around all values; the smallest bar keeps some length."""
    low = math.floor(math.log10(min(numbers) / 1.5))
    high = max(low + 1, math.ceil(math.log10(max(numbers))))
    return Scale(
        lambda value: (math.log10(value) - low) / (high - low),
        [10.0**power for power in range(low, high + 1)],
        "logarithmic scale",
    )


def _linear(numbers: Sequence[float]) -> Scale:
    """From zero, by steps of one, two or five of a power of ten."""
    power = 10.0 ** math.floor(math.log10(max(numbers)))
    step = next(s for s in (power / 5, power / 2, power, 2 * power) if max(numbers) / s <= 6)
    steps = math.ceil(max(numbers) / step)
    return Scale(lambda value: value / (steps * step), [n * step for n in range(steps + 1)])


def _x(value: float, scale: Scale) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, scale.place(value)))


def _row(drawing: Drawing, bar: Bar, y: float, scale: Scale) -> None:
    name = "heading" if bar.ours else "label"
    drawing.text((LEFT - 8, y + 14), bar.label, name=name, anchor="end", size=12)
    end = _x(bar.value, scale)
    words = amount(bar.value)
    if math.isfinite(bar.second) and bar.second > bar.value:
        further = _x(bar.second, scale)
        drawing.rect("area", (end, y + 3, further - end, ROW - 10), f"p99 {amount(bar.second)}", 2)
        words, edge = f"{words} to {amount(bar.second)}", further
    else:
        edge = end
    drawing.rect("after" if bar.ours else "bar", (LEFT, y + 3, end - LEFT, ROW - 10), words, 2)
    told = f"{words} {bar.remark}".strip()
    drawing.text((edge + 6, y + 14), told, name=name)
