"""What models of requests and responses share: pages, and fields declared once.

A field is declared in the row or model that it comes from, and once more only where more is to be
said about it:

    @fields_of(KeyLimit)
    class LimitDocument(BaseModel):
        waiting: int = Field(description="Counted up to 1000.")
"""

from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from evenbeat.api.field_types import Limit, Offset

M = TypeVar("M", bound=BaseModel)


class Page(BaseModel):
    """Where in a list a page is."""

    total: int
    limit: int
    offset: int


class PageQuery(BaseModel):
    """The query of a list."""

    model_config = ConfigDict(extra="forbid")

    limit: Limit = 50
    offset: Offset = 0


def fields_of(
    source: type[tuple[Any, ...] | BaseModel],
    *,
    only: Collection[str] | None = None,
    omit: Collection[str] = (),
) -> Callable[[type[M]], type[M]]:
    """Give a model the fields of a NamedTuple or of another model, in their order."""

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
