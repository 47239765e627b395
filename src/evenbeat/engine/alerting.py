"""The chore that tells the webhooks which alerts have begun, and which are over."""

from datetime import timedelta

from evenbeat.engine.clock import Clock
from evenbeat.observe.alerts import alerts
from evenbeat.store.part import Between, go_on
from evenbeat.store.store import Store

OVER_AFTER = timedelta(minutes=5)
"""How long an alert must be gone to be over: one that comes and goes is told once."""


class TellAlerts:
    """Compares the rules that are broken now with those that anybody was told of."""

    name = "alerts"
    every = timedelta(seconds=30)

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def run_once(self, _: Between = go_on, /) -> int:
        """Tell of what is new; returns how much that is."""
        store, override = self._store, self._clock.override()
        broken = {}
        for one in alerts(store.database.rows, store.clock(override)):
            about = {
                "rule": one.rule.name,
                "severity": one.rule.severity,
                "title": one.title,
                "detail": one.detail,
                "remedy": one.remedy,
                "since": one.since.isoformat(),
                "jobs": dict(one.jobs),
                "job_id": one.job_id and str(one.job_id),
            }
            broken[one.key] = one.title, one.since, about
        return len(store.webhooks.tell_alerts(broken, OVER_AFTER, now=override))
