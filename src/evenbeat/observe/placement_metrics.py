"""Placement in figures, under the names of the seed: how even the load is, how many jobs were
placed, and what the last rebalance did."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from prometheus_client.metrics_core import Metric

from evenbeat.observe.collectors import STALE_SECONDS, Guarded, family
from evenbeat.observe.counters import EngineCounters
from evenbeat.observe.database_snapshot import DatabaseSnapshot
from evenbeat.observe.single_flight import SingleFlight
from evenbeat.store.placement import PlacementTotals

COMPUTED_FOR_SECONDS = 300.0
"""How long a distribution is shown that this process had to compute by reading every recurring job.
Workers do the same every five minutes and store the result for all."""


class DistributionFigures(Protocol):
    """What is shown of a distribution."""

    @property
    def score(self) -> float: ...
    @property
    def jobs_per_hour(self) -> tuple[int, ...]: ...
    @property
    def peak_count(self) -> int: ...


class BalancerFigures(Protocol):
    """What a balancer reports; both figures come from the database."""

    def distribution(self) -> DistributionFigures: ...
    def counters(self) -> PlacementTotals: ...


class PlacementCollector(Guarded):
    """The distribution that workers store, the balancer's totals, and this process's times. While
    the database is away only the times are left."""

    def __init__(
        self,
        counters: EngineCounters,
        ping: SingleFlight[Any],
        snapshot: SingleFlight[DatabaseSnapshot],
        balancer: Callable[[], BalancerFigures],
    ) -> None:
        self._engine = counters
        self._ping = ping
        self._snapshot = snapshot
        self._totals = SingleFlight(lambda: balancer().counters())
        self._computed = SingleFlight(
            lambda: balancer().distribution(), fresh_seconds=COMPUTED_FOR_SECONDS
        )

    def families(self) -> Iterator[Metric]:
        """Read everything once."""
        timed = self._engine.histograms().get("scheduler_placement_duration_seconds", {})
        yield family("scheduler_placement_duration_seconds", timed)
        if self._ping.get().error is not None:
            return
        totals, _, error = self._totals.get()
        if totals is not None and error is None:
            by_kind = {(kind,): count for kind, count in totals.placements.items()}
            yield family("scheduler_placements_total", by_kind)
            yield family("scheduler_rebalance_total", totals.rebalances)
            yield family("scheduler_rebalance_jobs_moved", totals.last_moved or 0)
            yield family("scheduler_rebalance_jobs_skipped", totals.last_skipped or 0)
        snapshot, age, _ = self._snapshot.get()
        if snapshot is None or age >= STALE_SECONDS:
            return
        if (stored := snapshot.distribution) is not None:
            score, by_hour = stored["score"], stored["jobs_per_hour"]
            peak_count = stored["peak_count"]
        else:
            current, _, error = self._computed.get()
            if current is None or error is not None:
                return
            score, by_hour, peak_count = current.score, current.jobs_per_hour, current.peak_count
        yield family("scheduler_distribution_score", score)
        hours = {(str(hour),): count for hour, count in enumerate(by_hour)}
        yield family("scheduler_slot_job_count", hours)
        yield family("scheduler_peak_hour_job_count", peak_count)
