"""Response models made from the database rows that they show.

A field is declared in the row, and once more in the model only where the model says more about it:

    @row_model(KeyLimit)
    class LimitDocument(BaseModel):
        waiting: int = Field(description="Counted up to 1000.")
"""

from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import BaseModel, create_model

M = TypeVar("M", bound=BaseModel)


def row_model(
    row: type[tuple[Any, ...]], *, omit: Collection[str] = ()
) -> Callable[[type[M]], type[M]]:
    """Give a model the fields of a NamedTuple, in its order, besides those in `omit`."""

    def complete(model: type[M]) -> type[M]:
        declared = {name: (info.annotation, info) for name, info in model.model_fields.items()}
        fields: dict[str, Any] = {
            name: declared.pop(name, (hint, ...))
            for name, hint in get_type_hints(row).items()
            if name not in omit
        }
        fields |= declared
        completed = create_model(
            model.__name__, __doc__=model.__doc__, __module__=model.__module__, **fields
        )
        return cast("type[M]", completed)

    return complete
