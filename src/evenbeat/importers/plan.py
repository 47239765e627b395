"""What an import would do: compare what a source says with the jobs that are there. Pure.

Jobs are the same by scope and name. From elsewhere (a source with a tag), only what runs and when
is compared, so that what was tuned here since stays. Evenbeat's own documents count in every field
that they give.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from evenbeat.api.requests import WORDING
from evenbeat.compat.words import OLDER_SCHEDULE, modern_fields
from evenbeat.domain.job import BY_NAME
from evenbeat.domain.moments import as_utc
from evenbeat.domain.schedule import (
    After,
    Cron,
    Interval,
    Once,
    Recurring,
    Schedule,
    schedule_from_fields,
)
from evenbeat.domain.states import FINISHED
from evenbeat.errors import InvalidInput
from evenbeat.importers.files import definition_of
from evenbeat.importers.source import (
    Document,
    ImportSource,
    NeedsReview,
    ParsedJob,
    Remark,
    moment_of,
    moment_text,
)

Action = Literal["add", "change", "unchanged"]
Key = tuple[str, str, str]

_FROM_ELSEWHERE = ("task", "payload", "schedule", "timezone", "anchor_at", "run_at", "after")
_NOT_COMPARED = {"delay", "scope", "name", "schedule_enabled"}


class ImportStep(NamedTuple):
    """What becomes of one job of the source."""

    parsed: ParsedJob
    action: Action
    says: str
    next_run: datetime | None
    changes: Document
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What an import would do, and what it leaves to a person."""

    steps: list[ImportStep]
    reviews: list[NeedsReview]
    remarks: list[Remark]

    def doing(self, action: Action) -> list[ImportStep]:
        return [step for step in self.steps if step.action == action]


def key_of(document: Mapping[str, Any]) -> Key | None:
    """Scope and name, by which a job is known; None for one without a name."""
    scope = document.get("scope") or {}
    name = document.get("name")
    return None if name is None else (scope.get("kind", "global"), scope.get("id", "global"), name)


def plan_of(source: ImportSource, jobs: Iterable[Mapping[str, Any]], now: datetime) -> Plan:
    """What importing the source would do to the jobs that are there, as the API answers them."""
    named: dict[Key, Mapping[str, Any]] = {}
    nameless: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for job in jobs:
        if job["parent_id"] is not None:
            continue  # what a parent made is its own
        if (key := key_of(job)) is not None:
            named[key] = job
        else:
            nameless[_fingerprint(definition_of(job))].append(job)
    plan = Plan([], list(source.reviews), list(source.remarks))
    keys: set[Key | None] = set()
    for parsed in source.jobs:
        document, key = parsed.document, key_of(parsed.document)
        if key is not None and key in keys:
            why = f"Another one of this source gets the name {key[2]!r}, too. Rename one there."
            plan.reviews.append(NeedsReview(parsed.where, parsed.text, why))
            continue
        keys.add(key)
        try:
            present = named.get(key) if key else _alike(document, nameless)
            plan.steps.append(_step(parsed, source.tag, present, now))
        except InvalidInput as error:
            plan.reviews.append(NeedsReview(parsed.where, parsed.text, str(error)))
    # What was imported from here once and is no longer there would still run.
    for key, job in named.items():
        if source.tag in job["tags"] and key not in keys and job["status"] not in FINISHED:
            why = (
                f"It was imported from here once as {job['name']!r}, still runs, and is no longer "
                f"there. If it is not wanted: evenbeat job delete {job['name']}"
            )
            plan.reviews.append(NeedsReview("gone", job["description"] or job["name"], why))
    return plan


def _alike(
    document: Document, nameless: Mapping[str, list[Mapping[str, Any]]]
) -> Mapping[str, Any] | None:
    """For a job without a name: one that is defined alike and that no other line has taken."""
    desired = canonical(document)
    jobs = nameless.get(_fingerprint(desired), [])
    for job in jobs:
        if not _different(desired, job):
            jobs.remove(job)
            return job
    return None


def _step(
    parsed: ParsedJob, tag: str | None, job: Mapping[str, Any] | None, now: datetime
) -> ImportStep:
    """What to do about one job; raises InvalidInput where a person has to decide."""
    document = parsed.document
    schedule = schedule_of(document)
    if job is None:
        return ImportStep(
            parsed, "add", schedule.describe(), _next_run(document, schedule, now), {}
        )
    if tag is not None and tag not in job["tags"]:
        raise InvalidInput(
            f"A job named {document['name']!r} is there already, and was not imported from here. "
            "Rename one of them."
        )
    desired = canonical(document)
    compared = desired if tag is None else {n: desired[n] for n in _FROM_ELSEWHERE if n in desired}
    changes = _different(compared, job)
    if "schedule" in changes:  # in the source's own words, so that they are answered again
        changes |= {name: document[name] for name in OLDER_SCHEDULE if name in document}
    if tag is not None and changes and desired.get("description") != job["description"]:
        changes["description"] = desired.get("description")
    if "dedup_key" in changes:
        raise InvalidInput("Its dedup_key differs, which cannot be changed.")
    next_run = None if job["next_run_at"] is None else datetime.fromisoformat(job["next_run_at"])
    if not changes:
        return ImportStep(parsed, "unchanged", job["schedule_text"], next_run, {}, job["id"])
    if {"schedule", "timezone", "anchor_at", "run_at"} & changes.keys():
        next_run = _next_run(document, schedule, now)
    return ImportStep(parsed, "change", schedule.describe(), next_run, changes, job["id"])


def _different(desired: Document, job: Mapping[str, Any]) -> Document:
    """The desired fields whose values are not the job's."""
    present = canonical(definition_of(job))
    different = {
        name: value
        for name, value in desired.items()
        if name not in _NOT_COMPARED and value != present.get(name, _DEFAULTS.get(name))
    }
    recurring = job["schedule_kind"] != "once"
    if recurring and "schedule" not in desired and "after" not in desired:
        return different | {"after" if job["schedule_kind"] == After.kind else "schedule": None}
    if recurring or _ran_or_will_run_then(desired, job):
        different.pop("run_at", None)
    if different.keys() & {"schedule", "timezone"}:
        different |= {name: desired[name] for name in ("schedule", "timezone") if name in desired}
    return different


_DEFAULTS: Document = {"paused": False, "payload": {}, "tags": [], "timezone": "UTC"}


def _ran_or_will_run_then(desired: Document, job: Mapping[str, Any]) -> bool:
    """A job that ran when it should is as it should be, although its time has passed."""
    if job["status"] in FINISHED or job["plan_time"] is None or "run_at" not in desired:
        return True
    plan = as_utc(datetime.fromisoformat(job["plan_time"]))
    return plan == moment_of(desired["run_at"], "run_at")


def _fingerprint(document: Document) -> str:
    return json.dumps([document.get("task"), document.get("payload") or {}], sort_keys=True)


def canonical(document: Mapping[str, Any]) -> Document:
    """The document with one way to write each thing; null says nothing. Raises InvalidInput."""
    fields = {name: value for name, value in document.items() if value is not None}
    fields = modern_fields(fields)
    written = fields.pop(WORDING, None) or {}
    if wording := {name: value for name, value in written.items() if value is not None}:
        fields["metadata"] = {**fields.get("metadata", {}), WORDING: wording}
    sources = {n: fields.pop(n) for n in ("url", "source_id", "source_name") if n in fields}
    if sources:
        fields["payload"] = {**fields.get("payload", {}), **sources}
        fields.setdefault("task", "crawl")
    for name in fields.keys() & BY_NAME.keys():
        kind = BY_NAME[name].kind
        fields[name] = kind.to_json(kind.parse(name, fields[name]))
    for name in ("run_at", "anchor_at"):
        if name in fields:
            fields[name] = moment_text(moment_of(fields[name], name))
    if "tags" in fields:
        fields["tags"] = list(dict.fromkeys(fields["tags"]))
    schedule = schedule_of(fields)
    for name in ("schedule", "interval_seconds", "timezone", "after", "after_on"):
        fields.pop(name, None)
    fields |= {name: getattr(schedule, name) for name in ("timezone",) if hasattr(schedule, name)}
    if isinstance(schedule, Cron):
        schedule = schedule.placed(None)
    if schedule.text is not None:
        fields["schedule"] = schedule.text
    if isinstance(schedule, After):
        fields["after"] = [{"job": str(one.job), "on": str(one.on)} for one in schedule.jobs]
    return fields


def schedule_of(document: Mapping[str, Any]) -> Schedule:
    """The schedule that the fields of a document describe."""
    if document.get("schedule_enabled") is False:
        return Once()
    fields = modern_fields(dict(document))
    for name in ("run_at", "anchor_at"):
        if fields.get(name) is not None:
            fields[name] = moment_of(fields[name], name)
    schedule = schedule_from_fields(fields)
    return Once(fields.get("run_at")) if isinstance(schedule, Once) else schedule


def _next_run(document: Document, schedule: Schedule, now: datetime) -> datetime | None:
    """The first run of a new job where it is known beforehand; a balanced one gets its place when
    it is added."""
    if document.get("paused"):
        return None
    if document.get("run_at") is not None:
        return max(now, moment_of(document["run_at"], "run_at"))
    if isinstance(schedule, Interval) and schedule.anchor is None:
        return None
    return schedule.next_after(now) if isinstance(schedule, Recurring) else None
