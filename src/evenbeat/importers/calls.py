"""Arguments of a call as a payload: by name, and as JSON."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evenbeat.errors import InvalidInput
from evenbeat.importers.source import Document


def payload_of(
    args: Sequence[Any], kwargs: Mapping[str, Any], function: Callable[..., Any] | None
) -> Document:
    """The payload for a call. Positions get their names from the function, if it is known."""
    payload = {**_named(args, function), **kwargs}
    try:
        made: Document = json.loads(json.dumps(payload, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput(
            "Its arguments are more than JSON can say. Let the handler find them by something "
            "that is, such as an id."
        ) from None
    return made


def _named(args: Sequence[Any], function: Callable[..., Any] | None) -> Document:
    if not args:
        return {}
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
    kinds = {parameter.kind for name, parameter in bound.signature.parameters.items()
             if name in bound.arguments}  # fmt: skip
    if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.POSITIONAL_ONLY in kinds:
        raise InvalidInput("Its function takes arguments that have no names (*args, or before /).")
    return dict(bound.arguments)
