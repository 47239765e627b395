"""1,000 calls of `enqueue_async` at once, beside PgQueuer and another revision, in turns.

    python benchmarks/at_once.py [--revision REVISION] [--jobs 1000] [--rounds 9]

Each call is a statement and a commit of its own, durable when it returns; each contender has ten
connections. Prints medians over the rounds, ratios to PgQueuer of the same round, and CPU times.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from arena import STAGE, Contender, arena
from before_after import installed


def measured(contender: Contender, jobs: int) -> tuple[float, float]:
    """Jobs per second in a database that is empty, and the client's CPU time for each in µs."""
    contender.call("setup")
    sent = contender.call("at_once", n=jobs)
    return jobs / sent["seconds"], sent["cpu_seconds"] / jobs * 1e6


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--revision", help="of Evenbeat, such as 4ba616d")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="eb-at-once-") as home, arena() as place:
        contenders = [
            place.admit("pgqueuer", "pgqueuer"),
            place.admit("evenbeat", "evenbeat_"),
        ]
        if options.revision:
            python, _ = installed(options.revision, Path(home))
            contenders.append(place.admit("before", "evenbeat_", python=python, stage=STAGE))
        rates: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        cpu: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        for turn in range(options.rounds):
            start = turn % len(contenders)
            for contender in contenders[start:] + contenders[:start]:
                place.rest()
                rate, used = measured(contender, options.jobs)
                rates[contender.name].append(rate)
                cpu[contender.name].append(used)
            shown = (f"{name} {values[-1]:,.0f}" for name, values in rates.items())
            print(f"round {turn + 1}: {', '.join(shown)}", flush=True)
    print(f"{options.jobs:,} jobs at once, median of {options.rounds} rounds in turns")
    for name, values in rates.items():
        ratios = [one / peer for one, peer in zip(values, rates["pgqueuer"], strict=True)]
        print(
            f"  {name:<10}{statistics.median(values):>8,.0f} jobs/s   "
            f"{statistics.median(ratios):.2f} of PgQueuer ({min(ratios):.2f} to {max(ratios):.2f})"
            f"   {statistics.median(cpu[name]):>5,.0f} µs of the client's CPU time a job"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
