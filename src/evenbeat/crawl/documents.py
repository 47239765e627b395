"""Crawled pages and the sources that they come from, in the database."""

import hashlib
import html
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from pydantic import BaseModel, Field

from evenbeat.crawl.child import CrawledPage
from evenbeat.crawl.normal_forms import plain_words
from evenbeat.errors import LeaseLost, NotFound
from evenbeat.store.audit import AuditLog
from evenbeat.store.database import Connection, Database, Row

_BEGIN, _END = "\ue000", "\ue001"
"""What PostgreSQL sets before and after a matching word in a snippet. No stored text has them."""


class Lease(NamedTuple):
    """Who writes: the run that holds this job's lease, and nobody else."""

    job_id: UUID
    token: UUID


class Document(BaseModel):
    """A crawled page."""

    id: UUID
    source_id: str = Field(description="The source_id of its crawl, or the URL it started at.")
    url: str
    title: str
    depth: int = Field(description="How many links away from the start page.")
    job_id: UUID = Field(description="The job that saw it last.")
    first_seen_at: datetime
    seen_at: datetime
    changed_at: datetime = Field(description="When its title or text last changed.")
    gone_at: datetime | None = Field(description="When the site said that it is gone.")
    content_hash: str = Field(description="SHA-256 of title and text, in hexadecimal.")


class FoundDocument(Document):
    """A crawled page that matches."""

    rank: float | None = Field(description="How well it fits; null without words to look for.")
    snippet: str = Field(
        description="HTML: the text around the matching words, escaped, the words in <mark>. "
        "Without words, how the text begins."
    )


class WholeDocument(Document):
    """A crawled page with its text."""

    text: str


class SourceDocument(BaseModel):
    """What is crawled again and again."""

    id: str
    url: str
    name: str | None
    job_id: UUID = Field(description="The job that crawled it last.")
    first_seen_at: datetime
    tried_at: datetime = Field(description="When a crawl of it last began.")
    crawled_at: datetime | None = Field(description="When a crawl of it last succeeded.")
    queued_at: datetime | None = Field(description="When it was last queued for being stale.")
    items_crawled: int
    items_indexed: int


_Model = TypeVar("_Model", bound=BaseModel)


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
        self._write("begin_crawl", lease, source=source, url=url, name=name, now=now)

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
        contents = [f"{page.title}\n{page.text}".encode() for page in batch]
        indexed, gone_count = self._write(
            "save_documents",
            lease,
            source=source,
            keys=[page.key for page in batch],
            urls=[page.url for page in batch],
            titles=[page.title for page in batch],
            texts=[page.text for page in batch],
            hashes=[hashlib.sha256(content).digest() for content in contents],
            depths=[page.depth for page in batch],
            gone=sorted(set(gone)),
            now=now,
        )
        return indexed, gone_count

    def end(
        self, lease: Lease, source: str, *, now: datetime | None = None, **figures: int
    ) -> None:
        """Note that a crawl has succeeded, with its items_crawled and items_indexed."""
        self._write("end_crawl", lease, source=source, now=now, **figures)

    def _write(self, statement: str, lease: Lease, **params: Any) -> Row:
        """What a statement returns that writes only while the lease is held."""
        row = self._database.row(statement, lease._asdict() | params)
        if row is None:
            raise LeaseLost(f"The run of job {lease.job_id} no longer counts: nothing was written.")
        return row

    # -- searching -------------------------------------------------------------------------------

    def search(
        self,
        words: str | None = None,
        *,
        source: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> tuple[list[FoundDocument], int]:
        """The documents with these words, the best first, and how many there are; without words
        all, those that changed last first, and the snippet is how the text begins. "Words in
        quotes" stand side by side, `or` means either, a minus before a word means without it."""
        params = {"source": source, "limit": limit, "offset": offset}
        if words is None:
            rows, total = self._page("newest_documents", "count_documents", params)
        else:
            params |= {"words": plain_words(words), "begin": _BEGIN, "end": _END}
            rows, total = self._page("search_documents", "count_found", params)
        return [_from_row(FoundDocument, (*row[:-1], marked(row[-1]))) for row in rows], total

    def get(self, document_id: UUID) -> WholeDocument:
        """A document and its text, gone or not; raises `NotFound`."""
        row = self._database.row("document", {"id": document_id})
        if row is None:
            raise NotFound("document", document_id)
        return _from_row(WholeDocument, row)

    def delete(self, document_id: UUID) -> None:
        """Remove a document; raises `NotFound`. A crawl that finds its page adds it again."""
        if not self._database.rows("delete_document", {"id": document_id}):
            raise NotFound("document", document_id)
        AuditLog(self._database).add("document.delete", ids=[document_id])

    # -- sources ---------------------------------------------------------------------------------

    def source(self, source_id: str) -> SourceDocument | None:
        """What is known of a source."""
        row = self._database.row("source", {"id": source_id})
        return None if row is None else _from_row(SourceDocument, row)

    def sources(self, *, limit: int = 100, offset: int = 0) -> tuple[list[SourceDocument], int]:
        """The sources, those not crawled for longest first, and how many there are."""
        rows, total = self._page("sources", "count_sources", {"limit": limit, "offset": offset})
        return [_from_row(SourceDocument, row) for row in rows], total

    def stale(self, age: timedelta, *, now: datetime | None = None) -> list[Row]:
        """Sources not crawled with success for `age` that no live job is for, the oldest first:
        their ids, and the payloads and queues of their last crawls. Those queued within a day are
        left out."""
        params = {"age": age, "pause": timedelta(days=1), "limit": 100, "now": now}
        return self._database.rows("stale_sources", params)

    def queued(
        self, source_id: str, connection: Connection | None = None, *, now: datetime | None = None
    ) -> None:
        """Note that a stale source was queued."""
        self._database.rows("source_queued", {"id": source_id, "now": now}, connection)

    def _page(self, statement: str, count: str, params: Mapping[str, Any]) -> tuple[list[Row], int]:
        """The rows of a page, and how many there are on all pages."""
        return self._database.rows(statement, params), self._database.rows(count, params)[0][0]


def _from_row(model: type[_Model], row: Row) -> _Model:
    """The columns of a row are the fields of its model, in this order."""
    return model(**dict(zip(model.model_fields, row, strict=True)))


def marked(snippet: str) -> str:
    """A snippet as HTML. It is escaped before the marks are set: the text is a stranger's."""
    safe = html.escape(snippet)
    return safe.replace(_BEGIN, "<mark>").replace(_END, "</mark>")
