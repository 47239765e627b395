"""Screen 7, settings: health, tokens, the current settings, and which version this is."""

import platform
from typing import Any

from fastapi import Response

from evenbeat.api.auth.sessions import view_of
from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import Admin, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import Form, FormDep, Notice, PageDep, PageRequest, id_of
from evenbeat.domain.duration import parse_duration
from evenbeat.errors import CannotIssue, InvalidInput
from evenbeat.observe import doctor
from evenbeat.settings import PREFIX, Settings, setting_name

router = pages.router()

PAGE_SIZE = 20
_ROLES = {
    Role.VIEWER: "read only",
    Role.OPERATOR: "reads and changes jobs, queues and schedules",
    Role.ADMIN: "everything, including tokens",
}
_LIFETIMES = {
    "1d": "in a day",
    "7d": "in a week",
    "30d": "in 30 days",
    "90d": "in 90 days",
    "365d": "in a year",
}
_FIRST = ("retention_days", "retention_executions")


@router.get("/settings", name="settings")
def settings(page: PageDep, _viewer: Viewer) -> Response:
    return _page(page, Form([("role", "viewer"), ("expires", "30d")]))


@router.post("/settings/tokens", name="new_token")
def new_token(page: PageDep, admin: Admin, form: FormDep) -> Response:
    """Create a token. The response shows it, once; it is in no cookie and in no address."""
    role, subject = form.text("role"), form.text("subject") or admin.subject
    if role not in tuple(Role):
        return _page(page, form, f"A role is one of {', '.join(Role)}, not {role[:20]!r}.")
    try:
        lifetime, issue = parse_duration(form.text("expires")), page.service.access.issue
        issued = issue(Role(role), lifetime, subject=subject, by=admin.subject)
    except InvalidInput as error:
        return _page(page, form, str(error))
    except CannotIssue as error:
        return page.back(_tokens(page), Notice(str(error), "refused"))
    return page.render("token.html", issued=issued)


@router.get("/settings/tokens/{token_id}/revoke", name="ask_to_revoke")
def ask_to_revoke(page: PageDep, token_id: str, admin: Admin) -> Response:
    """Ask first: this cannot be undone."""
    token = id_of(token_id, "token")
    return page.render("revoke.html", token_id=token, is_own=admin.token_id == str(token))


@router.post("/settings/tokens/{token_id}/revoke", name="revoke_token_page")
def revoke(page: PageDep, token_id: str, _admin: Admin) -> Response:
    page.service.access.revoke(id_of(token_id, "token"))
    text = "The token is revoked: here immediately, in other processes within a few seconds."
    return page.back(_tokens(page), Notice(text))


def _tokens(page: PageRequest, query: dict[str, Any] | None = None) -> str:
    return page.url("settings", query=query) + "#tokens"


def _page(page: PageRequest, form: Form, problem: str = "") -> Response:
    access, database = page.service.access, page.store.database
    findings = doctor.check(database.url, schema=database.schema, now=page.service.now)
    listed = "all" if page.query.text("tokens") == "all" else "active"
    tokens, pager = [], None
    if page.may(Role.ADMIN):
        active, offset = listed == "active", (page.number() - 1) * PAGE_SIZE
        tokens = access.tokens(active=active, limit=PAGE_SIZE, offset=offset)
        pager = page.pager(
            lambda number: _tokens(page, {"tokens": listed, "page": number}),
            PAGE_SIZE,
            len(tokens),
            access.count_tokens(active=active),
        )
    return page.render(
        "settings.html",
        status=422 if problem else 200,
        worst=doctor.worst(findings),
        problems=[finding for finding in findings if finding.severity != "ok"],
        fine=[finding for finding in findings if finding.severity == "ok"],
        tokens=[view_of(token) for token in tokens],
        page=pager,
        listed=listed,
        can_issue=access.can_issue,
        form=form,
        problem=problem,
        roles=_ROLES,
        lifetimes=_LIFETIMES,
        current=page.service.app.settings,
        fields=sorted(Settings.model_fields.items(), key=lambda item: item[0] not in _FIRST),
        setting_name=setting_name,
        prefix=PREFIX,
        python=platform.python_version(),
        own_token=page.principal.token_id if page.principal else None,
    )
