"""What endpoints ask for in their signatures: the service, and a caller with a role.

    @router.get("/jobs")
    def jobs(service: ServiceDep, principal: Viewer) -> ...

A caller shows a token in `Authorization: Bearer …`, or has the cookie of a sign-in. If the header
is there, it alone decides. Browsers send the cookie unasked, so with it a request that changes
something must come from one of our own pages. Mounted behind a sign-in of the host's own, the host
says who the caller is (`auth/host.py`).
"""

import ipaddress
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from evenbeat.api.auth.host import HostAccess
from evenbeat.api.auth.tokens import EVERYONE, Access, Principal, Role
from evenbeat.api.places import Places
from evenbeat.app import Evenbeat
from evenbeat.engine.worker import Worker
from evenbeat.errors import EvenbeatError, ForeignRequest, NotAuthenticated, RoleTooLow
from evenbeat.store.audit import Actor, actor
from evenbeat.store.store import Store

COOKIE = "evenbeat_session"
_HOST = re.compile(r"(?:(?P<name>[\w.-]+)|\[(?P<address>[\da-fA-F:.]+)\])(?::\d*)?")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_CALLER = "evenbeat.caller"
"""Where a request's scope has its caller, or why it has none, once that has been found out."""


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of one serving process. The worker is None where none runs beside the API."""

    app: Evenbeat
    access: Access
    worker: Worker | None = None
    places: Places = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", Places(self.app.settings.pool_size))

    @property
    def store(self) -> Store:
        """The application's store, opened by the first use."""
        return self.app.store

    @property
    def now(self) -> datetime | None:
        """The application's own time if it has one (tests travel); None means the database's."""
        return self.app.now()


async def service_of(request: Request) -> Service:
    """The service that the request came to."""
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(service_of)]


DocumentedToken = Annotated[
    HTTPAuthorizationCredentials | None,
    Security(
        HTTPBearer(
            auto_error=False,
            bearerFormat="JWT",
            scheme_name="token",
            description="A token of `evenbeat token create`, or of your identity provider.",
        )
    ),
]
"""For the OpenAPI document; `identify` reads the header itself."""


def at_least(needed: Role) -> Callable[[Request, DocumentedToken], Awaitable[Principal]]:
    """A dependency that lets callers with the role, or one above it, through."""

    async def authorize(request: Request, _documented: DocumentedToken) -> Principal:
        principal = await caller_of(request)
        if not principal.role.covers(needed):
            raise RoleTooLow(needed, principal.role)
        if request.method not in SAFE_METHODS:
            actor.set(_actor(request, principal))  # each request has a context of its own
        return principal

    return authorize


def _actor(request: Request, principal: Principal) -> Actor:
    via = "api" if "/api/" in request.url.path else "dashboard"
    if request.headers.get("user-agent", "").startswith("evenbeat/"):
        via = "command line"
    address = request.client.host if request.client else None
    return Actor(principal.subject, principal.role, via, address)


async def maybe_principal(request: Request) -> Principal | None:
    """The caller, or None if unknown: for pages, which then offer to sign in."""
    try:
        return await caller_of(request)
    except NotAuthenticated:
        return None


async def at_a_place(
    request: Request, principal: Annotated[Principal, Depends(at_least(Role.VIEWER))]
) -> AsyncIterator[Principal]:
    """What everybody may ask for waits for a place, which it has until it has been read."""
    service: Service = request.app.state.service
    async with service.places.taken_by(principal.token_id or principal.subject):
        yield principal


Viewer = Annotated[Principal, Depends(at_a_place, scope="function")]
Operator = Annotated[Principal, Depends(at_least(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(at_least(Role.ADMIN))]
MaybePrincipal = Annotated[Principal | None, Depends(maybe_principal)]


async def caller_of(request: Request, *, again: bool = False) -> Principal:
    """The caller; raises what `identify` raises, or a host. Found out once for each request, unless
    it is to be `again`: an event stream outlives many a sign-in."""
    access: Access = request.app.state.service.access
    caller: Principal | Exception
    asked, caller = request.scope.get(_CALLER, (None, NotAuthenticated("Nobody knows yet.")))
    if again or asked is not access:  # a host may try two services with one request
        try:
            if isinstance(access, HostAccess):
                caller = await access.caller_of(request)
                # Whatever comes with a cookie may have been sent by a page of another site.
                check_origin(request, browsers_only="cookie" not in request.headers)
            else:
                caller = await run_in_threadpool(identify, request)
        except (EvenbeatError, HTTPException) as error:
            caller = error
        request.scope[_CALLER] = access, caller
    if isinstance(caller, Exception):
        raise caller
    return caller


def identify(request: Request) -> Principal:
    """The caller by a token or its cookie; raises NotAuthenticated or ForeignRequest."""
    access: Access = request.app.state.service.access
    if access.is_open:
        check_local(request)
        check_origin(request, browsers_only=True)
        return EVERYONE
    if headers := request.headers.getlist("authorization"):
        scheme, _, token = headers[0].strip().partition(" ")
        if len(headers) > 1 or scheme.lower() != "bearer" or not token.strip():
            raise NotAuthenticated("The Authorization header is not of the form Bearer <token>.")
        return access.authenticate(token.strip())
    cookie = request.cookies.get(COOKIE)
    if not cookie:
        raise NotAuthenticated(
            "This needs a token: send Authorization: Bearer <token>. "
            "`evenbeat token create` makes one."
        )
    principal = access.authenticate(cookie)
    check_origin(request)
    return principal


# -- requests that are not the user's own ----------------------------------------------------------


def check_origin(request: Request, *, browsers_only: bool = False) -> None:
    """Refuse a change that a page of another site makes a browser ask for. With `browsers_only`,
    a caller that shows no sign of being a browser passes."""
    if request.method in SAFE_METHODS:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_ours = site.lower() == "same-origin"
    elif origin is not None:
        try:
            is_ours = urlsplit(origin).netloc.lower() == request.headers["host"].lower() != ""
        except (ValueError, KeyError):
            is_ours = False
    else:
        is_ours = browsers_only
    if not is_ours:
        raise ForeignRequest(
            "With the cookie of a sign-in, changes are accepted from Evenbeat's own pages only. "
            "Programs send an Authorization header, and no cookie."
        )


def check_local(request: Request) -> None:
    """Refuse callers on other machines, whatever host they name; and a host name that is not this
    machine's: without tokens, one that someone else points here (DNS rebinding) would let their
    page in."""
    try:
        peer = ipaddress.ip_address(request.client.host if request.client else "")
        is_elsewhere = not (getattr(peer, "ipv4_mapped", None) or peer).is_loopback
    except ValueError:
        is_elsewhere = False  # a local socket has no address
    try:
        host = _HOST.fullmatch(request.headers.get("host", ""))
        name = (host["name"] or host["address"]) if host else ""
        is_local = f".{name}".endswith(".localhost") or ipaddress.ip_address(name).is_loopback
    except ValueError:
        is_local = False
    if is_elsewhere or not is_local:
        raise ForeignRequest(
            "With --no-auth, this service answers only to localhost and loopback addresses."
        )
