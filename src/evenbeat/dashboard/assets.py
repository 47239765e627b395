"""The few files that browsers keep: style sheet, script and icon, each named by its content.

They are read once and served from memory by name, so no request can name any other file.
"""

import hashlib
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from evenbeat.errors import NotFound

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@router.get("/static/{name}", name="asset")
def asset(request: Request, name: str) -> Response:
    """One file. Asked for by its present version it may be kept for ever, otherwise not at all."""
    content, version = _load(name)
    current = request.query_params.get("v") == version
    headers = {"Cache-Control": _FOR_EVER if current else "no-cache"}
    media_type = _TYPES[Path(name).suffix] + "; charset=utf-8"
    return Response(content, headers=headers, media_type=media_type)


def version_of(name: str) -> str:
    """What changes in the address of a file when its content does."""
    return _load(name)[1]


def _load(name: str) -> tuple[bytes, str]:
    found = _all().get(name)
    if found is None:
        raise NotFound("file", name)
    return found


@cache
def _all() -> dict[str, tuple[bytes, str]]:
    files = (path for path in _FOLDER.iterdir() if path.suffix in _TYPES)
    read = ((path.name, path.read_bytes()) for path in files)
    return {name: (content, hashlib.sha256(content).hexdigest()[:12]) for name, content in read}
