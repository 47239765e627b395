"""Which methods a place knows: for the `Allow` header of a 405."""

import re
from functools import lru_cache
from typing import Any

from fastapi import FastAPI, Request

_METHODS = frozenset({"get", "put", "post", "delete", "patch", "head", "options"})


def methods_at(request: Request) -> str | None:
    """The documented methods of the request's place, None for a place that is not documented. A
    route alone knows only its own method, and several share a path."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    found = [
        methods for pattern, methods in _places(request.app) if pattern.fullmatch(path) is not None
    ]
    # The most literal place comes first: /jobs/bulk before /jobs/{job_id}.
    return found[0] if found else None


@lru_cache(maxsize=8)
def _places(api: FastAPI) -> list[tuple[re.Pattern[str], str]]:
    paths: dict[str, dict[str, Any]] = api.openapi()["paths"]
    return [
        (_pattern(path), ", ".join(sorted(m.upper() for m in item if m in _METHODS)))
        for path, item in sorted(paths.items(), key=lambda entry: entry[0].count("{"))
    ]


def _pattern(path: str) -> re.Pattern[str]:
    literal = [re.escape(part) for part in re.split(r"{\w+}", path)]
    return re.compile("[^/]+".join(literal))
