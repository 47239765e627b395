"""This checkout beside another revision of Evenbeat, both installed, measured in turns in one run.

    python benchmarks/before_after.py REVISION [--rounds 5] [--quick]

Drain, bulk enqueue, single enqueue and idle pickup, as `compare.py` measures them. Each round takes
both, the one that comes first changing with the round. Prints medians and the ratio of after to
before; above 1 is better, also for the pickup, whose times are inverted.
"""

import argparse
import statistics
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

import measures
from arena import ROOT, Contender, _pip, arena
from measures import QUICK, Sizes

FIGURES = ("drain", "bulk", "single", "pickup p50 ms", "pickup p99 ms", "idle_mb")


def installed(revision: str | None, home: Path) -> tuple[Path, Path]:
    """The Python of a revision (None: this checkout as it is), and its own stage."""
    tree = ROOT
    if revision is not None:
        tree = home / "tree"
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", revision], capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(tree, filter="data")
    python = home / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
    _pip(python, "-c", str(tree / "constraints.txt"), str(tree))
    return python, tree / "benchmarks" / "peers" / "stage.py"


def measured(contender: Contender, sizes: Sizes) -> dict[str, float]:
    """One round of one contender."""
    figures: dict[str, Any] = measures.drain(contender, sizes)
    figures |= measures.single(contender, sizes)
    pickup = measures.pickup(contender, sizes)
    delays = sorted(pickup["pickup_ms"])
    return figures | {
        "pickup p50 ms": delays[len(delays) // 2],
        "pickup p99 ms": delays[int(len(delays) * 0.99)],
        "idle_mb": pickup["idle_mb"],
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else Sizes()
    values: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    with tempfile.TemporaryDirectory(prefix="eb-before-") as home, arena() as place:
        contenders = []
        for name, revision in (("before", options.revision), ("after", None)):
            (Path(home) / name).mkdir()
            python, stage = installed(revision, Path(home) / name)
            contenders.append(place.admit(name, "evenbeat_", python=python, stage=stage))
        for turn in range(options.rounds):
            for contender in contenders if turn % 2 == 0 else contenders[::-1]:
                place.rest()
                values[contender.name].append(measured(contender, sizes))
                shown = ", ".join(f"{k} {values[contender.name][-1][k]:,.1f}" for k in FIGURES)
                print(f"round {turn + 1} {contender.name:<7}{shown}", flush=True)
    print(f"{'':<16}{'before':>10}{'after':>10}{'ratio':>8}   of each round")
    for figure in FIGURES:
        before, after = ([one[figure] for one in values[name]] for name in ("before", "after"))
        ratios = [
            a / b if " ms" not in figure else b / a for b, a in zip(before, after, strict=True)
        ]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        middle = [statistics.median(some) for some in (before, after, ratios)]
        print(f"{figure:<16}{middle[0]:>10,.1f}{middle[1]:>10,.1f}{middle[2]:>8.2f}   {spread}")


if __name__ == "__main__":
    main(sys.argv[1:])
