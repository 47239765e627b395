"""What every chart is drawn with: shapes, text, scales and two palettes.

A chart inside a page carries classes only for the page's style sheet to colour, with `currentColor`
behind them, and neither style nor script, so that it lives under a strict content security policy.
A chart that stands alone, in a file, brings its colours along as attributes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from math import floor, isfinite, log10

FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"

_NO_FILL = 'fill="none" '
_BLUE, _TEAL, _RED, _AMBER, _INK, _MUTED = (
    "#2f6fdb", "#12917f", "#d1435b", "#c77b0a", "#1d2433", "#6b7485",
)  # fmt: skip

# Attributes by class: (within a page, standing alone).
_PAINT = {
    "back": ('fill="none"', 'fill="#ffffff"'),
    "grid": ('stroke="currentColor" stroke-opacity=".14"', 'stroke="#e4e8ef"'),
    "axis": ('stroke="currentColor" stroke-opacity=".35"', 'stroke="#aeb6c4"'),
    "label": ('fill="currentColor" fill-opacity=".65"', f'fill="{_MUTED}"'),
    "heading": ('fill="currentColor" font-weight="600"', f'fill="{_INK}" font-weight="600"'),
    "bar": ('fill="currentColor" fill-opacity=".45"', f'fill="{_BLUE}" fill-opacity=".8"'),
    "peak": ('fill="currentColor"', f'fill="{_RED}"'),
    "before": ('fill="currentColor" fill-opacity=".45"', f'fill="{_RED}" fill-opacity=".85"'),
    "after": ('fill="currentColor" fill-opacity=".75"', f'fill="{_TEAL}" fill-opacity=".9"'),
    "area": ('fill="currentColor" fill-opacity=".16"', f'fill="{_BLUE}" fill-opacity=".2"'),
    "line": (_NO_FILL + 'stroke="currentColor"', _NO_FILL + f'stroke="{_BLUE}"'),
    "mean": (
        _NO_FILL + 'stroke="currentColor" stroke-opacity=".6" stroke-dasharray="2 3"',
        _NO_FILL + f'stroke="{_MUTED}" stroke-dasharray="2 3"',
    ),
    "p95": (
        _NO_FILL + 'stroke="currentColor" stroke-opacity=".6" stroke-dasharray="6 3"',
        _NO_FILL + f'stroke="{_AMBER}" stroke-dasharray="6 3"',
    ),
    "now": (_NO_FILL + 'stroke="currentColor"', _NO_FILL + f'stroke="{_INK}"'),
    "ok": ('fill="currentColor" fill-opacity=".4"', f'fill="{_TEAL}" fill-opacity=".8"'),
    "failed": ('fill="currentColor"', f'fill="{_RED}"'),
    "other": ('fill="currentColor" fill-opacity=".2"', 'fill="#b8c0cc"'),
}
LEVELS = 8
_HEAT = ("#eef2f8", "#d5e3f7", "#b3cdf2", "#86afea", "#5a90e2", "#3a6fcf", "#2b4fa8", "#1d3480")


def _paint(name: str, alone: bool) -> str:
    if name.startswith("level-"):
        level = int(name.removeprefix("level-"))
        opacity = round(0.05 + 0.95 * level / (LEVELS - 1), 2)
        within = f'fill="currentColor" fill-opacity="{opacity}"'
        return f'fill="{_HEAT[level]}"' if alone else within
    return _PAINT[name][alone]


@dataclass
class Drawing:
    kind: str
    title: str
    width: float
    height: float
    alone: bool = False
    parts: list[str] = field(default_factory=list)

    def rect(
        self, name: str, box: tuple[float, float, float, float], tip: str = "", round_by: float = 0
    ) -> None:
        """A rectangle (x, y, width, height); `tip` shows when pointed at."""
        x, y, width, height = (num(value) for value in box)
        corner = f' rx="{num(round_by)}"' if round_by else ""
        at = f'x="{x}" y="{y}" width="{width}" height="{height}"{corner}'
        self._shape("rect", name, at, tip)

    def circle(self, name: str, centre: tuple[float, float], radius: float, tip: str = "") -> None:
        at = f'cx="{num(centre[0])}" cy="{num(centre[1])}" r="{num(radius)}"'
        self._shape("circle", name, at, tip)

    def path(self, name: str, commands: str, width: float = 1) -> None:
        """A path, filled or stroked as its class says."""
        self._shape("path", name, f'd="{commands}" stroke-width="{num(width)}"', "")

    def line(self, name: str, start: tuple[float, float], end: tuple[float, float]) -> None:
        x1, y1, x2, y2 = (num(value) for value in (*start, *end))
        self._shape("line", name, f'x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"', "")

    def text(
        self, at: tuple[float, float], words: str, *, name: str = "label", anchor: str = "start",
        size: float = 11,
    ) -> None:  # fmt: skip
        """Words; `anchor` says which part of them is at the point."""
        x, y = num(at[0]), num(at[1])
        self.parts.append(
            f'<text class="chart-{name}" {_paint(name, self.alone)} x="{x}" y="{y}" '
            f'text-anchor="{anchor}" font-size="{num(size)}">{clean(words)}</text>'
        )

    def _shape(self, tag: str, name: str, at: str, tip: str) -> None:
        content = f"><title>{clean(tip)}</title></{tag}>" if tip else "/>"
        level = "cell " + name if name.startswith("level-") else name
        self.parts.append(f'<{tag} class="chart-{level}" {_paint(name, self.alone)} {at}{content}')

    def __str__(self) -> str:
        size = f'width="{num(self.width)}" height="{num(self.height)}" ' if self.alone else ""
        back = (0, 0, self.width, self.height)
        behind = f'<rect {_PAINT["back"][1]} width="{num(back[2])}" height="{num(back[3])}"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="chart chart-{self.kind}" '
            f'viewBox="0 0 {num(self.width)} {num(self.height)}" {size}role="img" '
            f'aria-label="{clean(self.title)}" font-family="{FONT}">'
            f"<title>{clean(self.title)}</title>{behind if self.alone else ''}"
            f"{''.join(self.parts)}</svg>"
        )


def num(value: float) -> str:
    """A coordinate: two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def clean(words: str) -> str:
    """Words as they may stand in XML: no markup, no control characters."""
    return escape("".join(c if c.isprintable() else " " for c in words))


def finite(values: Sequence[float]) -> list[float]:
    """Values that can be drawn upwards from zero."""
    return [float(value) if isfinite(value) and value > 0 else 0.0 for value in values]


def amount(value: float) -> str:
    """A load or a count, as short as possible."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def ticks(top: float, most: int = 4) -> list[float]:
    """Round numbers from zero to just below or at the top."""
    if top <= 0:
        return [0.0]
    size = 10 ** floor(log10(top / most))
    step = next(s * size for s in (1, 2, 2.5, 5, 10) if top / (s * size) <= most)
    return [n * step for n in range(int(top / step + 1e-9) + 1)]


def ticks_of_time(top: float, most: int = 4) -> list[float]:
    """The same for seconds: in whole minutes, hours or days where they count so."""
    unit = next((size for size in (86_400, 3600, 60) if top >= 2 * size), 1)
    return [unit * value for value in ticks(top / unit, most)]
