"""Showing a forecast: as text, as JSON and as a picture."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group
from rich.text import Text

from evenbeat import charts
from evenbeat.app import Evenbeat
from evenbeat.cli.job_files import read_crontab, read_list
from evenbeat.cli.worker import check_database, configured
from evenbeat.domain.duration import format_duration
from evenbeat.errors import InvalidInput
from evenbeat.placement.documents import timestamp
from evenbeat.placement.simulate import Curve, Forecast, RecurringJob, forecast

__all__ = ["document", "picture", "read_crontab", "read_list", "read_live", "show", "summary"]

_SPARKS = " ▁▂▃▄▅▆▇█"
_MOST_NAMED = 10


def show(known: Sequence[RecurringJob], *, svg: Path | None, title: str, as_json: bool) -> None:
    """Replay the present week, and tell about it on standard output."""
    found = forecast(known, datetime.now(UTC))
    if svg is not None:
        _write(svg, picture(found, title))
    if as_json:
        typer.echo(json.dumps(document(found), indent=2))
    else:
        _console().print(summary(found, svg))


def read_live(database: str | None) -> list[RecurringJob]:
    """The jobs of the database that are not paused."""
    app = configured(Evenbeat(), None, database)
    check_database(app.settings)
    with app:
        entries = app.store.placement.load_snapshot()
    if not entries:
        raise InvalidInput("The database holds no recurring jobs yet.", field="live")
    return [RecurringJob.of(entry) for entry in entries if entry.status != "paused"]


# ---------------------------------------------------------------- what it says


def document(found: Forecast) -> dict[str, Any]:
    """The forecast as JSON; loads are per 15-minute slot of the week, from Monday midnight."""
    return {
        "since": timestamp(found.since),
        "total_jobs": found.jobs,
        "placed": found.placed,
        "turned": [
            {"name": job.name, "cron": job.expression, "every": format_duration(job.every)}
            for job in found.converted
        ],
        "kept": [job._asdict() for job in found.unchanged],
        "before": _curve_document(found.before),
        "after": _curve_document(found.after),
    }


def _curve_document(curve: Curve) -> dict[str, Any]:
    slots = curve.per_second.reshape(-1, 900)
    return {
        "workers_needed": curve.peak,
        "expected_peak": curve.peak,
        "expected_mean": round(curve.mean, 3),
        "distribution_score": round(curve.score, 4),
        "week_load": [round(value, 3) for value in slots.mean(axis=1).tolist()],
        "week_peak": slots.max(axis=1).tolist(),
    }


def summary(found: Forecast, svg: Path | None = None) -> Group:
    """Two weeks as lines of blocks on one scale, their figures, and who stays."""
    both = (("before", found.before, "red"), ("after", found.after, "green"))
    lines = [Text(f"{found.jobs:,} jobs, the week from {found.since:%A %d %B %Y} (UTC)", "bold")]
    for name, curve, colour in both:
        lines.append(Text())
        lines.append(Text(f"{name:<7}", "bold") + Text(_figures(curve)))
        lines.extend(_rows(curve, max(found.before.peak, found.after.peak), colour))
    lines.append(Text())
    lines.extend(Text(line) for line in _in_words(found))
    if svg is not None:
        lines.append(Text(f"Drawn into {svg}"))
    return Group(*lines)


def _figures(curve: Curve) -> str:
    return (
        f"{curve.peak:,} at once at most, {curve.mean:,.1f} on average: "
        f"{curve.peak:,} workers, score {curve.score:.2f}"
    )


def _rows(curve: Curve, top: int, colour: str) -> list[Text]:
    """A line for each day; a block is the peak of a quarter of an hour."""
    highest = curve.per_second.reshape(7, 96, 900).max(axis=2)
    steps = len(_SPARKS) - 1
    rows = []
    for day, slots in zip(charts.WEEKDAYS, highest.tolist(), strict=True):
        blocks = "".join(_SPARKS[ceil(steps * value / max(1, top))] for value in slots)
        rows.append(Text(f"  {day} ") + Text(blocks, colour) + Text(f" {max(slots):,}"))
    return rows


def _in_words(found: Forecast) -> list[str]:
    fewer = found.before.peak - found.after.peak
    gain = f"{fewer:,} workers fewer." if fewer > 0 else "Nothing to gain: it is even already."
    lines = [gain]
    if found.placed:
        lines.append(f"{found.placed:,} intervals are placed anew.")
    if found.converted:
        lines.append(f"{len(found.converted):,} cron jobs become balanced intervals:")
        lines.extend(
            _some([f"{t.expression} -> {format_duration(t.every)}" for t in found.converted])
        )
    if found.unchanged:
        lines.append(f"{len(found.unchanged):,} jobs keep their times:")
        lines.extend(_some([f"{k.schedule} ({k.reason})" for k in found.unchanged]))
    return lines


def _some(lines: Sequence[str]) -> list[str]:
    """Each line once, with its count, the most frequent first, and no more than a few."""
    counts = Counter(lines).most_common()
    shown = [f"  {line}" + (f"  x {n:,}" if n > 1 else "") for line, n in counts]
    more = len(shown) - _MOST_NAMED
    return [*shown[:_MOST_NAMED], *([f"  and {more:,} more, see --json"] if more > 0 else [])]


def _console() -> Console:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = 400
    return console


# ---------------------------------------------------------------- the picture


def picture(found: Forecast, title: str = "") -> str:
    """Both weeks as an SVG that stands alone."""
    notes = [
        f"{name}: {curve.peak:,} workers needed, {curve.mean:,.1f} busy on average"
        for name, curve in (("Before", found.before), ("After", found.after))
    ]
    return charts.before_after(
        found.before.peaks(60),
        found.after.peaks(60),
        title=title or f"Jobs running at once over a week, {found.jobs:,} jobs",
        notes=(notes[0], notes[1]),
        alone=True,
    )


def _write(path: Path, text: str) -> None:
    if path.suffix != ".svg":
        raise InvalidInput(f"--svg {path}: name a file that ends in .svg.", field="svg")
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.", field="svg") from None
