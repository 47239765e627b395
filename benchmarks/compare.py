"""Evenbeat beside its peers: every contender in one run, on one machine, in turn.

    python benchmarks/compare.py [--quick] [--only evenbeat,pgqueuer] [--measures drain,pickup]

Each contender is one file in `benchmarks/peers/` and gets a virtual environment of its own under
`benchmarks/.venvs/`. In each of the rounds every contender takes its turn in every measurement
before the next round begins, from another place in the order each time; figures are medians over
the rounds. Recurring jobs and crash recovery are measured once: they last long, and count events.
The results go to `benchmarks/results/`; see `report.py`.
"""

import argparse
import os
import platform
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import measures
import report
from arena import HERE, Arena, Contender, Failed, adapters, arena
from measures import QUICK, Sizes

MEASURES = ("drain", "single", "pickup", "load", "recurring", "crash")
"""In the order in which they are taken; `drain` has the bulk enqueue and the memory with it."""

ROUNDS = 3

TURNS = {"single": 3}
"""A measurement of a second or two meets the machine at one moment: it is taken more than once in
a round, everybody in turn."""


class Comparison:
    """All values of all rounds, and why some are missing."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.values: dict[str, dict[str, list[Any]]] = {}
        self.notes: dict[str, dict[str, str]] = {}

    def keep(self, contender: Contender, found: dict[str, Any]) -> None:
        """Add what one measurement found."""
        for figure, value in found.items():
            self.values.setdefault(figure, {}).setdefault(contender.name, []).append(value)

    def last(self, figure: str, name: str) -> float | None:
        """This round's value of a contender."""
        of_it = self.values.get(figure, {}).get(name)
        return of_it[-1] if of_it else None

    def note(self, name: str, measure: str, why: str) -> None:
        """Say in the report what went wrong."""
        self.notes.setdefault(name, {})[measure] = why

    def take(self, measure: str, contender: Contender) -> None:
        """One measurement of one contender; a failure is a note, never the end of the run."""
        why = contender.about["unsupported"].get(measure)
        if why is not None:
            self.note(contender.name, measure, why)
            return
        begun = time.monotonic()
        try:
            found = self._measured(measure, contender)
        except Exception as failure:
            self.note(contender.name, measure, str(failure))
            _tell(f"    {contender.name:<14}{failure}")
            return
        self.keep(contender, found)
        _tell(f"    {contender.name:<14}{time.monotonic() - begun:6.1f} s  {_brief(found)}")

    def _measured(self, measure: str, contender: Contender) -> dict[str, Any]:
        if measure == "load":
            drained, sent = self.last("drain", contender.name), self.last("single", contender.name)
            if not drained or not sent:
                raise Failed("its own drain and single enqueue must be measured first")
            return measures.load(contender, self.sizes, rate=drained / 2, single_rate=sent)
        measured: dict[str, Any] = getattr(measures, measure)(contender, self.sizes)
        return measured

    def take_crashes(self, contenders: list[Contender]) -> None:
        """Crash recovery of all that can be measured."""
        able = []
        for contender in contenders:
            why = contender.about["unsupported"].get("crash")
            if why is None:
                able.append(contender)
            else:
                self.note(contender.name, "crash", why)
        for contender, found in measures.crashes(able, self.sizes, lambda s: _tell(f"    {s}")):
            if isinstance(found, Failed):
                self.note(contender.name, "crash", str(found))
            else:
                self.keep(contender, found)
                _tell(f"    {contender.name:<14}{_brief(found)}")


def run(
    place: Arena, contenders: list[Contender], chosen: list[str], rounds: int, sizes: Sizes
) -> Comparison:
    """Every measurement of every contender, in turn."""
    comparison = Comparison(sizes)
    for turn in range(rounds):
        order = contenders[turn % len(contenders) :] + contenders[: turn % len(contenders)]
        for measure in (m for m in MEASURES if m in chosen and m != "crash"):
            if measure == "recurring" and turn:
                continue
            _tell(f"  round {turn + 1} of {rounds}: {measure}")
            for contender in order * TURNS.get(measure, 1):
                place.rest()
                comparison.take(measure, contender)
    if "crash" in chosen:
        _tell("  crash recovery, all at once")
        comparison.take_crashes(contenders)
    return comparison


def admitted(
    place: Arena, names: list[str], notes: dict[str, str], *, here: bool
) -> list[Contender]:
    """The contenders that could be installed; why not, of the others."""
    found = []
    for name in names:
        try:
            found.append(place.admit(name, adapters()[name], here=here))
            _tell(f"  {name}: {found[-1].about['versions']}")
        except Exception as problem:
            notes[name] = str(problem)
            _tell(f"  {name}: {problem}")
    return found


def machine() -> dict[str, Any]:
    """What the figures were taken on; nothing that tells whose it is."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in _lines("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = next(
        int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")
    )
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpu,
        "memory_gib": round(memory / 1024**2, 1),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _brief(found: dict[str, Any]) -> str:
    parts = []
    for figure, value in found.items():
        if isinstance(value, float):
            parts.append(f"{figure} {value:,.0f}")
        elif isinstance(value, dict):
            parts.append(" ".join(f"{k} {v:,.1f}" for k, v in value.items()))
    return ", ".join(parts)


def _leave(number: int, _frame: object) -> None:
    """Told to end: the way out ends every server and worker that was started."""
    sys.exit(128 + number)


def _tell(line: str) -> None:
    print(line, flush=True)


def main(arguments: list[str]) -> int:
    """Read the options, run, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument("--only", default="", help="contenders, with commas")
    parser.add_argument("--measures", default=",".join(MEASURES), help="with commas")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--here", action="store_true", help="Evenbeat from this interpreter")
    parser.add_argument("--results", type=Path, help="default: benchmarks/results for a whole run")
    options = parser.parse_args(arguments)
    known = adapters()
    names = [n for n in options.only.split(",") if n] or sorted(known)
    chosen = [m for m in options.measures.split(",") if m]
    if wrong := [n for n in names if n not in known] + [m for m in chosen if m not in MEASURES]:
        parser.error(f"unknown: {', '.join(wrong)}; there are {', '.join([*known, *MEASURES])}")
    sizes = QUICK if options.quick else Sizes()
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    signal.signal(signal.SIGTERM, _leave)
    begun, system, left_out = time.monotonic(), machine(), {}
    with arena() as place:
        _tell("environments")
        contenders = admitted(place, names, left_out, here=options.here)
        comparison = run(place, contenders, chosen, rounds, sizes)
        for name, why in left_out.items():
            comparison.note(name, "all", why)
        document = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "minutes": round((time.monotonic() - begun) / 60, 1),
            "machine": system,
            "server": place.server_settings(),
            "sizes": asdict(sizes),
            "rounds": rounds,
            "contenders": {c.name: c.about for c in contenders},
            "values": comparison.values,
            "notes": comparison.notes,
        }
    whole = not options.quick and len(names) == len(known) and len(chosen) == len(MEASURES)
    elsewhere = Path(tempfile.gettempdir()) / "evenbeat-compare"
    written = report.write(document, options.results or (HERE / "results" if whole else elsewhere))
    _tell(f"{document['minutes']} minutes; see {written}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
