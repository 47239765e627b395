"""Sites that nobody has crawled for long: queued again, each at most once."""

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta

from evenbeat.app import Evenbeat
from evenbeat.crawl.documents import Documents, Stale, now_of
from evenbeat.domain.job import MAX_NAME, JobSpec, NewJob
from evenbeat.store.store import Store

TASK = "crawl"
CREATED_BY = "stale sources"
MOST_AT_ONCE = 100


def chore(app: Evenbeat) -> "StaleSources | None":
    """The chore, where crawls can run and the settings want it."""
    if not app.settings.stale_days or TASK not in app.registry:
        return None
    return StaleSources(app.store, app.settings.stale_days, lambda: now_of(app))


class StaleSources:
    """Queues a crawl, once and as the last one was asked for, of every source that no crawl has
    gone through for `days`. A source that some job is for already is left to that job, also when
    that job is paused: somebody wanted it so. One whose crawls fail is tried once a day."""

    name = "stale_sources"
    every = timedelta(hours=6)

    def __init__(
        self, store: Store, days: int, now: Callable[[], datetime | None] = lambda: None
    ) -> None:
        self._store = store
        self._documents = Documents(store.database)
        self._age = timedelta(days=days)
        self._now = now

    def run_once(self) -> int:
        """Queue what is stale; returns how many crawls were added."""
        now = self._now()
        stale = self._documents.stale(self._age, limit=MOST_AT_ONCE, now=now)
        return sum(self._queue(source, now) for source in stale)

    def _queue(self, stale: Stale, now: datetime | None) -> bool:
        job = NewJob(
            JobSpec(task=TASK, queue=stale.queue),
            dict(stale.payload),
            dedup_key=dedup_key(stale.source.id),
            created_by=CREATED_BY,
        )
        with self._store.database.transaction() as connection:
            added = self._store.add(job, connection=connection, now=now)
            self._documents.queued(stale.source.id, connection, now=now)
        return added.created


def dedup_key(source_id: str) -> str:
    """What at most one live job of a source has; of an id that is no name, its hash."""
    key = f"crawl:{source_id}"
    usable = len(key) <= MAX_NAME and key.isprintable() and key == key.strip()
    return key if usable else f"crawl:{hashlib.sha256(source_id.encode()).hexdigest()}"
