"""Placement in figures, under the names of the seed: how even the load is, who was placed, and
what the last rebalance did."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from prometheus_client.metrics_core import Metric

from evenbeat.observe.collectors import STALE_SECONDS, Guarded, family
from evenbeat.observe.counters import EngineCounters
from evenbeat.observe.database_snapshot import DatabaseSnapshot
from evenbeat.observe.single_flight import SingleFlight

COMPUTED_FOR_SECONDS = 300.0
"""As long as a distribution that we had to work out ourselves is shown: it reads every recurring
job. Workers do the same every five minutes and keep the result for all."""


class PlacementCounts(Protocol):
    """Totals that a balancer gives."""

    @property
    def placements(self) -> Mapping[str, int]: ...
    @property
    def rebalances(self) -> int: ...
    @property
    def last_moved(self) -> int | None: ...
    @property
    def last_skipped(self) -> int | None: ...


class Spread(Protocol):
    """What is shown of a distribution."""

    @property
    def score(self) -> float: ...
    @property
    def jobs_per_hour(self) -> tuple[int, ...]: ...
    @property
    def peak_count(self) -> int: ...


class Balancing(Protocol):
    """What is asked of a balancer; both questions go to the database."""

    def distribution(self) -> Spread: ...
    def counters(self) -> PlacementCounts: ...


class PlacementCollector(Guarded):
    """The distribution that workers keep, the balancer's totals, and this process's times. While
    the database is away only the times are left."""

    def __init__(
        self,
        counters: EngineCounters,
        ping: SingleFlight[Any],
        snapshot: SingleFlight[DatabaseSnapshot],
        balancer: Callable[[], Balancing],
    ) -> None:
        self._engine = counters
        self._ping = ping
        self._snapshot = snapshot
        self._counters: SingleFlight[PlacementCounts] = SingleFlight(lambda: balancer().counters())
        self._computed: SingleFlight[Spread] = SingleFlight(
            lambda: balancer().distribution(), fresh_seconds=COMPUTED_FOR_SECONDS
        )

    def families(self) -> Iterator[Metric]:
        """Read everything once."""
        timed = self._engine.histograms().get("scheduler_placement_duration_seconds", {})
        yield family("scheduler_placement_duration_seconds", timed)
        if self._ping.get().error is not None:
            return
        counters, _, failed = self._counters.get()
        if counters is not None and failed is None:
            yield from _of_counters(counters)
        snapshot, age, _ = self._snapshot.get()
        if snapshot is not None and age < STALE_SECONDS:
            yield from self._of_distribution(snapshot)

    def _of_distribution(self, snapshot: DatabaseSnapshot) -> Iterator[Metric]:
        if snapshot.distribution is not None:
            yield from _spread(**{name: snapshot.distribution[name] for name in _SHOWN})
            return
        computed, _, failed = self._computed.get()
        if computed is not None and failed is None:
            yield from _spread(computed.score, computed.jobs_per_hour, computed.peak_count)


_SHOWN = ("score", "jobs_per_hour", "peak_count")


def _spread(score: float, jobs_per_hour: Any, peak_count: int) -> Iterator[Metric]:
    hours = {(str(hour),): count for hour, count in enumerate(jobs_per_hour)}
    yield family("scheduler_distribution_score", score)
    yield family("scheduler_slot_job_count", hours)
    yield family("scheduler_peak_hour_job_count", peak_count)


def _of_counters(counters: PlacementCounts) -> Iterator[Metric]:
    placed = {(kind,): count for kind, count in counters.placements.items()}
    yield family("scheduler_placements_total", placed)
    yield family("scheduler_rebalance_total", counters.rebalances)
    yield family("scheduler_rebalance_jobs_moved", counters.last_moved or 0)
    yield family("scheduler_rebalance_jobs_skipped", counters.last_skipped or 0)
