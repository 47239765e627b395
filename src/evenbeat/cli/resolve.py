"""Finds what an argument names: by id, by the beginning of its id, a job also by its name."""

import re
from collections.abc import Sequence

from evenbeat.cli.client import ApiError, Client, Document, path_segment
from evenbeat.cli.job_views import label
from evenbeat.cli.output import short_ids
from evenbeat.domain.ids import parse_id

_ID_START = re.compile(r"[0-9a-f]{4,8}(-|$)|[0-9a-f]{9,}$", re.IGNORECASE)
_CANDIDATES = 5


def find_job(client: Client, text: str) -> Document:
    """The one job that the text names; raises ApiError when there is none or more than one."""
    if is_id(text):
        return client.get(f"/api/v1/jobs/{path_segment(text)}")
    jobs: list[Document] = []
    if text:
        jobs = client.get("/api/v1/jobs", name=text, limit=_CANDIDATES)["jobs"]
    if not jobs and _ID_START.match(text):
        jobs = client.get("/api/v1/jobs", id=text, limit=_CANDIDATES)["jobs"]
    if len(jobs) == 1:
        return jobs[0]
    if not jobs:
        raise ApiError(
            f"There is no job with the id or the name {text!r}. `evenbeat job list --search …` "
            "finds jobs by parts of their name or task.",
            4,
        )
    short = short_ids([job["id"] for job in jobs])
    candidates = [f"{short[job['id']]} ({label(job)})" for job in jobs]
    more = ", …" if len(jobs) == _CANDIDATES else ""
    raise ApiError(
        f"{text!r} means more than one job: {', '.join(candidates)}{more}. Give the id.", 2
    )


def find_jobs(client: Client, texts: Sequence[str]) -> list[str]:
    """The ids of the jobs named, each once; all are found before anything is done to one."""
    return list(
        dict.fromkeys(text if is_id(text) else find_job(client, text)["id"] for text in texts)
    )


def find_execution(client: Client, text: str) -> Document:
    """The one execution that an id or its beginning names; raises ApiError otherwise."""
    if is_id(text):
        return client.get(f"/api/v1/executions/{path_segment(text)}")
    executions: list[Document] = []
    if _ID_START.match(text):
        executions = client.get("/api/v1/executions", id=text, limit=_CANDIDATES)["executions"]
    if len(executions) == 1:
        return executions[0]
    if not executions:
        raise ApiError(
            f"There is no execution whose id begins with {text!r}. `evenbeat execution list` "
            "shows the newest.",
            4,
        )
    candidates = ", ".join(short_ids([one["id"] for one in executions]).values())
    more = ", …" if len(executions) == _CANDIDATES else ""
    raise ApiError(
        f"{text!r} means more than one execution: {candidates}{more}. Give more of the id.", 2
    )


def find_listed(documents: Sequence[Document], text: str, kind: str) -> Document:
    """The one worker or webhook of a whole list that an id or its beginning names."""
    matches = [one for one in documents if text and one["id"].startswith(text.lower())]
    if len(matches) == 1:
        return matches[0]
    meaning = f"more than one {kind}" if matches else f"no {kind}"
    raise ApiError(f"{text!r} means {meaning}; see evenbeat {kind} list.", 2 if matches else 4)


def is_id(text: str) -> bool:
    """Whether it is a whole id."""
    return parse_id(text) is not None
