"""What documents consist of: values that are checked once, pages, and fields that come from rows.

Bodies are read strictly: a number in quotes is not a number. What PostgreSQL could not hold or what
could exhaust a reader (NUL characters, lone surrogates, endless nesting) is refused at the door.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self, TypeVar, cast, get_type_hints
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
)

from evenbeat.domain import setting_kinds as kinds
from evenbeat.domain.duration import parse_duration
from evenbeat.domain.ids import parse_id
from evenbeat.domain.limits import parse_rate
from evenbeat.domain.moments import as_utc, zone_named
from evenbeat.domain.setting_kinds import MAX_NAME, check_name
from evenbeat.domain.window import parse_window
from evenbeat.external.addresses import http_url
from evenbeat.store.part import MAX_PAGE

MAX_DEPTH = 32
MAX_DESCRIPTION = 10_000
MAX_URL = 2_000
MAX_SOURCE = 500
MAX_TAGS = 100
MAX_INTEGER = 2**31 - 1
WEB_ADDRESS = "^[Hh][Tt][Tt][Pp][Ss]?://"
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""Room at both ends: no delay, window or interval can lead out of the calendar from here."""

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


def check_json(value: Any) -> Any:
    """Refuse what cannot be stored, however deep it hides; the value itself is never changed."""
    waiting = [(value, 1)]
    while waiting:
        part, depth = waiting.pop()
        if isinstance(part, str):
            check_text(part)
        elif isinstance(part, dict | list):
            if depth > MAX_DEPTH:
                raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
            children = [*part, *part.values()] if isinstance(part, dict) else part
            waiting.extend((child, depth + 1) for child in children)
    return value


def check_text(text: str) -> str:
    """Refuse characters that PostgreSQL cannot hold."""
    if "\x00" in text:
        raise ValueError("it contains the character U+0000, which cannot be stored")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it contains half of a surrogate pair, which is no character") from None
    return text


def _moment(value: Any) -> datetime:
    if isinstance(value, str) and len(value) <= 64:
        with suppress(ValueError):
            # In a query a plain "+" means a space, so "…T10:00:00+01:00" arrives with one.
            value = datetime.fromisoformat(value.replace(" ", "+"))
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError(
            'it has no time zone or is not a time; for example "2030-01-31T09:00:00Z" or '
            '"2030-01-31T09:00:00+01:00"'
        )
    if not EARLIEST <= as_utc(value) <= LATEST:
        raise ValueError(f"it must lie between the years {EARLIEST.year} and {LATEST.year}")
    return as_utc(value)


def _text(
    longest: int,
    read: Callable[[str], str] = str,
    examples: list[str] | None = None,
    **schema: Any,
) -> Any:
    """A text of 1 to `longest` characters, as `read` returns it. The schema says what is known of
    it beforehand: a pattern, or by a format the grammar that `read` has."""
    field = Field(
        min_length=1, max_length=longest, examples=examples, json_schema_extra=schema or None
    )
    return Annotated[str, field, AfterValidator(read)]


def _name(field: str) -> Any:
    def read(value: str) -> str:
        check_name(field, value)
        return value

    return _text(MAX_NAME, read, format="name")


def _url(value: str) -> str:
    if http_url(value) is None:
        raise ValueError('it is not an http or https URL; for example "https://example.com/feed"')
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("it must contain printable characters only")
    return value


def id_of(value: Any, problem: str = "it is not an id") -> UUID:
    """The id that a value is, with or without dashes."""
    id_ = parse_id(value)
    if id_ is None:
        raise ValueError(problem)
    return id_


def _plain(value: float) -> float:
    return int(value) if float(value).is_integer() else round(value, 3)


_TIME_SCHEMA = {
    "type": "string",
    "format": "date-time",
    "pattern": "^(19|[2-8][0-9])[0-9]{2}-",
    "examples": ["2030-01-31T09:00:00Z"],
}
_DURATION_SCHEMA = kinds.Duration(least=timedelta(0)).json_schema

Json = dict[str, Any]
Several = Annotated[list[T], Field(max_length=MAX_TAGS)]
Id = Annotated[UUID, BeforeValidator(id_of)]
Number = Annotated[int | float, WithJsonSchema({"type": "number"})]
Rounded = Annotated[Number, AfterValidator(_plain)]
"""Whole numbers without a fraction, others to the thousandth."""

Moment = Annotated[datetime, BeforeValidator(_moment), WithJsonSchema(_TIME_SCHEMA)]
Duration = Annotated[timedelta, BeforeValidator(parse_duration), WithJsonSchema(_DURATION_SCHEMA)]
TaskName = _name("task")
QueueName = _name("queue")
JobName = _name("name")
DedupKey = _name("dedup_key")
JobReference = _name("after")
Tag = _name("tag")
Url = _text(MAX_URL, _url, format="uri", pattern=WEB_ADDRESS)
SourceText = _text(MAX_SOURCE, _printable, format="printable")
Timezone = _text(64, lambda name: zone_named(name).key, format="time-zone")
Window = _text(
    200,
    lambda text: str(parse_window(text)),
    ["Mon-Fri 22:00-06:00 Europe/Berlin"],
    format="window",
)
RateText = _text(
    100, lambda text: str(parse_rate(text)), ["10/s", "100/min", "5 per 30s"], format="rate"
)
ScheduleText = _text(200, examples=["0 9 * * mon-fri", "@daily", "@every 90m"], format="schedule")
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE, description="How many at most.")]
Offset = Annotated[int, Field(ge=0, le=MAX_INTEGER, description="How many to leave out first.")]


# -- models ----------------------------------------------------------------------------------------


class PageQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Limit = 50
    offset: Offset = 0

    @property
    def paging(self) -> Json:
        """Where in the list the page is, for its response."""
        return {"limit": self.limit, "offset": self.offset}


class RowDocument(BaseModel):
    """What is answered about a row."""

    @classmethod
    def of(cls, row: Any, **more: Any) -> Self:
        """The document of a NamedTuple, with `more` in addition or instead."""
        return cls.model_validate(row._asdict() | more, from_attributes=True)


class Page(RowDocument):
    """Where in a list a page is."""

    total: int
    limit: int
    offset: int


class EstimatedPage(Page):
    """A page of a list whose total may be an estimate."""

    total_is_estimate: bool = Field(description="Whether `total` may be off.")


def counts_schema(names: Iterable[str]) -> WithJsonSchema:
    """What is said of a mapping: how many there are of each of these."""
    counts = {name: {"type": "integer"} for name in names}
    return WithJsonSchema({"type": "object", "properties": counts, "required": list(counts)})


def one_given(*fields: str) -> Json:
    """For a model's schema: at least one of these fields, and not null."""
    given = [{"required": [one], "properties": {one: {"not": {"type": "null"}}}} for one in fields]
    return {"anyOf": given}


def only_if_any(description: str) -> Any:
    """A field that is left out of a response where it has nothing to say."""
    return Field(None, description=description, exclude_if=lambda value: value is None)


def fields_of(
    source: type[tuple[Any, ...] | BaseModel],
    *,
    only: Collection[str] | None = None,
    omit: Collection[str] = (),
    more: Mapping[str, Any] | None = None,
) -> Callable[[type[M]], type[M]]:
    """Give a model the fields of a NamedTuple or of another model, in their order, and `more`. The
    model itself declares only those about which there is more to say:

        @fields_of(KeyLimit)
        class LimitDocument(BaseModel):
            waiting: int = Field(description="Counted up to 1000.")
    """

    def complete(model: type[M]) -> type[M]:
        fields: dict[str, Any] = {}
        if issubclass(source, BaseModel):
            fields |= {name: (info.annotation, info) for name, info in source.model_fields.items()}
        else:
            fields |= {name: (hint, ...) for name, hint in get_type_hints(source).items()}
        fields = {
            name: field
            for name, field in fields.items()
            if (only is None or name in only) and name not in omit
        }
        fields |= more or {}
        fields |= {name: (info.annotation, info) for name, info in model.model_fields.items()}
        completed = create_model(
            model.__name__,
            __base__=model.__base__,
            __doc__=model.__doc__,
            __module__=model.__module__,
            **fields,
        )
        return cast("type[M]", completed)

    return complete
