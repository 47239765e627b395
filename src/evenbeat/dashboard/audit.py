"""Screen 11, the audit log: who changed what."""

import json
from typing import Any

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from evenbeat.api.audit import KINDS, AuditFields
from evenbeat.api.dependencies import Admin
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import PageDep
from evenbeat.store.audit import AuditEntry

router = pages.router()

PAGE_SIZE = 50
_FILTERS = ("search", "action", "actor", "object_id")


@router.get("/audit", name="audit")
def audit(page: PageDep, _admin: Admin) -> Response:
    """The newest changes, or those that the address asks for."""
    query = {name: page.query.text(name) for name in _FILTERS}
    present = {name: value for name, value in query.items() if value}
    try:
        conditions = AuditFields.model_validate(present).conditions()
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None
    offset = (page.number() - 1) * PAGE_SIZE
    entries, total = page.store.audit.page(**conditions, limit=PAGE_SIZE, offset=offset)

    def address(number: int) -> str:
        values: dict[str, Any] = present | {"page": str(number)}
        return page.url("audit", query=values)

    return page.render(
        "audit.html",
        entries=entries,
        query=query,
        narrowed=bool(present),
        kinds=KINDS,
        changes=_changes,
        page=page.pager(address, PAGE_SIZE, len(entries), total),
    )


def _changes(entry: AuditEntry) -> list[tuple[str, str | None, str | None]]:
    """What is different: its name, and its text before and after."""
    before, after = entry.before or {}, entry.after or {}
    return [(name, _text(before, name), _text(after, name)) for name in before | after]


def _text(values: dict[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
