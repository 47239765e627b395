"""Sites that have not been crawled for long: queued again, each at most once."""

import hashlib
from datetime import timedelta

from evenbeat.app import Evenbeat
from evenbeat.crawl import TASK
from evenbeat.crawl.documents import Documents
from evenbeat.domain.job import JobSpec, NewJob
from evenbeat.domain.setting_kinds import MAX_NAME

CREATED_BY = "stale sources"
MOST_AT_ONCE = 100


def chore(app: Evenbeat) -> "StaleSources | None":
    """The chore, where crawls can run and the settings want it."""
    wanted = app.settings.stale_days and TASK in app.registry
    return StaleSources(app) if wanted else None


class StaleSources:
    """Queues a crawl, once and as the last one was asked for, of every source that no crawl has
    succeeded on for `stale_days`. A source that some job is for already is left to that job, even
    if it is paused: somebody wanted it so. One whose crawls fail is tried once a day."""

    name = "stale_sources"
    every = timedelta(hours=6)

    def __init__(self, app: Evenbeat) -> None:
        self._app = app
        self._age = timedelta(days=app.settings.stale_days)

    def run_once(self) -> int:
        """Queue what is stale; returns how many crawls were added."""
        store, clock = self._app.store, self._app.clock
        now = None if clock is None else clock.override()
        documents, added = Documents(store.database), 0
        for stale in documents.stale(self._age, limit=MOST_AT_ONCE, now=now):
            job = NewJob(
                JobSpec(task=TASK, queue=stale.queue),
                dict(stale.payload),
                dedup_key=dedup_key(stale.source.id),
                created_by=CREATED_BY,
            )
            with store.database.transaction() as connection:
                added += store.add(job, connection=connection, now=now).created
                documents.queued(stale.source.id, connection, now=now)
        return added


def dedup_key(source_id: str) -> str:
    """What at most one live job of a source has; of an id that is no name, its hash."""
    key = f"crawl:{source_id}"
    usable = len(key) <= MAX_NAME and key.isprintable() and key == key.strip()
    return key if usable else f"crawl:{hashlib.sha256(source_id.encode()).hexdigest()}"
