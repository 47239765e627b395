"""Reading JSON and YAML lists of job documents, as `evenbeat export` writes them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenbeat.errors import InvalidInput
from evenbeat.importers.files import as_json, line_of, parsed, rows_of
from evenbeat.importers.source import Document, Found, Source

_EXAMPLE = (
    '[{"name": "report", "task": "send_report", "schedule": "0 9 * * mon-fri"}, '
    '{"task": "sync", "schedule": "@every 30m"}]'
)


def read_listing(path: Path, kind: str) -> Source:
    """The jobs of a file. A name or a dedup_key that occurs twice is refused: it means one job."""
    content = parsed(path, kind)
    source = Source(templates=_templates(content, path))
    rows = rows_of({"jobs": [], **content} if source.templates else content, path, _EXAMPLE)
    if not rows and not source.templates:
        raise InvalidInput(f"{path} holds no jobs, such as {_EXAMPLE}.", field="jobs")
    seen: dict[object, str] = {}
    for number, row in enumerate(rows, start=1):
        where = f"job {number}{line_of(row)}"
        try:
            document = _document(row)
            _note_keys(document, where, seen)
        except InvalidInput as error:
            raise InvalidInput(f"{path}, {where}: {error}", field="jobs") from error
        source.found.append(Found(where, _label(document), document))
    return source


def _templates(content: Any, path: Path) -> list[Document]:
    rows = content.get("templates") if isinstance(content, Mapping) else None
    if rows is None:
        return []
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidInput(f"{path}: templates are a list of sets of fields.", field="templates")
    templates: list[Document] = [as_json(row) for row in rows]
    for number, template in enumerate(templates, start=1):
        if not isinstance(template.get("name"), str):
            where = f"template {number}{line_of(rows[number - 1])}"
            raise InvalidInput(f"{path}, {where} has no name.", field="templates")
    return templates


def _note_keys(document: Document, where: str, seen: dict[object, str]) -> None:
    for key in _keys(document):
        if key in seen:
            raise InvalidInput(f"{key[0]} {key[-1]!r} was given to {seen[key]} already.")
        seen[key] = where


def _document(row: object) -> Document:
    if not isinstance(row, Mapping):
        raise InvalidInput(f"a job is a set of fields, not {type(row).__name__}.")
    document: Document = as_json(row)
    return document


def _keys(document: Document) -> list[tuple[Any, ...]]:
    scope = document.get("scope")
    scope = scope if isinstance(scope, dict) else {}
    kind, id_ = str(scope.get("kind", "global")), str(scope.get("id", "global"))
    name, dedup_key = document.get("name"), document.get("dedup_key")
    keys: list[tuple[Any, ...]] = [("name", kind, id_, name)] if isinstance(name, str) else []
    return [*keys, ("dedup_key", dedup_key)] if isinstance(dedup_key, str) else keys


def _label(document: Document) -> str:
    return str(document.get("name") or document.get("task") or document.get("url") or "")
