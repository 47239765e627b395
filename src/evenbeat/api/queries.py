"""Which jobs are meant: the same names in a list's query and in the filter of a bulk verb."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

from evenbeat.api.fields import MAX_TAGS, Id, Moment, Offset, PageQuery, check_json
from evenbeat.api.requests import Request
from evenbeat.domain.schedule import KINDS
from evenbeat.domain.states import ExecutionStatus, JobStatus
from evenbeat.humanize import any_of
from evenbeat.store.lists import MAX_OFFSET, SORT_FIELDS, JobFilter
from evenbeat.store.part import one_of
from evenbeat.store.runs import RunFilter


def _split(value: Any) -> Any:
    """Words given as a list, separated by commas, or both."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return value
    check_json(value)
    return [word for item in value for word in map(str.strip, item.split(",")) if word]


Word = Annotated[str, Field(min_length=1, max_length=200)]


def words_schema(**word: Any) -> WithJsonSchema:
    """What is said of words: a list of such, or nothing."""
    words = {"type": "array", "items": {"type": "string", "maxLength": 200, **word}}
    return WithJsonSchema(
        {"anyOf": [{**words, "minItems": 1, "maxItems": MAX_TAGS}, {"type": "null"}]}
    )


Words = Annotated[
    # One at least: an empty list must not mean "any", since a bulk verb would then reach every job.
    Annotated[list[Word], Field(min_length=1, max_length=MAX_TAGS)] | None,
    BeforeValidator(_split),
    words_schema(pattern=r"[^,\s]"),
]
Text = Annotated[str, Field(max_length=200)] | None


def _beginning(value: str) -> str:
    if re.fullmatch(_BEGINNING, value) is None:
        raise ValueError("it must be 4 to 32 hexadecimal digits, with or without dashes")
    return value


_BEGINNING = "([0-9a-fA-F]-*){4,32}"
Beginning = Annotated[
    str,
    Field(max_length=36, json_schema_extra={"pattern": f"^{_BEGINNING}$"}),
    AfterValidator(_beginning),
]


def filled(beginning: str | None, digit: str) -> UUID | None:
    """The first (0) or last (f) id that begins so."""
    return None if beginning is None else UUID(beginning.replace("-", "").ljust(32, digit))


JobOffset = Annotated[Offset, Field(json_schema_extra={"maximum": MAX_OFFSET})]


class FilterFields(BaseModel):
    """Conditions that must all hold; several words for one mean any of them (of tags: all)."""

    status: Annotated[Words, words_schema(enum=[*JobStatus])] = None
    queue: Words = None
    task: Words = None
    kind: Annotated[Words, words_schema(enum=[*KINDS])] = Field(
        None, description=f"{any_of(KINDS)}."
    )
    tag: Words = None
    search: Text = Field(None, description="A part of the name or of the task.")
    name: Text = None
    id: Beginning | None = Field(None, description="How the id begins; 4 digits at least.")
    parent_id: Id | None = None
    batch: Id | None = Field(None, description="The id of a batch, of whose jobs.")
    is_paused: bool | None = None
    due_before: Moment | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None

    def job_filter(self) -> JobFilter:
        """The filter as the store knows it."""
        one_of("status", self.status, tuple(JobStatus))
        one_of("kind", self.kind, tuple(KINDS))
        fields = self.model_dump(exclude={"id", "tag", "sort", "limit", "offset"})
        return JobFilter(
            **{_PLURALS.get(name, name): value for name, value in fields.items()},
            first_id=filled(self.id, "0"),
            last_id=filled(self.id, "f"),
            tag=self.tag[0] if self.tag else None,
            metadata={"tags": self.tag} if self.tag and len(self.tag) > 1 else None,
        )


_PLURALS = {
    "status": "statuses", "queue": "queues", "task": "tasks", "kind": "kinds",
    "error_code": "error_codes",
}  # fmt: skip


class JobQuery(FilterFields, PageQuery):
    offset: JobOffset = 0
    sort: Annotated[str, Field(max_length=50)] = Field(
        "-created_at",
        description=f"One of {', '.join(SORT_FIELDS)}; a minus before it descends.",
        json_schema_extra={"pattern": f"^-?({'|'.join(SORT_FIELDS)})$"},
    )


class JobFilterFields(FilterFields, Request):
    """The filter of a bulk verb."""

    model_config = ConfigDict(
        json_schema_extra={"not": {"additionalProperties": {"type": "null"}}}  # it says something
    )

    search: Word | None = Field(None, description="A part of the name or of the task.")
    name: Word | None = None


class ExecutionQuery(PageQuery):
    status: Annotated[Words, words_schema(enum=[*ExecutionStatus])] = None

    def statuses(self) -> Sequence[str] | None:
        """The states that are meant; None for all."""
        one_of("status", self.status, tuple(ExecutionStatus))
        return self.status


class RunFields(BaseModel):
    """Conditions on runs that must all hold; several words for one mean any of them."""

    status: Annotated[Words, words_schema(enum=[*ExecutionStatus])] = None
    task: Words = None
    queue: Words = None
    error_code: Words = None
    tag: Word | None = None
    job_id: Id | None = None
    worker_id: Id | None = None
    since: Moment | None = Field(None, description="That ended since then, or still run.")
    until: Moment | None = Field(None, description="That ended before then.")
    search: Text = Field(None, description="A part of the error, the job's name or the task.")

    def run_filter(self) -> RunFilter:
        """The filter as the store knows it."""
        one_of("status", self.status, tuple(ExecutionStatus))
        fields = self.model_dump(include=set(RunFields.model_fields))
        return RunFilter(**{_PLURALS.get(name, name): value for name, value in fields.items()})


class RunGroupQuery(RunFields):
    model_config = ConfigDict(extra="forbid")

    def run_filter(self) -> RunFilter:
        ended = super().run_filter()
        return ended if self.status else replace(ended, statuses=["failed", "cancelled"])


class RunFilterFields(RunFields, Request):
    """The filter of a bulk verb."""

    search: Word | None = Field(None, description="A part of the error, the name or the task.")


class RunQuery(RunFields, PageQuery):
    id: Beginning | None = Field(None, description="How the id begins; 4 digits at least.")
    before: Id | None = Field(None, description="That began before this run; see `further`.")

    def run_filter(self) -> RunFilter:
        first, last = filled(self.id, "0"), filled(self.id, "f")
        return replace(super().run_filter(), first_id=first, last_id=last, before=self.before)
