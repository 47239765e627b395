"""The few files that browsers cache: style sheet, script and icon, each versioned by its content.

They are read once and served from memory by name, so no request can name any other file.
"""

import hashlib
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from evenbeat.errors import NotFound

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOREVER = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@router.get("/static/{name}", name="asset")
def asset(request: Request, name: str) -> Response:
    """One file. Under its current version it may be cached forever, otherwise not at all."""
    if name not in _files():
        raise NotFound("file", name)
    content, version = _files()[name]
    current = request.query_params.get("v") == version
    headers = {"Cache-Control": _FOREVER if current else "no-cache"}
    media_type = _TYPES[Path(name).suffix] + "; charset=utf-8"
    return Response(content, headers=headers, media_type=media_type)


def version_of(name: str) -> str:
    """The part of a file's address that changes with its content."""
    return _files()[name][1]


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    contents = {p.name: p.read_bytes() for p in _FOLDER.iterdir() if p.suffix in _TYPES}
    return {name: (data, hashlib.sha256(data).hexdigest()[:12]) for name, data in contents.items()}
