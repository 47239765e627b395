"""Values on their way to JSON and back: where one of them could not be carried, or would arrive as
something else. A path such as `order.lines.0` says where."""

import re
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any

from evenbeat.errors import InvalidInput

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """What a value is made of: items of containers, fields of models and dataclasses."""
    if isinstance(value, Mapping):
        return iter(value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return iter(enumerate(value))
    return iter(() if isinstance(value, type) else getattr(value, "__dict__", {}).items())


def check_document(field: str, value: object) -> None:
    """Refuse what is no JSON object. Other keys than text would silently become text."""
    problem = None if isinstance(value, Mapping) else f"is of the type {type(value).__name__}"
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        problem = f"has the key {wrong[0]!r}" if wrong else None
    if problem is not None:
        raise InvalidInput(
            f"{field} {problem}, but must be a dict with texts as keys, such as "
            f'{field}={{"order": 7}}.',
            field=field,
        )


def culprit(
    value: Any, is_wrong: Callable[[Any], object], path: str = "", inside: tuple[Any, ...] = ()
) -> tuple[str, Any]:
    """The innermost part for which a wrong value is wrong, and its path."""
    for key, part in parts(value):
        if not any(part is one for one in inside) and is_wrong(part):
            return culprit(part, is_wrong, f"{path}.{key}" if path else str(key), (*inside, part))
    return path, value


def unstorable_text(value: Any, path: str) -> str | None:
    """Where a JSON value has a text that PostgreSQL cannot hold, and why it cannot."""

    def is_wrong(part: Any) -> bool:
        if isinstance(part, str):
            return _UNSTORABLE.search(part) is not None
        return any(is_wrong(key) or is_wrong(one) for key, one in parts(part))

    if not is_wrong(value):
        return None
    path, text = culprit(value, is_wrong, path)
    what = f"the text {path}"
    if not isinstance(text, str):
        what, text = f"a key in {path}", next(key for key, _ in parts(text) if is_wrong(key))
    if "\0" in text:
        return f"{what} has a NUL character (\\x00) in it"
    return f"{what} has half a surrogate pair in it, which is no character"


def changed(sent: Any, got: Any, path: str) -> str | None:
    """How what has become of a value by way of JSON differs from it, if it does. A tuple may come
    back as a list, as everywhere."""
    kind, arrives = type(sent), type(got)
    try:
        same = bool(sent == got)
    except Exception:  # an array's comparison, for example, says nothing
        same = True
    if same:
        return None
    if isinstance(sent, float) and not isfinite(sent):
        return f"{path!r} is the number {sent}, which JSON does not have: pass None or a text"
    if isinstance(sent, dict) and isinstance(got, dict):
        for key in sent:
            if key not in got:
                return (
                    f"{path!r} has the key {key!r}, but keys are text in JSON: make it one, or "
                    f"annotate the parameter, such as dict[{type(key).__name__}, str]"
                )
        compared = [(key, one, got[key]) for key, one in sent.items()]
    elif kind in (list, tuple) and arrives in (list, tuple) and len(sent) == len(got):
        compared = [(number, *pair) for number, pair in enumerate(zip(sent, got, strict=True))]
    elif kind is arrives and (
        hasattr(sent, "__dict__") or getattr(kind, "__eq__", None) is object.__eq__
    ):
        fields = getattr(kind, "model_fields", {})
        left_out = {name for name, field in fields.items() if field.exclude}
        own, others = dict(parts(sent)), dict(parts(got))
        compared = [(n, one, others.get(n)) for n, one in own.items() if n not in left_out]
    elif kind is arrives:
        return (
            f"{path!r} would reach the handler with another value, since its JSON loses a part of "
            "it. Pass what the handler can load it by"
        )
    else:
        return (
            f"{path!r} is of the type {kind.__name__}, but would reach the handler as "
            f"{arrives.__name__}, because no annotation says what to make of its JSON. Annotate "
            "the parameter, or pass plain JSON"
        )
    return next(filter(None, (changed(a, b, f"{path}.{key}") for key, a, b in compared)), None)
