"""Signing in with a token or a one-time link, signing out, and what a visitor prefers."""

from datetime import timedelta
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from evenbeat.api.auth.sessions import cookie_path, forget, keep_signed_in
from evenbeat.api.auth.tokens import Access
from evenbeat.api.dependencies import (
    MaybePrincipal,
    ServiceDep,
    check_local,
    check_origin,
    denials_answered,
)
from evenbeat.dashboard import pages
from evenbeat.dashboard.forms import FormDep
from evenbeat.domain.moments import zone_named
from evenbeat.errors import InvalidInput, NotAuthenticated

router = pages.router()

_YEAR = timedelta(days=365)


@router.get("/login", name="login")
def login(
    request: Request,
    service: ServiceDep,
    principal: MaybePrincipal,
    code: str | None = None,
    wanted: Annotated[str, Query(alias="next")] = "",
) -> Response:
    """The sign-in. A link's code is redeemed and taken out of the address."""
    request.scope["query_string"] = b""  # servers log the address when the answer starts
    if principal is not None and not code:
        return _on(request, wanted)
    if code and not service.access.is_open:
        return _redeem(request, service.access, code, wanted, signed_in=principal is not None)
    return _form(request, wanted)


@router.post("/login", name="login_by_token")
def login_by_token(request: Request, service: ServiceDep, form: FormDep) -> Response:
    """Sign in with a token that was pasted."""
    with denials_answered():
        check_origin(request, browsers_only=True)
    response = _on(request, form.text("next"))
    if service.access.is_open:
        check_local(request)
        return response
    token = form.text("token")
    try:
        principal = service.access.authenticate(token)
        keep_signed_in(request, response, token, principal.expires_at)
    except (NotAuthenticated, InvalidInput) as error:
        return _form(request, form.text("next"), str(error) if token else "Paste a token first.")
    return response


@router.post("/logout", name="logout")
def logout(request: Request, service: ServiceDep, principal: MaybePrincipal) -> Response:
    """Sign out; the session of a link ends with it."""
    with denials_answered():
        # Without its cookie, which another site's form does not carry, nobody has asked yet.
        check_origin(request, browsers_only=True)
    response = RedirectResponse(pages.url(request, "login"), 303)
    if principal is not None:
        service.access.end_session(principal)
    forget(request, response)
    return response


@router.post("/preferences", name="preferences")
def preferences(request: Request, form: FormDep) -> Response:
    """Light or dark, UTC or the visitor's own time zone: remembered by the browser alone."""
    with denials_answered():
        check_origin(request, browsers_only=True)
    response = _on(request, form.text("next"))
    if form.text("theme") in ("light", "dark", "auto"):
        _remember(request, response, pages.THEME_COOKIE, form.text("theme"))
    if form.text("zone"):
        zone_named(form.text("zone"), error=InvalidInput)
        _remember(request, response, pages.ZONE_COOKIE, form.text("zone"))
    return response


def _redeem(
    request: Request, access: Access, code: str, wanted: str, *, signed_in: bool
) -> Response:
    response = _on(request, wanted)
    try:
        issued = access.redeem(code)
    except NotAuthenticated as error:
        # Whoever follows a used link and is signed in already wants nothing but in.
        return response if signed_in else _form(request, wanted, str(error))
    keep_signed_in(request, response, issued.token, issued.expires_at)
    return response


def _form(request: Request, wanted: str, problem: str = "") -> Response:
    wanted = pages.safe_path(request, wanted, "")
    status = 401 if problem else 200
    return pages.render(request, "login.html", status=status, wanted=wanted, problem=problem)


def _on(request: Request, wanted: str) -> Response:
    to = pages.safe_path(request, wanted, _home(request))
    return RedirectResponse(to, 303, headers={"Referrer-Policy": "no-referrer"})


def _home(request: Request) -> str:
    return pages.url(request, "overview")


def _remember(request: Request, response: Response, name: str, value: str) -> None:
    response.set_cookie(
        name,
        value,
        max_age=int(_YEAR.total_seconds()),
        path=cookie_path(request),
        secure=request.url.scheme == "https",
        samesite="lax",
    )
