"""A job's definition as a document: what was asked for, without what has happened since.

What is written here is what `POST /api/v1/jobs` takes, so that `import json` reads it back.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from evenbeat.importers.source import Document

FORMATS = ("json", "yaml")

_AS_IT_IS = (
    "queue", "window", "catch_up", "max_plans_per_tick", "max_retries", "retry_backoff_seconds",
    "retry_cap_seconds", "retry_jitter", "on_failure", "allow_stale_reentry", "dedup_key",
    "concurrency_key", "concurrency_limit", "rate_limit",
)  # fmt: skip
_RENAMED = {
    "catch_up_window": "catch_up_window_seconds",
    "retry_delays": "retry_delays_seconds",
    "timeout": "timeout_seconds",
    "lease": "lease_seconds",
    "heartbeat": "heartbeat_seconds",
}
_GLOBAL = {"kind": "global", "id": "global"}
_IN_METADATA = ("description", "tags")


def definition_of(job: Mapping[str, Any]) -> Document:
    """The definition of a job, from the document in which the API answers it."""
    made: Document = {
        "name": job["name"],
        "scope": None if job["scope"] == _GLOBAL else dict(job["scope"]),
        "description": job["description"],
        "tags": job["tags"] or None,
        "metadata": _other_metadata(job["metadata"]) or None,
        "task": job["task"],
        "payload": job["payload"],
        **_when(job),
        "priority": job["priority"] - job["aged"],
        "schedule_delay": job["schedule_delay_seconds"] or None,
        **{field: job[field] for field in _AS_IT_IS},
        **{field: job[column] for field, column in _RENAMED.items()},
        "cost": None if job["cost_ms"] is None else job["cost_ms"] / 1000,
        "paused": job["is_paused"] or None,
    }
    return {field: value for field, value in made.items() if value is not None}


def _other_metadata(metadata: Mapping[str, Any]) -> Document:
    return {key: value for key, value in metadata.items() if key not in _IN_METADATA}


def _when(job: Mapping[str, Any]) -> Document:
    """An interval is written with its anchor, so that it keeps its place in time."""
    match job["schedule_kind"]:
        case "interval":
            return {field: job[field] for field in ("schedule", "anchor_at", "placement")}
        case "cron":
            return {field: job[field] for field in ("schedule", "timezone")}
        case "after":
            return {"after": [_awaited(one, job["scope"]) for one in job.get("after") or ()]}
        case _:
            return {"run_at": job["plan_time"] if job["status"] != "pending" else None}


def _awaited(one: Mapping[str, Any], scope: Mapping[str, Any]) -> Document:
    """By name where that means the same job elsewhere: in the job's own scope, or globally."""
    own = one.get("scope") in (None, f"{scope['kind']}/{scope['id']}")
    return {"job": one["name"] if one["name"] is not None and own else one["job"], "on": one["on"]}


def template_of(template: Mapping[str, Any]) -> Document:
    """The definition of a template, from the document in which the API answers it."""
    made: Document = {
        "name": template["name"],
        "description": template["description"],
        "parameters": {name: _rules(rules) for name, rules in template["parameters"].items()},
        "body": template["body"],
    }
    return {field: value for field, value in made.items() if value is not None}


def _rules(rules: Mapping[str, Any]) -> Document:
    implied = rules["default"] is None
    return {
        rule: value
        for rule, value in rules.items()
        if value is not None and (rule != "required" or value != implied)
    }


def written(definitions: Iterable[Document], form: str, templates: Iterable[Document] = ()) -> str:
    """The definitions as the text of a file."""
    kept = list(templates)
    content = {**({"templates": kept} if kept else {}), "jobs": list(definitions)}
    if form == "json":
        return json.dumps(content, ensure_ascii=False, indent=2) + "\n"
    return yaml.dump(content, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)


class _Plain(yaml.SafeDumper):
    """Writes what is there twice twice: aliases are for programs."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True
