"""How commands print: tables for people, documents for programs, and times that both can read.

Everything that a command prints goes through here, since what jobs, pages and people say is not
ours: what a terminal would obey is shown as its code.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from evenbeat import humanize

_UNFOLDED = 400
_STYLES = {
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "paused": "yellow",
    "cancelled": "dim",
    "pending": "bold",
    "alive": "green",
    "draining": "yellow",
    "silent": "red",
}
_SHORTEST_ID = 13


class _SafeConsole(Console):
    """Draws texts as `safe` makes them, whatever table or bar they come in."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        if isinstance(renderable, str):
            renderable = safe(renderable)
        for one in super().render(renderable, options):
            yield one if one.control else one._replace(text=safe(one.text))


def console() -> Console:
    """Standard output. Lines for other programs have neither colours nor folds."""
    out = _SafeConsole(highlight=False, markup=False, emoji=False)
    if not out.is_terminal and not os.environ.get("COLUMNS"):
        out.width = _UNFOLDED
    return out


def is_wide(columns: int = 100) -> bool:
    """Whether there is room for more than the most important columns."""
    return console().width >= columns


def write(text: str, *, end: str = "\n") -> None:
    """What was asked for, on standard output, as it is: for programs and files."""
    typer.echo(safe(text) + end, nl=False)


def say(text: str) -> None:
    """A remark, on standard error: standard output is for what was asked for."""
    typer.echo(safe(text), err=True)


def show(*parts: RenderableType) -> None:
    """Print to standard output; in a file or a pipe, without spaces at the ends of lines."""
    out = console()
    if out.is_terminal:
        out.print(*parts, sep="\n")
        return
    with out.capture() as captured:
        out.print(*parts, sep="\n")
    write("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


def print_json(document: Any, *, indent: int | None = 2) -> None:
    """A document, and nothing else. What a terminal would obey is escaped, as JSON can."""
    text = json.dumps(document, ensure_ascii=False, indent=indent, default=str)
    typer.echo(
        re.sub(r"[^\n -~]", lambda m: m[0] if m[0].isprintable() else json.dumps(m[0])[1:-1], text)
    )


Column = str | Callable[[Any], Any]


def table(rows: Iterable[Any], columns: Mapping[str, Column]) -> Table:
    """A line for each row, without rules. A column is a field of the rows, or a function of a row;
    one whose name ends in … gives way when it gets narrow. Whole numbers stand on the right."""
    lines = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    grid = []
    for name, column in columns.items():
        values = [row[column] if isinstance(column, str) else column(row) for row in rows]
        lines.add_column(
            name.removesuffix("…"),
            justify="right" if any(isinstance(value, int) for value in values) else "left",
            no_wrap=not name.endswith("…"),
            overflow="ellipsis",
        )
        grid.append(map(cell, values))
    for cells in zip(*grid, strict=True):
        lines.add_row(*cells)
    return lines


def facts(pairs: Mapping[str, Any]) -> Table:
    """Names and values, one pair on a line; values that say nothing are left out."""
    lines = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    for name, value in pairs.items():
        if value not in (None, "", [], {}):
            lines.add_row(name, value if isinstance(value, Text) else safe(str(value)))
    return lines


def heading(text: str) -> Text:
    return Text(text, style="bold")


def status(word: str) -> Text:
    return Text(word, style=_STYLES.get(word, ""))


def cell(value: Any) -> RenderableType:
    """A value on one line; what rich can draw stays as it is."""
    if isinstance(value, Text | ProgressBar):
        return value
    text = f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)
    return Text(safe(" ".join(text.split())), no_wrap=True, overflow="ellipsis")


def safe(text: str) -> str:
    """The text without anything that a terminal would obey, such as escapes and marks that turn
    the direction of writing."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign in "\n\t" else sign.encode("unicode_escape").decode()
        for sign in text.encode("utf-8", "backslashreplace").decode()
    )


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Beginnings that tell the ids from each other; commands accept them in place of the ids."""
    ordered = sorted(set(ids))
    shared = [
        next((at for at, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), len(pair[0]))
        for pair in pairwise(ordered)
    ]
    longest = map(max, [0, *shared], [*shared, 0])
    return {
        one: one[: max(_SHORTEST_ID, length + 1)]
        for one, length in zip(ordered, longest, strict=False)
    }


def short(rows: Iterable[Any], field: str = "id") -> Column:
    """The column of their shortened ids."""
    ids = short_ids(row[field] for row in rows)
    return lambda row: ids[row[field]]


def moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def exact(text: str | None) -> str:
    """The moment, to the second."""
    when = moment(text)
    return "" if when is None else humanize.timestamp(when)


def relative(text: str | None, now: datetime) -> str:
    """The moment as seen from now: `in 5 min`, `2 h ago`."""
    when = moment(text)
    return "" if when is None else humanize.relative(when, now)


def both(text: str | None, now: datetime) -> str:
    """The moment, and how far it is."""
    return "" if text is None else f"{exact(text)} ({relative(text, now)})"


def confirmed(question: str, yes: bool) -> bool:
    """Whether the user agrees; without a terminal, --yes must say so."""
    if yes:
        return True
    if not sys.stdin.isatty():
        say(f"{question} Nobody is here to confirm it: give --yes.")
        return False
    return typer.confirm(safe(question), err=True)
