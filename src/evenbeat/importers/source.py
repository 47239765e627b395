"""What a reader finds: documents of jobs, and what only a person can decide."""

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from evenbeat.domain.duration import format_duration
from evenbeat.domain.job import MAX_NAME
from evenbeat.domain.schedule import Cron
from evenbeat.errors import InvalidInput

Document = dict[str, Any]

_HASH = 6


class Found(NamedTuple):
    """A job of the source: where it stands, what stands there, the document that it becomes, and
    a remark on the way it became that."""

    where: str
    text: str
    document: Document
    remark: str | None = None


class Look(NamedTuple):
    """What was not imported, or not all of it, and why a person has to decide."""

    where: str
    text: str
    why: str


class Remark(NamedTuple):
    """What else stands in the source, and what becomes of it."""

    where: str
    text: str
    what: str


@dataclass(slots=True)
class Source:
    """Everything that a source holds. `tag` marks the jobs that come from it; a file of Evenbeat's
    own documents has none, because there the name alone tells which job is meant."""

    tag: str | None = None
    found: list[Found] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    templates: list[Document] = field(default_factory=list)


def tag_of(kind: str, origin: str) -> str:
    """The mark of what was imported from there; an overlong origin is cut, but stays distinct.
    Commas would part it where filters list tags."""
    tag = f"imported:{kind}:{printable(origin).replace(',', '_')}"
    return tag if len(tag) <= MAX_NAME else f"{tag[: MAX_NAME - _HASH - 1]}-{digest(tag)}"


def digest(text: str) -> str:
    """A few letters that tell texts apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]


def printable(text: str) -> str:
    """The text without what a name may not contain."""
    return "".join(sign if sign.isprintable() else "?" for sign in text).strip() or "?"


def name_of(text: str) -> str:
    """A text as the name of a job."""
    name = printable(text)
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - _HASH - 1]}-{digest(text)}"


def moment_text(moment: datetime) -> str:
    """A moment as documents have it."""
    return moment.isoformat().replace("+00:00", "Z")


def interval_text(every: timedelta) -> str:
    """An interval as documents have it."""
    return f"@every {format_duration(every)}"


# -- cron that only means an interval ------------------------------------------------------------


class Timing(NamedTuple):
    """The fields of a document that say when, and a remark on how they came about."""

    fields: Document
    remark: str | None = None


def cron_timing(cron: Cron, *, balance: bool) -> Timing:
    """Cron as it stands or, if asked for and if it only says how often, as a balanced interval."""
    as_is = {"schedule": cron.expression, "timezone": cron.timezone}
    if not balance:
        return Timing(as_is)
    from evenbeat.placement.forecast import every_of  # noqa: PLC0415 - NumPy, if it is needed

    every = every_of(cron)
    if every is None:
        return Timing(as_is, f"stays cron: {_chosen_time(cron)}")
    return Timing({"schedule": interval_text(every)}, f"was {cron.expression}")


def _chosen_time(cron: Cron) -> str:
    """Why an expression is more than an interval."""
    if cron.expression.startswith("@"):
        return "it names certain days"
    minute, hour, *days = cron.expression.split()
    if days != ["*", "*", "*"]:
        return "it names certain days"
    if re.fullmatch(r"\*(/\d+)?", minute) or re.fullmatch(r"\*(/\d+)?", hour):
        if "/" in minute + hour:
            return "its runs are not evenly spaced, or do not start at midnight"
        return "it names a minute of the hour"
    return "it names a time of day"


def checked_cron(expression: str, timezone: str) -> Cron:
    """The schedule, or InvalidInput that says what is wrong with it."""
    if "~" in expression:
        raise InvalidInput(
            f"{expression!r} asks for a random minute, which Evenbeat does by balancing: choose an "
            "interval, such as --every 1d, or a fixed minute."
        )
    return Cron(expression, timezone)
