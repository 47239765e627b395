"""Screen 7, settings: health, tokens, the current settings, and which version this is."""

import platform
from typing import NamedTuple

from fastapi import Request, Response
from pydantic import SecretStr

from evenbeat.api.auth.sessions import view_of
from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import Admin, Service, ServiceDep, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.forms import Form, FormDep, QueryDep, id_of
from evenbeat.dashboard.pages import Notice
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


class CurrentSetting(NamedTuple):
    """A setting as this process has it."""

    name: str
    variable: str
    value: str
    is_default: bool
    description: str


@router.get("/settings", name="settings")
def settings(request: Request, _viewer: Viewer, service: ServiceDep, query: QueryDep) -> Response:
    """Everything that is set, and whether it works."""
    return _page(request, service, query)


@router.post("/settings/tokens", name="new_token")
def new_token(request: Request, admin: Admin, service: ServiceDep, form: FormDep) -> Response:
    """Create a token. The response shows it, once; it is in no cookie and in no address."""
    try:
        role, lifetime = _role(form.text("role")), parse_duration(form.text("expires"))
        subject = form.text("subject") or admin.subject
        issued = service.access.issue(role, lifetime, subject=subject, by=admin.subject)
    except InvalidInput as error:
        return _page(request, service, Form([]), form, str(error))
    except CannotIssue as error:
        return pages.back(request, _tokens(request), Notice(str(error), "refused"))
    return pages.render(request, "token.html", now=pages.now_of(request), issued=issued)


@router.get("/settings/tokens/{token_id}/revoke", name="ask_to_revoke")
def ask_to_revoke(request: Request, token_id: str, admin: Admin) -> Response:
    """Ask first: this cannot be undone."""
    token = id_of(token_id, "token")
    is_own = admin.token_id == str(token)
    return pages.render(request, "revoke.html", token_id=token, is_own=is_own)


@router.post("/settings/tokens/{token_id}/revoke", name="revoke_token_page")
def revoke(request: Request, token_id: str, _admin: Admin, service: ServiceDep) -> Response:
    """End a token."""
    service.access.revoke(id_of(token_id, "token"))
    text = "The token is revoked: here immediately, in other processes within a few seconds."
    return pages.back(request, _tokens(request), Notice(text))


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        text = f"A role is one of {', '.join(Role)}, not {text[:20]!r}."
        raise InvalidInput(text, field="role") from None


def _tokens(request: Request) -> str:
    return pages.url(request, "settings") + "#tokens"


def _page(
    request: Request, service: Service, query: Form, form: Form | None = None, problem: str = ""
) -> Response:
    principal, access = pages.principal_of(request), service.access
    database = service.app.store.database
    findings = doctor.check(database.url, schema=database.schema, now=service.now)
    listed, number = "all" if query.text("tokens") == "all" else "active", pages.page_number(query)
    tokens, page = [], None
    if principal is not None and principal.role.covers(Role.ADMIN):
        active, offset = listed == "active", (number - 1) * PAGE_SIZE
        tokens = access.tokens(active=active, limit=PAGE_SIZE, offset=offset)

        def address(number: int) -> str:
            fields = {"tokens": listed, "page": number}
            return pages.url(request, "settings", query=fields) + "#tokens"

        total = access.count_tokens(active=active)
        page = pages.pager(number, PAGE_SIZE, len(tokens), total, address)
    return pages.render(
        request,
        "settings.html",
        status=422 if problem else 200,
        now=pages.now_of(request),
        worst=doctor.worst(findings),
        problems=[finding for finding in findings if finding.severity != "ok"],
        fine=[finding for finding in findings if finding.severity == "ok"],
        tokens=[view_of(token) for token in tokens],
        page=page,
        listed=listed,
        can_issue=access.can_issue,
        form=form or Form([("role", "viewer"), ("expires", "30d")]),
        problem=problem,
        roles=_ROLES,
        lifetimes=_LIFETIMES,
        current=current_settings(service.app.settings),
        retention=service.app.settings,
        python=platform.python_version(),
        own_token=principal.token_id if principal else None,
    )


def current_settings(settings: Settings) -> list[CurrentSetting]:
    """Every setting, those of retention first; of secrets, only whether they are set."""
    rows = []
    for name in (*_FIRST, *(name for name in Settings.model_fields if name not in _FIRST)):
        field, value = Settings.model_fields[name], getattr(settings, name)
        match value:
            case None:
                text = "not set"
            case SecretStr():
                text = "set, not shown"
            case bool():
                text = "yes" if value else "no"
            case tuple():
                text = ", ".join(map(str, value)) or "none"
            case int():
                text = f"{value:,}"
            case float():
                text = f"{value:g}"
            case _:
                text = str(value)
        default = field.get_default(call_default_factory=True, validated_data={})
        shown, description = setting_name(name), field.description or ""
        variable = PREFIX + shown.upper()
        rows.append(CurrentSetting(shown, variable, text, value == default, description))
    return rows
