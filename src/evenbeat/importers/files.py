"""Files of job documents, in JSON and YAML: read with errors that name the place, and written.

What is written is what `POST /api/v1/jobs` takes: a job as it was asked for, without what has
happened since. So `import json` reads it back.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from evenbeat.domain.job import BY_NAME
from evenbeat.domain.schedule import KINDS, Cron, Once
from evenbeat.domain.schedule.slack import without_place
from evenbeat.domain.window import OFF_PEAK
from evenbeat.errors import InvalidInput
from evenbeat.importers.source import Document, ImportSource

FORMATS = ("json", "yaml")
LINE = "__line__"
"""Under this key a mapping read from YAML says on which line it begins."""

STDIN = Path("-")
_GLOBAL = {"kind": "global", "id": "global"}
_IN_METADATA = ("description", "tags")
_MOST_PARTS = 2_000_000
_DEEPEST = 40
_EXAMPLE = (
    '[{"name": "report", "task": "send_report", "schedule": "0 9 * * mon-fri"}, '
    '{"task": "sync", "schedule": "@every 30m"}]'
)


def read_text(path: Path) -> str:
    """The text of a file; `-` is standard input."""
    try:
        data = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text (byte {error.start}).") from None


def load_file(path: Path, kind: str | None = None) -> Any:
    """The content of a JSON or YAML file; unless `kind` says which, the ending does."""
    kind = kind or ("json" if path.suffix == ".json" else "yaml")
    text, is_not = read_text(path), f"is not {kind.upper()}"
    try:
        if kind == "json":
            return json.loads(text)
        loader = _LineLoader(text)
        node = loader.get_single_node()
        if _parts(node, {}) <= _MOST_PARTS:
            return None if node is None else loader.construct_document(node)
        problem = (
            f"has more than {_MOST_PARTS:,} parts once its aliases (*name) and merge keys (<<) "
            "are written out. Use fewer of them, or several files"
        )
    except json.JSONDecodeError as error:
        problem = f"{is_not}: line {error.lineno}, column {error.colno}: {error.msg}"
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        problem = f"{is_not}: line {line}: {error.problem}"
    except RecursionError:
        problem = f"{is_not}: it is nested too deeply"
    except (yaml.YAMLError, ValueError) as error:
        problem = f"{is_not}: {error}"
    raise InvalidInput(f"{path} {problem}.", field="jobs")


class _LineLoader(yaml.SafeLoader):
    """Remembers on which line a mapping begins."""

    def construct_lined_mapping(self, node: yaml.MappingNode) -> dict[object, object]:
        return {**self.construct_mapping(node, deep=True), LINE: node.start_mark.line + 1}


_LineLoader.add_constructor(
    yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _LineLoader.construct_lined_mapping
)


def _parts(node: yaml.Node | None, known: dict[yaml.Node, int]) -> int:
    """How many parts a node has with its aliases written out; too many, if it contains itself."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if node not in known:
        known[node] = _MOST_PARTS
        inner = chain(*node.value) if isinstance(node, yaml.MappingNode) else node.value
        known[node] = 1 + sum(_parts(one, known) for one in inner)
    return known[node]


def as_json(value: Any) -> Any:
    """A value from YAML as JSON has it: without line marks, times and dates as text."""
    return _converted(value, _DEEPEST, iter(range(_MOST_PARTS)))


def _converted(value: Any, levels: int, parts: Iterator[int]) -> Any:
    """Aliases of aliases may stand for more than fits into memory, or for themselves, so levels and
    parts are counted."""
    if not levels or next(parts, None) is None:
        raise InvalidInput(
            f"it has more than {_MOST_PARTS:,} parts, or is nested deeper than {_DEEPEST} levels."
        )
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise InvalidInput(f"{key!r} cannot be a field; fields are text.")
        inner = ((key, one) for key, one in value.items() if key != LINE)
        return {key: _converted(one, levels - 1, parts) for key, one in inner}
    if isinstance(value, list):
        return [_converted(one, levels - 1, parts) for one in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise InvalidInput(f"a {type(value).__name__} cannot be part of a job; JSON has none.")


def read_job_file(path: Path, form: str | None = None) -> ImportSource:
    """The jobs and templates of a file: a list of jobs, or what `written` writes."""
    content = load_file(path, form)
    parts = content if isinstance(content, dict) else {"jobs": content}
    source, jobs, templates = ImportSource(), parts.get("jobs", []), parts.get("templates") or []
    if not isinstance(jobs, list) or not isinstance(templates, list) or not (jobs or templates):
        raise InvalidInput(f"{path} holds no list of jobs, such as {_EXAMPLE}.", field="jobs")
    for number, row in enumerate(jobs, start=1):
        line = row.get(LINE) if isinstance(row, dict) else None
        where = f"job {number} (line {line})" if line else f"job {number}"
        try:
            document: Document = _fields(row)
            label = document.get("name") or document.get("task") or document.get("url") or ""
            source.add(where, str(label), document)
        except InvalidInput as error:
            raise InvalidInput(f"{path}, {where}: {error}", field="jobs") from error
    for template in map(_fields, templates):
        if not isinstance(template.get("name"), str):
            raise InvalidInput(f"{path}: each template needs a name.", field="templates")
        source.templates.append(template)
    return source


def _fields(row: Any) -> Document:
    if not isinstance(row, Mapping):
        raise InvalidInput(f"it is not a set of fields, but {type(row).__name__}.")
    document: Document = as_json(row)
    return document


def definition_of(job: Mapping[str, Any]) -> Document:
    """The definition of a job, from the document in which the API answers it."""
    metadata = {key: value for key, value in job["metadata"].items() if key not in _IN_METADATA}
    definition: Document = {
        "name": job["name"],
        "scope": None if job["scope"] == _GLOBAL else dict(job["scope"]),
        "description": job["description"],
        "tags": job["tags"] or None,
        "metadata": metadata or None,
        "task": job["task"],
        "payload": job["payload"],
        **{name: job.get(name) for name in KINDS[job["schedule_kind"]].document_fields},
        **{name: job[name] for name in BY_NAME},
        "retry_delays": job["retry_delays"] or None,
        "dedup_key": job["dedup_key"],
        "paused": job["is_paused"] or None,
    }
    if (job["window"] or "").startswith(OFF_PEAK):
        definition["window"] = OFF_PEAK  # which hours that means is found where it is imported
    if job["schedule_kind"] == Cron.kind:  # and so is the place in its slack
        definition["schedule"] = without_place(job["schedule"])
    if definition.get("after") is not None:
        definition["after"] = [_awaited(one, job["scope"]) for one in definition["after"]]
    if job["schedule_kind"] == Once.kind and job["status"] != "pending":
        definition["run_at"] = job["plan_time"]
    return {field: value for field, value in definition.items() if value is not None}


def _awaited(one: Mapping[str, Any], scope: Mapping[str, Any]) -> Document:
    """By name where that means the same job elsewhere: in the job's own scope, or globally."""
    own = not one.get("batch") and one.get("scope") in (None, f"{scope['kind']}/{scope['id']}")
    return {"job": one["name"] if one["name"] is not None and own else one["job"], "on": one["on"]}


def template_of(template: Mapping[str, Any]) -> Document:
    """The definition of a template, from the document in which the API answers it."""
    definition: Document = {
        "name": template["name"],
        "description": template["description"],
        "parameters": {
            name: {
                rule: value
                for rule, value in rules.items()
                # A parameter without a default is required unless it says otherwise.
                if value is not None and (rule, value) != ("required", rules["default"] is None)
            }
            for name, rules in template["parameters"].items()
        },
        "body": template["body"],
    }
    return {field: value for field, value in definition.items() if value is not None}


def written(definitions: Iterable[Document], form: str, templates: Iterable[Document] = ()) -> str:
    """The definitions as the text of a file."""
    template_list = list(templates)
    content = {**({"templates": template_list} if template_list else {}), "jobs": list(definitions)}
    for ascii_only in (False, True):
        if form == "json":
            text = json.dumps(content, ensure_ascii=ascii_only, indent=2) + "\n"
        else:
            text = yaml.dump(
                content, Dumper=_Plain, sort_keys=False, allow_unicode=not ascii_only, width=100
            )
        if text.replace("\n", "").isprintable():  # otherwise a terminal would obey parts of it
            break
    return text


class _Plain(yaml.SafeDumper):
    """Writes what is there twice twice: aliases are for programs."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True
