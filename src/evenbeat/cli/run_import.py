"""What every import does with what was read: compare, show the plan, and apply it with --apply."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from evenbeat.cli.client import ApiError, Client, Document, path_segment
from evenbeat.cli.output import Column, exact, heading, safe, say, table
from evenbeat.cli.session import ApiSession
from evenbeat.domain.schedule import After, Recurring
from evenbeat.humanize import count
from evenbeat.importers.files import template_of
from evenbeat.importers.plan import ImportStep, Plan, key_of, plan_of, schedule_of
from evenbeat.importers.source import ImportSource, Remark, moment_text

_PAGE = 1000
_MOST_JOBS = 1000
_MOST_BYTES = 4 * 2**20
_FEW = 5000
_JOBS = "/api/v1/jobs"


def run_import(session: ApiSession, source: ImportSource, *, apply: bool) -> int:
    """Show what would be done, or do it."""
    client = session.client
    plan = plan_of(source, _existing(client, source), client.now())
    present = all_of(client, "templates") if source.templates else ()
    existing = {one["name"]: template_of(one) for one in present}
    templates = [one for one in source.templates if existing.get(one["name"]) != one]
    plan.remarks.extend(Remark("template", one["name"], "is kept") for one in templates)
    if not apply:
        _show_plan(session, plan)
        return 0
    for one in templates:
        fields = {name: value for name, value in one.items() if name != "name"}
        client.put(f"/api/v1/templates/{path_segment(one['name'])}", fields)
    result = _apply(client, plan)
    if not session.as_json:
        for warning in result["warnings"]:
            say(f"Note: {warning}")
        for refused in result["refused"]:
            say(f"{refused['where']}: {refused['why']}")
    numbers = result | {"refused": len(result["refused"])}
    words = ("added", "changed", "unchanged", "refused")
    text = ", ".join(f"{numbers[word]:,} {word}" for word in words if numbers[word])
    session.show(_document(plan, result), Text(f"{text or 'Nothing to do'}."), *_reviews(plan))
    return 1 if result["refused"] else 0


def _existing(client: Client, source: ImportSource) -> Iterable[Document]:
    """The jobs that the source may mean: all if they are few, otherwise those with its names, tag
    and tasks."""
    if client.get(_JOBS, limit=1)["total"] <= _FEW:
        return all_jobs(client)
    jobs: dict[str, Document] = {}
    filters: list[dict[str, Any]] = [] if source.tag is None else [{"tag": source.tag}]
    tasks: set[str] = set()
    for job in source.jobs:
        if key := key_of(job.document):
            filters.append({"name": key[2]})
        else:
            tasks.add(job.document.get("task", "crawl"))
    for one in (*filters, *({"task": task} for task in sorted(tasks))):
        jobs |= {job["id"]: job for job in all_jobs(client, **one)}
    return jobs.values()


def all_of(client: Client, kind: str, /, **filters: Any) -> Iterator[Document]:
    """Every job or template that matches, each once even if others come and go meanwhile."""
    keys: set[str] = set()
    offset = 0
    while True:
        rows = client.get(f"/api/v1/{kind}", **filters, limit=_PAGE, offset=offset)[kind]
        for row in rows:
            if (key := row.get("id") or row["name"]) not in keys:
                keys.add(key)
                yield row
        if len(rows) < _PAGE:
            return
        offset += len(rows)


def all_jobs(client: Client, **filters: Any) -> Iterator[Document]:
    return all_of(client, "jobs", sort="created_at", **filters)


def _apply(client: Client, plan: Plan) -> Document:
    """Add what is new, some at a time, each time all or none; then change what differs, one by one.
    If anything stops it, the same import again does the rest."""
    result: Document = {"added": 0, "changed": 0, "unchanged": len(plan.doing("unchanged"))}
    result |= {"refused": [], "warnings": []}
    for chunk in _chunks(in_dependency_order(plan.doing("add"))):
        try:
            answer = client.post(f"{_JOBS}/bulk", {"jobs": [one.parsed.document for one in chunk]})
        except ApiError as error:
            raise _explained(error, chunk, result["added"]) from None
        result["added"] += answer["created"]
        result["warnings"] += answer.get("warnings") or []
    for step in plan.doing("change"):
        changes = dict(step.changes)
        paused = changes.pop("paused", None)
        try:
            if changes:
                client.patch(f"{_JOBS}/{step.job_id}", changes)
            if paused is not None:
                client.post(f"{_JOBS}/{step.job_id}/{'pause' if paused else 'resume'}")
            result["changed"] += 1
        except ApiError as error:
            if error.exit_code not in (1, 2):
                raise
            result["refused"].append({"where": step.parsed.where, "why": str(error)})
    result["warnings"] = list(dict.fromkeys(result["warnings"]))
    return result


def in_dependency_order(steps: Sequence[ImportStep]) -> list[ImportStep]:
    """The same steps, each after those that it waits for, so that any part of the list can be added
    by itself. Where steps wait for each other, all stay as they are: the API says what is wrong."""
    by_key = {key_of(step.parsed.document): step for step in steps}
    order: TopologicalSorter[int] = TopologicalSorter()
    for step in steps:
        order.add(id(step))
        schedule = schedule_of(step.parsed.document)
        for one in schedule.jobs if isinstance(schedule, After) else ():
            own = key_of(step.parsed.document | {"name": str(one.job)})
            awaited = by_key.get(own) or by_key.get(("global", "global", str(one.job)))
            if awaited is not None:
                order.add(id(step), id(awaited))
    by_id = {id(step): step for step in steps}
    with suppress(CycleError):
        return [by_id[one] for one in order.static_order()]
    return list(steps)


def _chunks(steps: Sequence[ImportStep]) -> Iterator[list[ImportStep]]:
    """As many jobs as one request may have."""
    chunk: list[ImportStep] = []
    size = 0
    for step in steps:
        own = len(json.dumps(step.parsed.document))
        if chunk and (len(chunk) == _MOST_JOBS or size + own > _MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(step)
        size += own
    if chunk:
        yield chunk


def _explained(error: ApiError, chunk: Sequence[ImportStep], added: int) -> ApiError:
    """The refusal with our names for the jobs, and what was done before it."""

    def where(match: re.Match[str]) -> str:
        number = int(match[1])
        return chunk[number].parsed.where if number < len(chunk) else match[0]

    message = re.sub(r"\bjobs\.(\d+)\b", where, str(error))
    if added:
        message += f" {count(added, 'job')} were added before; run the same import again to go on."
    return ApiError(message, error.exit_code, error.status)


def _document(plan: Plan, result: Document | None = None) -> Document:
    return {
        "applied": result is not None,
        "plan": [
            {
                "where": step.parsed.where,
                "action": step.action,
                "name": step.parsed.document.get("name"),
                "schedule_text": step.says,
                "next_run_at": None if step.next_run is None else moment_text(step.next_run),
                "remark": step.parsed.remark,
                "changes": step.changes or None,
                "job": step.parsed.document,
                "job_id": step.job_id,
            }
            for step in plan.steps
        ],
        "needs_a_look": [review._asdict() for review in plan.reviews],
        "remarks": [remark._asdict() for remark in plan.remarks],
        **(result or {}),
    }


def _show_plan(session: ApiSession, plan: Plan) -> None:
    document = _document(plan)
    columns: dict[str, Column] = {
        "where": "where",
        "what": "action",
        "job…": lambda row: row["name"] or row["job"].get("task") or row["job"].get("url"),
        "when…": "schedule_text",
        "next run": _next_run,
        "remark…": lambda row: ", ".join(sorted(row["changes"] or ())) or row["remark"],
    }
    parts: list[RenderableType] = [table(document["plan"], columns)] if plan.steps else []
    if plan.remarks:
        parts += [Text(), heading("Also in the source")]
        parts += [Text(f"  {safe(f'{r.where}: {r.text}')}: {r.what}") for r in plan.remarks]
    session.show(document, *parts, *_reviews(plan))
    if session.as_json:
        return
    adds, changes, keeps = (len(plan.doing(action)) for action in ("add", "change", "unchanged"))
    numbers = ((adds, "to add"), (changes, "to change"), (keeps, "unchanged"))
    summary = [f"{number:,} {words}" for number, words in numbers if number]
    if plan.reviews:
        summary.append(f"{count(len(plan.reviews), 'line')} to review")
    planned = adds or changes or any(remark.where == "template" for remark in plan.remarks)
    next_step = "Dry run: --apply applies it." if planned else "There is nothing to do."
    say(f"{', '.join(summary) or 'Nothing was found'}. {next_step}")


def _next_run(row: Document) -> str:
    job = row["job"]
    if row["next_run_at"] is not None or row["action"] != "add":
        return exact(row["next_run_at"])
    if job.get("paused"):
        return "paused"
    schedule = schedule_of(job)
    if isinstance(schedule, After):
        return "after those"
    return "in a balanced place" if isinstance(schedule, Recurring) else "at once"


def _reviews(plan: Plan) -> list[RenderableType]:
    if not plan.reviews:
        return []
    parts: list[RenderableType] = [Text(), heading("Needs manual review")]
    for review in plan.reviews:
        parts.append(Text(f"  {safe(f'{review.where}: {review.text}')}"))
        parts.append(Text(f"    {safe(review.why)}", style="dim"))
    return parts
