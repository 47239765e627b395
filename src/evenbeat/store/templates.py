"""Templates of jobs, as they are kept."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from evenbeat.errors import Conflict, NotFound
from evenbeat.store.database import Database
from evenbeat.store.filters import containing
from evenbeat.store.rows import MAX_JSON_BYTES, encode_json


class Template(NamedTuple):
    """A template as it is kept; `version` grows with every change."""

    name: str
    description: str | None
    parameters: dict[str, dict[str, Any]]
    body: dict[str, Any]
    version: int
    created_at: datetime
    updated_at: datetime
    created_by: str | None


class NewTemplate(NamedTuple):
    """A template to keep; its rules were checked by then."""

    name: str
    parameters: Mapping[str, Mapping[str, Any]]
    body: Mapping[str, Any]
    description: str | None = None
    created_by: str | None = None


class Templates:
    """The kept templates, by name."""

    def __init__(self, database: Database, *, max_json_bytes: int = MAX_JSON_BYTES) -> None:
        self._database = database
        self._max_json_bytes = max_json_bytes

    def page(
        self, *, search: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[list[Template], int]:
        """Some templates by name, and how many there are in all."""
        params = {
            "search": containing(search) if search else None,
            "limit": limit,
            "offset": offset,
        }
        rows = self._database.rows("templates", params)
        total: int = self._database.rows("count_templates", params)[0][0]
        return [Template._make(row) for row in rows], total

    def get(self, name: str) -> Template:
        """The template of this name, or `NotFound`."""
        row = self._database.row("template", {"name": name})
        if row is None:
            raise NotFound("template", name)
        return Template._make(row)

    def add(self, template: NewTemplate, *, now: datetime | None = None) -> Template:
        """Keep a new one, or `Conflict` when the name is taken."""
        row = self._database.row("add_template", self._params(template, now))
        if row is None:
            raise Conflict(
                f"A template named {template.name!r} exists already. Change that one (PUT), or "
                "choose another name."
            )
        return Template._make(row)

    def save(self, template: NewTemplate, *, now: datetime | None = None) -> Template:
        """Keep one, in place of the one of that name."""
        return Template._make(self._database.rows("save_template", self._params(template, now))[0])

    def delete(self, name: str) -> None:
        """Remove one, or `NotFound`; jobs made from it stay."""
        if self._database.row("delete_template", {"name": name}) is None:
            raise NotFound("template", name)

    def _params(self, template: NewTemplate, now: datetime | None) -> dict[str, Any]:
        limit = self._max_json_bytes
        return template._asdict() | {
            "parameters": encode_json("parameters", template.parameters, limit),
            "body": encode_json("body", template.body, limit),
            "now": now,
        }
