"""The API reference: every operation with its parameters, straight from the OpenAPI document.

Swagger UI was tried and left out: 1.9 MB of script, 2.0:1 contrast, controls inside of controls,
wider than a phone. Tools that want more read `/openapi.json`, which the page links.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import Response

from evenbeat.api.dependencies import Viewer
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import PageDep

router = pages.router()


@router.get("/docs", name="docs")
def docs(page: PageDep, _viewer: Viewer) -> Response:
    document = page.request.app.openapi()
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parameters = list(_parameters(operation, document["components"]["schemas"]))
            entry = operation | {"method": method, "path": path, "parameters": parameters}
            groups.setdefault(operation["tags"][0], []).append(entry)
    reason = page.service.access.reason
    return page.render("docs.html", groups=groups, reason=reason)


def _parameters(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[Any]:
    """Name, place, type, whether it is required, and description of each parameter."""
    for one in operation.get("parameters", ()):
        text, required = one.get("description", ""), one.get("required", False)
        yield one["name"], one["in"], type_of(one["schema"]), required, text
    content = operation.get("requestBody", {}).get("content", {})
    body = content.get("application/json", {}).get("schema", {})
    schema = schemas.get(body.get("$ref", "").rpartition("/")[2], {})
    for name, field in schema.get("properties", {}).items():
        required = name in schema.get("required", ())
        yield name, "body", type_of(field), required, field.get("description", "")


def type_of(schema: Mapping[str, Any]) -> str:
    """A JSON schema in a few words: `string`, `integer or null`, `array of Awaited`."""
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(type_of, options)))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if values := schema.get("enum"):
        return " | ".join(map(str, values))
    if schema.get("type") == "array":
        return f"array of {type_of(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type") or "any")
