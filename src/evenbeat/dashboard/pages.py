"""Pages: templates, addresses, notices, and the responses to whatever a page's endpoint raises.

A view gathers values and ends with `render(request, "name.html", …)`; one that changes something
ends with `back(request, to, Notice(…))`. Errors may simply be raised: `PageRoute` turns them into a
page, or into the sign-in, in the look of the rest.
"""

import base64
import json
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, tzinfo
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg
from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import NoMatchFound

from evenbeat import __version__
from evenbeat.api.auth.sessions import cookie_path
from evenbeat.api.auth.tokens import Principal, Role
from evenbeat.api.dependencies import Service, maybe_principal
from evenbeat.dashboard import filters
from evenbeat.dashboard.assets import version_of
from evenbeat.dashboard.forms import Form
from evenbeat.domain.moments import zone_named
from evenbeat.errors import (
    AccessDenied,
    Conflict,
    EvenbeatError,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    StoreError,
)
from evenbeat.humanize import shorten
from evenbeat.plugins import folders

logger = logging.getLogger(__name__)

THEME_COOKIE, ZONE_COOKIE, NOTICE_COOKIE = "evenbeat_theme", "evenbeat_zone", "evenbeat_notice"
REFRESH_HEADER = "x-evenbeat-refresh"
"""Sent by the script when it refreshes a page: such a response must not use up a notice."""

_MOST_NOTICES = 3
_LONGEST_NOTICE = 900


class NavItem(NamedTuple):
    """An entry of the navigation: the route it leads to, its label and its icon."""

    route: str
    label: str
    icon: str


NAV = (
    NavItem("overview", "Overview", "overview"),
    NavItem("jobs", "Jobs", "jobs"),
    NavItem("distribution", "Distribution", "distribution"),
    NavItem("timeline", "Timeline", "timeline"),
    NavItem("workers", "Workers", "workers"),
    NavItem("documents", "Documents", "search"),
    NavItem("webhooks", "Webhooks", "send"),
    NavItem("settings", "Settings", "settings"),
    NavItem("docs", "API", "code"),
)

_templates = Environment(
    loader=FileSystemLoader([Path(__file__).parent / "templates", *folders("templates")]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters |= filters.ALL


# -- responses -----------------------------------------------------------------------------------


class Notice(NamedTuple):
    """One sentence about what just happened. `kind` is done, refused or failed; an offered action
    is a form's address (of this dashboard) and the label of its button."""

    text: str
    kind: str = "done"
    offer: str = ""
    offer_path: str = ""


def render(
    request: Request,
    template: str,
    *,
    status: int = 200,
    now: datetime | None = None,
    **values: Any,
) -> HTMLResponse:
    """A page. Every template also gets the values that are collected here."""
    principal, refreshing = principal_of(request), REFRESH_HEADER in request.headers
    notices = [] if refreshing else read_notices(request)
    context = {
        "root": root_of(request),
        "url": lambda name, **parts: url(request, name, **parts),
        "asset": lambda name: url(request, "asset", name=name, query={"v": version_of(name)}),
        "principal": principal,
        "can_operate": principal is not None and principal.role.covers(Role.OPERATOR),
        "can_admin": principal is not None and principal.role.covers(Role.ADMIN),
        "is_open": service_of(request).access.is_open,
        "now": now or datetime.now(UTC),
        "zone": zone_of(request),
        "theme": theme_of(request),
        "can": lambda route: _exists(request, route),
        "request_base": f"{request.url.scheme}://{request.url.netloc}{root_of(request)}",
        "nav": [item for item in NAV if _exists(request, item.route)],
        "here": "",
        "here_path": here(request),
        "version": __version__,
        "notices": notices,
    }
    response = HTMLResponse(_templates.get_template(template).render(context | values), status)
    response.headers["Cache-Control"] = "no-store"
    if notices:
        response.delete_cookie(NOTICE_COOKIE, path=cookie_path(request))
    return response


def back(request: Request, to: str, *notices: Notice) -> RedirectResponse:
    """After a change: to a page of ours, which shows the notices. A cookie carries them there."""
    response = RedirectResponse(to, 303)
    if notices:
        shown = [n._replace(text=shorten(n.text, _LONGEST_NOTICE)) for n in notices[:_MOST_NOTICES]]
        response.set_cookie(
            NOTICE_COOKIE,
            base64.urlsafe_b64encode(json.dumps(shown).encode()).decode(),
            max_age=60,
            path=cookie_path(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )
    return response


def read_notices(request: Request) -> list[Notice]:
    """The notices of the page before; none if the cookie is not one of ours."""
    cookie = request.cookies.get(NOTICE_COOKIE, "")
    try:
        entries = json.loads(base64.urlsafe_b64decode(cookie)) if cookie else []
        return [Notice(*map(str, entry)) for entry in entries[:_MOST_NOTICES]]
    except (ValueError, TypeError, RecursionError):
        return []


# -- addresses -----------------------------------------------------------------------------------


def root_of(request: Request) -> str:
    """The path under which the service is mounted, without a slash at its end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def url(request: Request, name: str, /, *, query: Any = None, **parts: Any) -> str:
    """The path of a route by its name, wherever the service is mounted."""
    path = root_of(request) + str(request.app.url_path_for(name, **parts))
    text = query if isinstance(query, str) else urlencode(query or {}, doseq=True)
    return f"{path}?{text}" if text else path


def urls(request: Request, name: str, part: str) -> Callable[[UUID], str]:
    """The paths of many things under one route, which is looked up once and not for each."""
    placeholder = UUID(int=0)
    path = url(request, name, **{part: placeholder})
    return lambda id_: path.replace(str(placeholder), str(id_))


def here(request: Request) -> str:
    """The address of this page, to come back to."""
    path, query = request.scope["path"], request.url.query
    root = root_of(request)
    path = path if path.startswith(root + "/") or path == root else root + path
    return f"{path}?{query}" if query else path


def safe_path(request: Request, path: str, default: str) -> str:
    """`path` if it leads to a page of ours and nowhere else."""
    ours = path.startswith(root_of(request) + "/") and path.isprintable()
    plain = not path.startswith("//") and "\\" not in path and len(path) < 2_000
    return path if ours and plain else default


def _exists(request: Request, route: str) -> bool:
    try:
        request.app.url_path_for(route)
    except NoMatchFound:
        return False
    return True


# -- long lists ----------------------------------------------------------------------------------


class Pager(NamedTuple):
    """Which part of a list a page shows, and the addresses of the pages beside it."""

    first: int
    last: int
    total: int
    about: bool
    before: str
    after: str


def page_number(query: Form, last: int = 1_000_000) -> int:
    """The page that an address asks for."""
    text = query.text("page") or "1"
    if not text.isdecimal() or not 1 <= int(text[:9]) <= last:
        raise InvalidInput(
            f"There is no page {text[:20]!r}: the list goes up to page {last:,}. "
            "Narrow it by a filter to get further.",
            field="page",
        )
    return int(text[:9])


def pager(
    number: int,
    size: int,
    shown: int,
    total: int,
    address: Callable[[int], str],
    *,
    about: bool = False,
    last_page: int = 1_000_000,
) -> Pager:
    """The pager of page `number`, of `size` entries; `address` makes the address of a page."""
    before = (number - 1) * size
    return Pager(
        before + 1 if shown else 0,
        before + shown,
        total,
        about,
        address(number - 1) if number > 1 else "",
        address(number + 1) if before + shown < total and number < last_page else "",
    )


# -- the visitor ---------------------------------------------------------------------------------


def principal_of(request: Request) -> Principal | None:
    """Who is signed in, if anybody."""
    try:
        return maybe_principal(request)
    except (HTTPException, EvenbeatError):
        return None


def service_of(request: Request) -> Service:
    """The service that the request came to."""
    service: Service = request.app.state.service
    return service


def now_of(request: Request) -> datetime:
    """The database's time."""
    app = service_of(request).app
    return app.store.clock(None if app.clock is None else app.clock.override())


def zone_of(request: Request) -> tzinfo:
    """The time zone of the page: the visitor's own if they chose it, otherwise UTC."""
    try:
        return zone_named(request.cookies.get(ZONE_COOKIE, "UTC"))
    except InvalidInput:
        return ZoneInfo("UTC")


def theme_of(request: Request) -> str:
    """`light`, `dark`, or `auto`: as the system has it."""
    theme = request.cookies.get(THEME_COOKIE, "auto")
    return theme if theme in ("light", "dark") else "auto"


# -- errors --------------------------------------------------------------------------------------

_ERRORS: tuple[tuple[tuple[type[Exception], ...], int, str], ...] = (
    ((NotAuthenticated,), 401, ""),
    ((AccessDenied,), 403, ""),
    ((NotFound,), 404, ""),
    ((InvalidInput,), 422, ""),
    ((Conflict,), 409, ""),
    ((RequestValidationError,), 422, "The address or the form of this request is not valid."),
    (
        (StoreError, psycopg.OperationalError),
        503,
        "The database cannot be reached right now. A change may or may not have been made.",
    ),
    ((Exception,), 500, "Evenbeat failed by a bug of its own; its log has the details."),
)


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def with_pages(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                return error_page(request, error)

        return with_pages


def error_page(request: Request, error: Exception) -> Response:
    """The page for an error: the sign-in if nobody is signed in, otherwise what went wrong."""
    if isinstance(error, StarletteHTTPException):
        status, text = error.status_code, str(error.detail)
    else:
        _, status, text = next(entry for entry in _ERRORS if isinstance(error, entry[0]))
    if status == 401:
        to = here(request) if request.method == "GET" else ""
        query = {"next": to} if to and to != url(request, "overview") else None
        return RedirectResponse(url(request, "login", query=query), 303)
    if status == 500:
        logger.error("A page failed by a bug", extra={"path": request.url.path}, exc_info=error)
    title = HTTPStatus(status).phrase
    if status == 404 and text == title:
        text = "There is no page at this address."
    response = render(
        request, "problem.html", status=status, title=title, text=text or str(error), code=status
    )
    if status == 503:
        response.headers["Retry-After"] = "5"
    return response


def router() -> APIRouter:
    """A router for pages."""
    return APIRouter(
        route_class=PageRoute, include_in_schema=False, default_response_class=HTMLResponse
    )
