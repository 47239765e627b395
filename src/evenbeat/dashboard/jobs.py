"""Screen 2, the jobs: find them, see how they run, act on one, on some, or on all that match."""

from statistics import median
from typing import Any, NamedTuple
from uuid import UUID

from fastapi import Request, Response
from pydantic import ValidationError

from evenbeat import charts, humanize
from evenbeat.api.auth.tokens import Role
from evenbeat.api.dependencies import Operator, Service, ServiceDep, Viewer
from evenbeat.api.queries import FilterFields
from evenbeat.dashboard import pages
from evenbeat.dashboard.forms import Form, FormDep, QueryDep, id_of, parse
from evenbeat.dashboard.pages import Notice
from evenbeat.domain.job import Job
from evenbeat.domain.states import VERBS, JobStatus, Verb
from evenbeat.errors import InvalidInput, RoleTooLow
from evenbeat.observe.explain import describe_schedule
from evenbeat.store.filters import JobFilter
from evenbeat.store.lists import EXACT_ROWS, MAX_OFFSET
from evenbeat.store.summaries import PastRun

router = pages.router()

PAGE_SIZE = 25
RUNS_SHOWN = 20
_LAST_PAGE = MAX_OFFSET // PAGE_SIZE + 1
_FILTERS = ("status", "queue", "task", "kind", "tag", "search")
_SORTS = {"-created_at": "Newest first", "next_run_at": "Next run first", "name": "By name"}
_MOST_OPTIONS = 200


class JobRow(NamedTuple):
    """A job as the list shows it."""

    job: Job
    schedule: str
    tags: list[str]
    last: PastRun | None
    strip: str
    median_ms: float | None
    verbs: list[Verb]


class Tab(NamedTuple):
    """A state to choose, with the number of jobs in it."""

    label: str
    address: str
    number: int
    is_selected: bool


class Action(NamedTuple):
    """What a form asks for: a verb, for these jobs or for all that match its query."""

    verb: Verb
    target: list[UUID] | JobFilter
    query: str = ""

    @property
    def needs_confirmation(self) -> bool:
        """Whether to ask first."""
        many = isinstance(self.target, JobFilter) or len(self.target) > 1
        return many or self.verb.always_ask


@router.get("/jobs", name="jobs")
def jobs(request: Request, _viewer: Viewer, service: ServiceDep, query: QueryDep) -> Response:
    """A page of the jobs that match the address."""
    read, number = service.app.store.read, pages.page_number(query, _LAST_PAGE)
    sort = query.text("sort") if query.text("sort") in _SORTS else "-created_at"
    offset = (number - 1) * PAGE_SIZE
    page = read.jobs(filter_of(query), sort=sort, limit=PAGE_SIZE, offset=offset)
    runs = read.last_outcomes([job.id for job in page.jobs], RUNS_SHOWN)
    states, (counts, _) = read.counts_by_status(), read.job_counts()
    # To choose from: what was counted, what is listed, what is selected.
    queues = {count.queue for count in counts} | {job.queue for job in page.jobs}
    tasks = {count.task for count in counts} | {job.task for job in page.jobs}
    total = sum(states.values())
    return pages.render(
        request,
        "jobs.html",
        now=pages.now_of(request),
        rows=[_row(job, runs[job.id]) for job in page.jobs],
        page=pages.pager(
            number,
            PAGE_SIZE,
            len(page.jobs),
            page.total,
            lambda n: _address(request, query, page=str(n) if n > 1 else ""),
            about=page.total_is_estimate,
            last_page=_LAST_PAGE,
        ),
        all_jobs=total,
        tabs=_tabs(request, query, states),
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


@router.post("/jobs/actions", name="job_actions")
def job_actions(
    request: Request, operator: Operator, service: ServiceDep, form: FormDep
) -> Response:
    """A verb for one job, a selection, or all that match; larger steps are confirmed first."""
    action = _action(form)
    verb, target = action.verb, action.target
    if isinstance(target, JobFilter) and verb.name == "delete" and operator.role is not Role.ADMIN:
        raise RoleTooLow(Role.ADMIN, operator.role)
    gone = verb.name == "delete" and form.text("next_without_it")
    to = pages.safe_path(request, gone or form.text("next"), pages.url(request, "jobs"))
    if target == []:
        return pages.back(request, to, Notice("Select some jobs first.", "refused"))
    if action.needs_confirmation and not form.flag("confirmed"):
        return _confirmation(request, service, action, to)
    return pages.back(request, to, _apply(service, verb, target))


def _apply(service: Service, verb: Verb, target: list[UUID] | JobFilter) -> Notice:
    """Do it, to some jobs or to all that match, and report how many were changed or skipped."""
    control, now, reason = service.app.store.control, service.now, ""
    if isinstance(target, JobFilter):
        changed, refused = control.everywhere(target, lambda ids: control.apply(verb, ids, now=now))
    else:
        changes = control.apply(verb, target, now=now)
        changed, refused = len(changes.changed), len(changes.refused)
        reason = str(changes.refused[0].error()) if changes.refused else ""
    done = f"{verb.notice} {humanize.count(changed, 'job')}"
    skipped = f"{humanize.count(refused, 'job was', 'jobs were')} skipped."
    if not refused:
        return Notice(f"{done}.")
    if not changed:
        return Notice(reason if refused == 1 and reason else skipped, "refused")
    return Notice(f"{done}; {skipped} {reason}")


def filter_of(query: Form) -> JobFilter:
    """The filter in an address, under the names that the API has for it."""
    fields: dict[str, Any] = {name: query.many(name) for name in _FILTERS if query.many(name)}
    if "search" in fields:
        fields["search"] = fields["search"][-1]
    try:
        return FilterFields.model_validate(fields).job_filter()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "filter"
        raise InvalidInput(f"{name}: {first['msg']}.", field=name) from None


def _action(form: Form) -> Action:
    """A row's own button names verb and job together; the others act on ticks or on the filter."""
    only, _, job_id = form.text("only").partition(":")
    name, query = only or form.text("verb"), form.text("query")
    if name not in VERBS:
        text = f"There is no verb {name[:40]!r}; there are: {', '.join(VERBS)}."
        raise InvalidInput(text, field="verb")
    verb = VERBS[name]
    if only:
        return Action(verb, [id_of(job_id)])
    if form.flag("all"):
        return Action(verb, filter_of(parse(query.encode())), query)
    return Action(verb, form.ids())


def _confirmation(request: Request, service: Service, action: Action, to: str) -> Response:
    read, about, name = service.app.store.read, False, ""
    ids: list[UUID] = []
    if isinstance(action.target, JobFilter):
        page = read.jobs(action.target, limit=1)
        number, about = page.total, page.total_is_estimate
    else:
        ids = action.target
        number = len(ids)
        if number == 1:
            job = read.job(ids[0])
            name = job.name or job.task
    return pages.render(
        request,
        "confirm.html",
        verb=action.verb,
        number=number,
        about=about,
        name=name,
        ids=ids,
        query=action.query,
        by_filter=not ids,
        to=to,
    )


def tags_of(job: Job) -> list[str]:
    """The tags in a job's metadata, which may hold anything."""
    tags = job.metadata.get("tags")
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def _row(job: Job, runs: list[PastRun]) -> JobRow:
    completed = [run.duration_ms for run in runs if run.status == "completed"]
    durations = [duration for duration in completed if duration is not None]
    return JobRow(
        job,
        describe_schedule(job),
        tags_of(job),
        runs[-1] if runs else None,
        charts.outcome_strip([run.status for run in runs], RUNS_SHOWN) if runs else "",
        median(durations) if durations else None,
        [verb for verb in VERBS.values() if verb.suits(job.status, job.is_paused)],
    )


def _tabs(request: Request, query: Form, states: dict[str, int]) -> list[Tab]:
    """All jobs, then each state that occurs or is selected."""
    selected = query.many("status")
    states = {"": sum(states.values())} | {
        str(state): states.get(state, 0)
        for state in JobStatus
        if states.get(state) or state in selected
    }
    return [
        Tab(
            state.capitalize() or "All",
            _address(request, query, status=state, page=""),
            number,
            selected == [state] or not (state or selected),
        )
        for state, number in states.items()
    ]


def _address(request: Request, query: Form, **changes: str) -> str:
    """This list with some fields of its address replaced, or left out if empty."""
    rest = parse(query.without(*changes).encode()).pairs
    return pages.url(request, "jobs", query=[*rest, *((k, v) for k, v in changes.items() if v)])
