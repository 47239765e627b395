"""The metrics of one application, for Prometheus to scrape.

Every application has a registry of its own, so that two in one process do not collide. Each
process exposes what it did itself; what concerns the whole database is the same from all of them.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client import ProcessCollector as OfProcess
from prometheus_client.exposition import choose_encoder

from evenbeat.observe.collectors import (
    DatabaseCollector,
    EngineCollector,
    PoolFigures,
    ProcessCollector,
)
from evenbeat.observe.counters import EngineCounters
from evenbeat.observe.database_snapshot import take_snapshot
from evenbeat.observe.placement_metrics import BalancerFigures, PlacementCollector
from evenbeat.observe.single_flight import SingleFlight
from evenbeat.store.store import Store

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class Exposition(NamedTuple):
    """What a scraper gets."""

    body: bytes
    content_type: str


class Metrics:
    """Collects for each scrape. `store` and `now` are called each time, since an application may
    switch to another database."""

    def __init__(
        self,
        counters: EngineCounters,
        *,
        store: Callable[[], Store],
        tasks: Callable[[], Iterable[str]],
        balancer: Callable[[], BalancerFigures],
        now: Callable[[], datetime | None] = lambda: None,
        pools: PoolFigures = dict,
        silent_seconds: float = 60.0,
        version: str = "",
    ) -> None:
        self.registry = CollectorRegistry()
        self.ping: SingleFlight[Any] = SingleFlight(lambda: store().clock(now()), fresh_seconds=1.0)
        snapshot = SingleFlight(lambda: take_snapshot(store(), now(), silent_seconds))
        OfProcess(namespace="evenbeat", registry=self.registry)
        self.registry.register(EngineCollector(counters, tasks))
        self.registry.register(ProcessCollector(counters, pools, version))
        self.registry.register(DatabaseCollector(self.ping, snapshot))
        self.registry.register(PlacementCollector(counters, self.ping, snapshot, balancer))

    def render(self, accept: str = "") -> Exposition:
        """The text that a scraper with this Accept header understands."""
        # The library's own choice fails on invalid version numbers, or repeats them in its answer.
        understood = OPEN_METRICS if OPEN_METRICS.partition(";")[0] in accept else ""
        encode, content_type = choose_encoder(understood)
        return Exposition(encode(self.registry), content_type)
