"""From the records of a run to figures: pure arithmetic, tested in tests/unit/test_reckoning.py."""

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from peers.stage import BEGAN, FIRED, RAN, READY, RECORD

EARLY = {"seconds": 0.02, "phase": 0.25}
"""How far before its second a run may lie. A rhythm of its own is known from its first run only,
which may itself have been late."""

FURTHEST_BACK = 60
"""Seconds: a run is never held to belong to an older plan than that."""


class Record(NamedTuple):
    """One line of the log, as `peers/stage.py` writes it."""

    kind: int
    number: int
    value: float
    steady: float
    wall: float
    pid: int


class Recurring(NamedTuple):
    """How schedules kept time."""

    lateness: list[float]
    expected: int
    missed: int
    doubled: int


class Crash(NamedTuple):
    """What became of the jobs that ran when their worker was killed."""

    running: int
    rerun: int
    lost: int
    after: list[float]


def records(log: Path) -> list[Record]:
    """All whole records of a log; none where it does not exist."""
    if not log.exists():
        return []
    data = log.read_bytes()
    whole = len(data) - len(data) % RECORD.size
    return [Record(*fields) for fields in RECORD.iter_unpack(data[:whole])]


def ready_at(log: Iterable[Record]) -> float | None:
    """When the worker said that it takes jobs, by the steady clock."""
    return next((r.steady for r in log if r.kind == READY), None)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def median(values: Iterable[float]) -> float:
    """The middle of those that are known, or nan."""
    known = [v for v in values if not math.isnan(v)]
    return statistics.median(known) if known else math.nan


def drain_rate(log: Iterable[Record], done: float | None) -> float:
    """Jobs a second from the first run until none was left; else, until the last run.

    The first run is where the clock starts, for all alike: connecting and the first fetch of a
    worker are not part of it. Where the queue did not get empty in time, what ran counts.
    """
    runs = [r.steady for r in log if r.kind == RAN]
    if len(runs) < 2:
        return math.nan
    begun, ended = min(runs), max(runs) if done is None else done
    return len(runs) / (ended - begun) if ended > begun else math.nan


def pickups_ms(log: Iterable[Record], *, skip: int = 0) -> list[float]:
    """Milliseconds from before the call that sent a job to its handler; not of the first few."""
    return [(r.steady - r.value) * 1000 for r in log if r.kind == RAN and r.number >= skip]


def recurring(
    log: Iterable[Record], rhythm: str, firing: int, begin: float, seconds: int
) -> Recurring:
    """Hold what fired against what was planned in the `seconds` from `begin`."""
    runs: dict[int, list[Record]] = {i: [] for i in range(firing)}
    for record in log:
        if record.kind == FIRED and record.number in runs:
            runs[record.number].append(record)
    judge = _told if rhythm == "planned" else _matched
    parts = [judge(sorted(r, key=_wall), rhythm, begin, seconds) for r in runs.values()]
    lateness = [late for part in parts for late in part[0]]
    expected = firing * seconds
    return Recurring(lateness, expected, expected - len(lateness), sum(part[1] for part in parts))


def _wall(record: Record) -> float:
    return record.wall


def _told(
    runs: Sequence[Record], rhythm: str, begin: float, seconds: int
) -> tuple[list[float], int]:
    """The handler was told its plan: the first run of each plan counts, the others are doubled."""
    assert rhythm == "planned"
    first: dict[float, float] = {}
    doubled = 0
    for run in runs:
        if not begin <= run.value < begin + seconds:
            continue
        if run.value in first:
            doubled += 1
        else:
            first[run.value] = run.wall - run.value
    return list(first.values()), doubled


def _matched(
    runs: Sequence[Record], rhythm: str, begin: float, seconds: int
) -> tuple[list[float], int]:
    """Nobody says which plan a run belongs to: it takes the latest one that no run has taken.

    That is the kindest reading. A scheduler that skips what it missed is late by little and has
    missed plans; one that works off a backlog is late by what the backlog is.
    """
    if not runs:
        return [], 0
    early = EARLY[rhythm]
    origin = math.floor(runs[0].wall + early) if rhythm == "seconds" else runs[0].wall
    taken: set[int] = set()
    lateness: list[float] = []
    doubled = 0
    for run in runs:
        latest = math.floor(run.wall + early - origin)
        lowest = max(-1, latest - FURTHEST_BACK)
        plan = next((k for k in range(latest, lowest, -1) if k not in taken), None)
        if plan is None:
            doubled += begin <= run.wall < begin + seconds
            continue
        taken.add(plan)
        if begin <= origin + plan < begin + seconds:
            lateness.append(max(0.0, run.wall - (origin + plan)))
    return lateness, doubled


def crash(log: Sequence[Record], killed: float) -> Crash:
    """Which of the jobs that ran at the kill ran again, and how long after it."""
    began = [r for r in log if r.kind == BEGAN]
    running = {r.number for r in began if r.steady < killed}
    again: dict[int, float] = {}
    for record in began:
        if record.steady >= killed and record.number in running:
            again.setdefault(record.number, record.steady - killed)
    after = sorted(again.values())
    return Crash(len(running), len(after), len(running) - len(after), after)
