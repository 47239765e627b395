"""Which job or execution is meant: by id, by the beginning of its id, a job also by its name."""

import re
from collections.abc import Sequence
from uuid import UUID

from evenbeat.cli.client import ApiError, Client, Document, path_segment
from evenbeat.cli.output import short_ids

_BEGINNING = re.compile(r"[0-9a-f]{4,8}(-|$)|[0-9a-f]{9,}$", re.IGNORECASE)
_LISTED = 5


def find_job(client: Client, text: str) -> Document:
    """The one job that the text means; raises ApiError when there is none or more than one."""
    if is_id(text):
        return client.get(f"/api/v1/jobs/{path_segment(text)}")
    named = client.get("/api/v1/jobs", name=text, limit=_LISTED) if text else {"jobs": []}
    found = named["jobs"]
    if not found and _BEGINNING.match(text):
        found = client.get("/api/v1/jobs", id=text, limit=_LISTED)["jobs"]
    if len(found) == 1:
        job: Document = found[0]
        return job
    if not found:
        raise ApiError(
            f"There is no job with the id or the name {text!r}. `evenbeat job list --search …` "
            "finds jobs by parts of their name or task.",
            4,
        )
    raise ApiError(f"{text!r} means more than one job: {_told(found)}. Give the id.", 2)


def find_jobs(client: Client, texts: Sequence[str]) -> list[str]:
    """The ids that are meant, each once; all are found before anything is done to one."""
    return list(
        dict.fromkeys(text if is_id(text) else find_job(client, text)["id"] for text in texts)
    )


def find_execution(client: Client, text: str) -> Document:
    """The one execution that an id or its beginning means; raises ApiError otherwise."""
    if is_id(text):
        return client.get(f"/api/v1/executions/{path_segment(text)}")
    found = []
    if _BEGINNING.match(text):
        found = client.get("/api/v1/executions", id=text, limit=_LISTED)["executions"]
    if len(found) == 1:
        execution: Document = found[0]
        return execution
    if not found:
        raise ApiError(
            f"There is no execution whose id begins with {text!r}. `evenbeat execution list` "
            "shows the newest.",
            4,
        )
    short = short_ids([one["id"] for one in found])
    told = ", ".join(short.values()) + (", …" if len(found) == _LISTED else "")
    raise ApiError(f"{text!r} means more than one execution: {told}. Give more of the id.", 2)


def is_id(text: str) -> bool:
    """Whether it is a whole id."""
    try:
        return len(text) in (32, 36) and UUID(text) is not None
    except ValueError:
        return False


def _told(jobs: Sequence[Document]) -> str:
    short = short_ids([job["id"] for job in jobs])
    told = [f"{short[job['id']]} ({_scope(job)})" for job in jobs]
    return ", ".join(told) + (", …" if len(jobs) == _LISTED else "")


def _scope(job: Document) -> str:
    scope = job["scope"]
    label = job["name"] or job["task"]
    is_global = scope["kind"] == scope["id"] == "global"
    return label if is_global else f"{label} in {scope['kind']}/{scope['id']}"
