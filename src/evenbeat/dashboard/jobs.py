"""Screen 2, the jobs: find them, see how they run, act on one, on some, or on all that match."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from statistics import median, quantiles
from typing import Any, NamedTuple
from uuid import UUID

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from evenbeat import charts, humanize
from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import Operator, Viewer
from evenbeat.api.queries import FilterFields
from evenbeat.dashboard import pages
from evenbeat.dashboard.pages import Form, FormDep, Notice, PageDep, PageRequest, id_of, parse
from evenbeat.domain.job import JobRecord
from evenbeat.domain.runner_load import STOPPING
from evenbeat.domain.states import DELETE, VERBS, JobStatus, Verb
from evenbeat.errors import InvalidInput, NotFound, RoleTooLow
from evenbeat.observe.explain import describe_schedule
from evenbeat.store.control import Changes
from evenbeat.store.lists import EXACT_ROWS, MAX_OFFSET, JobFilter
from evenbeat.store.summaries import PastRun
from evenbeat.store.undo import MOST_UNDONE

router = pages.router()

PAGE_SIZE = 25
RUNS_SHOWN = 20
_LAST_PAGE = MAX_OFFSET // PAGE_SIZE + 1
_FILTERS = ("status", "queue", "task", "kind", "tag", "search", "batch")
_SORTS = {"-created_at": "Newest first", "next_run_at": "Next run first", "name": "By name"}
_MOST_OPTIONS = 200
_MOST_UNTYPED = 100
"""Whoever deletes more jobs than that types how many they are."""


class RunFigures(NamedTuple):
    """A job's latest runs in figures."""

    runs: int
    failed: int
    success: float | None
    median_ms: float | None
    p95_ms: float | None


@router.get("/jobs", name="jobs")
def jobs(page: PageDep, _viewer: Viewer) -> Response:
    read, query = page.store.read, page.query
    sort = query.text("sort") if query.text("sort") in _SORTS else "-created_at"
    offset = (page.number(_LAST_PAGE) - 1) * PAGE_SIZE
    listed = read.jobs(filter_of(query), sort=sort, limit=PAGE_SIZE, offset=offset)
    runs = read.last_outcomes([job.id for job in listed.jobs], RUNS_SHOWN)
    states, (counts, _) = read.counts_by_status(), read.job_counts()
    # To choose from: what was counted, what is listed, what is selected.
    queues = {count.queue for count in counts} | {job.queue for job in listed.jobs}
    tasks = {count.task for count in counts} | {job.task for job in listed.jobs}
    total, selected = sum(states.values()), query.many("status")

    def address(**changes: str) -> str:
        """This list with some fields of its address replaced, or left out if empty."""
        rest = parse(query.without(*changes).encode()).pairs
        return page.url("jobs", query=[*rest, *((k, v) for k, v in changes.items() if v)])

    # All jobs, then each state that occurs or is selected.
    tabs = [("All", address(status="", page=""), total, not selected)]
    for state in JobStatus:
        if states.get(state) or state in selected:
            link, number = address(status=state, page=""), states.get(state, 0)
            tabs.append((state.capitalize(), link, number, selected == [state]))
    rows = []
    for job in listed.jobs:
        past = runs[job.id]
        row = {
            "job": job,
            "schedule": describe_schedule(job),
            "tags": tags_of(job),
            "last": past[-1] if past else None,
            "strip": charts.outcome_strip([run.status for run in past], RUNS_SHOWN) if past else "",
            "median_ms": run_figures(past).median_ms,
            "verbs": verbs_for(job),
        }
        rows.append(row)
    return page.render(
        "jobs.html",
        rows=rows,
        page=page.pager(
            lambda number: address(page=str(number) if number > 1 else ""),
            PAGE_SIZE,
            len(listed.jobs),
            listed.total,
            about=listed.total_is_estimate,
            last=_LAST_PAGE,
        ),
        all_jobs=total,
        tabs=tabs,
        query=query,
        narrowed=[name for name in _FILTERS if query.many(name)],
        sort=sort,
        # By name only where sorting all of them is quick.
        sorts={key: label for key, label in _SORTS.items() if key != "name" or total <= EXACT_ROWS},
        options={
            "queue": sorted(queues.union(query.many("queue")))[:_MOST_OPTIONS],
            "task": sorted(tasks.union(query.many("task")))[:_MOST_OPTIONS],
        },
        verbs=list(VERBS.values()),
    )


def run_figures(past: list[PastRun]) -> RunFigures:
    """Sum up the runs that ended by themselves."""
    ended = [run for run in past if run.status in ("completed", "failed")]
    completed = [run.duration_ms for run in ended if run.status == "completed"]
    durations = sorted(duration for duration in completed if duration is not None)
    return RunFigures(
        len(ended),
        len(ended) - len(completed),
        len(completed) / len(ended) if ended else None,
        median(durations) if durations else None,
        quantiles(durations, n=20, method="inclusive")[-1] if len(durations) > 1 else None,
    )


def tags_of(job: JobRecord) -> list[str]:
    """The tags in a job's metadata, which may hold anything."""
    tags = job.metadata.get("tags")
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def verbs_for(job: JobRecord) -> list[Verb]:
    return [verb for verb in VERBS.values() if verb.suits(job.status, job.is_paused)]


def filter_of(query: Form) -> JobFilter:
    """The filter in an address, under the names that the API has for it."""
    fields: dict[str, Any] = {name: query.many(name) for name in _FILTERS if query.many(name)}
    for name in fields.keys() & {"search", "batch"}:
        fields[name] = fields[name][-1]
    try:
        return FilterFields.model_validate(fields).job_filter()
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


@router.post("/jobs/actions", name="job_actions")
def job_actions(page: PageDep, operator: Operator, form: FormDep) -> Response:
    """A verb for one job, a selection, or all that match; larger steps are confirmed first. A row's
    own button names verb and job together, the others act on ticks or on the filter."""
    only, _, job_id = form.text("only").partition(":")
    name, query = only or form.text("verb"), form.text("query")
    if name not in VERBS:
        text = f"There is no verb {name[:40]!r}; there are: {', '.join(VERBS)}."
        raise InvalidInput(text, field="verb")
    verb = VERBS[name]
    target: list[UUID] | JobFilter = [id_of(text) for text in form.many("id")]
    if only:
        target = [id_of(job_id)]
    elif form.flag("all"):
        target = filter_of(parse(query.encode()))
    if isinstance(target, JobFilter) and name == "delete" and operator.role is not Role.ADMIN:
        raise RoleTooLow(Role.ADMIN, operator.role)
    gone = name == "delete" and form.text("next_without_it")
    to = page.safe_path(gone or form.text("next"), page.url("jobs"))
    if target == []:
        return page.back(to, Notice("Select some jobs first.", "refused"))
    is_large = verb.always_ask or isinstance(target, JobFilter) or len(target) > 1
    shown, typed = form.text("shown"), form.text("typed").replace(",", "")
    if is_large and (not form.flag("confirmed") or (shown and typed != shown)):
        return confirmation(page, verb, target, query, to, mistyped=bool(shown))
    return page.back(to, apply(page, verb, target))


def apply(page: PageRequest, verb: Verb, target: Sequence[UUID] | JobFilter) -> Notice:
    """Do it, to some jobs or to all that match, and report how many were changed or skipped."""
    control, now, reason, undo = page.store.control, page.service.now, "", None
    if isinstance(target, JobFilter) and verb.can_be_undone:
        ids = page.store.read.ids(target, limit=MOST_UNDONE + 1)
        target = ids if len(ids) <= MOST_UNDONE else target
    if isinstance(target, JobFilter):
        changed, refused = control.everywhere(target, lambda ids: control.apply(verb, ids, now=now))
    else:
        changes, ids = Changes([], []), list(target)

        def act() -> list[JobRecord]:
            nonlocal changes
            changes = control.apply(verb, ids, now=now)
            return changes.changed

        if verb.can_be_undone:
            undo = page.store.undo.around(ids, act, now=now)
        else:
            act()
        changed, refused = len(changes.changed), len(changes.refused)
        reason = str(changes.refused[0].error()) if changes.refused else ""
    done = f"{verb.notice} {humanize.count(changed, 'job')}"
    skipped = f"{humanize.count(refused, 'job was', 'jobs were')} skipped."
    if not changed and refused:
        return Notice(reason if refused == 1 and reason else skipped, "refused")
    text = f"{done}; {skipped} {reason}" if refused else f"{done}."
    return undoable(page, text, undo)


def undoable(page: PageRequest, text: str, undo: UUID | None) -> Notice:
    """What was done, with a button that takes it back."""
    offer = ("done", "Undo", page.url("undo", undo_id=undo)) if undo else ()
    return Notice(text, *offer)


@router.post("/undo/{undo_id}", name="undo")
def undo(page: PageDep, undo_id: str, _operator: Operator, form: FormDep) -> Response:
    """Take back what a notice offers to take back."""
    to = page.safe_path(form.text("next"), page.url("jobs"))
    try:
        jobs, stay = page.store.undo.take_back(id_of(undo_id, "undo"), now=page.service.now)
    except NotFound:
        return page.back(to, Notice("This was taken back before, or is over a day ago.", "refused"))
    text = f"Taken back: {humanize.count(len(jobs), 'job is', 'jobs are')} as before."
    if stay:
        text += f" {humanize.count(stay, 'job has', 'jobs have')} changed since: left alone."
    return page.back(to, Notice(text, "done" if jobs else "refused"))


def confirmation(
    page: PageRequest,
    verb: Verb,
    target: list[UUID] | JobFilter,
    query: str,
    to: str,
    *,
    mistyped: bool = False,
) -> Response:
    """Ask before a verb is done to several jobs."""
    read, ids = page.store.read, [] if isinstance(target, JobFilter) else target
    values: dict[str, Any] = {"verb": verb, "to": to, "ids": ids, "query": query, "name": ""}
    values |= {"mistyped": mistyped, "most_untyped": _MOST_UNTYPED if verb is DELETE else inf}
    if isinstance(target, JobFilter):
        listed = read.jobs(target, limit=1)
        values |= {"number": listed.total, "about": listed.total_is_estimate}
    else:
        values |= {"number": len(ids), "about": False}
        if len(ids) == 1:
            job = read.job(ids[0])
            values["name"] = job.name or job.task
    stops = verb.leads_to in (JobStatus.CANCELLED, None)
    values["stopping"] = effects_of_stopping(page, target) if stops else ()
    is_run = verb.leads_to is JobStatus.CANCELLED and len(ids) == 1 and job.schedule_kind != "once"
    values["run_only"] = job.lock_token if is_run else None
    return page.render("confirm.html", **values)


def effects_of_stopping(page: PageRequest, target: list[UUID] | JobFilter) -> list[str]:
    """What it means for those of these jobs that are running, by where they run."""
    read, which = page.store.read, target if isinstance(target, JobFilter) else JobFilter()
    running = read.jobs(replace(which, statuses=[JobStatus.RUNNING]), limit=_MOST_OPTIONS).jobs
    tasks = {job.task for job in running if isinstance(target, JobFilter) or job.id in target}
    known = read.tasks(now=page.service.now) if tasks else []
    runners = {task.runner for task in known if task.name in tasks}
    return [text for runner, text in STOPPING.items() if runner in runners]
