"""Pages: what a view is given, and what it returns.

A view takes `page: PageDep`, gathers values and ends with `page.render("name.html", …)`; one that
changes something ends with `page.back(to, Notice(…))`. Errors may simply be raised: `PageRoute`
turns them into a page, or into the sign-in, in the look of the rest.
"""

import base64
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.routing import NoMatchFound

from evenbeat import __version__
from evenbeat.api.auth.sessions import cookie_attributes
from evenbeat.api.auth.tokens import Principal, Role
from evenbeat.api.dependencies import Service, caller_of
from evenbeat.api.problems import problem_for
from evenbeat.dashboard import banner
from evenbeat.dashboard.rendering import files, templates
from evenbeat.domain.ids import parse_id
from evenbeat.domain.moments import zone_named
from evenbeat.errors import EvenbeatError, InvalidInput, NotFound, StoreError
from evenbeat.humanize import shorten
from evenbeat.store.health import TableQueries
from evenbeat.store.replica import accept_old_reads, old_reads_are_accepted
from evenbeat.store.store import Store
from evenbeat.store.summaries import FleetPause

THEME_COOKIE, ZONE_COOKIE, NOTICE_COOKIE = "evenbeat_theme", "evenbeat_zone", "evenbeat_notice"
REFRESH_HEADER = "x-evenbeat-refresh"
"""Sent by the script when it refreshes a page: such a response must not use up a notice."""

MOST_PAGES = 1_000_000
_MAX_FIELDS = 5_000
_MOST_NOTICES = 3
_LONGEST_NOTICE = 900
NAV = (  # the route that an entry leads to, its label and its icon
    ("overview", "Overview", "overview"),
    ("jobs", "Jobs", "jobs"),
    ("runs", "Runs", "history"),
    ("distribution", "Distribution", "distribution"),
    ("timeline", "Timeline", "timeline"),
    ("workers", "Workers", "workers"),
    ("documents", "Documents", "search"),
    ("webhooks", "Webhooks", "send"),
    ("settings", "Settings", "settings"),
    ("docs", "API", "code"),
)


class Notice(NamedTuple):
    """One sentence about what just happened. `kind` is done, refused or failed; an offered action
    is a form's address (of this dashboard) and the label of its button."""

    text: str
    kind: str = "done"
    offer: str = ""
    offer_path: str = ""


class Form:
    """Names and values in the order of the page. A missing field reads as empty."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs

    def text(self, name: str) -> str:
        """The last value of a name, without spaces around."""
        return next((value.strip() for key, value in reversed(self.pairs) if key == name), "")

    def many(self, name: str) -> list[str]:
        """Every value of a name that is not empty."""
        return [value.strip() for key, value in self.pairs if key == name and value.strip()]

    def flag(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.text(name) not in ("", "0", "false", "off")

    def without(self, *names: str) -> str:
        """The rest as a query string."""
        return urlencode([(k, v) for k, v in self.pairs if k not in names and v.strip()])


def parse(body: bytes) -> Form:
    """The fields of a body or a query string."""
    try:
        text = body.decode("utf-8")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise InvalidInput(
            f"The form cannot be read: it is not UTF-8, or has more than {_MAX_FIELDS} fields."
        ) from None
    return Form([(name, value.replace("\r\n", "\n")) for name, value in pairs])


async def posted_form(request: Request) -> Form:
    """The body of a request, read the same with and without script."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Send this form as application/x-www-form-urlencoded.")
    return parse(await request.body())


def id_of(text: str, kind: str = "job") -> UUID:
    """An id in an address; anything else is the id of nothing."""
    id_ = parse_id(text)
    if id_ is None:
        raise NotFound(kind, text[:60])
    return id_


class PageRequest:
    """A request for a page: who asks, when and where, and the responses to it."""

    def __init__(self, request: Request, principal: Principal | None = None) -> None:
        self.request = request
        self.principal = principal
        """Who is signed in, if anybody."""
        self.root = str(request.scope.get("root_path", "")).rstrip("/")
        """The path under which the service is mounted, without a slash at its end."""

    @classmethod
    async def of(cls, request: Request) -> "PageRequest":
        """Whoever may not see a page is told so by the role that it asks for, and not by this."""
        try:
            return cls(request, await caller_of(request))
        except (EvenbeatError, HTTPException):
            return cls(request)

    @property
    def service(self) -> Service:
        service: Service = self.request.app.state.service
        return service

    @property
    def store(self) -> Store:
        return self.service.app.store

    def may(self, role: Role) -> bool:
        return self.principal is not None and self.principal.role.covers(role)

    @cached_property
    def now(self) -> datetime:
        """The database's time."""
        return self.store.clock(self.service.now)

    @cached_property
    def zone(self) -> tzinfo:
        """The time zone of the page: the visitor's own if they chose it, otherwise UTC."""
        try:
            return zone_named(self.request.cookies.get(ZONE_COOKIE, "UTC"))
        except InvalidInput:
            return ZoneInfo("UTC")

    @cached_property
    def query(self) -> Form:
        """The query of the address, read like a form."""
        return parse(self.request.scope["query_string"])

    # -- addresses ---------------------------------------------------------------------------------

    def url(self, name: str, /, *, query: Any = None, **parts: Any) -> str:
        """The path of a route by its name, wherever the service is mounted."""
        path = self.root + str(self.request.app.url_path_for(name, **parts))
        text = query if isinstance(query, str) else urlencode(query or {}, doseq=True)
        return f"{path}?{text}" if text else path

    def urls(self, name: str, part: str) -> Callable[[UUID], str]:
        """The paths of many things under one route, which is looked up once and not for each."""
        placeholder = UUID(int=0)
        path = self.url(name, **{part: placeholder})
        return lambda id_: path.replace(str(placeholder), str(id_))

    def has(self, route: str) -> bool:
        try:
            self.request.app.url_path_for(route)
        except NoMatchFound:
            return False
        return True

    @property
    def here(self) -> str:
        """The address of this page, to come back to."""
        path, query = self.request.scope["path"], self.request.url.query
        path = path if path == self.root or path.startswith(self.root + "/") else self.root + path
        return f"{path}?{query}" if query else path

    def safe_path(self, path: str, default: str) -> str:
        """`path` if it leads to a page of ours and nowhere else."""
        ours = path.startswith(self.root + "/") and path.isprintable()
        plain = not path.startswith("//") and "\\" not in path and len(path) < 2_000
        return path if ours and plain else default

    # -- long lists --------------------------------------------------------------------------------

    def number(self, last: int = MOST_PAGES) -> int:
        """Which page of a list the address asks for."""
        text = self.query.text("page") or "1"
        if not text.isdecimal() or not 1 <= int(text[:9]) <= last:
            raise InvalidInput(
                f"There is no page {text[:20]!r}: the list goes up to page {last:,}. "
                "Narrow it by a filter to get further.",
                field="page",
            )
        return int(text[:9])

    def pager(
        self,
        address: Callable[[int], str],
        size: int,
        shown: int,
        total: int,
        *,
        about: bool = False,
        last: int = MOST_PAGES,
    ) -> dict[str, Any]:
        """Which part of a list this page shows; `address` makes the addresses beside it."""
        number = self.number(last)
        before = (number - 1) * size
        return {
            "first": before + 1 if shown else 0,
            "last": before + shown,
            "total": total,
            "about": about,
            "before": address(number - 1) if number > 1 else "",
            "after": address(number + 1) if before + shown < total and number < last else "",
        }

    # -- responses ---------------------------------------------------------------------------------

    def render(
        self, template: str, *, status: int = 200, now: datetime | None = None, **values: Any
    ) -> HTMLResponse:
        """A page. Every template also gets the values that are collected here."""
        request, theme = self.request, self.request.cookies.get(THEME_COOKIE)
        notices = [] if REFRESH_HEADER in request.headers else read_notices(request)
        context = {
            "root": self.root,
            "url": self.url,
            "asset": lambda name: self.url("asset", name=name, query={"v": files()[name][1]}),
            "principal": self.principal,
            "can_operate": self.may(Role.OPERATOR),
            "can_admin": self.may(Role.ADMIN),
            "is_open": self.service.access.is_open,
            "has_tokens": self.service.access.has_tokens,
            "now": now or self.now,
            "zone": self.zone,
            "theme": theme if theme in ("light", "dark") else "auto",
            "can": self.has,
            "request_base": f"{request.url.scheme}://{request.url.netloc}{self.root}",
            "nav": [entry for entry in NAV if self.has(entry[0])],
            "here": "",
            "here_path": self.here,
            "version": __version__,
            "notices": notices,
            "banner": self._banner() if status == 200 and self.principal else "",
            "fleet_pause": self._fleet_pause() if status == 200 and self.principal else None,
            "replica_lag": self._replica_lag() if status == 200 else None,
        }
        response = HTMLResponse(templates.get_template(template).render(context | values), status)
        response.headers["Cache-Control"] = "no-store"
        if notices:
            response.delete_cookie(NOTICE_COOKIE, **cookie_attributes(request))
        return response

    def _banner(self) -> str:
        """Why nothing runs; empty if all is well, or if nobody is here to be told."""
        if self._takes_no_writes():
            return banner.NO_WRITES
        try:
            state = self.store.read.standstill(now=self.service.now)
        except StoreError:
            return ""
        return banner.standstill(state, self._replica_lag() or 0, self.now, self.zone)

    def _takes_no_writes(self) -> bool:
        """Whether an outage is on that a page, which only reads, would not show."""
        if self.store.database.availability.reason is None:
            return False
        try:
            TableQueries(self.store.database).schema_complaint()
        except StoreError:
            return True
        return False

    def _fleet_pause(self) -> FleetPause | None:
        """The pause of everything; a page must not fail because of it."""
        try:
            return self.store.read.fleet_pause(now=self.service.now)
        except StoreError:
            return None

    def _replica_lag(self) -> float | None:
        """How old what this page shows may be; None if it comes from the database itself."""
        replica = self.store.database.replica
        return replica.lag if replica is not None and old_reads_are_accepted() else None

    def back(self, to: str, *notices: Notice) -> Response:
        """After a change: to a page of ours, which shows the notices. A cookie carries them."""
        response = RedirectResponse(to, 303)
        if notices:
            texts = [n._replace(text=shorten(n.text, _LONGEST_NOTICE)) for n in notices]
            value = base64.urlsafe_b64encode(json.dumps(texts[:_MOST_NOTICES]).encode()).decode()
            attributes = cookie_attributes(self.request)
            response.set_cookie(NOTICE_COOKIE, value, max_age=60, **attributes)
        return response


PageDep = Annotated[PageRequest, Depends(PageRequest.of)]
FormDep = Annotated[Form, Depends(posted_form)]
"""The form that was posted."""


def read_notices(request: Request) -> list[Notice]:
    """The notices of the page before; none if the cookie is not one of ours."""
    cookie = request.cookies.get(NOTICE_COOKIE, "")
    try:
        entries = json.loads(base64.urlsafe_b64decode(cookie)) if cookie else []
        return [Notice(*map(str, entry)) for entry in entries[:_MOST_NOTICES]]
    except (ValueError, TypeError, RecursionError):
        return []


class PageRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def with_pages(request: Request) -> Response:
            if NOTICE_COOKIE in request.cookies:
                accept_old_reads(False)  # it shows what a change has led to
            try:
                return await handle(request)
            except Exception as error:
                return await error_page(request, error)

        return with_pages


async def error_page(request: Request, error: Exception) -> Response:
    """The page for an error: the sign-in if nobody is signed in, otherwise what went wrong."""
    page, answer = await PageRequest.of(request), problem_for(request, error)
    status, problem = answer.status_code, json.loads(bytes(answer.body))
    if status < 400:  # a host leads to its sign-in
        return answer
    if status == 401 and page.service.access.has_tokens:
        to = page.here if request.method == "GET" else ""
        query = {"next": to} if to and to != page.url("overview") else None
        return RedirectResponse(page.url("login", query=query), 303)
    if problem["detail"] == "Not Found":
        problem["detail"] = "There is no page at this address."
    now = datetime.now(UTC)  # the database may be out of reach
    response = page.render("problem.html", status=status, now=now, problem=problem)
    for header in ("retry-after", "www-authenticate"):
        if header in answer.headers:
            response.headers[header] = answer.headers[header]
    return response


def router() -> APIRouter:
    return APIRouter(
        route_class=PageRoute, include_in_schema=False, default_response_class=HTMLResponse
    )
