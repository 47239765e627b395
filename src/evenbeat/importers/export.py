"""A job's definition as a document: what was asked for, without what has happened since.

What is written here is what `POST /api/v1/jobs` takes, so that `import json` reads it back.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from evenbeat.domain.job import BY_NAME
from evenbeat.domain.schedule import KINDS, Once
from evenbeat.importers.source import Document

FORMATS = ("json", "yaml")

_GLOBAL = {"kind": "global", "id": "global"}
_IN_METADATA = ("description", "tags")


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
        **{name: None if job[name] == [] else job[name] for name in BY_NAME},
        "dedup_key": job["dedup_key"],
        "paused": job["is_paused"] or None,
    }
    if definition.get("after") is not None:
        definition["after"] = [_awaited(one, job["scope"]) for one in definition["after"]]
    if job["schedule_kind"] == Once.kind and job["status"] != "pending":
        definition["run_at"] = job["plan_time"]
    return {field: value for field, value in definition.items() if value is not None}


def _awaited(one: Mapping[str, Any], scope: Mapping[str, Any]) -> Document:
    """By name where that means the same job elsewhere: in the job's own scope, or globally."""
    own = one.get("scope") in (None, f"{scope['kind']}/{scope['id']}")
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
    if form == "json":
        return json.dumps(content, ensure_ascii=False, indent=2) + "\n"
    return yaml.dump(content, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)


class _Plain(yaml.SafeDumper):
    """Writes what is there twice twice: aliases are for programs."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True
