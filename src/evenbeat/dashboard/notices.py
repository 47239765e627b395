"""Notices: one sentence about what just happened, carried over a redirect in a cookie."""

import base64
import json
from typing import NamedTuple

from fastapi import Request, Response

from evenbeat.api.auth.sessions import cookie_path

COOKIE = "evenbeat_notice"
_MOST = 3
_LONGEST = 900


class Notice(NamedTuple):
    """What happened. `kind` is done, refused or failed; an offered action is a form's address
    (of this dashboard) and the words on its button."""

    text: str
    kind: str = "done"
    offer: str = ""
    offer_path: str = ""


def carry(request: Request, response: Response, notices: list[Notice]) -> None:
    """Show these on the next page."""
    shown = [notice._replace(text=_short(notice.text)) for notice in notices[:_MOST]]
    packed = base64.urlsafe_b64encode(json.dumps(shown).encode()).decode()
    response.set_cookie(
        COOKIE,
        packed,
        max_age=60,
        path=cookie_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def carried(request: Request) -> list[Notice]:
    """What the page before left to say. Anything that is not ours is nothing."""
    packed = request.cookies.get(COOKIE, "")
    try:
        given = json.loads(base64.urlsafe_b64decode(packed)) if packed else []
        return [Notice(*map(str, entry)) for entry in given[:_MOST]]
    except (ValueError, TypeError, RecursionError):
        return []


def drop(request: Request, response: Response) -> None:
    """They have been read."""
    response.delete_cookie(COOKIE, path=cookie_path(request))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
