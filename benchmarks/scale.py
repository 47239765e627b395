"""Evenbeat at scale: a million schedules, an hour's runs, five million rows of history, and up to
eight worker processes on one database.

    python benchmarks/scale.py [--quick] [--only schedules,workers,churn,retention]

Everything runs on an embedded server of its own with production settings; workers are processes of
`evenbeat worker` with default settings. Prints a report and writes it as Markdown, as JSON and, for
the worker processes and the claims, as SVG: a whole run to `benchmarks/results/`, a part or a quick
one to a directory for temporary files.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import scale_churn
import scale_schedules
import scale_workers
from common import fresh_store
from scale_report import charts, conditions, judged, written

from evenbeat.store.store import Store

Part = Callable[[Store, argparse.Namespace], dict[str, Any]]

RESULTS = Path(__file__).parent / "results"

PARTS: dict[str, Part] = {
    "schedules": lambda store, given: scale_schedules.measure(
        store,
        given.schedules,
        calls=given.calls,
        due=given.due,
        seconds=given.seconds,
        firings=given.firings,
    ),
    "workers": lambda store, given: scale_workers.measure(
        store, given.jobs, given.rounds, given.processes, given.waiting
    ),
    "churn": lambda store, given: scale_churn.churn(store, given.churning, 60, given.idle),
    "retention": lambda store, given: scale_churn.retention(
        store, given.history, given.jobs, given.rounds
    ),
}
TELL: dict[str, Callable[[dict[str, Any]], str]] = {
    "schedules": scale_schedules.markdown,
    "workers": scale_workers.markdown,
    "churn": scale_churn.markdown_of_churn,
    "retention": scale_churn.markdown_of_retention,
}
QUICK = {
    "schedules": [1000, 10_000],
    "calls": 100,
    "due": 5000,
    "seconds": 5,
    "firings": 200,
    "jobs": 4000,
    "waiting": 1000,
    "rounds": 1,
    "processes": [1, 2],
    "churning": 100,
    "idle": 1000,
    "history": 50_000,
}


def main() -> None:
    given = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # workers and server go with us
    results: dict[str, Any] = {}
    begun = time.perf_counter()
    with fresh_store() as store:
        results["conditions"] = conditions(store)
        for name in given.only:
            print(f"{name} …", flush=True)
            results[name] = PARTS[name](store, given)
    results["conditions"]["seconds"] = round(time.perf_counter() - begun)
    told = [TELL[name](results[name]) for name in given.only]
    report = "\n\n".join([f"# Scale, {given.label}", judged(results), *told]) + "\n"
    print("\n" + report)
    whole = not given.quick and given.only == list(PARTS)
    place = given.results or (RESULTS if whole else Path(gettempdir()) / "evenbeat-scale")
    for file in written(place, given.label, report, results, charts(results)):
        print(f"wrote {file}")


def options() -> argparse.Namespace:
    """What was asked for; `--quick` fills in small sizes for what was not said."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="Small sizes, to see that it works.")
    add("--results", type=Path, help="Where to write, if not where it is written by itself.")
    add("--only", type=_names, default=list(PARTS), help="Parts, by commas: " + ", ".join(PARTS))
    add("--label", default=time.strftime("%Y-%m-%d"), help="In the names of the files.")
    add("--schedules", type=_numbers, default=[10_000, 100_000, 1_000_000], metavar="N,N")
    add("--calls", type=int, default=1000, help="Claims of nothing for each size.")
    add("--due", type=int, default=100_000, help="Jobs due in the loaded claim.")
    add("--firings", type=int, default=1000, help="Firings a second; a fifth of it as well.")
    add("--seconds", type=int, default=20, help="How long they are watched.")
    add("--jobs", type=int, default=100_000, help="No-op jobs in a drain.")
    add("--waiting", type=int, default=20_000, help="Jobs that wait in another drain.")
    add("--rounds", type=int, default=11)
    add("--processes", type=_numbers, default=[1, 2, 4, 8], metavar="N,N")
    add("--churning", type=int, default=1000, help="Schedules of an hour's churn.")
    add("--idle", type=int, default=10_000, help="Schedules that wait beside it.")
    add("--history", type=int, default=5_000_000, help="Rows of history for the retention.")
    if parser.parse_args().quick:
        parser.set_defaults(**QUICK)
    given = parser.parse_args()
    if given.due < 1000:
        parser.error("--due must be at least 1000, or there is nothing to claim a hundred of.")
    return given


def _numbers(text: str) -> list[int]:
    numbers = sorted(int(part) for part in text.split(","))
    if not numbers or numbers[0] < 1:
        raise argparse.ArgumentTypeError("whole numbers above zero, with commas between")
    return numbers


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - PARTS.keys():
        parts = ", ".join(PARTS)
        raise argparse.ArgumentTypeError(f"no part {', '.join(sorted(unknown))}; there are {parts}")
    return names


if __name__ == "__main__":
    main()
