"""The API reference, drawn from the OpenAPI document: no script of others, no request elsewhere."""

from fastapi import Request, Response

from evenbeat.api.dependencies import Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.openapi import Reference
from evenbeat.errors import NotFound

router = pages.router()


@router.get("/docs", name="docs")
def docs(request: Request, _viewer: Viewer) -> Response:
    """Every operation in a line."""
    return pages.render(request, "docs.html", reference=_reference(request))


@router.get("/docs/{slug}", name="docs_group")
def docs_group(request: Request, slug: str, _viewer: Viewer) -> Response:
    """One group in full, with the documents that it speaks of."""
    reference = _reference(request)
    group = reference.group(slug)
    if group is None:
        raise NotFound("page of the reference", slug[:60])
    return pages.render(
        request,
        "docs_group.html",
        reference=reference,
        group=group,
        schemas=reference.schemas_of(group),
    )


def _reference(request: Request) -> Reference:
    return Reference(request.app.openapi(), pages.base_of(request))
