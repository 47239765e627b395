"""Signing in with a token or a one-time link, signing out, and the visitor's preferences."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query, Response
from fastapi.responses import RedirectResponse

from evenbeat.api.auth.host import NOBODY
from evenbeat.api.auth.sessions import cookie_attributes, forget, keep_signed_in
from evenbeat.api.dependencies import MaybePrincipal, check_local, check_origin
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import FormDep, PageDep, PageRequest
from evenbeat.domain.moments import zone_named
from evenbeat.errors import InvalidInput, NotAuthenticated, NotSignedIn

router = pages.router()

_YEAR = 365 * 86_400


@router.get("/login", name="login")
def login(
    page: PageDep,
    principal: MaybePrincipal,
    code: str | None = None,
    to: Annotated[str, Query(alias="next")] = "",
) -> Response:
    """The sign-in. A link's code is redeemed and taken out of the address."""
    page.request.scope["query_string"] = b""  # servers log the address when the response starts
    response, access = _redirect(page, to), page.service.access
    if not access.has_tokens:
        if principal is None:
            raise NotSignedIn(NOBODY)
        return response
    if code:
        try:
            issued = access.redeem(code)
        except NotAuthenticated as error:
            # Someone who follows a used link and is signed in already just wants to get in.
            return _form(page, to, str(error)) if principal is None else response
        keep_signed_in(page.request, response, issued.token, issued.expires_at)
        return response
    return _form(page, to) if principal is None or code else response


@router.post("/login", name="login_by_token")
def login_by_token(page: PageDep, form: FormDep) -> Response:
    check_origin(page.request, browsers_only=True)
    response, access = _redirect(page, form.text("next")), page.service.access
    if access.is_open:
        check_local(page.request)
        return response
    token = form.text("token")
    try:
        keep_signed_in(page.request, response, token, access.authenticate(token).expires_at)
    except (NotAuthenticated, InvalidInput) as error:
        return _form(page, form.text("next"), str(error) if token else "Paste a token first.")
    return response


@router.post("/logout", name="logout")
def logout(page: PageDep, principal: MaybePrincipal) -> Response:
    """Sign out; the session of a link ends with it."""
    # Another site's form does not carry the cookie: without it, nobody has asked.
    check_origin(page.request, browsers_only=True)
    response = RedirectResponse(page.url("login"), 303)
    if principal is not None:
        page.service.access.end_session(principal)
    forget(page.request, response)
    return response


@router.post("/preferences", name="preferences")
def preferences(page: PageDep, form: FormDep) -> Response:
    """Light or dark, UTC or the visitor's own time zone: remembered by the browser alone."""
    check_origin(page.request, browsers_only=True)
    response, attributes = _redirect(page, form.text("next")), cookie_attributes(page.request)
    if (theme := form.text("theme")) in ("light", "dark", "auto"):
        response.set_cookie(pages.THEME_COOKIE, theme, max_age=_YEAR, **attributes)
    if zone := form.text("zone"):
        zone_named(zone, error=InvalidInput)
        response.set_cookie(pages.ZONE_COOKIE, zone, max_age=_YEAR, **attributes)
    return response


def _form(page: PageRequest, to: str, problem: str = "") -> Response:
    status, now, to = 401 if problem else 200, datetime.now(UTC), page.safe_path(to, "")
    return page.render("login.html", status=status, now=now, to=to, problem=problem)


def _redirect(page: PageRequest, to: str) -> Response:
    to = page.safe_path(to, page.url("overview"))
    return RedirectResponse(to, 303, headers={"Referrer-Policy": "no-referrer"})
