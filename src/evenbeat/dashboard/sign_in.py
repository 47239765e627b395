"""Signing in with a token or a one-time link, signing out, and the visitor's preferences."""

from datetime import timedelta
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from evenbeat.api.auth.sessions import cookie_path, forget, keep_signed_in
from evenbeat.api.dependencies import MaybePrincipal, ServiceDep, check_local, check_origin
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
    to: Annotated[str, Query(alias="next")] = "",
) -> Response:
    """The sign-in. A link's code is redeemed and taken out of the address."""
    request.scope["query_string"] = b""  # servers log the address when the response starts
    response = _redirect(request, to)
    if code and not service.access.is_open:
        try:
            issued = service.access.redeem(code)
        except NotAuthenticated as error:
            # Someone who follows a used link and is signed in already just wants to get in.
            return _form(request, to, str(error)) if principal is None else response
        keep_signed_in(request, response, issued.token, issued.expires_at)
        return response
    return _form(request, to) if principal is None or code else response


@router.post("/login", name="login_by_token")
def login_by_token(request: Request, service: ServiceDep, form: FormDep) -> Response:
    """Sign in with a token that was pasted."""
    check_origin(request, browsers_only=True)
    response = _redirect(request, form.text("next"))
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
    # Another site's form does not carry the cookie: without it, nobody has asked.
    check_origin(request, browsers_only=True)
    response = RedirectResponse(pages.url(request, "login"), 303)
    if principal is not None:
        service.access.end_session(principal)
    forget(request, response)
    return response


@router.post("/preferences", name="preferences")
def preferences(request: Request, form: FormDep) -> Response:
    """Light or dark, UTC or the visitor's own time zone: remembered by the browser alone."""
    check_origin(request, browsers_only=True)
    response = _redirect(request, form.text("next"))
    if form.text("theme") in ("light", "dark", "auto"):
        _remember(request, response, pages.THEME_COOKIE, form.text("theme"))
    if form.text("zone"):
        zone_named(form.text("zone"), error=InvalidInput)
        _remember(request, response, pages.ZONE_COOKIE, form.text("zone"))
    return response


def _form(request: Request, to: str, problem: str = "") -> Response:
    to, status = pages.safe_path(request, to, ""), 401 if problem else 200
    return pages.render(request, "login.html", status=status, to=to, problem=problem)


def _redirect(request: Request, to: str) -> Response:
    to = pages.safe_path(request, to, pages.url(request, "overview"))
    return RedirectResponse(to, 303, headers={"Referrer-Policy": "no-referrer"})


def _remember(request: Request, response: Response, name: str, value: str) -> None:
    response.set_cookie(
        name,
        value,
        max_age=int(_YEAR.total_seconds()),
        path=cookie_path(request),
        secure=request.url.scheme == "https",
        samesite="lax",
    )
