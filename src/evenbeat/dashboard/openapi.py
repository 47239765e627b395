"""An OpenAPI document as a reader wants it: groups, operations, fields, and a line to try. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Document = Mapping[str, Any]

_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
    "array": "list",
    "null": "null",
}
_FORMATS = {"date-time": "time", "uuid": "id", "password": "secret"}
_A_TIME, _AN_ID = "2026-01-05T09:00:00Z", "01890000-0000-7000-8000-000000000000"
_SAMPLES: dict[str, Any] = {"string": "…", "integer": 1, "number": 1, "boolean": True}
_GENERAL = frozenset({"400", "401", "403", "413", "422", "500", "503"})
"""Answers that nearly every operation has; they are told of once."""

_DEEP = 5
_SAYS_NOTHING = "Successful Response"


class Kind(NamedTuple):
    """What a value is: words, and in their middle a schema of its own if there is one."""

    before: str
    schema: str = ""
    after: str = ""

    def __str__(self) -> str:
        return self.before + self.schema + self.after


class Field(NamedTuple):
    """A parameter, or a field of a body."""

    name: str
    kind: Kind
    required: bool
    text: str
    place: str = ""


class Answer(NamedTuple):
    """What may come back."""

    status: str
    text: str
    kind: Kind | None
    headers: list[tuple[str, str]]


class Operation(NamedTuple):
    """One thing to ask for."""

    id: str
    method: str
    path: str
    summary: str
    text: str
    needs_token: bool
    parameters: list[Field]
    body: Kind | None
    fields: list[Field]
    answers: list[Answer]
    curl: str


class Schema(NamedTuple):
    """A document that answers or bodies are made of."""

    name: str
    text: str
    fields: list[Field]
    values: list[str]


class Group(NamedTuple):
    """Operations that belong together."""

    slug: str
    title: str
    operations: list[Operation]


class Reference:
    """A whole document, read once."""

    def __init__(self, document: Document, base: str) -> None:
        self._schemas: Document = document.get("components", {}).get("schemas", {})
        self._base = base
        self.title = str(document["info"]["title"])
        self.text = str(document["info"].get("description", ""))
        self.groups = self._groups(document)

    def group(self, slug: str) -> Group | None:
        """The group of this name in an address."""
        return next((group for group in self.groups if group.slug == slug), None)

    def schemas_of(self, group: Group) -> list[Schema]:
        """Every schema that the group's operations refer to, directly or through others."""
        wanted = [kind.schema for op in group.operations for kind in _kinds(op) if kind.schema]
        found: dict[str, Schema] = {}
        while wanted:
            name = wanted.pop(0)
            if name not in found:
                found[name] = self._schema(name)
                wanted += [field.kind.schema for field in found[name].fields if field.kind.schema]
        return list(found.values())

    # --------------------------------------------------------------------------------------------

    def _groups(self, document: Document) -> list[Group]:
        by_tag: dict[str, list[Operation]] = {}
        for path, methods in document.get("paths", {}).items():
            for method, told in methods.items():
                tag = (told.get("tags") or ["other"])[0]
                by_tag.setdefault(tag, []).append(self._operation(method.upper(), path, told))
        return [Group(slug_of(t), t[:1].upper() + t[1:], ops) for t, ops in by_tag.items()]

    def _operation(self, method: str, path: str, told: Document) -> Operation:
        body = _json_schema(told.get("requestBody", {}))
        kind = None if body is None else kind_of(body)
        return Operation(
            id=told.get("operationId", f"{method}-{slug_of(path)}"),
            method=method,
            path=path,
            summary=told.get("summary", path),
            text=told.get("description", ""),
            needs_token=bool(told.get("security")),
            parameters=[_parameter(one) for one in told.get("parameters", ())],
            body=kind,
            fields=self._schema(kind.schema).fields if kind and kind.schema else [],
            answers=list(_answers(told.get("responses", {}))),
            curl=self._curl(method, path, told, body),
        )

    def _schema(self, name: str) -> Schema:
        told = self._schemas.get(name, {})
        required = set(told.get("required", ()))
        fields = [
            Field(field, kind_of(schema), field in required, _text(schema))
            for field, schema in told.get("properties", {}).items()
        ]
        return Schema(name, told.get("description", ""), fields, [*map(str, told.get("enum", ()))])

    # -- a line to try ---------------------------------------------------------------------------

    def _curl(self, method: str, path: str, told: Document, body: Document | None) -> str:
        filled = re.sub(r"\{(\w+)\}", lambda part: "$" + part[1].upper(), path)
        lines = [f'curl{"" if method == "GET" else f" -X {method}"} "{self._base}{filled}"']
        if told.get("security"):
            lines.append('-H "Authorization: Bearer $TOKEN"')
        if body is not None and told["requestBody"].get("required"):
            lines.append('-H "Content-Type: application/json"')
            sample = json.dumps(self._sample(body), ensure_ascii=False)
            lines.append("-d '" + sample.replace("'", "'\\''") + "'")
        return " \\\n  ".join(lines)

    def _sample(self, schema: Document, depth: int = 0) -> Any:
        """A value that the schema allows, as telling as it gives examples."""
        if "$ref" in schema:
            schema = self._schemas.get(_name_in(schema), {})
        for key in ("examples", "enum"):
            if schema.get(key):
                return schema[key][0]
        if options := [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]:
            return self._sample(options[0], depth)
        if schema.get("type") == "array":
            return [self._sample(schema.get("items", {}), depth + 1)]
        if "properties" in schema and depth < _DEEP:
            return self._sample_object(schema, depth)
        if schema.get("type") == "string":
            return {"date-time": _A_TIME, "uuid": _AN_ID}.get(schema.get("format", ""), "…")
        return _SAMPLES.get(schema.get("type", ""), {})

    def _sample_object(self, schema: Document, depth: int) -> dict[str, Any]:
        """What is required, or else the first field."""
        properties = schema["properties"]
        names = schema.get("required") or list(properties)[:1]
        return {name: self._sample(properties[name], depth + 1) for name in names}


# -- pieces ----------------------------------------------------------------------------------------


def slug_of(words: str) -> str:
    """Words as they stand in an address."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def kind_of(schema: Document) -> Kind:
    """What a value is, in words."""
    if "$ref" in schema:
        return Kind("", _name_in(schema))
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return _either([kind_of(one) for one in options])
    if "enum" in schema:
        return Kind(" | ".join(map(str, schema["enum"])))
    if "const" in schema:
        return Kind(str(schema["const"]))
    if schema.get("type") == "array":
        inner = kind_of(schema.get("items", {}))
        return Kind(f"list of {inner.before}", inner.schema, inner.after)
    named = _FORMATS.get(schema.get("format", "")) or _TYPES.get(schema.get("type", ""), "any")
    return Kind(named + _bounds(schema))


def _either(kinds: list[Kind]) -> Kind:
    """One of several; `null` goes last."""
    kinds = sorted(dict.fromkeys(kinds), key=lambda kind: str(kind) == "null")
    first = next((n for n, kind in enumerate(kinds) if kind.schema), None)
    if first is None:
        return Kind(" or ".join(map(str, kinds)))
    before = "".join(f"{kind} or " for kind in kinds[:first])
    after = "".join(f" or {kind}" for kind in kinds[first + 1 :])
    chosen = kinds[first]
    return Kind(before + chosen.before, chosen.schema, chosen.after + after)


def _bounds(schema: Document) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f" ({low:,.10g} to {high:,.10g})"
    if low is not None:
        return f" (at least {low:,.10g})"
    longest = schema.get("maxLength")
    return f" (up to {longest:,})" if longest else ""


def _text(schema: Document) -> str:
    text = str(schema.get("description", ""))
    if schema.get("default") is not None:
        text = f"{text} Default: {json.dumps(schema['default'])}.".strip()
    return text


def _parameter(told: Document) -> Field:
    schema = told.get("schema", {})
    text = told.get("description") or ""
    described = {**schema, "description": text}
    required = bool(told.get("required"))
    kind = _without_null(schema) if not required else kind_of(schema)
    return Field(told["name"], kind, required, _text(described), told["in"])


def _without_null(schema: Document) -> Kind:
    """A parameter that is left out cannot be null."""
    options = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    return _either([kind_of(one) for one in options]) if options else kind_of(schema)


def _answers(responses: Document) -> Iterator[Answer]:
    for status, told in sorted(responses.items()):
        if status in _GENERAL:
            continue
        schema = _json_schema(told)
        headers = [(n, h.get("description", "")) for n, h in told.get("headers", {}).items()]
        kind = None if schema is None else kind_of(schema)
        text = told.get("description", "")
        yield Answer(status, "" if text == _SAYS_NOTHING else text, kind, headers)


def _json_schema(told: Document) -> Document | None:
    for content_type, content in told.get("content", {}).items():
        if "json" in content_type:
            schema: Document = content.get("schema", {})
            return schema
    return None


def _kinds(operation: Operation) -> Iterator[Kind]:
    """What needs a section of its own; the body's own fields stand with the operation."""
    for field in (*operation.parameters, *operation.fields):
        yield field.kind
    for answer in operation.answers:
        if answer.kind is not None and answer.kind.schema != "Problem":
            yield answer.kind


def _name_in(schema: Document) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[-1]
