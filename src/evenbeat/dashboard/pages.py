"""Pages: templates, addresses, and the answers to whatever a page's endpoint raises.

A view gathers values and ends with `render(request, "name.html", …)`; one that changes something
ends with `back(request, to, Notice(…))`. Errors may simply be raised: `PageRoute` turns them into a
page, or into the sign-in, in the look of the rest.
"""

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
from evenbeat.api.auth.tokens import Principal, Role
from evenbeat.api.dependencies import Service, maybe_principal
from evenbeat.dashboard import filters, notices
from evenbeat.dashboard.assets import version_of
from evenbeat.dashboard.notices import Notice
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
from evenbeat.plugins import folders

logger = logging.getLogger(__name__)

THEME_COOKIE, ZONE_COOKIE = "evenbeat_theme", "evenbeat_zone"
REFRESH_HEADER = "x-evenbeat-refresh"
"""Sent by the script when it looks for news: such an answer must not use up a notice."""


class Place(NamedTuple):
    """An entry of the navigation: the route it leads to, its words and its icon."""

    route: str
    label: str
    icon: str


NAV = (
    Place("overview", "Overview", "overview"),
    Place("jobs", "Jobs", "jobs"),
    Place("distribution", "Distribution", "distribution"),
    Place("timeline", "Timeline", "timeline"),
    Place("workers", "Workers", "workers"),
    Place("documents", "Documents", "search"),
    Place("webhooks", "Webhooks", "send"),
    Place("settings", "Settings", "settings"),
    Place("docs", "API", "code"),
)

_templates = Environment(
    loader=FileSystemLoader([Path(__file__).parent / "templates", *folders("templates")]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters |= filters.ALL


# -- answering -----------------------------------------------------------------------------------


def render(
    request: Request,
    template: str,
    *,
    status: int = 200,
    now: datetime | None = None,
    **values: Any,
) -> HTMLResponse:
    """A page. Every template also has: `url`, `asset`, `principal`, `can_operate`, `can_admin`,
    `now`, `zone`, `theme`, `nav`, `notices`, `version`, `root`, `request_base` and `can(route)`."""
    said = notices.carried(request)
    refreshing = REFRESH_HEADER in request.headers
    context = _context(request, now) | {"notices": [] if refreshing else said} | values
    response = HTMLResponse(_templates.get_template(template).render(context), status)
    response.headers["Cache-Control"] = "no-store"
    if said and not refreshing:
        notices.drop(request, response)
    return response


def back(request: Request, to: str, *said: Notice) -> RedirectResponse:
    """After a change: to a page of ours, which says what happened."""
    response = RedirectResponse(to, 303)
    if said:
        notices.carry(request, response, list(said))
    return response


def _context(request: Request, now: datetime | None) -> dict[str, Any]:
    principal = principal_of(request)
    return {
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
        "request_base": base_of(request),
        "nav": [place for place in NAV if _exists(request, place.route)],
        "here": "",
        "here_path": here(request),
        "version": __version__,
    }


def principal_of(request: Request) -> Principal | None:
    """Who is signed in, if anybody."""
    try:
        return maybe_principal(request)
    except (HTTPException, EvenbeatError):
        return None


# -- addresses -----------------------------------------------------------------------------------


def root_of(request: Request) -> str:
    """The path under which the service is mounted, without a slash at its end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def base_of(request: Request) -> str:
    """The service's whole address. Starlette's `base_url` forgets where it is mounted."""
    return f"{request.url.scheme}://{request.url.netloc}{root_of(request)}"


def url(request: Request, name: str, /, *, query: Any = None, **parts: Any) -> str:
    """The path of a route by its name, wherever the service is mounted."""
    path = root_of(request) + str(request.app.url_path_for(name, **parts))
    text = query if isinstance(query, str) else urlencode(query or {}, doseq=True)
    return f"{path}?{text}" if text else path


def urls(request: Request, name: str, part: str) -> Callable[[UUID], str]:
    """The paths of many things under one route, which is looked up once and not for each."""
    path = url(request, name, **{part: _NOBODY})
    return lambda id_: path.replace(str(_NOBODY), str(id_))


_NOBODY = UUID(int=0)


def here(request: Request) -> str:
    """The address of this page, to come back to."""
    path, query = request.scope["path"], request.url.query
    root = root_of(request)
    path = path if path.startswith(root + "/") or path == root else root + path
    return f"{path}?{query}" if query else path


def safe_path(request: Request, given: str, otherwise: str) -> str:
    """`given` if it leads to a page of ours and nowhere else."""
    ours = given.startswith(root_of(request) + "/") and given.isprintable()
    plain = not given.startswith("//") and "\\" not in given and len(given) < 2_000
    return given if ours and plain else otherwise


def _exists(request: Request, route: str) -> bool:
    try:
        request.app.url_path_for(route)
    except NoMatchFound:
        return False
    return True


# -- what the visitor prefers ------------------------------------------------------------------


def service_of(request: Request) -> Service:
    """The service that the request came to."""
    service: Service = request.app.state.service
    return service


def now_of(request: Request) -> datetime:
    """The database's time."""
    app = service_of(request).app
    return app.store.clock(None if app.clock is None else app.clock.override())


def zone_of(request: Request) -> tzinfo:
    """The time zone that times are shown in: the visitor's own if asked for, else UTC."""
    try:
        return zone_named(request.cookies.get(ZONE_COOKIE, "UTC"))
    except InvalidInput:
        return ZoneInfo("UTC")


def theme_of(request: Request) -> str:
    """`light`, `dark`, or `auto`: as the system has it."""
    chosen = request.cookies.get(THEME_COOKIE, "auto")
    return chosen if chosen in ("light", "dark") else "auto"


# -- what goes wrong ---------------------------------------------------------------------------


class PageRoute(APIRoute):
    """A route whose refusals are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def with_pages(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                return refusal(request, error)

        return with_pages


def refusal(request: Request, error: Exception) -> Response:
    """The page for an error: the sign-in where nobody is signed in, else what went wrong."""
    status, words = _status_and_words(error)
    if status == 401:
        return _to_sign_in(request)
    if status == 500:
        logger.error("A page failed by a bug", extra={"path": request.url.path}, exc_info=error)
    title = HTTPStatus(status).phrase
    words = "There is no page at this address." if words == title and status == 404 else words
    response = render(request, "problem.html", status=status, title=title, words=words, code=status)
    if status == 503:
        response.headers["Retry-After"] = "5"
    return response


def _status_and_words(error: Exception) -> tuple[int, str]:
    if isinstance(error, StarletteHTTPException):
        return error.status_code, str(error.detail)
    for kinds, status, words in _ANSWERS:
        if isinstance(error, kinds):
            return status, words or str(error)
    return 500, "Evenbeat failed by a bug of its own; its log has the details."


_ANSWERS: tuple[tuple[tuple[type[Exception], ...], int, str], ...] = (
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
)


def _to_sign_in(request: Request) -> RedirectResponse:
    wanted = here(request) if request.method == "GET" else ""
    query = {"next": wanted} if wanted and wanted != url(request, "overview") else None
    return RedirectResponse(url(request, "login", query=query), 303)


def router() -> APIRouter:
    """A router for pages."""
    return APIRouter(
        route_class=PageRoute, include_in_schema=False, default_response_class=HTMLResponse
    )
