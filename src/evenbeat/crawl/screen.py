"""Screen 9, documents: what crawls have fetched, searched by words."""

from typing import NamedTuple

from fastapi import Request, Response
from markupsafe import Markup

from evenbeat.api.dependencies import ServiceDep, Viewer
from evenbeat.crawl.documents import Document, Documents, Found
from evenbeat.crawl.routes import MAX_WORDS, marked
from evenbeat.dashboard import pages

router = pages.router()

ON_A_PAGE = 20
_MOST_PAGES = 500
_MOST_SOURCES = 100


class Hit(NamedTuple):
    """A found page, and its snippet as safe HTML."""

    document: Document
    snippet: Markup


class Where(NamedTuple):
    """Which part of the list this is, and where the others are."""

    first: int
    last: int
    total: int
    about: bool
    before: str
    after: str


@router.get("/documents", name="documents")
def documents(request: Request, _viewer: Viewer, service: ServiceDep) -> Response:
    """The search, and what it finds."""
    words = request.query_params.get("q", "").replace("\0", "").strip()[:MAX_WORDS]
    source = request.query_params.get("source", "").replace("\0", "") or None
    offset = (_page_of(request) - 1) * ON_A_PAGE
    kept = Documents(service.app.store.database)
    page = (
        kept.search(words, source=source, limit=ON_A_PAGE, offset=offset)
        if words
        else kept.newest(source=source, limit=ON_A_PAGE, offset=offset)
    )
    sources, _ = kept.sources(limit=_MOST_SOURCES)
    return pages.render(
        request,
        "documents.html",
        now=pages.now_of(request),
        words=words,
        source=source,
        sources=sources,
        hits=[_hit(found) for found in page.found],
        page=_where(request, offset, len(page.found), page.total),
    )


def _hit(found: Found) -> Hit:
    # `marked` escapes the stranger's text before it sets its marks.
    return Hit(found.document, Markup(marked(found.snippet)))  # noqa: S704


def _page_of(request: Request) -> int:
    given = request.query_params.get("page", "1")
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 9 else 1
    return min(max(number, 1), _MOST_PAGES)


def _where(request: Request, offset: int, shown: int, total: int) -> Where:
    number = offset // ON_A_PAGE + 1

    def to(page: int) -> str:
        query = {k: v for k, v in request.query_params.items() if k in ("q", "source") and v}
        return pages.url(request, "documents", query=query | {"page": str(page)})

    more = offset + shown < total and number < _MOST_PAGES
    return Where(
        offset + 1,
        offset + shown,
        total,
        about=False,
        before=to(number - 1) if number > 1 else "",
        after=to(number + 1) if more else "",
    )
