"""What the scale benchmark writes down: under which conditions, whether what is promised holds, and
two charts."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import psycopg
from ranking import Bar, series

from evenbeat import __version__
from evenbeat.store.store import Store

NOISE = 0.97
"""What is no further below is not below: rounds of one and the same setting differ by far more."""

SETTINGS = ("shared_buffers", "fsync", "synchronous_commit", "max_wal_size", "autovacuum")


def conditions(store: Store) -> dict[str, Any]:
    """Machine, versions and settings."""
    with psycopg.connect(store.database.url) as connection:
        settings = {name: connection.execute(f"SHOW {name}").fetchall()[0][0] for name in SETTINGS}
        server = connection.execute("SHOW server_version").fetchall()[0][0]
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": platform.system(),
        "python": platform.python_version(),
        "postgresql": server,
        "evenbeat": __version__,
        "psycopg": psycopg.__version__,
        "load_before": round(os.getloadavg()[0], 2),
        "settings": settings,
    }


def judged(results: dict[str, Any]) -> str:
    """The conditions, and each promise beside what was measured."""
    told = results["conditions"]
    settings = ", ".join(f"{name} = {value}" for name, value in told["settings"].items())
    lines = [
        (
            f"{told['cores']} cores, {told['memory_gib']} GiB, {told['system']}, Python "
            f"{told['python']}, psycopg {told['psycopg']}, Evenbeat {told['evenbeat']}, PostgreSQL "
            f"{told['postgresql']} ({settings}); load before the start {told['load_before']}. "
            f"{told.get('seconds', 0):,} s in all. Reproduce with `python benchmarks/scale.py`."
        ),
        "",
        "| promise | measured | holds |",
        "|---|---|---|",
    ]
    promises = [*_of_schedules(results.get("schedules")), *_of_workers(results.get("workers"))]
    lines += [
        f"| {name} | {found} | {'yes' if holds else '**no**'} |" for name, found, holds in promises
    ]
    return "\n".join(lines if promises else lines[:1])


def _of_schedules(result: dict[str, Any] | None) -> list[tuple[str, str, bool]]:
    if result is None:
        return []
    first, last, few = result["sizes"][0], result["sizes"][-1], result["few"]
    grown = last["idle"]["claim"]["p50_ms"] / first["idle"]["claim"]["p50_ms"]
    kept = few["missed"] == few["doubled"] == 0
    return [
        (
            (
                f"from {first['schedules']:,} to {last['schedules']:,} schedules the idle claim "
                "grows less than twofold"
            ),
            f"{grown:.2f}x",
            grown < 2,
        ),
        (
            (
                f"{few['firings']} firings a second beside {few['schedules']:,} schedules: p99 "
                "under 50 ms, none missed, none doubled"
            ),
            f"{few['p99_ms']:.1f} ms, {few['missed']} missed, {few['doubled']} doubled",
            few["p99_ms"] < 50 and kept,
        ),
    ]


def _of_workers(result: dict[str, Any] | None) -> list[tuple[str, str, bool]]:
    if result is None:
        return []
    by_number = {row["number"]: row for row in result["processes"]}
    promises = []
    if 2 in by_number and 1 in by_number:
        one, two, cores = by_number[1], by_number[2], os.cpu_count() or 1
        dearer = _cpu_of_a_job(two) / _cpu_of_a_job(one)
        used_up = two["cores"] >= 0.9 * cores and dearer <= 1.1
        promises.append(
            (
                (
                    "two processes drain 1.5 times what one does, or all that the cores allow: "
                    "nine tenths of them busy, and a job no more than a tenth dearer"
                ),
                (
                    f"{two['ratio']:.2f}x; one keeps {one['cores']:.2f} of {cores} cores busy, two "
                    f"{two['cores']:.2f}, with {dearer:.2f} of the CPU time for a job"
                ),
                two["ratio"] >= 1.5 or used_up,
            )
        )
    if 8 in by_number and 2 in by_number:
        promises.append(_eight("eight do not fall below two (by more than 3 %)", by_number))
        waiting = {row["number"]: row for row in result["waiting"]["processes"]}
        promises.append(_eight("nor where jobs wait for something", waiting))
    return promises


def _eight(promise: str, by_number: dict[int, dict[str, Any]]) -> tuple[str, str, bool]:
    shares = sorted(held_against(by_number[8]["rates"], by_number[2]["rates"]))
    share = statistics.median(shares)
    told = f"{share:.2f}x in the middle of {len(shares)} rounds"
    if len(shares) > 1:
        told += f", {shares[0]:.2f} to {shares[-1]:.2f}"
    return promise, told, share >= NOISE


def held_against(rates: Sequence[float], others: Sequence[float]) -> list[float]:
    """How many times the others' rate, round by round: what the machine does to one round it does
    to both, so this tells more than rates over all rounds do."""
    return [rate / other for rate, other in zip(rates, others, strict=True)]


def in_turn(workers: Sequence[int]) -> list[int]:
    """Those that a promise holds against each other come one after the other, one and two as well
    as two and the most: the machine's speed changes within the time that a drain between takes."""
    return [*workers[2:-1], *workers[:2], *workers[2:][-1:]]


def _cpu_of_a_job(row: dict[str, Any]) -> float:
    return float(row["cores"] / row["rate"])


def charts(results: dict[str, Any]) -> dict[str, str]:
    """Drawings by name: drain rate by processes, claim cost by schedules."""
    pictures = {}
    if workers := results.get("workers"):
        pictures["workers"] = series(
            f"Drain of {workers['jobs']:,} no-op jobs by worker processes",
            "jobs/s",
            [Bar(_processes(row["number"]), row["rate"]) for row in workers["processes"]],
        )
    if schedules := results.get("schedules"):
        pictures["claims"] = series(
            "A claim of nothing by the number of schedules, median to p99",
            "ms",
            [
                Bar(
                    f"{row['schedules']:,} schedules",
                    row["idle"]["claim"]["p50_ms"],
                    second=row["idle"]["claim"]["p99_ms"],
                )
                for row in schedules["sizes"]
            ],
        )
    return pictures


def _processes(number: int) -> str:
    return f"{number} process{'es' if number > 1 else ''}"


def written(
    where: Path, label: str, report: str, results: dict[str, Any], pictures: dict[str, str]
) -> list[Path]:
    """Write everything; the files."""
    where.mkdir(parents=True, exist_ok=True)
    report += "".join(f"\n![{name}](scale-{name}-{label}.svg)\n" for name in pictures)
    files = {
        where / f"scale-{label}.md": report,
        where / f"scale-{label}.json": json.dumps(results, indent=1) + "\n",
    } | {where / f"scale-{name}-{label}.svg": picture for name, picture in pictures.items()}
    for file, text in files.items():
        file.write_text(text)
    return list(files)
