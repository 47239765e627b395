"""What templates may write after a `|`. Those for moments know the page's time and time zone."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from evenbeat import humanize

NOTHING = "\N{EN DASH}"
"""Stands where there is no value."""


@pass_context
def when(context: Context, moment: datetime | None) -> Markup | str:
    """The time of day (and the date, when it is not today), in the visitor's time zone."""
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
    """The moment with its day."""
    return _time(context, moment, humanize.day_and_time(moment, context["zone"]))


@pass_context
def exact(context: Context, moment: datetime | None) -> Markup | str:
    """The moment in full."""
    return NOTHING if moment is None else _time(context, moment, _in_full(context, moment))


def _time(context: Context, moment: datetime, text: str, extra: str = "") -> Markup:
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(
        moment.isoformat(), _in_full(context, moment), extra, text
    )


def _in_full(context: Context, moment: datetime) -> str:
    return f"{moment.astimezone(context['zone']):%a} {humanize.timestamp(moment, context['zone'])}"


def pretty(value: Any) -> str:
    """A value as JSON for people."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def share(part: float | None) -> str:
    """A share as a percentage that says 100 % only of all, and 0 % only of none."""
    if part is None:
        return NOTHING
    percent = part * 100
    if 0 < percent < 0.1 or 99.9 < percent < 100:
        return "< 0.1 %" if percent < 50 else "> 99.9 %"
    return f"{percent:.0f} %" if percent in (0, 100) or 10 <= percent < 99 else f"{percent:.1f} %"


def svg(text: str) -> Markup:
    """A chart of `evenbeat.charts`, which escapes whatever it is given."""
    return Markup(text)  # noqa: S704


ALL: dict[str, Callable[..., Any]] = {
    "when": when,
    "relative": relative,
    "day": day,
    "exact": exact,
    "pretty": pretty,
    "number": lambda value: NOTHING if value is None else f"{value:,.0f}",
    "svg": svg,
    "duration": lambda milliseconds: humanize.milliseconds(milliseconds) or NOTHING,
    "seconds": lambda seconds: NOTHING if seconds is None else humanize.duration(seconds),
    "share": share,
    "count": humanize.count,
}
