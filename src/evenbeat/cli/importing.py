"""What every import does with what it has read: compare, show, and add with --apply."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from evenbeat.cli.client import Client, Document, Refused, in_path
from evenbeat.cli.output import cell, heading, safe, say, table
from evenbeat.cli.session import Session
from evenbeat.errors import InvalidInput
from evenbeat.humanize import count
from evenbeat.importers.export import template_of
from evenbeat.importers.order import in_order
from evenbeat.importers.plan import Existing, Plan, Step, key_of, plan_of
from evenbeat.importers.source import Found, Look, Remark, Source, moment_text

_PAGE = 1000
_MOST_JOBS = 1000
_MOST_BYTES = 4 * 2**20
_FEW = 5000
_WORDS = {"add": "add", "change": "change", "keep": "unchanged"}
_JOBS = "/api/v1/jobs"


def run_import(session: Session, source: Source, *, apply: bool) -> int:
    """Show what would be done, or do it."""
    source = _checked(source)
    plan = plan_of(source, _existing(session.client, source), session.client.now())
    templates = _new_templates(session.client, source.templates)
    plan.remarks.extend(Remark("template", one["name"], "is kept") for one in templates)
    if not apply:
        session.show(_document(plan), lambda: _view(plan))
        if not session.as_json:
            _say_what_is_next(plan)
        return 0
    for one in templates:
        fields = {name: value for name, value in one.items() if name != "name"}
        session.client.put(f"/api/v1/templates/{in_path(one['name'])}", fields)
    done = _applied(session.client, plan)
    session.show(_document(plan, done), lambda: _result(plan, done))
    return 1 if done["refused"] else 0


def _new_templates(client: Client, templates: Sequence[Document]) -> list[Document]:
    """Those that are not there already just like that."""
    if not templates:
        return []
    there: dict[str, Document] = {}
    offset = 0  # not the length of `there`: one that comes in between must not hold us for ever
    while found := client.get("/api/v1/templates", limit=_PAGE, offset=offset)["templates"]:
        there |= {one["name"]: template_of(one) for one in found}
        offset += len(found)
    return [one for one in templates if there.get(one["name"]) != one]


# -- before anything is asked --------------------------------------------------------------------


def _checked(source: Source) -> Source:
    """The source without documents that the API would refuse. Where others wrote them, a person
    has to look; where they are ours, the file is wrong."""
    right: list[Found] = []
    looks: list[Look] = []
    for found in source.found:
        why = _wrong_with(found.document)
        if why is None:
            right.append(found)
        elif source.tag is None:
            raise InvalidInput(f"{found.where}: {why}", field="jobs")
        else:
            looks.append(Look(found.where, found.text, why))
    return Source(source.tag, right, [*source.looks, *looks], source.remarks, source.templates)


def _wrong_with(document: Document) -> str | None:
    from pydantic import ValidationError  # noqa: PLC0415 - the API's own rules, when needed

    from evenbeat.api.building import new_job, task_of  # noqa: PLC0415
    from evenbeat.api.schemas import JobCreate  # noqa: PLC0415
    from evenbeat.domain.job import JobSpec  # noqa: PLC0415

    try:
        request = JobCreate.model_validate(document)
        new_job(request, JobSpec(task=task_of(request)), {}, "import")
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        unknown = first["type"] == "extra_forbidden"
        message = str(first["msg"]).removeprefix("Value error, ")
        return f"there is no field {field!r}." if unknown else f"{field}: {message}"
    except InvalidInput as error:
        return str(error)
    return None


# -- what is there -------------------------------------------------------------------------------


def _existing(client: Client, source: Source) -> Existing:
    """The jobs that the source may mean: all of a few, else those of its names, tag and tasks."""
    total = client.get(_JOBS, limit=1)["total"]
    if total <= _FEW:
        return Existing.of(pages(client) if total else ())
    jobs = {job["id"]: job for job in _meant(client, source)}
    return Existing.of(jobs.values())


def _meant(client: Client, source: Source) -> Iterator[Document]:
    if source.tag is not None:
        yield from pages(client, tag=source.tag)
    nameless = {one.document.get("task", "crawl") for one in source.found if not _name(one)}
    for task in sorted(nameless):
        yield from pages(client, task=task)
    for one in source.found:
        if name := _name(one):
            yield from pages(client, name=name)


def _name(found: Found) -> str | None:
    key = key_of(found.document)
    return None if key is None else key[2]


def pages(client: Client, **chosen: Any) -> Iterator[Document]:
    """Every job that matches, oldest first, each once even if others come and go meanwhile."""
    seen: set[str] = set()
    offset = 0
    while True:
        jobs = client.get(_JOBS, **chosen, sort="created_at", limit=_PAGE, offset=offset)["jobs"]
        yield from (job for job in jobs if job["id"] not in seen)
        seen.update(job["id"] for job in jobs)
        if len(jobs) < _PAGE:
            return
        offset += len(jobs)


# -- doing it ------------------------------------------------------------------------------------


def _applied(client: Client, plan: Plan) -> Document:
    """Add what is new, some at a time, each time all or none; then change what differs, one by one.
    Whatever stops it, the same import again does the rest."""
    done: Document = {"added": 0, "changed": 0, "unchanged": len(plan.doing("keep"))}
    done |= {"refused": [], "warnings": []}
    for chunk in _chunks(in_order(plan.doing("add"))):
        try:
            answer = client.post(f"{_JOBS}/bulk", {"jobs": [one.found.document for one in chunk]})
        except Refused as error:
            raise _told(error, chunk, done["added"]) from None
        done["added"] += answer["created"]
        done["warnings"] += answer.get("warnings") or []
    for step in plan.doing("change"):
        try:
            _change(client, step)
            done["changed"] += 1
        except Refused as error:
            if error.exit_code not in (1, 2):
                raise
            done["refused"].append({"where": step.found.where, "why": str(error)})
    done["warnings"] = list(dict.fromkeys(done["warnings"]))
    return done


def _chunks(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """As many jobs as one request may have."""
    chunk: list[Step] = []
    size = 0
    for step in steps:
        own = len(json.dumps(step.found.document))
        if chunk and (len(chunk) == _MOST_JOBS or size + own > _MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(step)
        size += own
    if chunk:
        yield chunk


def _change(client: Client, step: Step) -> None:
    changes = dict(step.changes)
    paused = changes.pop("paused", None)
    if changes:
        client.patch(f"{_JOBS}/{step.job_id}", changes)
    if paused is not None:
        client.post(f"{_JOBS}/{step.job_id}/{'pause' if paused else 'resume'}")


def _told(error: Refused, chunk: Sequence[Step], added: int) -> Refused:
    """The refusal with our names for the jobs, and what was done before it."""

    def named(found: re.Match[str]) -> str:
        number = int(found[1])
        return chunk[number].found.where if number < len(chunk) else found[0]

    message = re.sub(r"\bjobs\.(\d+)\b", named, str(error))
    before = f" {count(added, 'job')} were added before; the same import again goes on there."
    return Refused(message + (before if added else ""), error.exit_code, error.status)


# -- showing -------------------------------------------------------------------------------------


def _document(plan: Plan, done: Document | None = None) -> Document:
    return {
        "applied": done is not None,
        "plan": [
            {
                "where": step.found.where,
                "action": _WORDS[step.action],
                "name": step.found.document.get("name"),
                "schedule_text": step.says,
                "next_run_at": None if step.next_run is None else moment_text(step.next_run),
                "remark": step.found.remark,
                "changes": step.changes or None,
                "job": step.found.document,
                "job_id": step.job_id,
            }
            for step in plan.steps
        ],
        "needs_a_look": [look._asdict() for look in plan.looks],
        "remarks": [remark._asdict() for remark in plan.remarks],
        **(done or {}),
    }


def _view(plan: Plan) -> RenderableType:
    parts: list[RenderableType] = []
    if plan.steps:
        made = table("where", "what", "job…", "when…", "next run", "remark…")
        for step in plan.steps:
            made.add_row(*map(cell, _row(step)))
        parts.append(made)
    if plan.remarks:
        parts += [Text(), heading("Also in there")]
        parts += [Text(f"  {safe(f'{r.where}: {r.text}')}: {r.what}") for r in plan.remarks]
    return Group(*parts, *_looks(plan))


def _row(step: Step) -> tuple[str, ...]:
    found = step.found
    next_run = "" if step.next_run is None else f"{step.next_run:%Y-%m-%d %H:%M:%S} UTC"
    if not next_run and step.action == "add":
        next_run = _unknown_run(found.document)
    remark = ", ".join(sorted(step.changes)) if step.action == "change" else found.remark or ""
    label = found.document.get("name") or found.document.get("task") or found.text
    return found.where, _WORDS[step.action], str(label), step.says, next_run, remark


def _unknown_run(document: Document) -> str:
    if document.get("paused"):
        return "paused"
    if document.get("after") is not None:
        return "after those"
    recurring = any(document.get(name) is not None for name in _RECURRING)
    return "in a balanced place" if recurring else "at once"


_RECURRING = ("schedule", "interval_seconds", "interval_minutes", "schedule_time")


def _looks(plan: Plan) -> list[RenderableType]:
    if not plan.looks:
        return []
    parts: list[RenderableType] = [Text(), heading("Needs a person's look")]
    for look in plan.looks:
        parts.append(Text(f"  {safe(f'{look.where}: {look.text}')}"))
        parts.append(Text(f"    {safe(look.why)}", style="dim"))
    return parts


def _say_what_is_next(plan: Plan) -> None:
    templates = sum(remark.where == "template" for remark in plan.remarks)
    todo = len(plan.doing("add")) + len(plan.doing("change")) + templates
    say(f"{_summary(plan)}. " + ("Nothing was done yet: --apply does it." if todo else _NOTHING))


_NOTHING = "There is nothing to do."


def _summary(plan: Plan) -> str:
    kinds = [(len(plan.doing(action)), word) for action, word in _PLANNED]
    told = [f"{number:,} {word}" for number, word in kinds if number]
    if plan.looks:
        told.append(f"{count(len(plan.looks), 'line')} for a person to look at")
    return ", ".join(told) or "Nothing was found"


_PLANNED: tuple[tuple[Any, str], ...] = (
    ("add", "to add"),
    ("change", "to change"),
    ("keep", "unchanged"),
)


def _result(plan: Plan, done: Document) -> RenderableType:
    for warning in done["warnings"]:
        say(f"Note: {warning}")
    for refused in done["refused"]:
        say(f"{refused['where']}: {refused['why']}")
    told = [f"{done[word]:,} {word}" for word in ("added", "changed", "unchanged") if done[word]]
    if done["refused"]:
        told.append(f"{len(done['refused']):,} refused")
    return Group(Text(f"{', '.join(told) or 'Nothing to do'}."), *_looks(plan))
