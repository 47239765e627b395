"""Text, JSON and YAML from files, with errors that name the place."""

import json
import sys
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import yaml

from evenbeat.errors import InvalidInput

LARGEST = 64 * 2**20
LINE = "__line__"
"""Under this key a mapping read from YAML says on which line it begins."""

STDIN = Path("-")
_MOST_PARTS = 2_000_000
_DEEPEST = 40


def text_of(path: Path) -> str:
    """The text of a file; `-` is standard input."""
    try:
        if path == STDIN:
            return _from_stdin()
        if path.stat().st_size > LARGEST:
            raise InvalidInput(f"{path} is larger than {LARGEST // 2**20} MiB.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text (byte {error.start}).") from None


def _from_stdin() -> str:
    data = sys.stdin.buffer.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise InvalidInput(f"Standard input is larger than {LARGEST // 2**20} MiB.")
    return data.decode("utf-8-sig")


def parsed(path: Path, kind: str | None = None) -> Any:
    """The content of a JSON or YAML file; unless `kind` says which, the ending does."""
    kind = kind or ("json" if path.suffix == ".json" else "yaml")
    text = text_of(path)
    try:
        if kind == "json":
            return json.loads(text)
        return yaml.load(text, _Lined)  # noqa: S506 - a safe loader that counts lines
    except json.JSONDecodeError as error:
        told = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        told = f"line {line}: {error.problem}"
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        told = str(error)
    raise InvalidInput(f"{path} is not {kind.upper()}: {told}.", field="jobs")


class _Lined(yaml.SafeLoader):
    """Remembers on which line a mapping begins."""


def _mapping(loader: _Lined, node: yaml.MappingNode) -> dict[object, object]:
    return {**loader.construct_mapping(node, deep=True), LINE: node.start_mark.line + 1}


_Lined.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def line_of(row: object) -> str:
    """Where a mapping began, if that is known."""
    return f" (line {row[LINE]})" if isinstance(row, dict) and LINE in row else ""


def rows_of(content: Any, path: Path, example: str) -> list[Any]:
    """The list of jobs that a file holds, as it stands or under the key `jobs`."""
    rows = content.get("jobs") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise InvalidInput(f"{path} is not a list of jobs, such as {example}.", field="jobs")
    return rows


def as_json(value: Any) -> Any:
    """A value from YAML as JSON has it: without line marks, times and dates as text.

    Aliases of aliases may stand for more than fits into memory, or for themselves, so parts are
    counted first.
    """
    for number, _ in enumerate(_parts(value)):
        if number > _MOST_PARTS:
            raise InvalidInput(f"it has more than {_MOST_PARTS:,} parts.")
    return _plain(value)


def _parts(value: Any) -> Iterator[Any]:
    waiting = [(value, 1)]
    while waiting:
        part, depth = waiting.pop()
        yield part
        if depth > _DEEPEST:
            raise InvalidInput(f"it is nested deeper than {_DEEPEST} levels.")
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        waiting.extend((one, depth + 1) for one in inner)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _plain(inner) for key, inner in value.items() if key != LINE}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise InvalidInput(f"a {type(value).__name__} cannot be part of a job; JSON has none.")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidInput(f"{key!r} cannot be a field; fields are text.")
    return key
