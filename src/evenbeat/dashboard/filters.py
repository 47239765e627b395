"""What templates may write after a `|`. Those for moments know the page's time and time zone."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from evenbeat.dashboard import words


@pass_context
def when(context: Context, moment: datetime | None) -> Markup | str:
    """The time of day (and the date, when it is not today), in the visitor's time zone."""
    if moment is None:
        return words.NOTHING
    return _time(moment, words.moment(moment, context["now"], context["zone"]), context)


@pass_context
def relative(context: Context, moment: datetime | None) -> Markup | str:
    """How far away: `in 5 min`. The script keeps it current."""
    if moment is None:
        return words.NOTHING
    text = words.relative(moment, context["now"])
    return _time(moment, text, context, Markup(" data-relative"))


@pass_context
def day(context: Context, moment: datetime) -> Markup:
    """The moment with its day."""
    return _time(moment, words.day_and_time(moment, context["zone"]), context)


@pass_context
def exact(context: Context, moment: datetime | None) -> Markup | str:
    """The moment in full."""
    if moment is None:
        return words.NOTHING
    return _time(moment, words.exact(moment, context["zone"]), context)


def _time(moment: datetime, text: str, context: Context, extra: str = "") -> Markup:
    title = words.exact(moment, context["zone"])
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(
        moment.isoformat(), title, extra, text
    )


def pretty(value: Any) -> str:
    """A value as JSON for people."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def number(value: float | None) -> str:
    """A whole number with its thousands apart."""
    return words.NOTHING if value is None else f"{value:,.0f}"


def svg(text: str) -> Markup:
    """A chart of `evenbeat.charts`, which escapes whatever it is given."""
    return Markup(text)  # noqa: S704


ALL: dict[str, Callable[..., Any]] = {
    "when": when,
    "relative": relative,
    "day": day,
    "exact": exact,
    "pretty": pretty,
    "number": number,
    "svg": svg,
    "duration": words.duration,
    "seconds": words.seconds,
    "share": words.share,
    "count": words.count,
}
