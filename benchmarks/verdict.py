"""From all rounds of a comparison to one figure each, and what these say about the aims."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reckoning import median, percentile

OURS = "evenbeat"
FLOOR = "floor"
NAN = math.nan


@dataclass(frozen=True)
class Figures:
    """What one contender reached; nan where it was not measured."""

    name: str
    about: dict[str, Any]
    bulk: float
    single: float
    drain: float
    pickup_p50: float
    pickup_p99: float
    load_p50: float
    load_p99: float
    load_rate: float
    idle_mb: float
    drain_mb: float
    recurring: dict[str, float] | None
    crash: dict[str, float] | None

    @property
    def title(self) -> str:
        return str(self.about["title"])


@dataclass(frozen=True)
class Line:
    """One aim: what was wanted, whether it was met (None: not measured), and the numbers."""

    aim: str
    met: bool | None
    numbers: str


def figures(document: dict[str, Any]) -> dict[str, Figures]:
    """Medians over the rounds; pickups of all rounds together."""
    return {
        name: _figures(name, about, document["values"])
        for name, about in document["contenders"].items()
    }


def _figures(name: str, about: dict[str, Any], values: dict[str, Any]) -> Figures:
    def rounds(figure: str) -> list[Any]:
        found: list[Any] = _restored(values.get(figure, {}).get(name, []))
        return found

    pickups = [delay for one in rounds("pickup_ms") for delay in one]
    loads = rounds("load_ms")
    return Figures(
        name=name,
        about=about,
        bulk=median(rounds("bulk")),
        single=median(rounds("single")),
        drain=median(rounds("drain")),
        pickup_p50=percentile(pickups, 0.5),
        pickup_p99=percentile(pickups, 0.99),
        load_p50=median(load["p50"] for load in loads),
        load_p99=median(load["p99"] for load in loads),
        load_rate=median(rounds("load_rate")),
        idle_mb=median(rounds("idle_mb")),
        drain_mb=median(rounds("drain_mb")),
        recurring=next(iter(rounds("recurring")), None),
        crash=next(iter(rounds("crash")), None),
    )


def _restored(value: Any) -> Any:
    """JSON has no nan: what it calls null was one."""
    if isinstance(value, dict):
        return {key: _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return NAN if value is None else value


def verdict(found: dict[str, Figures]) -> list[Line]:
    """Each aim of the benchmark beside what was measured."""
    ours = found.get(OURS)
    if ours is None:
        return []
    peers = [f for name, f in found.items() if name not in (OURS, FLOOR)]
    return [*_rates(ours, peers, found.get(FLOOR)), *_delays(ours), *_schedules(ours)]


def _rates(ours: Figures, peers: list[Figures], floor: Figures | None) -> Iterator[Line]:
    durable = [p for p in peers if p.about["durable"]]
    names = {p.name for p in peers}
    untuned = [p for p in durable if f"{p.name}_default" not in names]
    aim = "drain at least 2 times the best durable peer"
    yield _ratio(f"{aim}, each as it comes", ours.drain, best(untuned, "drain"), 2, "drain")
    yield _ratio(f"{aim}, tuned", ours.drain, best(durable, "drain"), 2, "drain")
    yield _ratio("drain at least 0.6 of the bare statements", ours.drain, floor, 0.6, "drain")
    yield _ratio("bulk enqueue ahead of every peer", ours.bulk, best(peers, "bulk"), 1, "bulk")
    on_postgres = best([p for p in peers if p.about["needs"] == "postgres"], "single")
    aim = "single enqueue no slower than the fastest PostgreSQL peer"
    yield _ratio(aim, ours.single, on_postgres, 1, "single")


def _delays(ours: Figures) -> Iterator[Line]:
    yield _below("idle pickup, median under 3 ms", ours.pickup_p50, 3)
    yield _below("idle pickup, p99 under 9 ms", ours.pickup_p99, 9)
    yield _below("pickup at half load, p99 under 50 ms", ours.load_p99, 50)


def _schedules(ours: Figures) -> Iterator[Line]:
    aim = "recurring: p99 under 50 ms late, none missed, none doubled"
    if ours.recurring is None:
        yield Line(aim, None, "not measured")
        return
    late, missed, doubled = (ours.recurring[k] for k in ("p99_ms", "missed", "doubled"))
    numbers = f"{late:.1f} ms, {missed:.0f} missed, {doubled:.0f} doubled"
    yield Line(aim, late < 50 and not missed and not doubled, numbers)


def best(peers: list[Figures], figure: str) -> Figures | None:
    """The fastest by a rate."""
    known = [p for p in peers if not math.isnan(getattr(p, figure))]
    return max(known, key=lambda p: getattr(p, figure), default=None)


def _ratio(aim: str, ours: float, other: Figures | None, least: float, figure: str) -> Line:
    value = NAN if other is None else getattr(other, figure)
    if other is None or math.isnan(ours) or math.isnan(value):
        return Line(aim, None, "not measured")
    share = ours / value
    numbers = f"{ours:,.0f}/s beside {value:,.0f}/s of {other.title}: {share:.2f}"
    return Line(aim, share >= least, numbers)


def _below(aim: str, value: float, limit: float) -> Line:
    if math.isnan(value):
        return Line(aim, None, "not measured")
    return Line(aim, value < limit, f"{value:.2f} ms; the aim is {limit} ms")
