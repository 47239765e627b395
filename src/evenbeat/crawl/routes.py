"""Crawled pages over HTTP: search them, look at one, remove one; the sources they come from; and
the dashboard's screen of them."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import AfterValidator, Field

from evenbeat.api.dependencies import Admin, ServiceDep, Viewer
from evenbeat.api.fields import MAX_SOURCE, Limit, Page, PageQuery, check_text
from evenbeat.crawl.documents import Documents, FoundDocument, SourceDocument, WholeDocument
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import PageDep

router = APIRouter(prefix="/api/v1", tags=["documents"])
screen = pages.router()

MAX_WORDS = 500
MAX_HITS = 100
"""Documents in one response: each costs the database a snippet, which takes a while for a long
text."""
ON_A_PAGE = 20
_MOST_SOURCES = 100


class DocumentQuery(PageQuery):
    """The query of a search."""

    q: Annotated[str, Field(max_length=MAX_WORDS), AfterValidator(check_text)] = Field(
        "", description='Words; "in quotes" side by side, `or` for either, a minus for without.'
    )
    source_id: Annotated[str, Field(max_length=MAX_SOURCE), AfterValidator(check_text)] | None = (
        Field(None, description="Only of this source.")
    )
    limit: int = Field(20, ge=1, le=MAX_HITS, description="How many at most.")


class SourceQuery(PageQuery):
    """The query of the list of sources."""

    limit: Limit = 100


class DocumentList(Page):
    """A page of crawled pages."""

    documents: list[FoundDocument]


class SourceList(Page):
    """A page of sources."""

    sources: list[SourceDocument]


@router.get("/documents", operation_id="search_documents", summary="Search crawled pages")
def search_documents(
    query: Annotated[DocumentQuery, Query()], service: ServiceDep, _principal: Viewer
) -> DocumentList:
    """The best first, with the matching words highlighted; without `q`, what changed last first."""
    hits, total = Documents(service.app.store.database).search(
        query.q.strip() or None, source=query.source_id, limit=query.limit, offset=query.offset
    )
    return DocumentList(documents=hits, total=total, **query.paging)


@router.get(
    "/documents/{document_id}", operation_id="get_document", summary="Look at a crawled page"
)
def get_document(document_id: UUID, service: ServiceDep, _principal: Viewer) -> WholeDocument:
    """Its text as it was last seen, even if it is gone by now."""
    return Documents(service.app.store.database).get(document_id)


@router.delete(
    "/documents/{document_id}",
    operation_id="delete_document",
    summary="Remove a crawled page",
    status_code=204,
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
    sources, total = documents.sources(limit=query.limit, offset=query.offset)
    return SourceList(sources=sources, total=total, **query.paging)


@screen.get("/documents", name="documents")
def documents_screen(page: PageDep, _viewer: Viewer) -> Response:
    """The search, and its results."""
    filters = {name: page.query.text(name) for name in ("q", "source")}
    words, source = filters["q"].strip()[:MAX_WORDS], filters["source"] or None
    offset = (page.number() - 1) * ON_A_PAGE
    store = Documents(page.store.database)
    hits, total = store.search(words or None, source=source, limit=ON_A_PAGE, offset=offset)
    sources, _ = store.sources(limit=_MOST_SOURCES)

    def address(number: int) -> str:
        present = {name: value for name, value in filters.items() if value}
        return page.url("documents", query=present | {"page": str(number)})

    return page.render(
        "documents.html",
        words=words,
        source=source,
        sources=sources,
        hits=hits,
        page=page.pager(address, ON_A_PAGE, len(hits), total),
    )
