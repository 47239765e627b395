"""The company as it was before: jobs in crowds on the full hour, as crontabs leave them behind."""

from datetime import timedelta
from math import sin

from company import FEEDS

from evenbeat import Evenbeat
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.schedule import Interval

_HOURS = (1, 2, 3, 4, 6, 6, 8, 12, 12, 24)
_MARKETS = ("de", "at", "ch", "nl", "be", "fr", "it", "es", "pt", "pl", "cz", "dk", "no", "se")


def crowd(app: Evenbeat) -> None:
    """Add them, a week of scores, and one rebalance of the past."""
    midnight = app.store.clock().replace(hour=0, minute=0, second=0, microsecond=0)
    jobs = []
    for n, (market, feed) in enumerate((m, f) for m in _MARKETS for f in FEEDS):
        hours = _HOURS[n % len(_HOURS)]
        spec = JobSpec(
            "import_feed",
            "feeds",
            schedule=Interval(timedelta(hours=hours), midnight),
            cost=timedelta(seconds=240 + 37 * (n % 23)),
        )
        jobs.append(NewJob(spec, {"feed": feed}, name=f"import {feed} · {market}"))
    app.enqueue_many(jobs)
    _remember_scores(app)
    app.balancer.rebalance(max_moves=9, by="maria@example.com")


def _remember_scores(app: Evenbeat) -> None:
    now, told = app.store.clock(), app.balancer.distribution()
    for n in range(7 * 24, 0, -1):
        app.store.placement.record_distribution(
            score=told.score + 0.0011 * n + 0.012 * sin(n / 3),
            peak_load=told.peak_load,
            mean_load=told.mean_load,
            total_jobs=told.total_jobs,
            now=now - timedelta(hours=n),
        )
