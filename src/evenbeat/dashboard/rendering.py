"""How a page is rendered: the templates, what they may write after a `|`, and the few files that
browsers cache (style sheet, script and icon), each versioned by its content."""

import hashlib
import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from evenbeat import humanize
from evenbeat.errors import NotFound
from evenbeat.plugins import folders

NOTHING = "\N{EN DASH}"
"""Stands where there is no value."""

_HERE = Path(__file__).parent
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOREVER = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@pass_context
def when(context: Context, moment: datetime | None) -> Markup | str:
    """The time of day (and the date, when it is not today)."""
    if moment is None:
        return NOTHING
    return _time(context, moment, humanize.time_of_day(moment, context["now"], context["zone"]))


@pass_context
def relative(context: Context, moment: datetime | None) -> Markup | str:
    """How far away: `in 5 min`. The script keeps it current."""
    if moment is None:
        return NOTHING
    text = humanize.relative(moment, context["now"])
    return _time(context, moment, text, Markup(" data-relative"))


@pass_context
def day(context: Context, moment: datetime) -> Markup:
    return _time(context, moment, humanize.day_and_time(moment, context["zone"]))


@pass_context
def exact(context: Context, moment: datetime | None) -> Markup | str:
    return NOTHING if moment is None else _time(context, moment, _in_full(context, moment))


@pass_context
def to_millisecond(context: Context, moment: datetime) -> str:
    at = moment.astimezone(context["zone"])
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}"


def _time(context: Context, moment: datetime, text: str, extra: str = "") -> Markup:
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(
        moment.isoformat(), _in_full(context, moment), extra, text
    )


def _in_full(context: Context, moment: datetime) -> str:
    return f"{moment.astimezone(context['zone']):%a} {humanize.timestamp(moment, context['zone'])}"


def share(part: float | None) -> str:
    """A share as a percentage that says 100 % only of all, and 0 % only of none."""
    if part is None:
        return NOTHING
    percent = part * 100
    if 0 < percent < 0.1 or 99.9 < percent < 100:
        return "< 0.1 %" if percent < 50 else "> 99.9 %"
    return f"{percent:.0f} %" if percent in (0, 100) or 10 <= percent < 99 else f"{percent:.1f} %"


def pretty(value: Any) -> str:
    """A value as JSON for people."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


templates = Environment(
    loader=FileSystemLoader([_HERE / "templates", *folders("templates")]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.filters |= {
    "when": when,
    "relative": relative,
    "day": day,
    "exact": exact,
    "to_millisecond": to_millisecond,
    "pretty": pretty,
    "number": lambda value: NOTHING if value is None else f"{value:,.0f}",
    "svg": Markup,  # a chart of `evenbeat.charts`, which escapes whatever it is given
    "duration": lambda milliseconds: humanize.milliseconds(milliseconds) or NOTHING,
    "seconds": lambda seconds: NOTHING if seconds is None else humanize.duration(seconds),
    "share": share,
    "count": humanize.count,
}


@router.get("/static/{name}", name="asset")
def asset(request: Request, name: str) -> Response:
    """One file. Under its current version it may be cached forever, otherwise not at all."""
    if name not in files():
        raise NotFound("file", name)
    content, version = files()[name]
    current = request.query_params.get("v") == version
    headers = {"Cache-Control": _FOREVER if current else "no-cache"}
    media_type = _TYPES[Path(name).suffix] + "; charset=utf-8"
    return Response(content, headers=headers, media_type=media_type)


@cache
def files() -> dict[str, tuple[bytes, str]]:
    """Content and version of each file: read once, so that no request can name any other."""
    contents = {p.name: p.read_bytes() for p in (_HERE / "static").iterdir() if p.suffix in _TYPES}
    return {name: (data, hashlib.sha256(data).hexdigest()[:12]) for name, data in contents.items()}
