"""The cookie of a sign-in.

`SameSite=Lax`, not `Strict`: with `Strict` a login link clicked in a web terminal or a mail, and a
link to a job in a chat, would arrive without the cookie. What `Strict` would add is done by
`guards.check_origin` for every request that changes something.
"""

from datetime import UTC, datetime

from fastapi import Request, Response

from evenbeat.api.access import SESSION
from evenbeat.api.guards import COOKIE
from evenbeat.errors import InvalidInput

_MOST_CHARACTERS = 3800
"""Browsers keep 4096 bytes, name and attributes included, and silently drop what is longer."""


def keep_signed_in(
    request: Request, response: Response, token: str, expires_at: datetime | None
) -> None:
    """Let the browser show this token from now on, for a session's length at most."""
    if len(token) > _MOST_CHARACTERS:
        raise InvalidInput(
            f"This token has {len(token)} characters; browsers keep {_MOST_CHARACTERS} in a cookie."
            " Use one with fewer claims.",
            field="token",
        )
    left = SESSION if expires_at is None else min(SESSION, expires_at - datetime.now(UTC))
    response.set_cookie(
        COOKIE,
        token,
        max_age=max(1, int(left.total_seconds())),
        path=cookie_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def forget(request: Request, response: Response) -> None:
    """Let the browser forget the sign-in."""
    response.delete_cookie(
        COOKIE,
        path=cookie_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def cookie_path(request: Request) -> str:
    """Where this service lies; another one beside it gets no cookie of ours."""
    return request.scope.get("root_path", "").rstrip("/") or "/"
