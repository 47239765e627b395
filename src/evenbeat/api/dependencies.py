"""Who may pass: the dependencies that endpoints name in their signatures.

    @router.get("/jobs")
    def jobs(principal: Viewer) -> ...

A caller shows a token in `Authorization: Bearer …`, or has the cookie of a sign-in. A header that
is there decides alone, good or bad. Browsers send the cookie unasked, so with it a request that
changes something must come from a page of ours.
"""

import ipaddress
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from evenbeat.api.auth.tokens import EVERYONE, Access, Principal, Role
from evenbeat.api.problems import responses
from evenbeat.app import Evenbeat
from evenbeat.engine.worker import Worker
from evenbeat.errors import AccessDenied, ForeignRequest, NotAuthenticated, RoleTooLow


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of one serving process. The worker is None where none runs beside the API."""

    app: Evenbeat
    access: Access
    worker: Worker | None = None

    @property
    def now(self) -> datetime | None:
        """The application's own time when it has one (tests travel), else None: the database's."""
        return None if self.app.clock is None else self.app.clock.override()


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(_service)]


COOKIE = "evenbeat_session"
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="evenbeat"'}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

DENIED = responses(401, 403)
"""For routers whose endpoints have a guard: `APIRouter(responses=DENIED)`."""

_bearer = HTTPBearer(
    auto_error=False,
    bearerFormat="JWT",
    scheme_name="token",
    description="A token of `evenbeat token create`, or of your identity provider.",
)
_Documented = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]


def at_least(needed: Role) -> Callable[..., Coroutine[Any, Any, Principal]]:
    """A dependency that lets through who has the role, or one above it. Nearly always it can tell
    at once; a thread is taken only to ask the database."""

    async def guard(request: Request, _documented: _Documented) -> Principal:
        with denials_answered():
            if access_of(request).is_quick:
                principal = identify(request)
            else:
                principal = await run_in_threadpool(identify, request)
            if not principal.role.covers(needed):
                raise RoleTooLow(needed, principal.role)
        return principal

    return guard


def known(request: Request) -> Principal | None:
    """Who asks, None if that cannot be told: for pages, which then offer to sign in."""
    try:
        return identify(request)
    except NotAuthenticated:
        return None
    except ForeignRequest as error:
        raise HTTPException(403, str(error)) from None


Viewer = Annotated[Principal, Depends(at_least(Role.VIEWER))]
Operator = Annotated[Principal, Depends(at_least(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(at_least(Role.ADMIN))]
MaybePrincipal = Annotated[Principal | None, Depends(known)]


@contextmanager
def denials_answered() -> Iterator[None]:
    """What access refuses becomes 401, with a challenge, or 403."""
    try:
        yield
    except NotAuthenticated as error:
        raise HTTPException(401, str(error), CHALLENGE) from None
    except AccessDenied as error:
        raise HTTPException(403, str(error)) from None


def access_of(request: Request) -> Access:
    """The door of the service that the request came to."""
    access: Access = request.app.state.service.access
    return access


def identify(request: Request) -> Principal:
    """Who asks; raises NotAuthenticated or ForeignRequest."""
    access = access_of(request)
    if access.is_open:
        check_local(request)
        check_origin(request, browsers_only=True)
        return EVERYONE
    shown = request.headers.getlist("authorization")
    if shown:
        return access.authenticate(_token_in(shown))
    cookie = request.cookies.get(COOKIE)
    if not cookie:
        raise NotAuthenticated(
            "This needs a token: send Authorization: Bearer <token>. "
            "`evenbeat token create` makes one."
        )
    principal = access.authenticate(cookie)
    check_origin(request)
    return principal


def _token_in(headers: list[str]) -> str:
    scheme, _, token = headers[0].strip().partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise NotAuthenticated("The Authorization header is not of the form Bearer <token>.")
    return token.strip()


# -- requests that are not the user's own ----------------------------------------------------------


def check_origin(request: Request, *, browsers_only: bool = False) -> None:
    """Refuse a change that a page of another site makes a browser ask for. With `browsers_only`,
    a caller that shows no sign of being a browser passes."""
    if request.method in SAFE_METHODS:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        ours = site.lower() == "same-origin"
    elif origin is not None:
        ours = _place_of(origin) == request.headers.get("host", "").lower() != ""
    else:
        ours = browsers_only
    if not ours:
        raise ForeignRequest(
            "With the cookie of a sign-in, changes are accepted from Evenbeat's own pages only. "
            "Programs send Authorization: Bearer <token>."
        )


def _place_of(origin: str) -> str:
    """The host and port of an origin; nothing for what is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def check_local(request: Request) -> None:
    """Refuse callers on other machines, whatever host they name; and a host name that is not this
    machine's: without tokens, one that someone else points here (DNS rebinding) would let their
    page in."""
    host = request.headers.get("host", "")
    if _is_elsewhere(request) or not _is_local(_host_name(host)):
        raise ForeignRequest(
            "With --no-auth, this service answers only to localhost and loopback addresses."
        )


def _is_elsewhere(request: Request) -> bool:
    """Whether the caller has an address, and one of another machine; a local socket has none."""
    try:
        peer = ipaddress.ip_address(request.client.host if request.client else "")
    except ValueError:
        return False
    mapped = getattr(peer, "ipv4_mapped", None)
    return not (mapped or peer).is_loopback


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_local(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
