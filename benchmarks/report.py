"""A comparison on paper: Markdown, charts and the raw values, side by side in one directory.

    python benchmarks/report.py benchmarks/results/compare-2026-11-17.json

writes Markdown and charts anew from the values of an earlier run.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ranking import Bar, ranking
from verdict import FLOOR, OURS, Figures, figures, verdict

NOTHING = "\N{EN DASH}"

CHARTS: dict[str, tuple[str, str]] = {
    "drain": ("Drain of no-op jobs by one worker process", "jobs/s"),
    "bulk": ("Bulk enqueue", "jobs/s"),
    "single": ("Single enqueue, one after another", "jobs/s"),
    "pickup": ("Pickup delay of an idle worker, median to p99", "ms"),
    "load": ("Pickup delay at half of its own drain rate, median to p99", "ms"),
    "recurring": ("Lateness of schedules, median to p99", "ms"),
}


def write(document: dict[str, Any], results: Path) -> Path:
    """The three kinds of files; the Markdown's path."""
    stem = f"compare-{document['date']}"
    results.mkdir(parents=True, exist_ok=True)
    values = json.dumps(_plain(document))
    (results / f"{stem}.json").write_text(values + "\n")
    found = figures(document)
    for chart, svg in charts(found).items():
        (results / f"{stem}-{chart}.svg").write_text(svg + "\n")
    page = results / f"{stem}.md"
    page.write_text("\n".join(lines(document, found, stem)) + "\n")
    return page


def charts(found: dict[str, Figures]) -> dict[str, str]:
    """Every ranking by name."""
    drawn = {}
    for chart, (title, unit) in CHARTS.items():
        bars = [_bar(chart, f) for f in found.values() if f.name != FLOOR or chart == "drain"]
        drawn[chart] = ranking(title, unit, bars, lowest_first=unit == "ms")
    return drawn


def _bar(chart: str, f: Figures) -> Bar:
    ours = f.name == OURS
    if chart == "pickup":
        return Bar(f.title, f.pickup_p50, ours, f.pickup_p99)
    if chart == "load":
        return Bar(f.title, f.load_p50, ours, f.load_p99)
    if chart == "recurring":
        kept = f.recurring or {"p50_ms": math.nan, "p99_ms": math.nan, "missed": 0}
        remark = f"({kept['missed']:.0f} missed)" if kept["missed"] else ""
        return Bar(f.title, kept["p50_ms"], ours, kept["p99_ms"], remark)
    return Bar(f.title, getattr(f, chart), ours)


# ---------------------------------------------------------------- the page


def lines(document: dict[str, Any], found: dict[str, Figures], stem: str) -> Iterator[str]:
    """The whole page."""
    machine, sizes = document["machine"], document["sizes"]
    yield f"# Evenbeat beside its peers, {document['date']}"
    yield ""
    yield (
        f"One run of {document['minutes']} minutes on {machine['cores']} cores "
        f"({machine['cpu']}), {machine['memory_gib']} GiB, Linux {machine['kernel']}, Python "
        f"{machine['python']}; load {machine['load_before']:.1f} before it. Medians of "
        f"{document['rounds']} interleaved rounds (single enqueue: three turns in each); "
        "recurring jobs and crash recovery once. "
        "Reproduce it: `python benchmarks/compare.py`."
    )
    yield ""
    yield from _verdict(found)
    yield from _throughput(found, sizes, stem)
    yield from _delays(found, sizes, stem)
    yield from _schedules(found, sizes, stem)
    yield from _crashes(found, sizes)
    yield from _notes(document, found)
    yield from _how(document)


def _verdict(found: dict[str, Figures]) -> Iterator[str]:
    yield "## What was aimed at, and what was reached"
    yield ""
    yield from _table(("aim", "", "numbers"), "lll")
    words = {True: "met", False: "**not met**", None: "not measured"}
    for line in verdict(found):
        yield f"| {line.aim} | {words[line.met]} | {line.numbers} |"
    yield ""


def _throughput(found: dict[str, Figures], sizes: dict[str, Any], stem: str) -> Iterator[str]:
    yield "## Throughput"
    yield ""
    yield (
        f"Jobs a second, and in brackets the ratio to Evenbeat's. Bulk: {sizes['jobs']:,} jobs. "
        f"Single: up to {sizes['singles']:,}, one after another. Drain: one worker process works "
        "the bulk off, from its first run until the backend says that none is left (or for "
        f"{sizes['drain_seconds']:.0f} s), with history as each keeps it by default."
    )
    yield ""
    yield from _table(("", "durable", "bulk", "single", "drain"), "lcrrr")
    ours = found.get(OURS)
    for f in _ordered(found, lambda f: -f.drain):
        kept = "yes" if f.about["durable"] else "no"
        rates = (
            _rate(getattr(f, k), getattr(ours, k, math.nan)) for k in ("bulk", "single", "drain")
        )
        yield f"| {_name(f)} | {kept} | {' | '.join(rates)} |"
    floor = found.get(FLOOR)
    if ours and floor and floor.drain > 0:
        yield ""
        yield (
            f"The floor, {floor.about['note']}: {_number(floor.drain)}/s. "
            f"Evenbeat drains at {ours.drain / floor.drain:.2f} of it."
        )
    yield from _pictures(stem, "drain", "bulk", "single")


def _delays(found: dict[str, Figures], sizes: dict[str, Any], stem: str) -> Iterator[str]:
    yield "## Pickup delay"
    yield ""
    yield (
        "Milliseconds from before the call that enqueues, in another process, to the handler. "
        f"Idle: {sizes['pickups']} jobs a round at 20 a second. Half load: "
        f"{sizes['load_seconds']:.0f} s at half of the rate at which the same contender "
        "drained in the same round, one by one where that can keep up, else in calls of 10 ms "
        "worth; the rate that was really offered is given."
    )
    yield ""
    head = ("", "idle p50", "idle p99", "half load p50", "half load p99", "offered/s")
    yield from _table(head, "lrrrrr")
    for f in _ordered(found, lambda f: f.pickup_p50):
        delays = (f.pickup_p50, f.pickup_p99, f.load_p50, f.load_p99)
        shown = " | ".join(_number(d) for d in delays)
        yield f"| {_name(f)} | {shown} | {_number(f.load_rate)} |"
    yield from _pictures(stem, "pickup", "load")


def _schedules(found: dict[str, Figures], sizes: dict[str, Any], stem: str) -> Iterator[str]:
    yield "## Recurring jobs"
    yield ""
    yield (
        f"{sizes['idle']:,} schedules that are not due for months and {sizes['firing']} that fire "
        f"every second, for {sizes['firing_seconds']} s, once it had settled. Lateness in ms from "
        "the planned instant to the handler. Missed: not run within 5 s after those seconds. CPU "
        "in seconds over that time: its own processes, and its database or broker."
    )
    yield ""
    head = ("", "p50", "p99", "missed", "doubled", "CPU s", "server CPU s", "MiB")
    yield from _table(head, "lrrrrrrr")
    for f in _ordered(found, lambda f: (f.recurring or {}).get("p99_ms", math.nan)):
        kept = f.recurring
        if kept is None:
            yield f"| {_name(f)} |" + f" {NOTHING} |" * 7
            continue
        cells = [_number(kept[k]) for k in ("p50_ms", "p99_ms")]
        cells.append(f"{kept['missed']:,.0f} of {kept['expected']:,.0f}")
        cells.append(f"{kept['doubled']:,.0f}")
        cells += [f"{kept[k]:.1f}" for k in ("cpu_s", "server_cpu_s")]
        yield f"| {_name(f)} | {' | '.join(cells)} | {kept['resident_mb']:.0f} |"
    yield from _pictures(stem, "recurring")


def _crashes(found: dict[str, Figures], sizes: dict[str, Any]) -> Iterator[str]:
    yield "## Crash recovery and memory"
    yield ""
    yield (
        f"{sizes['sleepers']} long jobs are enqueued; while they run, all processes of the worker "
        "are killed with SIGKILL, and it is started again with its defaults. Lost: not run again "
        f"within {sizes['crash_seconds']:.0f} s. All contenders wait at the same time. Memory in "
        "MiB, resident: the first process whole, of others what they do not share."
    )
    yield ""
    head = ("", "running", "run again", "lost", "last after s", "idle MiB", "draining MiB")
    yield from _table(head, "lrrrrrr")
    for f in _ordered(found, lambda f: (f.crash or {}).get("last_s", math.nan)):
        kept = f.crash
        cells = [NOTHING] * 4
        if kept is not None:
            cells = [f"{kept[k]:.0f}" for k in ("running", "rerun", "lost")]
            cells.append(_number(kept["last_s"]))
        memory = " | ".join(_number(mb) for mb in (f.idle_mb, f.drain_mb))
        yield f"| {_name(f)} | {' | '.join(cells)} | {memory} |"
    yield ""


def _notes(document: dict[str, Any], found: dict[str, Figures]) -> Iterator[str]:
    yield "## Contenders"
    yield ""
    for name, f in found.items():
        versions = ", ".join(f"{k} {v}" for k, v in f.about["versions"].items())
        yield f"- **{f.title}** ({versions}): {f.about['note']}."
        for why, measures in _by_reason(document["notes"].get(name, {})).items():
            yield f"  - {', '.join(measures)}: {why}"
    for name, notes in document["notes"].items():
        if name not in found:
            yield f"- **{name}** did not take part: {'; '.join(notes.values())}"
    yield ""


def _by_reason(notes: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for measure, why in notes.items():
        found.setdefault(why, []).append(measure)
    return found


def _how(document: dict[str, Any]) -> Iterator[str]:
    yield "## Settings"
    yield ""
    server = ", ".join(f"{k} {v}" for k, v in document["server"].items())
    yield (
        f"One PostgreSQL for all, a database for each: {server}. Statistics are brought up to date "
        "between filling and draining, and a checkpoint is made before each measurement. Each "
        "contender has a virtual environment of its own with the versions above. The values of "
        "all rounds are in the JSON file beside this page."
    )


# ---------------------------------------------------------------- cells


def _ordered(found: dict[str, Figures], key: Callable[[Figures], float]) -> list[Figures]:
    """Contenders by a figure; those without it last."""
    rows = [f for f in found.values() if f.name != FLOOR]
    return sorted(rows, key=lambda f: (math.isnan(key(f)), key(f)))


def _name(f: Figures) -> str:
    return f"**{f.title}**" if f.name == OURS else f.title


def _rate(value: float, ours: float) -> str:
    if math.isnan(value):
        return NOTHING
    return f"{value:,.0f} ({value / ours:.2f})" if ours > 0 else f"{value:,.0f}"


def _number(value: float) -> str:
    if math.isnan(value):
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _table(head: tuple[str, ...], sides: str) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "|".join({"l": "---", "c": ":-:", "r": "--:"}[side] for side in sides) + "|"


def _pictures(stem: str, *names: str) -> Iterator[str]:
    yield ""
    for name in names:
        yield f"![{CHARTS[name][0]}]({stem}-{name}.svg)"
    yield ""


def _plain(value: Any) -> Any:
    """As JSON knows it: no nan, and no more digits than mean something."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else None
    return value


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(write(json.loads(Path(name).read_text()), Path(name).parent))
