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
        case _:
            return {"run_at": job["plan_time"] if job["status"] != "pending" else None}


def written(definitions: Iterable[Document], form: str) -> str:
    """The definitions as the text of a file."""
    content = {"jobs": list(definitions)}
    if form == "json":
        return json.dumps(content, ensure_ascii=False, indent=2) + "\n"
    return yaml.dump(content, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)


class _Plain(yaml.SafeDumper):
    """Writes what is there twice twice: aliases are for programs."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True
