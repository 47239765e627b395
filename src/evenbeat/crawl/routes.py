"""Crawled pages over HTTP: search them, look at one, remove one; and the sources they come from."""

import html
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from evenbeat.api.dependencies import DENIED, Admin, ServiceDep, Viewer
from evenbeat.api.fields import MAX_SOURCE, Limit, Number, Offset, check_text
from evenbeat.api.problems import responses
from evenbeat.crawl.documents import BEGIN, END, Documents

router = APIRouter(prefix="/api/v1", tags=["documents"], responses=DENIED)

MAX_WORDS = 500
MAX_HITS = 100
"""Documents on a page: each costs the database a snippet, which takes a while for a long text."""


class DocumentQuery(BaseModel):
    """The query of a search."""

    model_config = ConfigDict(extra="forbid")

    q: Annotated[str, Field(max_length=MAX_WORDS), AfterValidator(check_text)] = Field(
        "", description='Words; "in quotes" side by side, `or` for either, a minus for without.'
    )
    source_id: Annotated[str, Field(max_length=MAX_SOURCE), AfterValidator(check_text)] | None = (
        Field(None, description="Only of this source.")
    )
    limit: int = Field(20, ge=1, le=MAX_HITS, description="How many at most.")
    offset: Offset = 0


class SourceQuery(BaseModel):
    """The query of the list of sources."""

    model_config = ConfigDict(extra="forbid")

    limit: Limit = 100
    offset: Offset = 0


class DocumentDocument(BaseModel):
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


class FoundDocument(DocumentDocument):
    """A crawled page that matches."""

    rank: Number | None = Field(description="How well it fits; null without words to look for.")
    snippet: str = Field(
        description="HTML: the text around the matching words, escaped, the words in <mark>. "
        "Without words, how the text begins."
    )


class WholeDocument(DocumentDocument):
    """A crawled page with its text."""

    text: str


class DocumentList(BaseModel):
    """A page of crawled pages."""

    documents: list[FoundDocument]
    total: int
    limit: int
    offset: int


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


class SourceList(BaseModel):
    """A page of sources."""

    sources: list[SourceDocument]
    total: int
    limit: int
    offset: int


@router.get("/documents", operation_id="search_documents", summary="Search crawled pages")
def search_documents(
    query: Annotated[DocumentQuery, Query()], service: ServiceDep, _principal: Viewer
) -> DocumentList:
    """The best first, with the matching words highlighted; without `q`, what changed last first."""
    hits, total = Documents(service.app.store.database).search(
        query.q.strip() or None, source=query.source_id, limit=query.limit, offset=query.offset
    )
    documents = [
        FoundDocument(**hit.document._asdict(), rank=hit.rank, snippet=marked(hit.snippet))
        for hit in hits
    ]
    return DocumentList(documents=documents, total=total, limit=query.limit, offset=query.offset)


@router.get(
    "/documents/{document_id}",
    operation_id="get_document",
    summary="Look at a crawled page",
    responses=responses(404),
)
def get_document(document_id: UUID, service: ServiceDep, _principal: Viewer) -> WholeDocument:
    """Its text as it was last seen, even if it is gone by now."""
    document, text = Documents(service.app.store.database).get(document_id)
    return WholeDocument(**document._asdict(), text=text)


@router.delete(
    "/documents/{document_id}",
    operation_id="delete_document",
    summary="Remove a crawled page",
    status_code=204,
    responses=responses(404),
)
def delete_document(document_id: UUID, service: ServiceDep, _principal: Admin) -> None:
    """Forget it. A later crawl that finds the page adds it again."""
    Documents(service.app.store.database).delete(document_id)


@router.get("/sources", operation_id="list_sources", summary="List crawled sources")
def list_sources(
    query: Annotated[SourceQuery, Query()], service: ServiceDep, _principal: Viewer
) -> SourceList:
    """When each was crawled, the one longest ago first."""
    documents = Documents(service.app.store.database)
    rows, total = documents.sources(limit=query.limit, offset=query.offset)
    sources = [SourceDocument(**source._asdict()) for source in rows]
    return SourceList(sources=sources, total=total, limit=query.limit, offset=query.offset)


def marked(snippet: str) -> str:
    """A snippet as HTML. It is escaped before the marks are set: the text is a stranger's."""
    safe = html.escape(snippet)
    return safe.replace(BEGIN, "<mark>").replace(END, "</mark>")
