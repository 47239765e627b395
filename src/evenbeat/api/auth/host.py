"""Behind a host's own sign-in: `app.asgi(auth=…)`, where a function of the host says who calls.

    def signed_in(request: Request) -> Caller | None:
        user = request.session.get("user")
        return Caller(user["email"], "admin" if user["is_staff"] else "viewer") if user else None

    site.mount("/evenbeat", app.asgi(auth=signed_in))

The host's function replaces tokens and sign-in pages. An error of it lets nobody in.
"""

import inspect
import logging
from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from evenbeat.api.auth.tokens import Principal, Role, TokenlessAccess, check_subject
from evenbeat.domain.caller import Caller
from evenbeat.errors import CannotIssue, InvalidInput, NotSignedIn, SignInFailed

logger = logging.getLogger(__name__)

HOST_SCOPE = "evenbeat.host"
"""Where a request's scope has the one that the host handed over, with the host's own `app`."""

NOBODY = "You are not signed in to the application that this service is mounted in."


SignIn = Callable[[Request], Any]
"""Gives the caller; None for somebody who is not signed in. May be async."""


class HostAccess(TokenlessAccess):
    """Access for those whom the host's function knows."""

    reason = "This service lets in who is signed in to the application that it is mounted in"

    def __init__(self, sign_in: SignIn) -> None:
        self._name = getattr(sign_in, "__qualname__", type(sign_in).__name__)
        try:
            inspect.signature(sign_in).bind(None)
        except TypeError:
            raise InvalidInput(
                "auth must be True, False, or a function that takes the request and returns a "
                f"Caller or None: app.asgi(auth=signed_in); got {sign_in!r}.",
                field="auth",
            ) from None
        except ValueError:
            pass  # a function in C does not tell what it takes
        self._sign_in = sign_in
        self._is_async = any(map(inspect.iscoroutinefunction, (sign_in, type(sign_in).__call__)))

    async def caller_of(self, request: Request) -> Principal:
        """The caller, by the host's function; raises NotSignedIn, SignInFailed, or the
        HTTPException by which the host refuses, or leads to its sign-in."""
        theirs = Request(request.scope.get(HOST_SCOPE, request.scope))  # its body is ours to read
        try:
            if self._is_async:
                caller = await self._sign_in(theirs)
            else:
                caller = await run_in_threadpool(self._sign_in, theirs)
                if inspect.isawaitable(caller):
                    caller = await caller
        except Exception as error:
            if isinstance(error, HTTPException) and error.status_code >= 300:
                raise
            # Its text may hold what only the log may see.
            raise self._failed(f"raised {type(error).__name__}; see the log.", error) from error
        if caller is None:
            raise NotSignedIn(NOBODY)
        if not isinstance(caller, Caller):
            kind = type(caller).__name__
            raise self._failed(f"returned {kind}; it must return a Caller or None.")
        if caller.role not in tuple(Role):
            role = str(caller.role)[:20]
            raise self._failed(f"returned the role {role!r}; a role is one of {', '.join(Role)}.")
        name: Any = caller.name
        if not isinstance(name, str):
            kind = type(name).__name__
            raise self._failed(f"returned a name that is of the type {kind}; it must be a text.")
        try:
            return Principal(check_subject(name), Role(caller.role))
        except InvalidInput as error:
            raise self._failed(f"returned a name that cannot be used. {error}") from error

    def end_session(self, principal: Principal) -> None:  # noqa: ARG002
        raise CannotIssue("Sign out of the application that this service is mounted in.")

    def _failed(self, what: str, error: Exception | None = None) -> SignInFailed:
        message = f"The auth function {self._name} of app.asgi() {what}"
        logger.error("%s Nobody was let in.", message, exc_info=error)
        return SignInFailed(message)
