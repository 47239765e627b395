"""What a reader returns: job documents, and what has to be reviewed by hand; and what readers have
in common."""

import hashlib
import inspect
import json
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pydantic import ValidationError

from evenbeat.api.requests import JobCreate, new_job, task_of
from evenbeat.domain.job import JobSpec
from evenbeat.domain.moments import as_utc
from evenbeat.domain.schedule import Cron, Interval
from evenbeat.domain.setting_kinds import MAX_NAME
from evenbeat.errors import InvalidInput, validation_message

Document = dict[str, Any]

_HASH = 6


class ParsedJob(NamedTuple):
    """A job of the source: where it was found, its original text, the document it becomes, and a
    remark on the conversion."""

    where: str
    text: str
    document: Document
    remark: str | None = None


class NeedsReview(NamedTuple):
    """What was not imported, or not entirely, and why somebody has to decide."""

    where: str
    text: str
    why: str


class Remark(NamedTuple):
    """What else the source contains, and what becomes of it."""

    where: str
    text: str
    what: str


@dataclass(slots=True)
class ImportSource:
    """Everything that was read. `tag` marks the jobs that come from it; a file of Evenbeat's own
    documents has none, because there the name alone identifies a job."""

    tag: str | None = None
    jobs: list[ParsedJob] = field(default_factory=list)
    reviews: list[NeedsReview] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    templates: list[Document] = field(default_factory=list)

    def add(self, where: str, text: str, document: Document, remark: str | None = None) -> None:
        """A job of the source, marked with its tag. Raises InvalidInput for a document that the API
        would refuse."""
        try:
            request = JobCreate.model_validate(document)
            new_job(request, JobSpec(task=task_of(request)), {}, "import")
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                raise InvalidInput(f"there is no field {name!r}.") from None
            raise InvalidInput(f"{name}: {validation_message(first)}") from None
        tags = {} if self.tag is None else {"tags": [self.tag]}
        self.jobs.append(ParsedJob(where, text, document | tags, remark))

    def review(self, where: str, text: str, why: str) -> None:
        self.reviews.append(NeedsReview(where, text, why))


def tag_of(kind: str, origin: str) -> str:
    """The tag of jobs imported from `origin`. Commas would split it where filters list tags."""
    return name_of(f"imported:{kind}:{origin.replace(',', '_')}")


def name_of(text: str) -> str:
    """The text as a name: printable, and cut where it is overlong, but still distinct."""
    name = "".join(sign if sign.isprintable() else "?" for sign in text).strip() or "?"
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - _HASH - 1]}-{digest(name)}"


def digest(text: str) -> str:
    """A few letters that tell texts apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]


def moment_text(moment: datetime) -> str:
    """A moment as documents have it."""
    return moment.isoformat().replace("+00:00", "Z")


def moment_of(value: object, name: str) -> datetime:
    """The moment that a field of a document names."""
    try:
        return as_utc(datetime.fromisoformat(str(value)), field=name)
    except ValueError:
        shown = reprlib.repr(value)[:60]  # aliases of YAML may stand for more than fits into memory
        raise InvalidInput(
            f"{name} is a moment such as 2030-01-31T09:00:00Z, not {shown}.", field=name
        ) from None


def payload_of(
    args: Sequence[Any], kwargs: Mapping[str, Any], function: Callable[..., Any] | None
) -> Document:
    """The arguments of a call as a payload. Positional ones get the names of the function's
    parameters, if the function is known."""
    named: Document = {}
    if args:
        if function is None:
            raise InvalidInput(
                "It has arguments without names, and its function is not at hand to tell them. "
                "Give them by name there."
            )
        try:
            bound = inspect.signature(function).bind_partial(*args)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"Its {len(args)} arguments do not fit the parameters of its function."
            ) from None
        named = dict(bound.arguments)
        kinds = {bound.signature.parameters[name].kind for name in named}
        if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY}:
            raise InvalidInput(
                "Its function takes arguments that have no names (*args, or before /)."
            )
    try:
        payload: Document = json.loads(json.dumps({**named, **kwargs}, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput(
            "Its arguments cannot be written as JSON. Pass something that can, such as an id, and "
            "let the handler look the rest up."
        ) from None
    return payload


class Balance(NamedTuple):
    """What may become of cron: balanced `intervals` where it only says how often, and so much
    `slack` where it names a time."""

    intervals: bool = False
    slack: timedelta | None = None


AS_IT_STANDS = Balance()


def cron_timing(cron: Cron, balance: Balance) -> tuple[Document, str | None]:
    """The fields that say when, and a remark: cron as it stands, or what it may become."""
    unchanged = {"schedule": cron.expression, "timezone": cron.timezone}
    if balance == AS_IT_STANDS:
        return unchanged, None
    becomes: Cron | Interval = cron
    if balance.intervals:
        from evenbeat.placement.simulate import balanced_form  # noqa: PLC0415 - NumPy

        becomes = balanced_form(cron, balance.slack)
    elif balance.slack is not None:
        becomes = cron.with_slack(balance.slack)
    if isinstance(becomes, Interval):
        older = {  # answered with the job, as a way back
            "interval_minutes": int(becomes.every.total_seconds()) // 60,
            "interval_type": "minutes",
            "schedule_time": cron.expression,
        }
        return {"schedule": becomes.text, **older}, f"was {cron.expression}"
    if becomes != cron:
        return unchanged | {"schedule": becomes.text}, f"was {cron.expression}"
    minute, hour, *days = [*cron.expression.split(), "", ""][:5]
    if days != ["*", "*", "*"]:  # names such as @weekly are one word
        reason = "it names certain days"
    elif not any(re.fullmatch(r"\*(/\d+)?", part) for part in (minute, hour)):
        reason = "it names a time of day"
    elif "/" in minute + hour:
        reason = "its runs are not evenly spaced, or do not start at midnight"
    else:
        reason = "it names a minute of the hour"
    return unchanged, f"stays cron: {reason}"


def check_days(day_of_month: str, day_of_week: str) -> None:
    """Cron fields that other schedulers join by "and": cron does so only where one begins with a
    star."""
    if not day_of_month.startswith("*") and not day_of_week.startswith("*"):
        raise InvalidInput(
            "It runs on certain days of the month if they fall on certain days of the week, which "
            "cron cannot say. Import one condition, and check the other in the handler."
        )
