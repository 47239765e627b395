"""Crawled pages and the sources that they come from, in the database."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from evenbeat.crawl.child import CrawledPage
from evenbeat.crawl.text import plain_words
from evenbeat.errors import LeaseLost, NotFound
from evenbeat.store.database import Connection, Database

BEGIN, END = "\ue000", "\ue001"
"""What stands before and after a matching word in a snippet. No stored text has them."""


class Lease(NamedTuple):
    """Who writes: the run that holds this job's lease, and nobody else."""

    job_id: UUID
    token: UUID


class Document(NamedTuple):
    """A page as it is kept, without its text."""

    id: UUID
    source_id: str
    url: str
    title: str
    depth: int
    job_id: UUID
    first_seen_at: datetime
    seen_at: datetime
    changed_at: datetime
    gone_at: datetime | None
    content_hash: str


class Hit(NamedTuple):
    """A document in a list. Matching words of the snippet stand between `BEGIN` and `END`."""

    document: Document
    rank: float | None
    snippet: str


class Source(NamedTuple):
    """What is crawled again and again."""

    id: str
    url: str
    name: str | None
    job_id: UUID
    first_seen_at: datetime
    tried_at: datetime
    crawled_at: datetime | None
    queued_at: datetime | None
    items_crawled: int
    items_indexed: int


class StaleSource(NamedTuple):
    """A source to crawl again, and how its last crawl was asked for."""

    source: Source
    payload: Mapping[str, Any]
    queue: str


class Documents:
    """The pages that crawls have kept. Verbs that write take the lease of the run that writes, and
    raise `LeaseLost` when it is no longer held."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- crawling --------------------------------------------------------------------------------

    def begin(
        self, lease: Lease, source: str, url: str, name: str | None, *, now: datetime | None = None
    ) -> None:
        """Note that a source is being crawled."""
        params = lease._asdict() | {"source": source, "url": url, "name": name, "now": now}
        _check_held(self._database.rows("begin_crawl", params), lease)

    def save(
        self,
        lease: Lease,
        source: str,
        pages: Sequence[CrawledPage],
        *,
        gone: Sequence[str] = (),
        now: datetime | None = None,
    ) -> tuple[int, int]:
        """Keep a batch of pages; of two with one key the last counts. Those whose keys are in
        `gone` no longer turn up in searches. Returns how many are new or changed, and gone."""
        by_key = {page.key: page for page in pages}
        batch = [by_key[key] for key in sorted(by_key)]
        params = lease._asdict() | {
            "source": source,
            "keys": [page.key for page in batch],
            "urls": [page.url for page in batch],
            "titles": [page.title for page in batch],
            "texts": [page.text for page in batch],
            "hashes": [
                hashlib.sha256(f"{page.title}\n{page.text}".encode()).digest() for page in batch
            ],
            "depths": [page.depth for page in batch],
            "gone": sorted(set(gone)),
            "now": now,
        }
        held, indexed, gone_count = self._database.rows("save_documents", params)[0]
        _check_held(held, lease)
        return indexed, gone_count

    def end(
        self,
        lease: Lease,
        source: str,
        *,
        items_crawled: int,
        items_indexed: int,
        now: datetime | None = None,
    ) -> None:
        """Note that a crawl has succeeded."""
        figures = {"items_crawled": items_crawled, "items_indexed": items_indexed}
        params = lease._asdict() | {"source": source, "now": now} | figures
        _check_held(self._database.rows("end_crawl", params), lease)

    # -- searching -------------------------------------------------------------------------------

    def search(
        self,
        words: str | None = None,
        *,
        source: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> tuple[list[Hit], int]:
        """The documents with these words, the best first, and how many there are; without words
        all, those that changed last first, and the snippet is how the text begins. "Words in
        quotes" stand side by side, `or` means either, a minus before a word means without it."""
        params = {"source": source, "limit": limit, "offset": offset}
        if words is None:
            rows = self._database.rows("newest_documents", params)
            total = self._database.rows("count_documents", params)[0][0]
            return [_hit(row) for row in rows], total
        params |= {"words": plain_words(words), "begin": BEGIN, "end": END}
        rows = self._database.rows("search_documents", params)
        if not rows:
            total = self._database.rows("count_found", params)[0][0] if offset else 0
            return [], total
        return [_hit(row[1:]) for row in rows], rows[0][0]

    def get(self, document_id: UUID) -> tuple[Document, str]:
        """A document and its text, gone or not; raises `NotFound`."""
        row = self._database.row("document", {"id": document_id})
        if row is None:
            raise NotFound("document", document_id)
        return Document._make(row[:-1]), row[-1]

    def delete(self, document_id: UUID) -> None:
        """Remove a document; raises `NotFound`. A crawl that finds its page adds it again."""
        if not self._database.rows("delete_document", {"id": document_id}):
            raise NotFound("document", document_id)

    # -- sources ---------------------------------------------------------------------------------

    def source(self, source_id: str) -> Source | None:
        """What is known of a source."""
        row = self._database.row("source", {"id": source_id})
        return None if row is None else Source._make(row)

    def sources(self, *, limit: int = 100, offset: int = 0) -> tuple[list[Source], int]:
        """The sources, those not crawled for longest first, and how many there are."""
        rows = self._database.rows("sources", {"limit": limit, "offset": offset})
        if not rows:
            return [], self._database.rows("count_sources", {})[0][0] if offset else 0
        return [Source._make(row[1:]) for row in rows], rows[0][0]

    def stale(
        self,
        age: timedelta,
        *,
        pause: timedelta = timedelta(days=1),
        limit: int = 100,
        now: datetime | None = None,
    ) -> list[StaleSource]:
        """Sources not crawled with success for `age` that no live job is for, the oldest first;
        those queued within `pause` are left out."""
        params = {
            "stale_seconds": age.total_seconds(),
            "pause_seconds": pause.total_seconds(),
            "limit": limit,
            "now": now,
        }
        rows = self._database.rows("stale_sources", params)
        return [StaleSource(Source._make(row[:-2]), row[-2], row[-1]) for row in rows]

    def queued(
        self, source_id: str, connection: Connection | None = None, *, now: datetime | None = None
    ) -> None:
        """Note that a stale source was queued."""
        self._database.rows("source_queued", {"id": source_id, "now": now}, connection)


def _hit(row: Sequence[Any]) -> Hit:
    return Hit(Document._make(row[:-2]), row[-2], row[-1])


def _check_held(rows: object, lease: Lease) -> None:
    if not rows:
        raise LeaseLost(f"The run of job {lease.job_id} no longer counts: nothing was written.")
