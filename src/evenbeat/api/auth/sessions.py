"""Signing in and out, and the tokens of this service."""

from datetime import UTC, datetime, timedelta
from html import escape
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qs
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from evenbeat.api.auth.tokens import (
    EVERYONE,
    MAX_SUBJECT,
    SESSION,
    Access,
    Principal,
    Role,
    check_subject,
)
from evenbeat.api.dependencies import (
    COOKIE,
    DENIED,
    Admin,
    MaybePrincipal,
    Viewer,
    access_of,
    check_local,
    check_origin,
    denials_answered,
)
from evenbeat.api.fields import Duration, Limit, Offset
from evenbeat.api.problems import responses
from evenbeat.errors import InvalidInput, NotAuthenticated
from evenbeat.store.access import Token

_MOST_CHARACTERS = 3800
"""Browsers keep 4096 bytes, name and attributes included, and silently drop what is longer."""


def keep_signed_in(
    request: Request, response: Response, token: str, expires_at: datetime | None
) -> None:
    """Let the browser show this token from now on, for a session's length at most."""
    if len(token) > _MOST_CHARACTERS:
        raise InvalidInput(
            f"This token has {len(token)} characters; browsers keep {_MOST_CHARACTERS} in a cookie."
            " Use one with fewer claims.",
            field="token",
        )
    left = SESSION if expires_at is None else min(SESSION, expires_at - datetime.now(UTC))
    response.set_cookie(
        COOKIE,
        token,
        max_age=max(1, int(left.total_seconds())),
        path=cookie_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def forget(request: Request, response: Response) -> None:
    """Let the browser forget the sign-in."""
    response.delete_cookie(
        COOKIE,
        path=cookie_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def cookie_path(request: Request) -> str:
    """Where this service lies; another one beside it gets no cookie of ours."""
    return request.scope.get("root_path", "").rstrip("/") or "/"


router = APIRouter(tags=["Access"], responses=DENIED)

AccessDep = Annotated[Access, Depends(access_of)]
_Subject = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_SUBJECT), AfterValidator(check_subject)
]
_HIDDEN = WithJsonSchema({"type": "string", "format": "password", "writeOnly": True})


class SignIn(BaseModel):
    """One of both: a token, or the code of a login link."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"oneOf": [{"required": ["token"]}, {"required": ["code"]}]},
    )

    token: Annotated[SecretStr | None, _HIDDEN] = Field(default_factory=lambda: None)
    code: Annotated[SecretStr | None, _HIDDEN] = Field(default_factory=lambda: None)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.token is None) == (self.code is None):
            raise ValueError("give either token or code")
        return self


class Session(BaseModel):
    """Who is signed in."""

    subject: str
    role: Role
    expires_at: datetime | None
    open: bool = Field(description="Whether this service lets everyone in (--no-auth).")


class NewToken(BaseModel):
    """What a token is to be."""

    model_config = ConfigDict(extra="forbid")

    role: Role
    expires: Duration = Field(
        # A factory: the document would show a plain default in a form that is not read here.
        default_factory=lambda: timedelta(days=30),
        description="How long it lives: 1s to 3650d. Default: 30d.",
    )
    subject: _Subject | None = Field(None, description="Whom or what it is for. Default: you.")


class TokenView(BaseModel):
    """A token without the token."""

    id: UUID
    kind: Literal["token", "session"]
    subject: str
    role: Role
    status: Literal["active", "expired", "revoked"]
    created_at: datetime
    created_by: str
    expires_at: datetime
    revoked_at: datetime | None


class TokenList(BaseModel):
    """A page of tokens, newest first."""

    tokens: list[TokenView]
    total: int
    limit: int
    offset: int


class IssuedToken(BaseModel):
    """A new token: this answer is the only place where it can ever be seen."""

    token: str
    id: UUID
    subject: str
    role: Role
    expires_at: datetime


# -- the session ---------------------------------------------------------------------------------


@router.get("/api/v1/session", summary="Who am I?")
def show_session(principal: Viewer, access: AccessDep) -> Session:
    return _session(principal, access)


@router.post("/api/v1/session", summary="Sign in", responses=responses(409))
def sign_in(given: SignIn, request: Request, response: Response, access: AccessDep) -> Session:
    """Sets a cookie for browsers. A program needs no session: it sends its token."""
    with denials_answered():
        check_origin(request, browsers_only=True)
        return _session(_enter(request, response, access, given), access)


@router.delete("/api/v1/session", status_code=204, summary="Sign out")
def sign_out(principal: Viewer, request: Request, response: Response, access: AccessDep) -> None:
    """Forgets the cookie. A session made by a login link ends; a token goes on being valid."""
    access.end_session(principal)
    forget(request, response)


def _enter(request: Request, response: Response, access: Access, given: SignIn) -> Principal:
    if access.is_open:
        check_local(request)
        return EVERYONE
    if given.code is not None:
        issued = access.redeem(given.code.get_secret_value())
        keep_signed_in(request, response, issued.token, issued.expires_at)
        return Principal(issued.subject, issued.role, str(issued.id), issued.expires_at)
    token = given.token.get_secret_value().strip() if given.token else ""
    principal = access.authenticate(token)
    keep_signed_in(request, response, token, principal.expires_at)
    return principal


def _session(principal: Principal, access: Access) -> Session:
    return Session(
        subject=principal.subject,
        role=principal.role,
        expires_at=principal.expires_at,
        open=access.is_open,
    )


# -- tokens --------------------------------------------------------------------------------------


@router.get("/api/v1/tokens", summary="List tokens")
def list_tokens(
    _admin: Admin,
    access: AccessDep,
    active: Annotated[bool, Query(description="Only those that still count.")] = False,
    limit: Annotated[Limit, Query()] = 100,
    offset: Annotated[Offset, Query()] = 0,
) -> TokenList:
    found = access.tokens(active=active, limit=limit, offset=offset)
    total = access.count_tokens(active=active)
    shown = [view_of(token) for token in found]
    return TokenList(tokens=shown, total=total, limit=limit, offset=offset)


@router.post("/api/v1/tokens", status_code=201, summary="Create a token", responses=responses(409))
def create_token(wanted: NewToken, admin: Admin, access: AccessDep) -> IssuedToken:
    subject = wanted.subject or admin.subject
    issued = access.issue(wanted.role, wanted.expires, subject=subject, by=admin.subject)
    return IssuedToken(
        token=issued.token,
        id=issued.id,
        subject=issued.subject,
        role=issued.role,
        expires_at=issued.expires_at,
    )


@router.delete(
    "/api/v1/tokens/{token_id}",
    status_code=204,
    summary="Revoke a token",
    responses=responses(404, 409),
)
def revoke_token(token_id: UUID, _admin: Admin, access: AccessDep) -> None:
    """It is refused at once here, and within a few seconds by every other process."""
    access.revoke(token_id)


def view_of(token: Token, now: datetime | None = None) -> TokenView:
    """The token as people see it."""
    status = "active" if token.expires_at > (now or datetime.now(UTC)) else "expired"
    if token.revoked_at is not None:
        status = "revoked"
    return TokenView.model_validate(token._asdict() | {"status": status})


# -- for browsers --------------------------------------------------------------------------------


async def _form(request: Request) -> dict[str, str]:
    """The fields of a plain HTML form."""
    body = (await request.body()).decode("utf-8", "replace")
    return {name: values[0] for name, values in parse_qs(body).items()}


Form = Annotated[dict[str, str], Depends(_form)]


def _code(request: Request) -> str | None:
    """The code of a login link, taken out of the address: servers log that when they answer."""
    code = request.query_params.get("code")
    request.scope["query_string"] = b""
    return code


Code = Annotated[str | None, Depends(_code)]


@router.get("/login", include_in_schema=False)
def login(request: Request, code: Code, access: AccessDep, principal: MaybePrincipal) -> Response:
    """The login link: redeems its code and leads on, so that the code is in no address bar."""
    if code is not None and not access.is_open:
        return _lead_in(request, access, SignIn(code=SecretStr(code)), principal)
    return _home(request) if principal is not None else _login_page()


@router.post("/login", include_in_schema=False)
def login_by_form(request: Request, access: AccessDep, form: Form) -> Response:
    """Signing in with a token, for browsers without scripts."""
    with denials_answered():
        check_origin(request, browsers_only=True)
    given = SignIn(token=SecretStr(form.get("token", "")))
    return _lead_in(request, access, given, None)


def _lead_in(
    request: Request, access: Access, given: SignIn, principal: Principal | None
) -> Response:
    response = _home(request)
    try:
        _enter(request, response, access, given)
    except NotAuthenticated as error:
        # Whoever follows a used link and is signed in already wants nothing but in.
        return response if principal is not None else _login_page(str(error))
    return response


def _home(request: Request) -> Response:
    root = request.scope.get("root_path", "").rstrip("/")
    return RedirectResponse(f"{root}/", 303, headers={"Referrer-Policy": "no-referrer"})


def _login_page(problem: str | None = None) -> Response:
    notice = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    headers: dict[str, Any] = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
    return HTMLResponse(_PAGE.format(notice=notice), 401 if problem else 200, headers=headers)


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · Evenbeat</title>
<main>
<h1>Sign in to Evenbeat</h1>
{notice}
<form method="post" action="login">
<p><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" required autofocus></p>
<p><button>Sign in</button></p>
</form>
<p>Run <code>evenbeat token login</code> on the server for a link that signs you in.</p>
</main>
</html>
"""
