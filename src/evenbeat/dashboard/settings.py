"""Screen 7, settings: health, tokens, what is in force, and which copy this is."""

import platform
from typing import NamedTuple

from fastapi import Request, Response
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from evenbeat.api.auth.sessions import TokenView, view_of
from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import Admin, Service, ServiceDep, Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.forms import Form, FormDep, QueryDep, id_of
from evenbeat.dashboard.notices import Notice
from evenbeat.domain.duration import parse_duration
from evenbeat.errors import CannotIssue, InvalidInput
from evenbeat.observe import doctor
from evenbeat.settings import PREFIX, Settings, setting_name

router = pages.router()

TOKENS = 20
_ROLES = {
    Role.VIEWER: "looks",
    Role.OPERATOR: "looks and changes jobs, queues and the schedule",
    Role.ADMIN: "does everything, tokens included",
}
_LIVES = {"1d": "a day", "7d": "a week", "30d": "30 days", "90d": "90 days", "365d": "a year"}
_FIRST = ("retention_days", "retention_executions")


class InForce(NamedTuple):
    """A setting as this process has it."""

    name: str
    variable: str
    value: str
    is_default: bool
    description: str


class TokenPage(NamedTuple):
    """Some tokens, and the numbers of the pages beside them."""

    tokens: list[TokenView]
    total: int
    before: int
    after: int


@router.get("/settings", name="settings")
def settings(request: Request, _viewer: Viewer, service: ServiceDep, query: QueryDep) -> Response:
    """Everything that is set, and whether it works."""
    return _page(request, service, query)


# -- tokens ----------------------------------------------------------------------------------------


@router.post("/settings/tokens", name="new_token")
def new_token(request: Request, admin: Admin, service: ServiceDep, form: FormDep) -> Response:
    """Make a token. The answer shows it, once; it is in no cookie and in no address."""
    try:
        role, lives = _role(form.text("role")), parse_duration(form.text("expires"))
        issued = service.access.issue(
            role, lives, subject=form.text("subject") or admin.subject, by=admin.subject
        )
    except InvalidInput as error:
        return _page(request, service, Form([]), form, str(error))
    except CannotIssue as error:
        return pages.back(request, _home(request), Notice(str(error), "refused"))
    return pages.render(request, "token.html", now=pages.now_of(request), issued=issued)


@router.get("/settings/tokens/{token_id}/revoke", name="ask_to_revoke")
def ask_to_revoke(request: Request, token_id: str, admin: Admin) -> Response:
    """Ask first: nothing brings a token back."""
    wanted = id_of(token_id, "token")
    own = admin.token_id == str(wanted)
    return pages.render(request, "revoke.html", token_id=wanted, is_own=own)


@router.post("/settings/tokens/{token_id}/revoke", name="revoke_token_page")
def revoke(request: Request, token_id: str, _admin: Admin, service: ServiceDep) -> Response:
    """End a token."""
    service.access.revoke(id_of(token_id, "token"))
    text = "The token is revoked: here at once, elsewhere within a few seconds."
    return pages.back(request, _home(request), Notice(text))


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise InvalidInput(
            f"A role is one of {', '.join(Role)}, not {text[:20]!r}.", field="role"
        ) from None


def _home(request: Request) -> str:
    return pages.url(request, "settings") + "#tokens"


# -- the page --------------------------------------------------------------------------------------


def _page(
    request: Request, service: Service, query: Form, form: Form | None = None, problem: str = ""
) -> Response:
    principal = pages.principal_of(request)
    may = principal is not None and principal.role.covers(Role.ADMIN)
    found = _examined(service)
    return pages.render(
        request,
        "settings.html",
        status=422 if problem else 200,
        now=pages.now_of(request),
        worst=doctor.worst(found),
        troubles=[one for one in found if one.severity != "ok"],
        fine=[one for one in found if one.severity == "ok"],
        page=_tokens(service, query) if may else None,
        listed="all" if query.text("tokens") == "all" else "active",
        can_issue=service.access.can_issue,
        form=form or Form([("role", "viewer"), ("expires", "30d")]),
        problem=problem,
        roles=_ROLES,
        lives=_LIVES,
        in_force=in_force(service.app.settings),
        retention=service.app.settings,
        python=platform.python_version(),
        own_token=principal.token_id if principal else None,
        expires_at=principal.expires_at if principal else None,
    )


def _examined(service: Service) -> list[doctor.Finding]:
    database = service.app.store.database
    return doctor.check(database.url, schema=database.schema, now=service.now)


def _tokens(service: Service, query: Form) -> TokenPage:
    text = query.text("page") or "1"
    number = int(text) if text.isdecimal() and len(text) < 7 and int(text) else 1
    active, offset = query.text("tokens") != "all", (number - 1) * TOKENS
    found = service.access.tokens(active=active, limit=TOKENS, offset=offset)
    total = service.access.count_tokens(active=active)
    more = offset + len(found) < total
    return TokenPage([view_of(t) for t in found], total, number - 1, number + 1 if more else 0)


def in_force(current: Settings) -> list[InForce]:
    """Every setting as it is, those of retention first; of secrets, only whether they are set."""
    fields = Settings.model_fields
    order = sorted(fields, key=lambda name: (name not in _FIRST, list(fields).index(name)))
    return [_in_force(name, fields[name], getattr(current, name)) for name in order]


def _in_force(name: str, field: FieldInfo, value: object) -> InForce:
    default = field.get_default(call_default_factory=True, validated_data={})
    called = setting_name(name)
    return InForce(
        called, PREFIX + called.upper(), _shown(value), value == default, field.description or ""
    )


def _shown(value: object) -> str:
    match value:
        case None:
            return "not set"
        case SecretStr():
            return "set, not shown"
        case bool():
            return "yes" if value else "no"
        case tuple():
            return ", ".join(map(str, value)) or "none"
        case int() | float():
            return f"{value:,}" if isinstance(value, int) else f"{value:g}"
        case _:
            return str(value)
