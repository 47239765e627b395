"""1,000 calls of `enqueue_async` at once, beside PgQueuer and another revision, in turns.

    python benchmarks/at_once.py [--revision REVISION] [--jobs 1000] [--rounds 9]

Each call is a statement and a commit of its own, durable when it returns; each contender has ten
connections. Prints medians over the rounds, and ratios to PgQueuer of the same round.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from arena import STAGE, Contender, arena
from before_after import installed


def rate(contender: Contender, jobs: int) -> float:
    """Jobs per second, in a database that is empty."""
    contender.call("setup")
    sent = contender.call("at_once", n=jobs)
    return float(sent["jobs"] / sent["seconds"])


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
        for turn in range(options.rounds):
            start = turn % len(contenders)
            for contender in contenders[start:] + contenders[:start]:
                place.rest()
                rates[contender.name].append(rate(contender, options.jobs))
            print(
                f"round {turn + 1}: "
                + ", ".join(f"{name} {values[-1]:,.0f}" for name, values in rates.items()),
                flush=True,
            )
    print(f"{options.jobs:,} jobs at once, jobs/s, median of {options.rounds} rounds in turns")
    for name, values in rates.items():
        ratios = [one / peer for one, peer in zip(values, rates["pgqueuer"], strict=True)]
        print(
            f"  {name:<10}{statistics.median(values):>8,.0f}   "
            f"{statistics.median(ratios):.2f} of PgQueuer ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
