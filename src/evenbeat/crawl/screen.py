"""The dashboard's screen of documents: what crawls have fetched, searched by words."""

from fastapi import Request, Response
from markupsafe import Markup

from evenbeat.api.dependencies import ServiceDep, Viewer
from evenbeat.crawl.documents import Documents
from evenbeat.crawl.routes import MAX_WORDS, marked
from evenbeat.dashboard import pages

router = pages.router()

ON_A_PAGE = 20
_MOST_PAGES = 500
_MOST_SOURCES = 100


@router.get("/documents", name="documents")
def documents(request: Request, _viewer: Viewer, service: ServiceDep) -> Response:
    """The search, and its results."""
    query = {name: request.query_params.get(name, "").replace("\0", "") for name in ("q", "source")}
    words, source = query["q"].strip()[:MAX_WORDS], query["source"] or None
    text = request.query_params.get("page", "1")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1
    number = min(max(number, 1), _MOST_PAGES)
    offset = (number - 1) * ON_A_PAGE
    store = Documents(service.app.store.database)
    hits, total = store.search(words or None, source=source, limit=ON_A_PAGE, offset=offset)
    sources, _ = store.sources(limit=_MOST_SOURCES)
    last = offset + len(hits)

    def page_url(page: int) -> str:
        filters = {name: value for name, value in query.items() if value}
        return pages.url(request, "documents", query=filters | {"page": str(page)})

    return pages.render(
        request,
        "documents.html",
        now=pages.now_of(request),
        words=words,
        source=source,
        sources=sources,
        # `marked` escapes the stranger's text before it sets its marks.
        hits=[(hit.document, Markup(marked(hit.snippet))) for hit in hits],  # noqa: S704
        page={
            "first": offset + 1,
            "last": last,
            "total": total,
            "about": False,
            "before": page_url(number - 1) if number > 1 else "",
            "after": page_url(number + 1) if last < total and number < _MOST_PAGES else "",
        },
    )
