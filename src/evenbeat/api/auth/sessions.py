"""Signing in and out, the cookie of a sign-in, and the tokens of this service."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, SecretStr, WithJsonSchema, model_validator

from evenbeat.api.auth.tokens import EVERYONE, MAX_SUBJECT, SESSION, IssuedToken, Principal, Role
from evenbeat.api.dependencies import COOKIE, Admin, ServiceDep, Viewer, check_local, check_origin
from evenbeat.api.fields import Duration, Limit, Offset, Page, RowDocument, fields_of
from evenbeat.api.problems import responses
from evenbeat.domain import setting_kinds as kinds
from evenbeat.errors import InvalidInput
from evenbeat.store.api_tables import Token

router = APIRouter(tags=["Access"])

_HIDDEN = WithJsonSchema({"type": "string", "format": "password", "writeOnly": True})
_LIFETIME = kinds.Duration(least=timedelta(seconds=1), most=timedelta(days=3650)).json_schema
_LONGEST_COOKIE = 3800
"""Browsers keep 4096 bytes, name and attributes included, and silently drop what is longer."""


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
    model_config = ConfigDict(extra="forbid")

    role: Role
    expires: Annotated[Duration, WithJsonSchema(_LIFETIME)] = Field(
        # A factory: the document would show a plain default in a form that is not read here.
        default_factory=lambda: timedelta(days=30),
        description="How long it lives: 1s to 3650d. Default: 30d.",
    )
    subject: Annotated[str, Field(min_length=1, max_length=MAX_SUBJECT)] | None = Field(
        None, description="Whom or what it is for. Default: you."
    )


@fields_of(Token)
class TokenView(RowDocument):
    """A token without the token."""

    kind: Literal["token", "session"]
    role: Role
    status: Literal["active", "expired", "revoked"]


class TokenList(Page):
    tokens: list[TokenView]


@router.get("/api/v1/session", summary="Who am I?")
def show_session(principal: Viewer, service: ServiceDep) -> Session:
    return _session(principal, is_open=service.access.is_open)


@router.post("/api/v1/session", summary="Sign in", responses=responses(401, 403))
def sign_in(body: SignIn, request: Request, response: Response, service: ServiceDep) -> Session:
    """Sets a cookie for browsers. A program needs no session: it sends its token."""
    check_origin(request, browsers_only=True)
    if service.access.is_open:
        check_local(request)
        return _session(EVERYONE, is_open=True)
    if body.code is not None:
        token = service.access.redeem(body.code.get_secret_value()).token
    else:
        token = body.token.get_secret_value().strip() if body.token else ""
    principal = service.access.authenticate(token)
    keep_signed_in(request, response, token, principal.expires_at)
    return _session(principal)


@router.delete("/api/v1/session", status_code=204, summary="Sign out")
def sign_out(principal: Viewer, request: Request, response: Response, service: ServiceDep) -> None:
    """Forgets the cookie. A session made by a login link ends; a token goes on being valid."""
    service.access.end_session(principal)
    forget(request, response)


def _session(principal: Principal, *, is_open: bool = False) -> Session:
    return Session.model_validate(asdict(principal) | {"open": is_open})


def keep_signed_in(
    request: Request, response: Response, token: str, expires_at: datetime | None
) -> None:
    """Let the browser show this token from now on, for a session's length at most."""
    if len(token) > _LONGEST_COOKIE:
        raise InvalidInput(
            f"This token has {len(token)} characters; browsers keep {_LONGEST_COOKIE} in a cookie."
            " Use one with fewer claims.",
            field="token",
        )
    lifetime = SESSION if expires_at is None else min(SESSION, expires_at - datetime.now(UTC))
    max_age = max(1, int(lifetime.total_seconds()))
    response.set_cookie(COOKIE, token, max_age=max_age, **cookie_attributes(request))


def forget(request: Request, response: Response) -> None:
    """Let the browser forget the sign-in."""
    response.delete_cookie(COOKIE, **cookie_attributes(request))


def cookie_attributes(request: Request) -> dict[str, Any]:
    """`SameSite=Lax`, not `Strict`: with `Strict` a login link clicked in a web terminal or a mail,
    and a link to a job in a chat, would arrive without the cookie. What `Strict` would add is done
    by `check_origin` for every request that changes something."""
    # Where this service is mounted: another one beside it gets no cookie of ours.
    path, secure = request.scope.get("root_path", "").rstrip("/"), request.url.scheme == "https"
    return {"path": path or "/", "secure": secure, "httponly": True, "samesite": "lax"}


@router.get("/api/v1/tokens", summary="List tokens")
def list_tokens(
    _admin: Admin,
    service: ServiceDep,
    active: Annotated[bool, Query(description="Only those that are still valid.")] = False,
    limit: Annotated[Limit, Query()] = 100,
    offset: Annotated[Offset, Query()] = 0,
) -> TokenList:
    access = service.access
    tokens = [view_of(one) for one in access.tokens(active=active, limit=limit, offset=offset)]
    total = access.count_tokens(active=active)
    return TokenList(tokens=tokens, total=total, limit=limit, offset=offset)


@router.post("/api/v1/tokens", status_code=201, summary="Create a token")
def create_token(body: NewToken, admin: Admin, service: ServiceDep) -> IssuedToken:
    subject = body.subject or admin.subject
    return service.access.issue(body.role, body.expires, subject=subject, by=admin.subject)


@router.delete("/api/v1/tokens/{token_id}", status_code=204, summary="Revoke a token")
def revoke_token(token_id: UUID, _admin: Admin, service: ServiceDep) -> None:
    """It is refused at once here, and within a few seconds by every other process."""
    service.access.revoke(token_id)


def view_of(token: Token) -> TokenView:
    """The token as people see it."""
    status = "active" if token.expires_at > datetime.now(UTC) else "expired"
    return TokenView.of(token, status=status if token.revoked_at is None else "revoked")
