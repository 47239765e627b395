"""What every chart is drawn with: shapes, text and scales.

Within a page a shape carries a class only, which `evenbeat.css` colours, and neither style nor
script: it lives under a strict content security policy. A chart that stands alone, in a file,
brings its colours along as attributes.
"""

from dataclasses import dataclass, field
from html import escape
from math import floor, log10

Point = tuple[float, float]

_ALONE = {
    "grid": 'stroke="#e4e8ef"',
    "axis": 'stroke="#aeb6c4"',
    "label": 'fill="#6b7485"',
    "heading": 'fill="#1d2433" font-weight="600"',
    "bar": 'fill="#2f6fdb" fill-opacity=".8"',
    "area": 'fill="#2f6fdb" fill-opacity=".2"',
    "before": 'fill="#d1435b" fill-opacity=".85"',
    "after": 'fill="#12917f" fill-opacity=".9"',
    "mean": 'stroke="#6b7485" stroke-dasharray="2 3"',
}
_FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"


@dataclass
class Drawing:
    kind: str
    title: str
    width: float
    height: float
    alone: bool = False
    parts: list[str] = field(default_factory=list)
    role: str = "img"

    def rect(
        self,
        name: str,
        box: tuple[float, float, float, float],
        tip: str = "",
        round_by: float = 0,
        href: str = "",
    ) -> None:
        """A rectangle (x, y, width, height); `tip` shows when pointed at, `href` is followed. Such
        links are for pointers: what they lead to must be within reach of the keyboard elsewhere."""
        x, y, width, height = (num(value) for value in box)
        corner = f' rx="{num(round_by)}"' if round_by else ""
        at = f'x="{x}" y="{y}" width="{width}" height="{height}"{corner}'
        self._add("rect", name, at, f"<title>{clean(tip)}</title>" if tip else "")
        if href:
            shape = self.parts.pop()
            self.parts.append(
                f'<a href="{clean(href)}" tabindex="-1" aria-label="{clean(tip)}">{shape}</a>'
            )
            self.role = "group"  # what is an image has nothing in it that can be followed

    def circle(self, name: str, centre: Point, radius: float, tip: str) -> None:
        at = f'cx="{num(centre[0])}" cy="{num(centre[1])}" r="{num(radius)}"'
        self._add("circle", name, at, f"<title>{clean(tip)}</title>")

    def path(self, name: str, commands: str) -> None:
        """A path, filled or stroked as its class says."""
        self._add("path", name, f'd="{commands}"')

    def line(self, name: str, start: Point, end: Point) -> None:
        x1, y1, x2, y2 = (num(value) for value in (*start, *end))
        self._add("line", name, f'x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"')

    def text(
        self, at: Point, words: str, *, name: str = "label", anchor: str = "start", size: float = 11
    ) -> None:
        """Words; `anchor` says which part of them is at the point."""
        place = f'x="{num(at[0])}" y="{num(at[1])}" text-anchor="{anchor}" font-size="{num(size)}"'
        self._add("text", name, place, clean(words))

    def _add(self, tag: str, name: str, attributes: str, content: str = "") -> None:
        colours = f" {_ALONE[name]}" if self.alone else ""
        end = f">{content}</{tag}>" if content else "/>"
        self.parts.append(f'<{tag} class="chart-{name}"{colours} {attributes}{end}')

    def __str__(self) -> str:
        size = f'width="{num(self.width)}" height="{num(self.height)}"'
        title, box = clean(self.title), f"0 0 {num(self.width)} {num(self.height)}"
        own, back = f' {size} font-family="{_FONT}"', f'<rect fill="#ffffff" {size}/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="chart chart-{self.kind}" '
            f'viewBox="{box}"{own if self.alone else ""} role="{self.role}" aria-label="{title}">'
            f"<title>{title}</title>{back if self.alone else ''}{''.join(self.parts)}</svg>"
        )


def num(value: float) -> str:
    """A coordinate: two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def clean(words: str) -> str:
    """Words as they may stand in XML: no markup, no control characters."""
    return escape("".join(c if c.isprintable() else " " for c in words))


def amount(value: float) -> str:
    """A load or a count, as short as possible."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def ticks(top: float, most: int = 4) -> list[float]:
    """Round numbers from zero to just below or at the top."""
    size = 10 ** floor(log10(top / most))
    step = next(s * size for s in (1, 2, 2.5, 5, 10) if top / (s * size) <= most)
    return [n * step for n in range(int(top / step + 1e-9) + 1)]


def ticks_of_time(top: float) -> list[float]:
    """The same for seconds: in whole minutes, hours or days where they count so."""
    unit = next((size for size in (86_400, 3600, 60) if top >= 2 * size), 1)
    return [unit * value for value in ticks(top / unit)]
